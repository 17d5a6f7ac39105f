"""The rules of all switches: which switches hold the present state's, and how others get them.

Courses yield commands and are sent outcomes, as the executor does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from hydra.failures import Failure, FailureKind
from hydra.forwarding.resteering import diverting, steering_of
from hydra.forwarding.rules import (
    ROUND_RULES,
    FlowRule,
    Install,
    InstallAll,
    Installation,
    Modify,
    Remove,
    RemoveByPort,
    RuleChange,
    are_alike,
    installed,
    match_key,
    matches_port,
    ports_named,
)
from hydra.forwarding.substrate import Steering, substrate_of
from hydra.model import (
    Circuit,
    DatapathId,
    Fabric,
    NetworkState,
    Path,
    PortId,
    RackId,
    Server,
    VlanId,
)
from hydra.policy import CurrentPolicy, OnSilence
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    Batch,
    ConfirmRules,
    Course,
    HeldRules,
    Pause,
    Steps,
    TakeSwitches,
)
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import (
    Pair,
    Unsettled,
    moving_pairs,
    pair_named,
    pair_of,
    without,
)
from hydra.reconfiguration.relaying import only, relays_as_in, wipe
from hydra.rings import rings_of

LOG: Final = logging.getLogger("hydra.switches")
Announced = Sequence[tuple[Server, tuple[VlanId, ...]]]


class Memory(Protocol):
    """The state that the network is in, as the controller remembers it."""

    @property
    def state(self) -> NetworkState: ...

    @property
    def unsettled(self) -> Unsettled:
        """What a change that broke off leaves open."""

    def settle(self, state: NetworkState) -> None:
        """Note that the network is in ``state`` from now on."""

    def unsettle(self, more: Unsettled) -> None:
        """Note that a change broke off, which leaves this open."""


class SeenPort(Protocol):
    @property
    def up(self) -> bool: ...

    @property
    def number(self) -> int:
        """OpenFlow number."""


@dataclass(frozen=True, slots=True)
class MovedPort:
    """A port that has another OpenFlow number than rules in its switch's tables name."""

    switch: str
    port: str
    old: tuple[int, ...]
    """Numbers that rules may name; 0: it had none."""
    now: int
    """0: it has none."""
    rack: RackId

    @property
    def what(self) -> str:
        """A clause that tells the change."""
        old = " or ".join(str(one) if one else "none" for one in self.old)
        return f"port {self.port} of switch {self.switch} has OpenFlow number {self.now}, was {old}"


class Connections(Protocol):
    """OpenFlow connections and ports, as last heard of; asking costs nothing."""

    def connected(self) -> frozenset[DatapathId]: ...

    def mute(self) -> frozenset[DatapathId]:
        """Switches whose connection stands, and that do not answer: none of those connected."""

    def port(self, datapath: DatapathId, name: str) -> SeenPort | None:
        """A port by name, down if the switch has none such; None while nothing is heard of it."""


def _is_refusal(failure: Failure) -> bool:
    """True if a steering switch has refused what a change gave it."""
    return failure.kind is FailureKind.REFUSED and failure.step in ("push", "activate")


def reachable_on(fabric: Fabric, state: NetworkState) -> Announced:
    """Every server with the VLANs that lead to it."""
    vlans: dict[int, set[VlanId]] = {rack.id: set() for rack in fabric.racks}
    for path in state.topology.paths:
        for rack in (path.src, path.dst):
            vlans[rack].add(state.vlans[path])
    ordered = {rack: tuple(sorted(some)) for rack, some in vlans.items()}
    return [(server, ordered[server.rack]) for server in fabric.servers]


class Switches:
    """Courses run one at a time, but for those of :meth:`bring_beside`, beside which others do.
    :meth:`renewed`, :meth:`answers_again` and methods that only ask are for any thread.

    Single operations of sets are atomic, which is all that is asked of them here.
    """

    _electrical: frozenset[DatapathId] = frozenset()
    """Refusing switches whose traffic is electrical: they hold no rules of circuits."""
    being_brought: frozenset[DatapathId] = frozenset()
    """Switches that :meth:`bring_beside` is at work on."""
    _dead: frozenset[Pair] = frozenset()
    closed: frozenset[str] = frozenset()
    """Servers whose port at the ToR is closed to circuits, until their switch answers."""
    closed_meanwhile: frozenset[str] = frozenset()
    """Servers whose port changes under way have closed to circuits, and count on."""
    one_way_uplinks: frozenset[str] = frozenset()
    """Servers whose uplink is dead in one direction, as probes show; replaced by whoever knows."""

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        memory: Memory,
        connections: Connections,
        added_rules: Callable[[DatapathId], Iterable[FlowRule]] = lambda _datapath: (),
        followed: Callable[[Sequence[MovedPort]], None] = lambda _ports: None,
    ) -> None:
        """``added_rules``: rules that a switch holds beside the substrate's. ``followed``: called
        in a course's thread with renumbered ports, once all rules have the new numbers.
        """
        self._fabric = fabric
        self._substrate = substrate_of(fabric)
        self._policy = policy
        self._memory = memory
        self._connections = connections
        self._added_rules = added_rules
        self._tell_followed = followed
        self.owned: Final = self._substrate.owned()
        self.known: Final[Mapping[DatapathId, str]] = {**fabric.tor_names, **self.owned}
        """Names of the switches that hold rules of ours: those, and learning ToRs."""
        self.steering: Final[Mapping[DatapathId, Steering]] = {
            switch.datapath: switch
            for rack in fabric.racks
            for switch in self._substrate.steering(rack.id)
        }
        self.switch_of: Final[Mapping[str, DatapathId]] = {
            server.name: switch.datapath
            for switch in self.steering.values()
            for server in switch.servers
        }
        self.settled = False
        """True if the present state is known: switches may be brought to it."""
        self.spares_relays = False
        """True from a start on, as long as a switch may count on relays of an earlier state."""
        self.dead_uplinks: frozenset[str] = frozenset()
        """Servers whose uplink to the ToR is down, closed, or dead in one direction."""
        self._uplinks = frozenset(
            end for server in fabric.servers for end in self._ends_of_uplink(server)
        )
        uplinks_at: dict[DatapathId, list[Server]] = {}
        for server in fabric.servers:
            for datapath, _ in self._ends_of_uplink(server):
                uplinks_at.setdefault(datapath, []).append(server)
        self._uplinks_at: Final[Mapping[DatapathId, Sequence[Server]]] = uplinks_at
        self._unseen_uplinks = True
        """True if ports may have changed since uplinks were looked at."""
        self._synchronised: set[DatapathId] = set()
        self._changes_of_synchronised = 0
        """Counted after each change; those of two threads may count as one."""
        self._ready: tuple[int, frozenset[DatapathId], frozenset[DatapathId]] | None = None
        """Switches that are ready, after which changes and of which connected ones."""
        self._renewed: set[DatapathId] = set()
        self._untaken: set[DatapathId] = set()
        """Switches that this controller has not become the master of since they connected."""
        self._slow: set[DatapathId] = set()
        """Switches that were given up, and have answered after all."""
        self._untried: set[DatapathId] = set()
        """Slow switches that have not been tried since they answered, or are being tried."""
        self._missed: set[DatapathId] = set()
        """Slow switches that an attempt to bring them has failed at, since they were ready last."""
        self._moved: dict[DatapathId, Mapping[str, frozenset[int]]] = {}
        """Ports with other OpenFlow numbers than rules in the tables may name, by name, and these
        numbers. Values are replaced, never changed.
        """
        self._only_moved: set[DatapathId] = set()
        """Switches among them that hold the present state's rules but for these numbers."""
        self.refused: Mapping[DatapathId, Failure] = {}
        """Steering switches that have refused rules of their circuits, until they take them; a new
        object with each change.
        """
        self._common: dict[RackId, InstallAll] = {}
        """Rules that racks' switches have in common, and their encodings with them, while some of
        the switches are yet to come: after a start, they come a few at a time.
        """
        self._common_in: NetworkState | None = None
        """State of those."""

    # -- what there is ----------------------------------------------------------------------------

    def ready(self) -> frozenset[DatapathId]:
        """Switches that are connected and hold exactly the rules that they should.

        The same object, as long as they stay the same.
        """
        connected, changes = self._connections.connected(), self._changes_of_synchronised
        known = self._ready
        if known is None or known[0] != changes or known[1] is not connected:
            ready = frozenset(self._synchronised) & connected
            self._ready = known = changes, connected, ready
        return known[2]

    def late(self) -> frozenset[DatapathId]:
        """Switches that are connected, known, and yet to be brought to the present state."""
        return frozenset(
            datapath
            for datapath in self._connections.connected() - frozenset(self._synchronised)
            if self._is_known(datapath)
        )

    def fresh(self) -> frozenset[DatapathId]:
        """Late switches that have connected since they were last tried, and are not slow."""
        return (self.late() & frozenset(self._renewed)) - self.slow()

    def slow(self) -> frozenset[DatapathId]:
        """Late switches that others do not wait for: they are brought by :meth:`bring_beside`."""
        some = frozenset(self._slow) | self.being_brought
        return some & self.late() if some else some

    def awaited(self) -> frozenset[DatapathId]:
        """Late switches that no attempt to bring to the present state has failed at: the next job
        of the conductor brings them.
        """
        return self.late() & (frozenset(self._renewed) | frozenset(self._untried))

    def soon_ready(self) -> frozenset[DatapathId]:
        """Slow switches that are about to be brought to the present state. Those that an attempt
        has failed at may fail again, however often they answer: nobody is to wait for them.
        """
        return self.slow() & frozenset(self._untried)

    def mute(self) -> frozenset[DatapathId]:
        """Switches whose connection stands, and that may yet do what they were told on it."""
        return self._connections.mute()

    @property
    def all_ready(self) -> bool:
        return self.ready() >= self.owned.keys()

    def _is_known(self, datapath: DatapathId) -> bool:
        return datapath in self.known

    @property
    def diverted(self) -> frozenset[Pair]:
        """Pairs that are electrical since their circuits or paths have died; until these are
        withdrawn, or the pairs moved to others.
        """
        return self._dead.intersection(map(pair_of, self._memory.state.topology.paths))

    def tables(
        self, datapaths: Iterable[DatapathId], common: dict[RackId, InstallAll] | None = None
    ) -> Iterator[tuple[DatapathId, tuple[Installation, ...]]]:
        """All rules that each of these known switches is to hold from us; an owned one no others.

        An object holds what a rack's switches have in common; those in ``common`` are taken from
        there, and others put there. A switch that refuses rules of its circuits has none of them.
        """
        substrate, state = self._substrate, self._memory.state
        diverts = diverting(substrate, steering_of(substrate, self.diverted), state.epoch)
        common = {} if common is None else common
        tor_rules = tuple(map(Install, substrate.tor_rules()))
        rounds = (ROUND_RULES,) if substrate.tells_rounds else ()
        for datapath in datapaths:
            if datapath not in self.owned:
                yield datapath, tor_rules
                continue
            rack = self._rack_of(datapath)
            if datapath in self._electrical:
                shared = InstallAll(tuple(substrate.common_rules(datapath, self._off(rack))))
            else:
                if rack not in common:
                    common[rack] = InstallAll(tuple(substrate.common_rules(datapath, state)))
                shared = common[rack]
            own = substrate.own_rules(datapath, self.dead_uplinks, self._policy.now.source_check)
            added = self._added_rules(datapath)
            yield (
                datapath,
                (
                    *map(Install, own),
                    shared,
                    *rounds,
                    *diverts.get(datapath, ()),
                    *map(Install, added),
                ),
            )

    def _off(self, rack: RackId) -> NetworkState:
        """The present state without paths that begin or end at a rack."""
        state = self._memory.state
        paths = [path for path in state.topology.paths if rack in (path.src, path.dst)]
        return without(state, (), paths)

    def _rack_of(self, datapath: DatapathId) -> RackId:
        server = self._fabric.server_by_datapath.get(datapath)
        return self._fabric.rack_by_tor_datapath[datapath].id if server is None else server.rack

    def _ends_of_uplink(self, server: Server) -> Iterator[tuple[DatapathId, str]]:
        """Ports at both ends of a server's uplink, as far as switches tell of them."""
        vswitch, tor = server.vswitch, self._fabric.racks[server.rack].tor.datapath_id
        if vswitch is not None:
            yield vswitch.datapath_id, vswitch.optical_port
        if tor is not None:
            yield tor, server.tor_port

    def is_of_uplink(self, datapath: DatapathId, port: str) -> bool:
        """True for a port between a server and its ToR."""
        return (datapath, port) in self._uplinks

    def _uplink_down(self, server: Server) -> bool:
        """True if an uplink is known to be down at either end, or to pass nothing in one direction;
        a silent switch says nothing.
        """
        if server.name in self.one_way_uplinks:
            return True
        return self._carrier_lost(server)

    def linked(self) -> frozenset[DatapathId]:
        """Ready switches whose uplink has carrier, and whose ToR, if OpenFlow controls the ToR, has
        its rules. Whether the uplink passes frames does not matter here.
        """
        down = {self.switch_of[name] for name in self.dead_uplinks - self.one_way_uplinks}
        blank = {
            rack.id
            for rack in self._fabric.racks
            if rack.tor.datapath_id is not None and rack.tor.datapath_id not in self._synchronised
        }
        if blank:
            down |= {dp for dp, switch in self.steering.items() if switch.rack in blank}
        ready = self.ready()
        return ready - down if down else ready

    def _carrier_lost(self, server: Server) -> bool:
        seen = (self._connections.port(*end) for end in self._ends_of_uplink(server))
        return any(port is not None and not port.up for port in seen)

    def is_dark(self, end: PortId) -> bool:
        """True if a port is known to have no carrier; a silent ToR says nothing."""
        port = self._fabric.ports[end]
        tor = self._fabric.racks[port.rack].tor.datapath_id
        seen = None if tor is None else self._connections.port(tor, port.tor_port)
        return seen is not None and not seen.up

    # -- what is heard ----------------------------------------------------------------------------

    def renewed(self, datapath: DatapathId) -> None:
        """Note that a switch has connected anew, with whatever rules it holds.

        Nothing is kept of strangers, of whom there may be any number.
        """
        if not self._is_known(datapath):
            return
        self._slow.discard(datapath)
        self._untried.discard(datapath)
        self._missed.discard(datapath)
        self._only_moved.discard(datapath)
        self._renewed.add(datapath)  # it is brought to whatever numbers its ports have now
        self._untaken.add(datapath)
        self._synchronised.discard(datapath)
        self._changes_of_synchronised += 1

    def answers_again(self, datapath: DatapathId) -> None:
        """Note that a switch has answered that was given up: it is slow."""
        self._slow.add(datapath)
        if datapath not in self._missed:
            self._untried.add(datapath)
        self.doubt([datapath])

    def doubt(self, datapaths: Iterable[DatapathId]) -> None:
        """Have switches that did not confirm something synchronised."""
        datapaths = tuple(datapaths)
        self._synchronised.difference_update(datapaths)
        self._only_moved.difference_update(datapaths)
        self._changes_of_synchronised += 1

    def renumbered(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        """Note that ports of a connected switch have other OpenFlow numbers from now on;
        ``earlier`` has the number that rules name so far, by port name; 0: none.
        """
        if datapath not in self.owned:
            return  # rules of a learning ToR name no ports
        known = self._moved.get(datapath, {})
        added = {name: known.get(name, frozenset()) | {old} for name, old in earlier.items()}
        self._moved[datapath] = {**known, **added}
        if datapath in self._synchronised:
            self._only_moved.add(datapath)
        elif datapath not in self._only_moved:
            self._renewed.add(datapath)  # what it is just being sent may name the old numbers
        self._synchronised.discard(datapath)
        self._changes_of_synchronised += 1

    def moved_ports(self) -> Sequence[MovedPort]:
        """Ports of connected switches whose rules may name other OpenFlow numbers."""
        return [
            port
            for datapath in sorted(self._moved.copy())
            if datapath in self._connections.connected()
            for port in self._moved_at(datapath)
        ]

    def _moved_at(self, datapath: DatapathId) -> list[MovedPort]:
        return [
            MovedPort(
                self.owned[datapath],
                name,
                tuple(sorted(old)),
                0 if port is None else port.number,
                self._rack_of(datapath),
            )
            for name, old in self._moved.get(datapath, {}).items()
            if (port := self._connections.port(datapath, name)) is None or old != {port.number}
        ]

    def learn(self, execution: Execution) -> None:
        """Take over what a reconfiguration could not confirm."""
        unconfirmed = execution.unconfirmed
        self.doubt(
            datapath
            for datapath, name in self.owned.items()
            if name in unconfirmed
            or (datapath in self.steering and self.steering[datapath].name in unconfirmed)
        )
        self._dead -= execution.activated
        refused = {failure.subject: failure for failure in execution.silent if _is_refusal(failure)}
        self._note_refused(
            {
                dp: refused[one.name]
                if refused[one.name].step == "push"
                else self._refusal(dp, refused[one.name])
                for dp, one in self.steering.items()
                if one.name in refused
            }
        )
        told = {rack for pair in execution.moving for rack in pair}
        self.doubt(dp for dp in self._electrical if self.steering[dp].rack in told)

    def _note_refused(
        self, refused: Mapping[DatapathId, Failure], taken: Collection[DatapathId] = ()
    ) -> None:
        """Note steering switches that refused rules of their circuits, and those that took them."""
        left = {dp: one for dp, one in self.refused.items() if dp not in taken}
        self.refused = left | {dp: one for dp, one in refused.items() if dp in self.steering}

    # -- courses ----------------------------------------------------------------------------------

    def synchronise(self, datapaths: Collection[DatapathId]) -> Steps:
        """Bring whole switches to the present state, in one atomic bundle each.

        Switches are read first: those that hold just what they should are left as they are.
        Servers' uplinks that went down or came back since are gone around on all switches.
        """
        if not self.settled:
            return  # the devices come first; every connected switch is synchronised after
        known = dict.fromkeys(datapath for datapath in datapaths if self._is_known(datapath))
        for stranger in set(datapaths) - known.keys():
            LOG.warning("switch %#x is not in the configuration; it is left alone", stranger)
        yield from self._note_and_go_around(known)
        if known:
            yield from self._bring(tuple(known))

    def _note_and_go_around(self, connected: Iterable[DatapathId]) -> Steps:
        before = self.dead_uplinks
        if self._note_uplinks(connected) and self._substrate.detours:
            yield from self._go_around(before)

    def _take(self, datapaths: tuple[DatapathId, ...], *, beside: bool) -> Course[list[DatapathId]]:
        """Become the master of switches; returns those of which that came about."""
        self._renewed.difference_update(datapaths)
        (taken,) = yield Batch("take", (TakeSwitches(datapaths),), beside=beside)
        if not taken.confirmed:
            LOG.error("%s: it is left alone", taken.failure)
            return []
        self._untaken.difference_update(taken.value)
        others = [one for one in datapaths if one not in taken.value]
        if others:
            names = ", ".join(self.known[one] for one in others)
            LOG.error("not ours yet: %s: left alone, and asked again later", names)
            self.doubt(others)
        return [one for one in datapaths if one in taken.value]

    def _bring(self, datapaths: tuple[DatapathId, ...]) -> Steps:
        taken = yield from self._take(datapaths, beside=False)
        if not taken:
            return
        self._electrical -= set(taken)
        moved = self._moved.copy()
        errors = yield from self._write(taken)
        refused = {
            dp: self._refusal(dp, error)
            for dp, error in errors.items()
            if error is not None and self._refuses(dp, error)
        }
        brought = {dp for dp, error in errors.items() if error is None}
        self._note_refused(refused, brought)
        self._note_brought(brought - self._renewed, moved)
        if not refused:
            return
        # Of the refused tables, some rules may have taken effect: they are given smaller ones.
        self._electrical |= refused.keys()
        moved = self._moved.copy()
        errors = yield from self._write(sorted(refused))
        brought = {dp for dp, error in errors.items() if error is None}
        self._note_brought(brought - self._renewed, moved)

    def _write(self, datapaths: Collection[DatapathId]) -> Course[dict[DatapathId, Failure | None]]:
        """Give switches whole tables, where they hold others; by switch, the failure or None."""
        tables = dict(self._whole_tables(datapaths))
        (read,) = yield Batch("confirm", (ConfirmRules(tables),), alone=True)
        held: HeldRules = read.value or HeldRules()
        changes = {
            dp: self._anew(dp, table, held) for dp, table in tables.items() if dp not in held.exact
        }
        (done,) = yield Batch("synchronise", (ApplyRules(changes),), alone=True)
        for datapath, error in done.value.items():
            if error is not None:
                self._tell(datapath, error)
                self._synchronised.discard(datapath)
        return {**dict.fromkeys(held.exact), **done.value}

    def _refuses(self, datapath: DatapathId, error: Failure) -> bool:
        return error.kind is FailureKind.REFUSED and datapath in self.steering

    def _tell(self, datapath: DatapathId, error: Failure) -> None:
        if not self._refuses(datapath, error):
            LOG.error("switch %#x was not synchronised: %s", datapath, error)
        elif datapath in self._electrical:
            LOG.error("%s refuses even rules without circuits: %s", self.known[datapath], error)
        elif datapath not in self.refused:
            refusal = self._refusal(datapath, error)
            LOG.error("%s; what it sends is electrical until it takes them", refusal)

    def _refusal(self, datapath: DatapathId, error: Failure) -> Failure:
        """A refusal of whole tables, with the rack pairs whose traffic the switch sends."""
        switch = self.steering[datapath]
        paths = self._memory.state.topology.paths
        pairs = {pair for pair in map(pair_of, paths) if switch.rack in pair}
        named = ", ".join(pair_named(self._fabric, pair) for pair in sorted(pairs))
        reason = f"{switch.name} refuses the rules of {named or 'its rack'} ({error})"
        return Failure("synchronise", switch.name, FailureKind.REFUSED, reason)

    def _note_brought(
        self, datapaths: Collection[DatapathId], moved: Mapping[DatapathId, object]
    ) -> None:
        """Note that switches hold the present state's rules, and name the ports that had ``moved``
        before these were sent by their present numbers.
        """
        followed: list[MovedPort] = []
        for datapath in sorted(datapaths):
            if self._moved.get(datapath) is moved.get(datapath):
                followed += self._moved_at(datapath)
                self._moved.pop(datapath, None)
        self._only_moved.difference_update(datapaths)
        self._slow.difference_update(datapaths)
        self._missed.difference_update(datapaths)
        self._synchronised.update(datapaths)
        self._changes_of_synchronised += 1
        if self.all_ready:
            self._common_in, self._common = None, {}
        if followed:
            self._tell_followed(followed)

    def bring_beside(self, datapaths: Collection[DatapathId]) -> Course[frozenset[DatapathId]]:
        """Bring switches to the present state, with other courses and changes in between; returns
        those that were brought. Several such courses may be under way, for different switches.

        Until they are, they are not ready: nobody else writes their rules, and changes leave the
        paths of their racks where they are, so what they hold and what they are about to be given
        both lead somewhere. They are given the state of the moment. If that asks for something else
        by the time that they have confirmed it, they are given that, too.
        """
        some = frozenset(filter(self._is_known, datapaths))
        for stranger in set(datapaths) - some:
            LOG.warning("switch %#x is not in the configuration; it is left alone", stranger)
        self.being_brought |= some
        try:
            return (yield from self._bring_beside(set(some)))
        finally:
            self._untried -= some
            self._missed |= some - self._synchronised
            self.being_brought -= some

    def _bring_beside(self, left: set[DatapathId]) -> Course[frozenset[DatapathId]]:
        yield from self._note_and_go_around(left)
        left &= {*(yield from self._take(tuple(sorted(left)), beside=True))}
        self._electrical -= left
        tables = dict(self._whole_tables(sorted(left)))
        (read,) = yield Batch("confirm", (ConfirmRules(tables),), beside=True)
        before: HeldRules = read.value or HeldRules()
        held = {dp: self._anew(dp, tables[dp], before) for dp in before.exact}
        while self.settled:  # else all switches are brought once the state is known
            left -= self._renewed
            moved = self._moved.copy()
            wanted = {
                dp: self._anew(dp, table, before) for dp, table in self._whole_tables(sorted(left))
            }
            changes = {
                dp: some
                for dp, some in wanted.items()
                if dp not in held or not are_alike(held[dp], some)
            }
            if not changes:
                self._note_refused({}, left - self._electrical)
                self._note_brought(left, moved)
                return frozenset(left)
            (done,) = yield Batch("synchronise", (ApplyRules(changes),), beside=True)
            for datapath, error in done.value.items():
                if error is None:
                    held[datapath] = changes[datapath]
                    continue
                self._tell(datapath, error)
                if self._refuses(datapath, error) and datapath not in self._electrical:
                    # Some rules may have taken effect: it is given a smaller table.
                    self._note_refused({datapath: self._refusal(datapath, error)})
                    self._electrical |= {datapath}
                    held.pop(datapath, None)
                else:
                    left.discard(datapath)
        return frozenset()

    def _whole_tables(
        self, datapaths: Iterable[DatapathId]
    ) -> Iterator[tuple[DatapathId, tuple[Installation, ...]]]:
        if self._common_in is not self._memory.state:
            self._common_in, self._common = self._memory.state, {}
        yield from self.tables(datapaths, self._common)

    def _anew(
        self, datapath: DatapathId, table: Sequence[Installation], held: HeldRules
    ) -> tuple[RuleChange, ...]:
        """Changes that leave a switch with this table, whatever it holds.

        Rules that tell of rounds stay where it has them, since new ones can't tell for a second.
        """
        if datapath not in self.owned:
            return tuple(table)
        rounds = held.rounds.get(datapath)
        if rounds:
            table = [one for one in table if one is not ROUND_RULES]
            table += [Install(one) for one in ROUND_RULES.rules if one.cookie not in rounds]
        return (*wipe(spare_relays=self.spares_relays), *table)

    def _note_uplinks(self, connected: Iterable[DatapathId] | None = None) -> bool:
        """Note the uplinks that are down or closed; True if they are others than before.

        Those are looked at that were down, and those of switches that ``connected`` since; None,
        or after a change of ports that was passed over: all.
        """
        if connected is None or self._unseen_uplinks:
            servers = list(self._fabric.servers)
            self._unseen_uplinks = False
        else:
            servers = [one for at in connected for one in self._uplinks_at.get(at, ())]
            if self.dead_uplinks:
                servers += [one for one in self._fabric.servers if one.name in self.dead_uplinks]
        down = (server.name for server in servers if self._uplink_down(server))
        dead = self.closed.union(self.closed_meanwhile, down)
        if dead == self.dead_uplinks:
            return False
        self.dead_uplinks = dead
        LOG.warning("uplinks to ToRs down or closed: %s", ", ".join(sorted(dead)) or "none")
        return True

    def follow_uplinks(self) -> Steps:
        """Go around servers whose uplink to the ToR went down, and back where it returned.

        Where there are detours, no rule about paths is touched: it is right while a
        reconfiguration is under way, too.
        """
        before = self.dead_uplinks
        if not self.settled:
            self._unseen_uplinks = True
        if not self.settled or not self._note_uplinks():
            return
        if self._substrate.detours:
            yield from self._go_around(before)
        else:
            servers = reachable_on(self._fabric, self._memory.state)
            yield Batch("announce", (Announce(tuple(servers)),))

    def follow_closed(self) -> Steps:
        """Go around servers whose port at the ToR was closed, and back where it was opened."""
        if self.settled:
            yield from self._note_and_go_around(())

    def _go_around(self, before: Collection[str]) -> Steps:
        """Change what differs in switches that are ready; ``before`` were the dead uplinks."""
        changes = {
            datapath: tuple(self._uplink_changes(datapath, before))
            for datapath in sorted(self.ready() & self.owned.keys())
        }
        (done,) = yield Batch("go around", (ApplyRules(changes, self._hurries),), alone=True)
        self.doubt(datapath for datapath, error in done.value.items() if error is not None)

    @property
    def _hurries(self) -> bool:
        """True if few switches that are far later than all others keep nobody waiting who goes
        around something dead: they are brought to the present state once they answer (decision 36).
        """
        closes = self._policy.now.on_silent_vswitch is OnSilence.CLOSE
        return self._substrate.retags and not closes

    def _uplink_changes(
        self, datapath: DatapathId, before: Collection[str]
    ) -> Iterator[RuleChange]:
        check = self._policy.now.source_check
        old, new = (
            {match_key(rule): rule for rule in self._substrate.own_rules(datapath, dead, check)}
            for dead in (before, self.dead_uplinks)
        )
        yield from (Remove(rule) for key, rule in old.items() if key not in new)
        yield from (Install(rule) for key, rule in new.items() if old.get(key) != rule)

    def follow_numbers(self, changes: Collection[Execution] = ()) -> Steps:
        """Have rules name ports by their present OpenFlow numbers, where a switch has given a port
        another one: in one bundle, which touches no other rule.

        While ``changes`` are under way, the rules of paths of the pairs that these move are left to
        them; their divert rules are right afterwards. They are followed once more after that.
        Switches that this controller is not the master of yet are left to :meth:`synchronise`.
        """
        able = self._connections.connected() - frozenset(self._untaken)
        moved = {dp: some for dp, some in self._moved.copy().items() if dp in able}
        if not self.settled or not moved:
            return
        state = self._memory.state
        moving = frozenset().union(*(change.moving for change in changes))
        standing = without(
            state, (), [path for path in state.topology.paths if pair_of(path) in moving]
        )
        diverts = diverting(
            self._substrate, steering_of(self._substrate, self.diverted | moving), state.epoch
        )
        rules = {
            datapath: tuple(self._renamed(datapath, ports, standing, diverts.get(datapath, ())))
            for datapath, ports in moved.items()
        }
        (done,) = yield Batch("follow numbers", (ApplyRules(rules),), alone=True)
        followed = set[DatapathId]()
        for datapath, error in done.value.items():
            if error is not None:
                LOG.error(
                    "switch %s does not follow its ports' new numbers: %s",
                    self.owned[datapath],
                    error,
                )
                self.doubt([datapath])
            elif datapath in self._only_moved and self._moved.get(datapath) is moved[datapath]:
                followed.add(datapath)
        if not changes:
            self._note_brought(followed, moved)

    def _renamed(
        self,
        datapath: DatapathId,
        ports: Mapping[str, Collection[int]],
        state: NetworkState,
        diverts: Iterable[Install],
    ) -> Iterator[RuleChange]:
        """Changes by which rules name these ports as they are numbered now. Rules that may be
        there or not, such as those of a change, are modified if they are there.
        """
        substrate = self._substrate
        symbols = substrate.ports(datapath).symbols(ports)
        rules = (
            *substrate.own_rules(datapath, self.dead_uplinks, self._policy.now.source_check),
            *substrate.common_rules(datapath, state),
            *installed(diverts),
            *self._added_rules(datapath),
        )
        named = [rule for rule in rules if not symbols.isdisjoint(ports_named(rule))]
        yield from map(RemoveByPort, sorted(set().union(*ports.values())))
        for rule in named:
            yield Install(rule) if matches_port(rule) else Modify(rule)

    def divert(
        self,
        circuits: Collection[Circuit],
        paths: Collection[Path] = (),
        changes: Collection[Execution] = (),
    ) -> Course[frozenset[Circuit]]:
        """Send the pairs on dead circuits and dead paths electrical, until these are withdrawn.

        Pairs that ``changes`` under way move are left to them: those that they do not move after
        all, they leave diverted. Returns the dead circuits that pairs are on: if they stand after
        it, they are to be withdrawn, whether or not they have light again by then.
        """
        state = self._memory.state
        pairs = moving_pairs(state, without(state, circuits, paths))
        if not pairs or not self.settled:
            return frozenset()
        self._dead |= pairs
        left = pairs
        for change in changes:
            change.hear_of_dead(pairs)
            left -= change.moving
        diverts = diverting(self._substrate, steering_of(self._substrate, left), state.epoch)
        changed = only(diverts, self.ready())
        (done,) = yield Batch("divert", (ApplyRules(changed, self._hurries),))
        for datapath, error in done.value.items():
            if error is not None:
                LOG.warning("switch %#x was not diverted: %s", datapath, error)
        self.doubt(datapath for datapath, error in done.value.items() if error is not None)
        used = {
            circuit
            for path in state.topology.paths
            if pair_of(path) in pairs
            for circuit in path.circuits
        }
        return frozenset(circuits) & rings_of(used, state.topology.circuits)

    def tidy_relays(self) -> Steps:
        """Leave relays with the rules that the present state needs, and none of an earlier one.

        This comes before anything moves: an old rule could take a new path for its own.
        """
        if not self.spares_relays or not self.settled:
            return
        self.spares_relays = False
        changes = {
            datapath: tuple(relays_as_in(installed(table)))
            for datapath, table in self.tables(sorted(self.owned.keys() & self.ready()))
        }
        # A barrier confirms tables, not the packets that were on their way.
        yield Batch("drain", (Pause(self._policy.now.drain.bound_ms / 1000),))
        (done,) = yield Batch("tidy", (ApplyRules(changes),))
        self.doubt(datapath for datapath, error in done.value.items() if error is not None)
