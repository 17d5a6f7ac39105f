"""Conditions: what is wrong now, since when, whom it affects, what was done, what to do next.

One cause is one condition. Things that are wrong in the same way are one condition, too, so that
the list is short however large the fabric is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Final

from hydra.errors import UnknownName
from hydra.faults.quarantine import Quarantined
from hydra.faults.server_links import Dead, named
from hydra.journal import JournalError
from hydra.lifecycle import ReservationState
from hydra.model import Fabric, NetworkState, Path, PlaneId, PortId, RackId
from hydra.names import rack_of
from hydra.reconfiguration.drift import Drift
from hydra.reconfiguration.plan import Pair, pair_of
from hydra.reconfiguration.readiness import MovedPort
from hydra.reservations.admission import moment
from hydra.reservations.reservation import GONE, Reservation, ServiceClass
from hydra.roles import Alarm

_NAMED: Final = 5
"""Most things that a sentence names; others are counted."""
_MOST: Final = 20
"""Most conditions of a kind that are told apart; the others are one condition together."""
_MISSED_S: Final = 86_400.0
"""Seconds for which a reservation without an end counts as missed after it has failed."""


class ConditionKind(StrEnum):
    """Kinds of conditions, the most urgent first."""

    STORE_UNAVAILABLE = "store-unavailable"
    """Of controllers that share a store: it does not answer, so that none of them leads."""
    JOURNAL_FAILED = "journal-failed"
    RESERVATION_FAILED = "reservation-failed"
    OPTICAL_SWITCH_DOWN = "optical-switch-down"
    TOR_DOWN = "tor-down"
    SWITCH_NOT_CONNECTED = "switch-not-connected"
    SWITCH_REFUSED = "switch-refused"
    """Switches that try to connect, and that a setting keeps out: OpenFlow's version, or TLS."""
    SWITCH_NOT_ANSWERING = "switch-not-answering"
    """Switches whose connection stands, and that owe an answer whose time is up."""
    RULES_REFUSED = "rules-refused"
    """A switch has no room for the rules of its circuits, or does not know some of them."""
    UNCONFIRMED = "unconfirmed"
    """Devices and switches that answer, and have not confirmed the present state."""
    PORT_RENUMBERED = "port-renumbered"
    """Ports with another OpenFlow number than their switch's rules name."""
    WORKER_REFUSED = "worker-refused"
    """Workers that speak another version of their protocol than the controller."""
    TAKEOVER_AT_RISK = "takeover-at-risk"
    """Members of a store, clocks or files of controllers that a takeover would suffer from."""
    PORT_QUARANTINED = "port-quarantined"
    PORT_ON_TRIAL = "port-on-trial"
    UPLINK_DEAD = "uplink-dead"
    ALARM = "alarm"
    FOREIGN_FRAMES = "foreign-frames"
    """Servers of which the source check drops frames."""
    DRIFT = "drift"
    STALE_COUNTERS = "stale-counters"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong."""

    kind: ConditionKind
    subjects: tuple[str, ...]
    """Names of the things that it is wrong with."""
    what: str
    since_unix_s: float
    done: str
    """The controller's action, in words."""
    to_do: str
    """The next step for people, in words."""
    command: str
    """The command for that, or the one that shows more."""
    pairs: tuple[Pair, ...] = ()
    """Rack pairs that it affects."""
    reservations: tuple[str, ...] = ()
    """Ids of the reservations that it affects."""


@dataclass(frozen=True, slots=True)
class MissingSwitch:
    name: str
    serves: str
    """The server, or the rack, whose traffic it steers."""
    rack: RackId | None
    """The rack whose traffic it steers; None: it steers none."""


@dataclass(frozen=True, slots=True)
class RefusedSwitch:
    name: str
    """The switch's name; its address if it has not told its datapath id, or a strange one."""
    why: str
    """A sentence, with the remedy."""


@dataclass(frozen=True, slots=True)
class RefusedWorker:
    name: str
    why: str
    """A sentence, with the remedy."""


@dataclass(frozen=True, slots=True)
class TakeoverRisk:
    name: str
    """A member of the store, or a controller."""
    why: str
    """A sentence, with the remedy."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a moment, of things that work and of those that don't."""

    fabric: Fabric
    state: NetworkState
    now_unix_s: float
    reservations: Sequence[Reservation] = ()
    quarantine: Sequence[Quarantined] = ()
    planes_down: Mapping[PlaneId, str] = field(default_factory=dict)
    """Optical switches that can't be commanded, with the reason."""
    tors_down: Mapping[RackId, str] = field(default_factory=dict)
    switches_away: Sequence[MissingSwitch] = ()
    switches_mute: Sequence[MissingSwitch] = ()
    """Switches that are connected, and do not answer."""
    rules_refused: Mapping[MissingSwitch, str] = field(default_factory=dict)
    """Switches that refuse rules of their circuits, with the refusal in a sentence."""
    meters_refused: Mapping[MissingSwitch, str] = field(default_factory=dict)
    """Switches that refuse their meters, with the refusal."""
    unconfirmed: Collection[str] = ()
    dead_uplinks: Collection[str] = ()
    """Servers whose uplink to their ToR is down, or closed to circuits."""
    alarms: Mapping[str, Sequence[Alarm]] = field(default_factory=dict)
    """Alarms that stand, by optical switch."""
    drift: Sequence[Drift] = ()
    stale: Collection[str] = ()
    """Servers, or racks, whose counters are late."""
    patience_s: float = 0.0
    """Seconds for which counters may be late: those of a switch that is new have yet to be read."""
    journal_failure: tuple[float, JournalError] | None = None
    """When the journal could not be written first, in Unix seconds, and why it can't now."""
    fitting: Callable[[Sequence[Reservation]], Mapping[str, float]] = lambda _: {}
    """Mbps of reservations that have failed which would fit now, by id; absent: none would."""
    workers_refused: Sequence[RefusedWorker] = ()
    switches_refused: Sequence[RefusedSwitch] = ()
    takeover_risks: Sequence[TakeoverRisk] = ()
    moved_ports: Sequence[MovedPort] = ()
    one_way_uplinks: Dead = field(default_factory=dict)
    """Directions of servers' uplinks that are dead, although there is carrier."""
    sending_foreign: Collection[str] = ()
    """Servers of which the source check has dropped frames of late."""


class Watch:
    """Remembers since when things are wrong that can't tell by themselves."""

    def __init__(self) -> None:
        self._since: dict[ConditionKind, dict[str, float]] = {}

    def conditions(self, facts: Facts) -> tuple[Condition, ...]:
        """All conditions, the most urgent kind first and of each kind the oldest first."""
        found = sorted(self._find(facts), key=lambda one: one.since_unix_s)
        by_kind = {kind: [one for one in found if one.kind is kind] for kind in ConditionKind}
        return tuple(one for same in by_kind.values() for one in _bounded(same))

    def _first_seen(
        self, kind: ConditionKind, names: Iterable[str], facts: Facts
    ) -> Mapping[str, float]:
        """When each of these was seen first; others of the kind are forgotten.

        If the clock was set back since, that is now.
        """
        before, now_s = self._since.get(kind, {}), facts.now_unix_s
        self._since[kind] = {name: min(before.get(name, now_s), now_s) for name in names}
        return self._since[kind]

    def _find(self, facts: Facts) -> Iterator[Condition]:
        missed = self._missed(facts)
        yield from _journal(facts)
        yield from _reservations(facts, missed)
        yield from self._planes(facts)
        yield from self._tors(facts)
        yield from self._switches(facts)
        yield from _ports(facts, [one for one, _ in missed])
        yield from self._others(facts)

    def _missed(self, facts: Facts) -> list[tuple[Reservation, float]]:
        """Reservations that have failed, and since when, the oldest first.

        Until their time is up (a day, if they have no end), they are released, or another one was
        made in their place.
        """
        failed = [one for one in facts.reservations if one.state is ReservationState.FAILED]
        if not failed:
            return []
        names = (one.id for one in failed)
        seen = self._first_seen(ConditionKind.RESERVATION_FAILED, names, facts)
        latest: dict[object, float] = {}
        for one in facts.reservations:
            if one.state is not ReservationState.FAILED:  # also one that is over by now
                latest[_whose(one)] = max(latest.get(_whose(one), 0.0), one.created_unix_s)
        missed = []
        for one in failed:
            since_s = seen[one.id] if one.since_unix_s is None else one.since_unix_s
            end_s = since_s + _MISSED_S if one.expires_unix_s is None else one.expires_unix_s
            if facts.now_unix_s < end_s and latest.get(_whose(one), 0.0) < since_s:
                missed.append((one, since_s))
        return sorted(missed, key=lambda one: one[1])

    def _planes(self, facts: Facts) -> Iterator[Condition]:
        kind, fabric = ConditionKind.OPTICAL_SWITCH_DOWN, facts.fabric
        names = {plane: fabric.planes[plane].name for plane in facts.planes_down}
        since = self._first_seen(kind, names.values(), facts)
        for plane, reason in facts.planes_down.items():
            standing = sum(one.plane == plane for one in facts.state.topology.circuits)
            pairs, reservations = _on(facts, planes={plane})
            yield Condition(
                kind,
                (names[plane],),
                f"optical switch {names[plane]} can't be commanded: "
                f"{reason.removeprefix(f'{names[plane]}: ')}",
                since[names[plane]],
                f"left out of plans; circuits that stand on it ({standing}) stay as its mirrors "
                "are, and can't be moved",
                "mend it; it is read and tidied when it answers",
                f"hydra device show {names[plane]}",
                pairs,
                reservations,
            )

    def _tors(self, facts: Facts) -> Iterator[Condition]:
        kind = ConditionKind.TOR_DOWN
        names = {rack: facts.fabric.racks[rack].name for rack in facts.tors_down}
        since = self._first_seen(kind, names.values(), facts)
        for rack, reason in facts.tors_down.items():
            pairs, reservations = _on(facts, racks={rack})
            yield Condition(
                kind,
                (names[rack],),
                f"ToR {names[rack]} can't be commanded: {reason.removeprefix(f'{names[rack]}: ')}",
                since[names[rack]],
                "its rack is left out of plans, and its circuits stay where they are",
                "mend it; its VLANs are restored when it answers",
                f"hydra device show {names[rack]}",
                pairs,
                reservations,
            )

    def _switches(self, facts: Facts) -> Iterator[Condition]:
        going_on = "they go on forwarding as they were told last; circuits that they use don't move"
        for kind, some, state, done, to_do in (
            (
                ConditionKind.SWITCH_NOT_CONNECTED,
                facts.switches_away,
                "not connected",
                going_on,
                "see to their connection and their controller setting",
            ),
            (
                ConditionKind.SWITCH_NOT_ANSWERING,
                facts.switches_mute,
                "connected, and not answering",
                f"left alone until they answer: {going_on}",
                "see what keeps their servers, or the network to them, busy",
            ),
        ):
            since = self._first_seen(kind, (one.name for one in some), facts)
            if some:
                ends = {one.rack for one in some if one.rack is not None}
                pairs, reservations = _on(facts, ends=ends)
                yield Condition(
                    kind,
                    tuple(one.name for one in some),
                    _many("switch", "switches", since, state),
                    min(since.values()),
                    done,
                    to_do,
                    "hydra devices --down",
                    pairs,
                    reservations,
                )
        kind = ConditionKind.RULES_REFUSED
        refusing = [*facts.rules_refused, *facts.meters_refused]
        since = self._first_seen(kind, (one.name for one in refusing), facts)
        for one, refusal in facts.meters_refused.items():
            pairs, reservations = _on(facts, ends=set() if one.rack is None else {one.rack})
            yield Condition(
                kind,
                (one.name,),
                f"{one.name} refuses its meters ({refusal})",
                since[one.name],
                f"nothing holds {one.serves} back from bandwidth that others have reserved",
                "give it room for more meters, or have it know what it refuses",
                "hydra list",
                pairs,
                reservations,
            )
        for one, sentence in facts.rules_refused.items():
            pairs, reservations = _on(facts, ends=set() if one.rack is None else {one.rack})
            yield Condition(
                kind,
                (one.name,),
                sentence,
                since[one.name],
                f"what {one.serves} sends is electrical, and its reservations have failed; told "
                "again, ever more rarely",
                "give it room for more rules, or have it know what it refuses; then reserve anew",
                "hydra devices",
                pairs,
                reservations,
            )
        kind = ConditionKind.SWITCH_REFUSED
        reasons: dict[str, list[str]] = {}
        for switch in facts.switches_refused:
            reasons.setdefault(switch.why, []).append(switch.name)
        since = self._first_seen(kind, (one.name for one in facts.switches_refused), facts)
        for reason, refused in reasons.items():
            yield Condition(
                kind,
                tuple(refused),
                f"{_names(refused)}: {reason}",
                min(since[name] for name in refused),
                "kept out, each time that the switch connects",
                "change that setting",
                "hydra devices --down",
            )
        kind = ConditionKind.UNCONFIRMED
        renumbered = {one.switch for one in facts.moved_ports}  # told below, with their ports
        behind = [name for name in facts.unconfirmed if name not in renumbered]
        since = self._first_seen(kind, behind, facts)
        if since:
            yield Condition(
                kind,
                tuple(since),
                _many("device", "devices", since, "yet to confirm the present state"),
                min(since.values()),
                "told again, ever more rarely; nothing is set up there meanwhile",
                "if it lasts, the log says what they answer",
                "hydra history",
            )

        kind = ConditionKind.PORT_RENUMBERED
        moved = {f"{one.switch}:{one.port}": one for one in facts.moved_ports}
        if since := self._first_seen(kind, moved, facts):
            pairs, reservations = _on(facts, ends={one.rack for one in moved.values()})
            yield Condition(
                kind,
                tuple(since),
                _names([moved[name].what for name in since], "; "),
                min(since.values()),
                "its switch is given rules with the new number, at once and then ever more rarely",
                "if it lasts, the log says what the switch answers; fixed numbers (Open vSwitch: "
                "ofport_request) keep a port from coming back as another one",
                "hydra devices",
                pairs,
                reservations,
            )

        kind = ConditionKind.WORKER_REFUSED
        why = {one.name: one.why for one in facts.workers_refused}
        if since := self._first_seen(kind, why, facts):
            yield Condition(
                kind,
                tuple(since),
                _names([why[name] for name in since], "; "),
                min(since.values()),
                "let in no switch by way of them: other workers speak to theirs, where these name "
                "any",
                "have workers and controller of releases that speak the same version",
                "hydra workers",
            )

        kind = ConditionKind.TAKEOVER_AT_RISK
        since = self._first_seen(kind, (one.name for one in facts.takeover_risks), facts)
        if since:
            yield Condition(
                kind,
                tuple(since),
                _names([one.why for one in facts.takeover_risks], "; "),
                min(since.values()),
                "this controller goes on; a takeover would suffer from it",
                "do so before another controller has to lead",
                "hydra replicas",
            )

    def _others(self, facts: Facts) -> Iterator[Condition]:
        kind = ConditionKind.UPLINK_DEAD
        if since := self._first_seen(kind, sorted(facts.dead_uplinks), facts):
            one_way = facts.one_way_uplinks
            labels = [named(name, one_way[name]) if name in one_way else name for name in since]
            yield Condition(
                kind,
                tuple(since),
                _many("server", "servers", labels, "without an uplink for circuits"),
                min(since.values()),
                "reached electrically, where they can be",
                "mend the cable, or the connection of the vswitch",
                "hydra devices",
            )
        kind = ConditionKind.ALARM
        since = self._first_seen(kind, facts.alarms, facts)
        for name, alarms in facts.alarms.items():
            complaints = _names([_alarm(one) for one in alarms], "; ")
            yield Condition(
                kind,
                (name,),
                f"optical switch {name} complains: {complaints}",
                since[name],
                "nothing: circuits there go on as long as they pass light",
                "see what the device says",
                f"hydra device alarms {name}",
            )
        kind = ConditionKind.FOREIGN_FRAMES
        if since := self._first_seen(kind, sorted(facts.sending_foreign), facts):
            yield Condition(
                kind,
                tuple(since),
                _many(
                    "server", "servers", since, "sending by MAC addresses not their own, or tags"
                ),
                min(since.values()),
                "such frames are dropped at the server's port (policy.source_check); nobody else "
                "is disturbed",
                "see what sends there; list the MAC addresses of containers and virtual machines "
                "under `guests`, and have the server send untagged frames",
                "hydra devices",
            )
        kind = ConditionKind.DRIFT
        if since := self._first_seen(kind, map(str, facts.drift), facts):
            yield Condition(
                kind,
                tuple(dict.fromkeys(one.device for one in facts.drift)),
                f"changed behind our back: {_names(list(since), '; ')}",
                min(since.values()),
                "nothing: it is left for you (policy.on_drift), or could not be mended",
                "mend it",
                "hydra reconcile",
            )
        kind = ConditionKind.STALE_COUNTERS
        away = {one.serves for one in (*facts.switches_away, *facts.switches_mute)}
        names = (one for one in facts.stale if one not in away)
        seen = self._first_seen(kind, names, facts)
        latest_s = facts.now_unix_s - facts.patience_s
        if since := {name: since_s for name, since_s in seen.items() if since_s <= latest_s}:
            yield Condition(
                kind,
                tuple(since),
                f"counters are late from {_names(list(since))}",
                min(since.values()),
                "their last known rates stand in: plans rest on them",
                "see what became of the readings",
                "hydra demand",
            )


def store_unavailable(
    state: NetworkState, reservations: Iterable[Reservation], since_unix_s: float, why: str
) -> Condition:
    """The condition of a controller that stands by, whose store does not answer.

    ``state`` and ``reservations`` are what it knows of them.
    """
    return Condition(
        ConditionKind.STORE_UNAVAILABLE,
        ("etcd",),
        f"the store that the controllers share does not answer: {why}",
        since_unix_s,
        "whoever led has ended with its lease: traffic goes on as it was told last, nothing is "
        "promised, and circuits that die are not diverted",
        "bring back members of etcd until they have a quorum: one controller leads by itself then",
        "hydra replicas",
        tuple(sorted({pair_of(path) for path in state.topology.paths})),
        tuple(one.id for one in reservations if one.is_booked),
    )


def _journal(facts: Facts) -> Iterator[Condition]:
    if facts.journal_failure is not None:
        since_s, error = facts.journal_failure
        yield Condition(
            ConditionKind.JOURNAL_FAILED,
            ("journal",),
            str(error),
            since_s,
            "nothing is promised and nothing moves; traffic goes on",
            error.to_do,
            error.command,
        )


def _whose(one: Reservation) -> tuple[str | None, frozenset[str]]:
    return one.owner, frozenset((one.src, one.dst))


def _reservations(
    facts: Facts, missed: Collection[tuple[Reservation, float]]
) -> Iterator[Condition]:
    if not missed:
        return
    joined = {pair_of(path) for path in facts.state.topology.paths}
    known = [one for one, _ in missed if _has_its_ends(facts.fabric, one)]
    fitting_mbps = facts.fitting(known[:_MOST])
    for one, since_s in missed:
        way = "has a path of circuits" if one.pair in joined else "goes electrically"
        if one in known:
            to_do, command = _anew(one, fitting_mbps.get(one.id), facts.now_unix_s)
        else:
            to_do, command = "release it: what it was for is gone", f"hydra release {one.id}"
        yield Condition(
            ConditionKind.RESERVATION_FAILED,
            (one.id,),
            f"reservation {one.id} ({one.src} to {one.dst}, {one.bandwidth_mbps:g} Mb/s) has "
            f"failed: {one.reason}",
            since_s,
            f"its traffic {way}, with nothing promised",
            to_do,
            command,
            () if GONE in one.pair else (one.pair,),
            (one.id,),
        )


def _has_its_ends(fabric: Fabric, one: Reservation) -> bool:
    """True if a reservation between the same two names can still be asked for."""
    try:
        return {rack_of(fabric, one.src), rack_of(fabric, one.dst)} == set(one.pair)
    except UnknownName:
        return False


def _anew(one: Reservation, fitting_mbps: float | None, now_unix_s: float) -> tuple[str, str]:
    """The next step for a reservation that has failed, and the command, for what is left of it."""
    release = f"hydra release {one.id}"
    who = "" if one.owner is None else f"as {one.owner}, whose it is, "
    command = f"hydra reserve {one.src} {one.dst} --mbps {one.bandwidth_mbps:g}"
    least = fitting_mbps is not None and fitting_mbps < one.promised_mbps
    if least:
        command += f" --at-least {fitting_mbps:g}"
    if one.starts_unix_s > now_unix_s:
        command += f" --start {moment(one.starts_unix_s)}"
    if one.expires_unix_s is not None:
        command += f" --end {moment(one.expires_unix_s)}"
    if one.priority:
        command += f" --priority {one.priority}"
    if one.service is not ServiceClass.SHARED:
        command += f" --service {one.service.value}"
    if fitting_mbps is None:
        return (
            f"nothing of it fits now; see what is in the way, or `{release}` if nobody needs it",
            f"{command} --dry-run",
        )
    much = f"{fitting_mbps:g} of its {one.promised_mbps:g} Mb/s fit" if least else "all of it fits"
    return (
        f"{who}reserve it anew, {much} now, or `{release}` if nobody needs it",
        command,
    )


def _ports(facts: Facts, missed: Collection[Reservation]) -> Iterator[Condition]:
    """Ports that were put out for the same reason at the same moment are one condition."""
    state, now_s = facts.state, facts.now_unix_s
    joined = {pair_of(path) for path in state.topology.paths} if facts.quarantine else set()

    def cause(one: Quarantined) -> tuple[bool, float, str, float]:
        return one.blocks(now_s), one.since_unix_s, one.reason, one.until_unix_s or 0.0

    for (blocks, since_s, reason, _), same in groupby(sorted(facts.quarantine, key=cause), cause):
        some = list(same)
        names = tuple(_port_name(facts.fabric, one.port) for one in some)
        pairs = {pair for one in some for pair in one.pairs}
        left = tuple(sorted(pairs - joined))
        ports = {one.port for one in some}
        failed = tuple(
            one.id
            for one in missed
            if (path := one.path or one.booked) is not None
            and any(not ports.isdisjoint(circuit.ends) for circuit in path.circuits)
        )
        until_s = some[0].until_unix_s
        if not blocks:
            out = "on trial: the next circuit that passes its probes there ends that"
        elif until_s is None:
            out = "left out of plans until they are cleared"
        else:
            out = f"left out of plans until {moment(until_s)}"
        gone = "" if not pairs else "; what they carried goes electrically"
        yield Condition(
            ConditionKind.PORT_QUARANTINED if blocks else ConditionKind.PORT_ON_TRIAL,
            names,
            f"{reason} ({_names(names)})",
            since_s,
            out + (gone if left else "; what they carried has other paths" if pairs else ""),
            "mend it, and clear the ports",
            _clear(facts.fabric, [one.port for one in some]),
            left,
            failed,
        )


def _on(
    facts: Facts,
    planes: AbstractSet[PlaneId] = frozenset(),
    racks: AbstractSet[RackId] = frozenset(),
    ends: AbstractSet[RackId] = frozenset(),
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Rack pairs with a path, and reservations that were promised one, that is concerned.

    Concerned are paths on these planes, by way of these racks, or with these racks as ends.
    """

    def concerned(path: Path) -> bool:
        return (
            not ends.isdisjoint((path.src, path.dst))
            or any(one.plane in planes for one in path.circuits)
            or any(not racks.isdisjoint(facts.fabric.racks_of(one)) for one in path.circuits)
        )

    pairs = {pair_of(path) for path in facts.state.topology.paths if concerned(path)}
    reservations = tuple(
        one.id
        for one in facts.reservations
        if one.is_booked and one.booked is not None and concerned(one.booked)
    )
    return tuple(sorted(pairs)), reservations


def _bounded(same: Sequence[Condition]) -> Iterator[Condition]:
    """The oldest conditions of a kind, and one for all others."""
    yield from same[:_MOST]
    if others := same[_MOST:]:
        first = others[0]
        subjects = tuple(name for one in others for name in one.subjects)
        yield Condition(
            first.kind,
            subjects,
            f"{len(others):,} more like these: {_names(subjects)}",
            first.since_unix_s,
            first.done,
            first.to_do,
            first.command,
            tuple(sorted({pair for one in others for pair in one.pairs})),
            tuple(dict.fromkeys(each for one in others for each in one.reservations)),
        )


_OVER: Final[Mapping[ConditionKind, tuple[str, str]]] = {
    ConditionKind.OPTICAL_SWITCH_DOWN: (
        "optical switch {} can be commanded again",
        "{} optical switches can be commanded again",
    ),
    ConditionKind.TOR_DOWN: ("ToR {} can be commanded again", "{} ToRs can be commanded again"),
    ConditionKind.SWITCH_NOT_CONNECTED: (
        "switch {} is connected now",
        "{} switches are connected now",
    ),
    ConditionKind.SWITCH_REFUSED: ("{} is kept out no more", "{} switches are kept out no more"),
    ConditionKind.SWITCH_NOT_ANSWERING: ("switch {} answers again", "{} switches answer again"),
    ConditionKind.RULES_REFUSED: (
        "switch {} takes its rules again",
        "{} switches take their rules again",
    ),
    ConditionKind.PORT_RENUMBERED: (
        "rules follow the new number of port {}",
        "rules follow the new numbers of {} ports",
    ),
    ConditionKind.WORKER_REFUSED: (
        "worker {} is not refused any more",
        "{} workers are not refused any more",
    ),
    ConditionKind.TAKEOVER_AT_RISK: (
        "a takeover would not suffer from {} any more",
        "a takeover would not suffer from {} replicas or members of the store any more",
    ),
    ConditionKind.UPLINK_DEAD: (
        "server {} has an uplink for circuits again",
        "{} servers have an uplink for circuits again",
    ),
    ConditionKind.ALARM: (
        "optical switch {} complains no more",
        "{} optical switches complain no more",
    ),
    ConditionKind.DRIFT: ("{} is as intended again", "{} devices are as intended again"),
}
"""What is said of one subject, and of a number of them, once a condition is over."""


def over(kind: ConditionKind, names: Sequence[str]) -> str:
    """A sentence that says that a condition of these subjects, at least one, is over."""
    one, many = _OVER[kind]
    if len(names) == 1:
        return one.format(names[0])
    return f"{many.format(f'{len(names):,}')}: {_names(names)}"


def _many(one: str, many: str, names: Collection[str], state: str) -> str:
    if len(names) == 1:
        return f"{one} {next(iter(names))} is {state}"
    return f"{len(names):,} {many} are {state}: {_names(tuple(names))}"


def _names(names: Sequence[str], between: str = ", ") -> str:
    more = len(names) - _NAMED
    return between.join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _clear(fabric: Fabric, ports: Sequence[PortId]) -> str:
    """The commands that clear these ports, or the one that lists them if they are many."""
    if len(ports) > _NAMED:
        return "hydra quarantine"
    names = (_port_name(fabric, port).partition(":") for port in ports)
    return " && ".join(f"hydra quarantine clear {rack} {port}" for rack, _, port in names)


def _port_name(fabric: Fabric, port: PortId) -> str:
    return f"{fabric.racks[fabric.ports[port].rack].name}:{fabric.ports[port].tor_port}"


def _alarm(one: Alarm) -> str:
    where = "" if one.port is None else f" at port {one.port}"
    return f"{one.severity.value} {one.code}{where}, {one.text}"
