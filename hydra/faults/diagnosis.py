"""Conditions: present faults, with start, effects, actions of the controller, and next steps.

Each cause is a single condition. Elements with the same fault are combined into a condition, so the
list is short for any size of the fabric.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from typing import Final

from hydra.errors import UnknownName
from hydra.faults.condition import (
    MOST_ALONE,
    MOST_NAMED,
    Condition,
    ConditionKind,
    bounded,
    many_are,
    names_of,
)
from hydra.faults.facts import Facts
from hydra.faults.late_transfers import transfers_at_risk
from hydra.faults.lost_protection import protection_lost
from hydra.faults.quarantine import Quarantined
from hydra.faults.server_links import named
from hydra.lifecycle import ReservationState
from hydra.model import Fabric, NetworkState, Pair, Path, PlaneId, PortId, RackId
from hydra.names import rack_of
from hydra.reconfiguration.plan import pair_of
from hydra.reservations.admission import moment
from hydra.reservations.reservation import GONE, Reservation, ServiceClass
from hydra.reservations.transfers import remaining_megabytes
from hydra.roles import Alarm

_MISSED_S: Final = 86_400.0
"""Seconds for which a failed reservation without an end counts as missed."""


class Watch:
    """Remembers the start of faults without a recorded start."""

    def __init__(self) -> None:
        self._since: dict[ConditionKind, dict[str, float]] = {}

    def conditions(self, facts: Facts) -> tuple[Condition, ...]:
        """All conditions, by urgency of the kind, then oldest first."""
        found = sorted(self._find(facts), key=lambda condition: condition.since_unix_s)
        by_kind = {
            kind: [condition for condition in found if condition.kind is kind]
            for kind in ConditionKind
        }
        return tuple(condition for same in by_kind.values() for condition in bounded(same))

    def _first_seen(
        self, kind: ConditionKind, names: Iterable[str], facts: Facts
    ) -> Mapping[str, float]:
        """Times of the first sighting of each name; forgets other names of the kind.

        If the clock was set back since, the time is now.
        """
        before, now_s = self._since.get(kind, {}), facts.now_unix_s
        self._since[kind] = {name: min(before.get(name, now_s), now_s) for name in names}
        return self._since[kind]

    def _find(self, facts: Facts) -> Iterator[Condition]:
        missed = self._missed(facts)
        yield from _journal(facts)
        yield from _reservations(facts, missed)
        yield from transfers_at_risk(facts, self._first_seen)
        yield from protection_lost(facts, self._first_seen)
        yield from self._planes(facts)
        yield from self._tors(facts)
        yield from self._switches(facts)
        yield from _ports(facts, [reservation for reservation, _ in missed])
        yield from self._other_conditions(facts)

    def _missed(self, facts: Facts) -> list[tuple[Reservation, float]]:
        """Failed reservations with the time of failure, oldest first.

        A reservation is listed until its end (without an end, for a day), its release, or a
        replacement by another reservation.
        """
        failed = [
            reservation
            for reservation in facts.reservations
            if reservation.state is ReservationState.FAILED
        ]
        if not failed:
            return []
        names = (reservation.id for reservation in failed)
        seen = self._first_seen(ConditionKind.RESERVATION_FAILED, names, facts)
        latest: dict[object, float] = {}
        for reservation in facts.reservations:
            if reservation.state is not ReservationState.FAILED:  # also a finished reservation
                latest[_owner_and_ends(reservation)] = max(
                    latest.get(_owner_and_ends(reservation), 0.0), reservation.created_unix_s
                )
        missed = []
        for reservation in failed:
            failed_s, end_s = reservation.since_unix_s, reservation.expires_unix_s
            since_s = seen[reservation.id] if failed_s is None else failed_s
            end_s = since_s + _MISSED_S if end_s is None else end_s
            if facts.now_unix_s < end_s and latest.get(_owner_and_ends(reservation), 0.0) < since_s:
                missed.append((reservation, since_s))
        return sorted(missed, key=lambda entry: entry[1])

    def _planes(self, facts: Facts) -> Iterator[Condition]:
        kind, fabric = ConditionKind.OPTICAL_SWITCH_DOWN, facts.fabric
        names = {plane: fabric.planes[plane].name for plane in facts.planes_down}
        since = self._first_seen(kind, names.values(), facts)
        for plane, reason in facts.planes_down.items():
            standing = sum(circuit.plane == plane for circuit in facts.state.topology.circuits)
            pairs, reservations = _concerned(facts, planes={plane})
            yield Condition(
                kind,
                (names[plane],),
                f"optical switch {names[plane]} can't be commanded: "
                f"{reason.removeprefix(f'{names[plane]}: ')}",
                since[names[plane]],
                f"left out of plans; present circuits on the device ({standing}) go on and can't "
                "be moved",
                "repair the device; the controller restores the intended state at the device's "
                "next answer",
                f"hydra device show {names[plane]}",
                pairs,
                reservations,
            )

    def _tors(self, facts: Facts) -> Iterator[Condition]:
        kind = ConditionKind.TOR_DOWN
        names = {rack: facts.fabric.racks[rack].name for rack in facts.tors_down}
        since = self._first_seen(kind, names.values(), facts)
        for rack, reason in facts.tors_down.items():
            pairs, reservations = _concerned(facts, racks={rack})
            yield Condition(
                kind,
                (names[rack],),
                f"ToR {names[rack]} can't be commanded: {reason.removeprefix(f'{names[rack]}: ')}",
                since[names[rack]],
                "the rack is left out of plans, and the rack's circuits stay where they are",
                "repair the ToR; the controller restores the ToR's VLANs when the ToR answers",
                f"hydra device show {names[rack]}",
                pairs,
                reservations,
            )

    def _switches(self, facts: Facts) -> Iterator[Condition]:
        consequence = (
            "switches go on forwarding by the last rules; circuits in use there don't move"
        )
        for kind, some, state, done, to_do in (
            (
                ConditionKind.SWITCH_NOT_CONNECTED,
                facts.switches_away,
                "not connected",
                consequence,
                "check the switches' connection and controller setting",
            ),
            (
                ConditionKind.SWITCH_NOT_ANSWERING,
                facts.switches_mute,
                "connected, and not answering",
                f"no commands until the switches answer: {consequence}",
                "check the load of the switches' servers, and of the network to the switches",
            ),
        ):
            since = self._first_seen(kind, (missing_switch.name for missing_switch in some), facts)
            if some:
                ends = {
                    missing_switch.rack
                    for missing_switch in some
                    if missing_switch.rack is not None
                }
                pairs, reservations = _concerned(facts, ends=ends)
                yield Condition(
                    kind,
                    tuple(missing_switch.name for missing_switch in some),
                    many_are("switch", "switches", since, state),
                    min(since.values()),
                    done,
                    to_do,
                    "hydra devices --down",
                    pairs,
                    reservations,
                )
        kind = ConditionKind.RULES_REFUSED
        refusing = [*facts.rules_refused, *facts.meters_refused]
        since = self._first_seen(kind, (missing_switch.name for missing_switch in refusing), facts)
        for switch, refusal in facts.meters_refused.items():
            pairs, reservations = _concerned(
                facts, ends=set() if switch.rack is None else {switch.rack}
            )
            yield Condition(
                kind,
                (switch.name,),
                f"{switch.name} refuses meters ({refusal})",
                since[switch.name],
                f"no limit holds {switch.serves} back from bandwidth reserved by others",
                "give the switch room for more meters, or a release that accepts meters",
                "hydra reservations",
                pairs,
                reservations,
            )
        for switch, sentence in facts.rules_refused.items():
            pairs, reservations = _concerned(
                facts, ends=set() if switch.rack is None else {switch.rack}
            )
            yield Condition(
                kind,
                (switch.name,),
                sentence,
                since[switch.name],
                f"traffic of {switch.serves} is electrical, and reservations of {switch.serves} "
                "have failed; the controller sends the rules again, ever more rarely",
                "give the switch room for more rules, or a release that accepts the refused rules; "
                "then reserve again",
                "hydra devices",
                pairs,
                reservations,
            )
        kind = ConditionKind.SWITCH_REFUSED
        reasons: dict[str, list[str]] = {}
        for refused_switch in facts.switches_refused:
            reasons.setdefault(refused_switch.why, []).append(refused_switch.name)
        since = self._first_seen(
            kind, (refused_switch.name for refused_switch in facts.switches_refused), facts
        )
        for reason, refused in reasons.items():
            yield Condition(
                kind,
                tuple(refused),
                f"{names_of(refused)}: {reason}",
                min(since[name] for name in refused),
                "the controller refuses each connection of the switch",
                "change the setting named above",
                "hydra devices --down",
            )
        kind = ConditionKind.UNCONFIRMED
        renumbered = {
            renumbered_port.switch for renumbered_port in facts.renumbered_ports
        }  # reported below, with the ports
        behind = [name for name in facts.unconfirmed if name not in renumbered]
        since = self._first_seen(kind, behind, facts)
        if since:
            yield Condition(
                kind,
                tuple(since),
                many_are("device", "devices", since, "yet to confirm the present state"),
                min(since.values()),
                "the controller sends the state again, ever more rarely; no circuit is set up "
                "there meanwhile",
                "if the fault lasts, see the log for the answers",
                "hydra history",
            )

        kind = ConditionKind.PORT_RENUMBERED
        moved = {
            f"{renumbered_port.switch}:{renumbered_port.port}": renumbered_port
            for renumbered_port in facts.renumbered_ports
        }
        if since := self._first_seen(kind, moved, facts):
            pairs, reservations = _concerned(facts, ends={move.rack for move in moved.values()})
            yield Condition(
                kind,
                tuple(since),
                names_of([moved[name].what for name in since], "; "),
                min(since.values()),
                "the controller sends the switch rules with the new number, at once and then ever "
                "more rarely",
                "if the fault lasts, see the log for the answers; fixed numbers (Open vSwitch: "
                "ofport_request) keep a port from coming back as another port",
                "hydra devices",
                pairs,
                reservations,
            )

        kind = ConditionKind.WORKER_REFUSED
        why = {refused_worker.name: refused_worker.why for refused_worker in facts.workers_refused}
        if since := self._first_seen(kind, why, facts):
            yield Condition(
                kind,
                tuple(since),
                names_of([why[name] for name in since], "; "),
                min(since.values()),
                "the controller accepts no switches through these workers; switches use other "
                "workers, if configured",
                "install releases with the same protocol version on the workers and the controller",
                "hydra workers",
            )

        kind = ConditionKind.TAKEOVER_AT_RISK
        since = self._first_seen(
            kind, (takeover_risk.name for takeover_risk in facts.takeover_risks), facts
        )
        if since:
            yield Condition(
                kind,
                tuple(since),
                names_of([takeover_risk.why for takeover_risk in facts.takeover_risks], "; "),
                min(since.values()),
                "this controller goes on; a takeover would fail or take longer",
                "repair the fault before another controller has to lead",
                "hydra replicas",
            )

    def _other_conditions(self, facts: Facts) -> Iterator[Condition]:
        kind = ConditionKind.UPLINK_DEAD
        if since := self._first_seen(kind, sorted(facts.dead_uplinks), facts):
            one_way = facts.one_way_uplinks
            labels = [named(name, one_way[name]) if name in one_way else name for name in since]
            yield Condition(
                kind,
                tuple(since),
                many_are("server", "servers", labels, "without an uplink for circuits"),
                min(since.values()),
                "traffic of the servers takes the electrical network, if connected",
                "repair the cable, or the connection of the vswitch",
                "hydra devices",
            )
        kind = ConditionKind.ALARM
        since = self._first_seen(kind, facts.alarms, facts)
        for name, alarms in facts.alarms.items():
            complaints = names_of([_alarm(alarm) for alarm in alarms], "; ")
            yield Condition(
                kind,
                (name,),
                f"optical switch {name} complains: {complaints}",
                since[name],
                "no action: circuits of the device go on as long as light passes",
                "see the device's own report",
                f"hydra device alarms {name}",
            )
        kind = ConditionKind.FOREIGN_FRAMES
        if since := self._first_seen(kind, sorted(facts.sending_foreign), facts):
            yield Condition(
                kind,
                tuple(since),
                many_are(
                    "server", "servers", since, "sending from foreign MAC addresses, or with tags"
                ),
                min(since.values()),
                "such frames are dropped at the server's port (policy.source_check); other "
                "servers are not disturbed",
                "find the sender; list the MAC addresses of containers and virtual machines under "
                "`guests`, and have the server send untagged frames",
                "hydra devices",
            )
        kind = ConditionKind.DRIFT
        if since := self._first_seen(kind, map(str, facts.drift), facts):
            yield Condition(
                kind,
                tuple(dict.fromkeys(drift.device for drift in facts.drift)),
                f"changed by somebody else: {names_of(list(since), '; ')}",
                min(since.values()),
                "no action: policy.on_drift leaves the difference alone, or the repair failed",
                "repair the difference",
                "hydra reconcile",
            )
        kind = ConditionKind.STALE_COUNTERS
        away = {
            missing_switch.serves for missing_switch in (*facts.switches_away, *facts.switches_mute)
        }
        names = (name for name in facts.stale if name not in away)
        seen = self._first_seen(kind, names, facts)
        latest_s = facts.now_unix_s - facts.patience_s
        if since := {name: since_s for name, since_s in seen.items() if since_s <= latest_s}:
            yield Condition(
                kind,
                tuple(since),
                f"counters are late from {names_of(list(since))}",
                min(since.values()),
                "plans use the last known rates",
                "see which counters are read, and when",
                "hydra demand",
            )


def store_unavailable(
    state: NetworkState, reservations: Iterable[Reservation], since_unix_s: float, why: str
) -> Condition:
    """The condition of a standby controller whose store does not answer.

    ``state`` and ``reservations`` are the last known values.
    """
    return Condition(
        ConditionKind.STORE_UNAVAILABLE,
        ("etcd",),
        f"the store that the controllers share does not answer: {why}",
        since_unix_s,
        "the former leader's lease is over: traffic goes on by the last rules, no reservations are "
        "promised, and traffic of dead circuits is not diverted",
        "bring back members of etcd until etcd has a quorum: then a controller leads by itself",
        "hydra replicas",
        tuple(sorted({pair_of(path) for path in state.topology.paths})),
        tuple(reservation.id for reservation in reservations if reservation.is_booked),
    )


def _journal(facts: Facts) -> Iterator[Condition]:
    if facts.journal_failure is not None:
        since_s, error = facts.journal_failure
        yield Condition(
            ConditionKind.JOURNAL_FAILED,
            ("journal",),
            str(error),
            since_s,
            "no reservations are promised and no circuits move; traffic goes on",
            error.to_do,
            error.command,
        )


def _owner_and_ends(reservation: Reservation) -> tuple[str | None, frozenset[str]]:
    return reservation.owner, frozenset((reservation.src, reservation.dst))


def _reservations(
    facts: Facts, missed: Collection[tuple[Reservation, float]]
) -> Iterator[Condition]:
    if not missed:
        return
    joined = {pair_of(path) for path in facts.state.topology.paths}
    known = [reservation for reservation, _ in missed if _has_its_ends(facts.fabric, reservation)]
    fitting_mbps = facts.fitting(known[:MOST_ALONE])
    for reservation, since_s in missed:
        way = "has a path of circuits" if reservation.pair in joined else "goes electrically"
        if reservation in known:
            to_do, command = _renewal(
                reservation, fitting_mbps.get(reservation.id), facts.now_unix_s
            )
        else:
            to_do, command = (
                "release the reservation: an end of the reservation is gone",
                f"hydra release {reservation.id}",
            )
        yield Condition(
            ConditionKind.RESERVATION_FAILED,
            (reservation.id,),
            f"reservation {reservation.id} ({reservation.src} to {reservation.dst}, "
            f"{reservation.bandwidth_mbps:g} Mb/s) has failed: {reservation.reason}",
            since_s,
            f"the traffic {way}, without a promise",
            to_do,
            command,
            () if GONE in reservation.pair else (reservation.pair,),
            (reservation.id,),
        )


def _has_its_ends(fabric: Fabric, reservation: Reservation) -> bool:
    """True if both ends of a reservation still exist in the same racks."""
    try:
        return {rack_of(fabric, reservation.src), rack_of(fabric, reservation.dst)} == set(
            reservation.pair
        )
    except UnknownName:
        return False


def _renewal(
    reservation: Reservation, fitting_mbps: float | None, now_unix_s: float
) -> tuple[str, str]:
    """The next step and the command for the rest of a failed reservation."""
    release = f"hydra release {reservation.id}"
    as_owner = "" if reservation.owner is None else f"as the owner {reservation.owner}, "
    command = (
        f"hydra reserve {reservation.src} {reservation.dst} --mbps {reservation.bandwidth_mbps:g}"
    )
    end, transfer = reservation.expires_unix_s, reservation.transfer
    if transfer is not None:
        left = remaining_megabytes(reservation, reservation.since_unix_s or now_unix_s)
        command = f"hydra reserve {reservation.src} {reservation.dst} --megabytes {left:g}"
        fitting_mbps, end = reservation.promised_mbps, transfer.deadline_unix_s
    least = fitting_mbps is not None and fitting_mbps < reservation.promised_mbps
    if least:
        command += f" --at-least {fitting_mbps:g}"
    if reservation.starts_unix_s > now_unix_s:
        command += f" --start {moment(reservation.starts_unix_s)}"
    if end is not None:
        command += f" --end {moment(end)}"
    if reservation.priority:
        command += f" --priority {reservation.priority}"
    if reservation.service is not ServiceClass.SHARED:
        command += f" --service {reservation.service.value}"
    if fitting_mbps is None:
        return (
            "no part of the reservation fits now; see the obstacle, or "
            f"`{release}` if the reservation is not needed",
            f"{command} --dry-run",
        )
    much = (
        f"{fitting_mbps:g} of {reservation.promised_mbps:g} Mb/s fit"
        if least
        else "the full bandwidth fits"
    )
    return (
        f"{as_owner}reserve anew ({much} now), or `{release}` if the reservation is not needed",
        command,
    )


def _ports(facts: Facts, missed: Collection[Reservation]) -> Iterator[Condition]:
    """Combine ports quarantined for the same reason at the same time."""
    state, now_s = facts.state, facts.now_unix_s
    joined = {pair_of(path) for path in state.topology.paths} if facts.quarantine else set()

    def cause(quarantined: Quarantined) -> tuple[bool, float, str, float]:
        return (
            quarantined.blocks(now_s),
            quarantined.since_unix_s,
            quarantined.reason,
            quarantined.until_unix_s or 0.0,
        )

    for (blocks, since_s, reason, _), same in groupby(sorted(facts.quarantine, key=cause), cause):
        some = list(same)
        names = tuple(_port_name(facts.fabric, quarantined.port) for quarantined in some)
        pairs = {pair for quarantined in some for pair in quarantined.pairs}
        left = tuple(sorted(pairs - joined))
        ports = {quarantined.port for quarantined in some}
        failed = tuple(
            reservation.id
            for reservation in missed
            if (path := reservation.path or reservation.booked) is not None
            and any(not ports.isdisjoint(circuit.ends) for circuit in path.circuits)
        )
        until_s = some[0].until_unix_s
        remedy = "repair the devices, and clear the ports"
        if not blocks:
            out = "on trial: the next circuit that passes the probes there ends the trial"
            remedy = "repair the devices; clearing the ports ends the trial now"
        elif until_s is None:
            out = "left out of plans until cleared"
        else:
            out = f"left out of plans until {moment(until_s)}"
        gone = "" if not pairs else "; the pairs' traffic goes electrically"
        yield Condition(
            ConditionKind.PORT_QUARANTINED if blocks else ConditionKind.PORT_ON_TRIAL,
            names,
            f"{reason} ({names_of(names)})",
            since_s,
            out + (gone if left else "; the pairs' traffic has other paths" if pairs else ""),
            remedy,
            _clear(facts.fabric, [quarantined.port for quarantined in some]),
            left,
            failed,
        )


def _concerned(
    facts: Facts,
    planes: AbstractSet[PlaneId] = frozenset(),
    racks: AbstractSet[RackId] = frozenset(),
    ends: AbstractSet[RackId] = frozenset(),
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Rack pairs and reservations with concerned paths.

    Concerned are paths on the given planes, through the given racks, or with the given racks as
    ends.
    """

    def concerned(path: Path) -> bool:
        return (
            not ends.isdisjoint((path.src, path.dst))
            or any(circuit.plane in planes for circuit in path.circuits)
            or any(
                not racks.isdisjoint(facts.fabric.racks_of(circuit)) for circuit in path.circuits
            )
        )

    pairs = {pair_of(path) for path in facts.state.topology.paths if concerned(path)}
    reservations = tuple(
        reservation.id
        for reservation in facts.reservations
        if reservation.is_booked
        and reservation.booked is not None
        and concerned(reservation.booked)
    )
    return tuple(sorted(pairs)), reservations


def _clear(fabric: Fabric, ports: Sequence[PortId]) -> str:
    """The commands that clear the ports, or a command that lists them if there are many."""
    if len(ports) > MOST_NAMED:
        return "hydra quarantine"
    names = (_port_name(fabric, port).partition(":") for port in ports)
    return " && ".join(f"hydra quarantine clear {rack} {port}" for rack, _, port in names)


def _port_name(fabric: Fabric, port: PortId) -> str:
    return f"{fabric.racks[fabric.ports[port].rack].name}:{fabric.ports[port].tor_port}"


def _alarm(alarm: Alarm) -> str:
    where = "" if alarm.port is None else f" at port {alarm.port}"
    return f"{alarm.severity.value} {alarm.code}{where}, {alarm.text}"
