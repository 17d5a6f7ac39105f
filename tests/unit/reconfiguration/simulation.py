"""A network in memory, seeded, that fails the way devices do.

:class:`Network` carries out the executor's commands. The commands of a batch run interleaved, one
atomic change at a time, so that :mod:`tests.unit.reconfiguration.watch` can look at the whole
network after every change. What a command reports is drawn apart from what it does: a lost reply
may hide success, failure, or half of either.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain, groupby
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.forwarding.match_action import Port, place_of_wired, wired_port
from hydra.forwarding.pipeline import VLAN_PRESENT, RuleKind
from hydra.forwarding.rules import (
    BY_PORT,
    BY_UPLINK,
    ROUND_RULES,
    FlowRule,
    Install,
    InstallAll,
    Lane,
    Modify,
    Remove,
    RemoveByPort,
    RuleChange,
    installed,
    match_key,
    matches_port,
    ports_named,
    rack_metadata,
)
from hydra.forwarding.substrate import Steering, substrate_of
from hydra.model import (
    Circuit,
    CrossConnect,
    DatapathId,
    Fabric,
    NetworkState,
    OpticalPort,
    PlaneId,
    PortId,
    RackId,
    Server,
    VlanId,
)
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    AwaitPortsUp,
    AwaitRounds,
    AwaitSwitches,
    Batch,
    Command,
    CompareRules,
    ConfirmRules,
    HeldRules,
    Marker,
    MoveMirrors,
    Outcome,
    PassMarkers,
    Pause,
    ProbePath,
    ReadMirrors,
    ReadPortPackets,
    ReadVlans,
    Record,
    SaveState,
    SetVlans,
    StageRules,
    TakeSwitches,
)
from hydra.reconfiguration.drift import Drift, DriftKind, RuleDrift
from hydra.reconfiguration.plan import port_trunks
from hydra.reconfiguration.relaying import relay_rules
from hydra.reconfiguration.run import Conditions
from hydra.roles import Mirrors, PortVlans
from tests.unit.reconfiguration.wiring import Link, Sent, Way, Wiring, root

ABOUT_PATHS = {
    RuleKind.DIVERT,
    RuleKind.SPREAD,
    RuleKind.TOR_RELAY,
    *(kind for kinds in (BY_UPLINK, BY_PORT) for kind in (kinds.alone, kinds.one_of_several)),
}
LONGEST_DELAY_S = 0.5
"""By which a device may carry out what it has not answered in time."""
LONGEST_LAG_S = 0.08
"""For which a vswitch forwards by rules that it has replaced; less than the drain's bound."""
LONGEST_STANDSTILL_S = 3.0
"""For which a ToR passes on nothing; more than the drain's bound."""
LEASE_S = 2.0
"""From the last that a leader does by its own clock to the first that the next one does."""
LONGEST_PAUSE_S = 5.0
"""After which a leader that was paused goes on, and what it had begun comes out."""
_WORDS: Final = {
    FailureKind.NOT_CONNECTED: "not connected",
    FailureKind.REFUSED: "refused",
    FailureKind.UNKNOWN: "no answer",
    FailureKind.LATE: "no answer yet",
    FailureKind.AWAITS_PEOPLE: "people were asked",
}
Doing = Generator[None, None, tuple[object, Failure | None]]
_HANDLERS: Final[Mapping[type, str]] = {
    ApplyRules: "_apply_rules",
    StageRules: "_nothing",
    AwaitRounds: "_await_rounds",
    ReadPortPackets: "_read_packets",
    SetVlans: "_set_vlans",
    MoveMirrors: "_move_mirrors",
    ReadMirrors: "_read_mirrors",
    AwaitPortsUp: "_await_ports_up",
    Announce: "_announce",
    ProbePath: "_probe",
    PassMarkers: "_pass_markers",
    Pause: "_pause",
    Record: "_record",
    ReadVlans: "_read_vlans",
    SaveState: "_save_state",
    AwaitSwitches: "_await_switches",
    TakeSwitches: "_take_switches",
    CompareRules: "_compare_rules",
    ConfirmRules: "_confirm_rules",
}
"""The method of :class:`Network` that carries out each command."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The chance of each fault, 0 to 1, drawn anew for each device and command."""

    vswitch: float = 0.0
    tor: float = 0.0
    mirrors: float = 0.0
    read: float = 0.0
    busy_circuit: float = 0.0
    no_counters: float = 0.0
    no_carrier: float = 0.0
    probe: float = 0.0
    late: float = 0.0
    """Of what a write did not do before its reply was given up: it may still happen afterwards."""
    lie: float = 0.0
    """New cross-connects that are confirmed, and some of them pass no light.

    What a device says of its VLANs and cross-connects, drivers have read back.
    """
    standstill: float = 0.0
    """A learning ToR, once a vswitch behind it has been diverted, passes on nothing for a while."""

    @classmethod
    def draw(cls, rng: random.Random) -> Faults:
        """Each kind of fault is absent, rare or frequent."""
        chances = (0.0, 0.0, 0.05, 0.3)
        return cls(*(rng.choice(chances) for _ in fields(cls)))


@dataclass(frozen=True, slots=True)
class Late:
    """A change that nobody waits for any more."""

    when_s: float
    change: Callable[[], None]
    device: DatapathId | None
    """The switch whose rules it changes; None: it is of another kind of device."""
    term: int
    """Number of the leader that asked for it."""


@dataclass(slots=True)
class Stale:
    """A table that a switch has replaced, and still forwards some packets by."""

    until_s: float
    cached_until_s: float
    """Until when it sends by it; after that, frames of earlier wait in front of a ToR."""
    table: Mapping[object, FlowRule]
    sent: Sent | None = None
    """What follows from it, once anybody has asked."""
    lost: set[RackId] = field(default_factory=set)
    """Racks where nobody could take anything once it was replaced: whatever was on its way there by
    then counts as lost, though servers there are let in again before it would have come.
    """
    given_up: set[tuple[RackId, VlanId]] = field(default_factory=set)
    """Racks, and the VLAN on which a leader has given up what waits for them."""


@dataclass
class Lateness:
    """Changes that come late, and whose they are where controllers share a store."""

    changes: list[Late] = field(default_factory=list)
    happened: int = 0
    refused: int = 0
    """Changes of former leaders that switches refused."""
    term: int = 0
    """Number of the leader whose term it is."""
    taken_in: dict[DatapathId, int] = field(default_factory=dict)
    """In which term switches were taken last."""
    under_way: list[dict[DatapathId, Sequence[RuleChange]]] = field(default_factory=list)
    """What each command under way has yet to tell switches."""
    of_command: dict[int, dict[DatapathId, Sequence[RuleChange]]] = field(default_factory=dict)
    """The same of commands that wait for slow switches, too, by their ``id``."""
    slow: set[DatapathId] = field(default_factory=set)
    """Switches that are late with what is not waited for."""
    mute: set[DatapathId] = field(default_factory=set)
    """Those of them that owe an answer: they do what they were told, and nobody hears of it."""


@dataclass(eq=False)
class Flight:
    """A batch that is being carried out."""

    batch: Batch
    started_s: float
    doing: dict[int, Doing]
    """The commands that are not over, by their places in the batch."""
    ended: dict[int, Outcome] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return not self.doing

    @property
    def outcomes(self) -> list[Outcome]:
        """In the commands' order, once it is over."""
        return [self.ended[index] for index in range(len(self.batch.commands))]


@dataclass
class PortNumbers:
    """OpenFlow numbers of a switch's ports, where some have another one than at first."""

    of: dict[int, int] = field(default_factory=dict)
    """By symbolic port; of others, the number is the symbolic port's, negated."""
    named: dict[object, tuple[int, ...]] = field(default_factory=dict)
    """Numbers by which each rule names its ports."""

    def in_rule(self, rule: FlowRule) -> tuple[int, ...]:
        """Numbers by which a rule names its ports that is written now."""
        return tuple(self.of.get(port, -port) for port in ports_named(rule))


class Network:
    """Vswitches, ToRs and optical switches, and what reaches whom through them."""

    rule_changes = 0
    """Counted by :meth:`rules_changed`."""
    _wiring: Wiring | None = None
    away: Set[PlaneId | str] = frozenset()
    """Planes and racks (by name) whose device does not answer: it stays as it is."""
    forgotten: frozenset[tuple[PortId, VlanId]] = frozenset()
    """Ports that were retagged, with VLANs that stayed and were not announced since."""
    electrical: Callable[[], Collection[DatapathId]] = frozenset
    """Switches that hold no rules of circuits, as their controller knows: they refused some."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        self.fabric = fabric
        self.rng = rng
        self.faults = Faults()
        self.now_s = 0.0
        self.substrate = substrate_of(fabric)
        self.names = dict(self.substrate.owned())
        self.switch_of: dict[str, Steering] = {}
        for rack in fabric.racks:
            for switch in self.substrate.steering(rack.id):
                self.names[switch.datapath] = switch.name
                self.switch_of |= dict.fromkeys((s.name for s in switch.servers), switch)
        self.connected = set(self.names)
        self.dead_uplinks: set[str] = set()
        self.closed: set[str] = set()
        """Servers from whom their ToR takes nothing for circuits."""
        self.journal: list[tuple[str, object]] = []
        self.tables: dict[DatapathId, dict[object, FlowRule]] = {
            datapath: {match_key(r): r for r in self.substrate.path_rules(datapath, state)}
            for datapath in self.names
        }
        self.renumbered: dict[DatapathId, PortNumbers] = {}
        self.learning = {dp: n for dp, n in fabric.tor_names.items() if dp not in self.names}
        """ToRs that learn, with their names: always connected."""
        for datapath in self.learning:
            self.tables[datapath] = {match_key(r): r for r in self.substrate.tor_rules()}
        self.mirrors: dict[PlaneId, set[CrossConnect]] = {
            plane.id: set() for plane in fabric.planes
        }
        """Cross-connects that pass light."""
        for circuit in state.topology.circuits:
            self.mirrors[circuit.plane] |= set(fabric.cross_connects(circuit))
        self.halves: dict[PlaneId, set[CrossConnect]] = {plane.id: set() for plane in fabric.planes}
        """Cross-connects that exist and pass no light."""
        self.in_two = {plane.id for plane in fabric.planes[::2]}
        """Planes on which a cross-connect exists without light before it is there, and before it is
        gone: a move that breaks off leaves such halves.
        """
        self.vlans: dict[PortId, PortVlans] = dict(port_trunks(fabric, state))
        self.port_named = {(p.rack, p.tor_port): p for p in fabric.ports}
        self.server_at = {(s.rack, s.tor_port): s for s in fabric.servers}
        self.port_fed = {(p.plane, p.egress): p for p in fabric.ports}
        self.port_feeding = {(p.plane, p.ingress): p for p in fabric.ports}
        self._sent: dict[DatapathId, Sent] = {}
        """What follows from the tables, until those change."""
        self.stale: dict[DatapathId, list[Stale]] = {}
        self.late = Lateness()
        self.unreliable: set[PlaneId | str] = set()
        """Planes and racks (by name) that have confirmed what they did not do, or do it late."""
        self._lags_until_s: dict[DatapathId, float] = {}
        """Until when vswitches forward by cached flows."""
        self.still_until_s: dict[RackId, float] = {}
        """Until when ToRs stand still."""
        self.still_and_telling: set[RackId] = set()
        """Racks whose ToR tells its counters while it stands still: these do, too."""
        self.rack_of = (
            {self.switch_of[s.name].datapath: s.rack for s in fabric.servers}
            if self.substrate.retags
            else {}
        )
        """By vswitch, the rack whose learning ToR its frames pass."""
        self._counters = dict.fromkeys((port.id for port in fabric.ports), 0)
        self._restless: dict[PortId, int] = {}
        """Reads of a port for which its counter still moves."""
        self._uncounted: set[RackId] = set()

    # -- what the network does with packets -------------------------------------------------------

    def wiring(self) -> Wiring:
        """What follows from mirrors, VLANs and relays now: the same object until they change."""
        if self._wiring is None or not self._wiring.holds():
            self._wiring = Wiring(self)
        return self._wiring

    def senders(self) -> object:
        """Servers that may send by circuit, and their switches' rules, in a form to be compared:
        as long as it is the same, nobody begins to send anything.
        """
        return (
            self.rule_changes,
            frozenset(self.dead_uplinks),
            frozenset(self.closed),
        )

    def renumber(self, datapath: DatapathId, numbers: Mapping[int, int]) -> dict[int, int]:
        """Give ports of a switch these OpenFlow numbers, by symbolic port; returns the earlier ones
        of those that have another one now. Its rules name them by these from then on.
        """
        if datapath not in self.renumbered:
            self.renumbered[datapath] = PortNumbers()
            self._name_ports(datapath, InstallAll(tuple(self.tables[datapath].values())))
        known = self.renumbered[datapath].of
        earlier = {port: known.get(port, -port) for port in numbers}
        known.update(numbers)
        return {port: old for port, old in earlier.items() if old != numbers[port]}

    def misnamed(self, datapath: DatapathId) -> list[FlowRule]:
        """Rules of a switch that name a port by a number that it has no more."""
        if datapath not in self.renumbered:
            return []
        ports, table = self.renumbered[datapath], self.tables[datapath].items()
        return [rule for key, rule in table if ports.named[key] != ports.in_rule(rule)]

    def _name_ports(self, datapath: DatapathId, change: RuleChange) -> None:
        """Note by which numbers rules name ports that are written now."""
        ports = self.renumbered.get(datapath)
        if ports is None:
            return
        if isinstance(change, Install | InstallAll):
            ports.named |= {match_key(rule): ports.in_rule(rule) for rule in installed([change])}
        elif isinstance(change, Modify):
            ports.named[match_key(change.rule)] = ports.in_rule(change.rule)

    def _about_port(self, datapath: DatapathId, number: int) -> list[object]:
        """Keys of the rules about what comes in at a port with this number."""
        named, table = self.renumbered[datapath].named, self.tables[datapath].items()
        return [key for key, rule in table if matches_port(rule) and named[key][0] == number]

    def rules_changed(self, datapath: DatapathId) -> None:
        """A switch's table is another one from now on."""
        self._sent.pop(datapath, None)
        self.rule_changes += 1

    def sends_on(self, server: Server, to: RackId) -> set[Way]:
        """How ``server`` sends to another rack by circuit now; empty: electrically."""
        return {way for rack, way in self.sent(server) if rack == to}

    def sent(self, server: Server) -> Sent:
        """What a server sends by circuit now: the same object until its switch has other rules.

        A switch forwards by cached decisions for a while after it has confirmed other rules.
        """
        if server.name in self.dead_uplinks or server.name in self.closed:
            return ()
        datapath = self.switch_of[server.name].datapath
        sent = self._sent.get(datapath)
        if sent is None:
            sent = self._sent[datapath] = self._all_sent(server.rack, self.tables[datapath])
        cached = self.cached(datapath)
        if not cached:
            return sent
        off = self.dead_uplinks | self.closed
        nobody = {  # nothing that was sent there earlier can be taken any more
            rack.id
            for rack in (self.fabric.racks if off else ())
            if all(other.name in off for other in rack.servers)
        }
        for one in cached:
            if one.sent is None:
                one.sent = self._all_sent(server.rack, one.table)
            sent += tuple(
                (to, way)
                for to, way in one.sent
                if to not in nobody | one.lost and (to, way[0]) not in one.given_up
            )
        return sent

    def lose_waiting(self, lanes: Collection[Lane]) -> None:
        """Let frames be lost that wait for these in front of ToRs which stand still."""
        ways = [(pair, vlan) for path, vlan in lanes for pair in path.directions]
        for datapath, rack in self.rack_of.items():
            for one in self.cached(datapath) if self.stands_still(rack) else ():
                one.given_up.update((to, vlan) for (here, to), vlan in ways if here == rack)

    def _all_sent(self, here: RackId, table: Mapping[object, FlowRule]) -> Sent:
        return tuple(
            (rack.id, way)
            for rack in self.fabric.racks
            if rack.id != here
            for way in self._sends(rack.id, table)
        )

    def _sends(self, to: RackId, table: Mapping[object, FlowRule]) -> set[Way]:
        metadata = rack_metadata(to)
        if (RuleKind.DIVERT, (metadata,)) in table:
            return set()
        kinds = BY_UPLINK if self.substrate.retags else BY_PORT
        spread = table.get((RuleKind.SPREAD, (metadata,)))
        if spread is None:
            alone = table.get((kinds.alone, (metadata,)))
            return set() if alone is None else {_way(*alone.args[1:])}
        numbers = range(spread.args[1] + 1)
        rules = (table.get((kinds.one_of_several, (metadata, number))) for number in numbers)
        return {_way(*rule.args[2:]) for rule in rules if rule is not None}

    def arrives(self, way: Way, here: RackId, there: RackId) -> bool:
        """Whether what a rack sends in this way reaches another, and answers can come back."""
        if self.substrate.retags:
            return self.joined(way[0], here, there)
        return self.followed(way, here)[-1] == there

    def followed(self, way: Way, rack: RackId) -> list[PortId | RackId | None]:
        """The ports by which a labelled frame leaves racks, and the rack where it ends.

        None in place of that where it is sent into the dark.
        """
        label, out = way
        left_by: list[PortId | RackId | None] = []
        while True:
            port = self.fabric.ports_of(rack)[place_of_wired(out)]
            left_by.append(port.id)
            far = self._far_end(port)
            if far is None:
                return [*left_by, None]
            rack = far.rack
            arrived = (wired_port(self.fabric.place_of_port[far.id]), VLAN_PRESENT | label)
            table = self.tables[self.fabric.racks[rack].tor.datapath_id]
            relay = table.get((RuleKind.TOR_RELAY, arrived))
            if relay is None:
                return [*left_by, rack]
            out = relay.args[2]

    def _far_end(self, port: OpticalPort) -> OpticalPort | None:
        """Where the light of a port comes out now; a port in the dark sends nothing."""
        lit, out = False, None
        for cross in self.mirrors[port.plane]:
            lit = lit or cross.egress == port.egress
            if out is None and cross.ingress == port.ingress:
                out = cross.egress
        return self.port_fed[port.plane, out] if lit and out is not None else None

    def links(self) -> list[Link]:
        """Pairs of ports that light joins, once each."""
        found: list[Link] = []
        for plane, lit in self.mirrors.items():
            for cross in lit:
                a = self.port_feeding.get((plane, cross.ingress))
                b = self.port_fed.get((plane, cross.egress))
                if a is None or b is None or a is b:
                    continue
                back = CrossConnect(b.ingress, a.egress) in lit
                if not back or a.id < b.id:
                    found.append((a, b, back))
        return found

    def joined(self, vlan: VlanId, one: RackId, other: RackId) -> bool:
        """Whether frames get from one rack to the other on ``vlan``, and back."""
        tree = self.islands(vlan, self.links())
        return root(tree, one) == root(tree, other)

    def islands(self, vlan: VlanId, links: Sequence[Link]) -> dict[RackId, RackId]:
        """Racks that ``vlan`` joins in both directions, as trees with one root each."""
        tree = {rack.id: rack.id for rack in self.fabric.racks}
        vlans = self.vlans
        for a, b, whole in links:
            if whole and vlan in vlans[a.id].tagged and vlan in vlans[b.id].tagged:
                tree[root(tree, a.rack)] = root(tree, b.rack)
        return tree

    def loops(self, links: Sequence[Link]) -> Iterator[VlanId]:
        """Circuit VLANs in which a broadcast would go round for ever."""
        if not self.vlans:
            return
        trees: dict[VlanId, dict[RackId, RackId]] = {}
        looped: set[VlanId] = set()
        for a, b, _ in links:
            for vlan in self.vlans[a.id].tagged & self.vlans[b.id].tagged:
                if vlan not in trees:
                    trees[vlan] = {rack.id: rack.id for rack in self.fabric.racks}
                tree = trees[vlan]
                one, other = root(tree, a.rack), root(tree, b.rack)
                if one == other:
                    looped.add(vlan)
                tree[one] = other
        yield from sorted(looped - {self.fabric.parking_vlan})

    # -- carrying out commands --------------------------------------------------------------------

    def unsettle(self, circuits: Sequence[Circuit], *, beside: bool = False) -> None:
        """Circuits with frames in flight: most drain after some reads, some never do.

        ``beside``: others are being drained, by the counters that there are.
        """
        if not beside:
            self._uncounted = {
                rack.id for rack in self.fabric.racks if self.rng.random() < self.faults.no_counters
            }
        for circuit in circuits:
            stays = self.rng.random() < self.faults.busy_circuit
            self._restless[circuit.a] = 10**9 if stays else self.rng.randint(0, 5)

    def seen_busy(self, circuit: Circuit) -> bool:
        """Whether frames are in flight on a circuit whose counters can be read throughout."""
        racks = self.fabric.racks_of(circuit)
        untold = self._uncounted | self.still_until_s.keys()
        readable = self.faults.read == 0 and untold.isdisjoint(racks)
        return readable and self._restless.get(circuit.a, 0) > 0

    def perform(self, batch: Batch, watch: Callable[[Command | None], None]) -> list[Outcome]:
        """All commands at once, interleaved at random; ``watch`` sees every state in between."""
        self.late.under_way = []
        flight = self.begin(batch)
        while not flight.over:
            watch(self.go_on([flight])[1])
        return flight.outcomes

    def begin(self, batch: Batch) -> Flight:
        doing = {index: self.start(command) for index, command in enumerate(batch.commands)}
        return Flight(batch, self.now_s, doing)

    def go_on(self, flights: Sequence[Flight]) -> tuple[Flight, Command]:
        """Carry out a part of some command of what is in flight; of which one."""
        doing = [(flight, index) for flight in flights for index in flight.doing]
        soon = [
            (flight, index)
            for flight, index in doing
            if not self._is_left_to_slow(flight.batch.commands[index])
        ]
        flight, index = self.rng.choice(soon or doing)  # in order
        self.now_s += self.rng.uniform(0.0, 0.002)
        if self.late.changes:
            self.catch_up()
        try:
            next(flight.doing[index])
        except StopIteration as end:
            del flight.doing[index]
            times = {"started_s": flight.started_s, "finished_s": self.now_s}
            flight.ended[index] = Outcome(*end.value, **times)
        return flight, flight.batch.commands[index]

    def _is_left_to_slow(self, command: Command) -> bool:
        left = self.late.of_command.get(id(command))
        return bool(left) and self.late.slow.issuperset(left)

    def die(self) -> None:
        """Nobody hears any more what slow switches do of what they were told: soon, or never."""
        for left in self.late.of_command.values():
            for datapath, changes in left.items():
                if self._hit(0.5):
                    self._come_late(datapath, changes)
        self.late.of_command.clear()

    def catch_up(self) -> None:
        """What was late until now happens, unless it is of a leader that is one no more there."""
        late = self.late
        due = [one for one in late.changes if one.when_s <= self.now_s]
        late.changes = [one for one in late.changes if one.when_s > self.now_s]
        for one in due:
            if one.device is not None and late.taken_in.get(one.device, 0) > one.term:
                late.refused += 1
            else:
                one.change()
                late.happened += 1

    def take_over(self) -> None:
        """Another controller leads, after the lease of one that may only have been paused.

        What that one had begun comes out at any moment. Switches do it until the next one takes
        them. ToRs' databases refuse it from now on, and optical switches have done what they were
        told, or a first part of it, and do no more: a leader begins nothing in the last moment of
        its lease.
        """
        late = self.late
        begun = [one for one in late.changes if one.device is None]
        for _, steps in groupby(begun, key=lambda one: one.when_s):  # a device's, in their order
            some = list(steps)
            for one in some[: self.rng.randint(0, len(some))]:
                one.change()
        late.changes = [one for one in late.changes if one.device is not None]
        for left in late.under_way:
            for datapath, changes in left.items():
                when_s = self.now_s + LEASE_S + self.rng.uniform(0.0, LONGEST_PAUSE_S)
                change = partial(self.apply, datapath, changes)
                late.changes.append(Late(when_s, change, datapath, late.term))
        late.under_way = []
        late.term += 1
        self.now_s += LEASE_S

    def _postpone(
        self,
        device: PlaneId | str,
        changes: Sequence[Callable[[], None]],
        switch: DatapathId | None = None,
    ) -> None:
        """Of a write that got no reply: what has not happened happens later, or never."""
        if changes and self._hit(self.faults.late):
            self.unreliable.add(device)
            when_s = self.now_s + self.rng.uniform(0.0, LONGEST_DELAY_S)
            term = self.late.term
            self.late.changes += [Late(when_s, change, switch, term) for change in changes]

    def start(self, command: Command) -> Doing:
        """A command under way, a change at a time."""
        doing: Doing = getattr(self, _HANDLERS[type(command)])(command)
        return doing

    def _hit(self, chance: float) -> bool:
        return self.rng.random() < chance

    def _announce(self, command: Announce) -> Doing:
        announced = {vlan for _, vlans in command.servers for vlan in vlans}
        self.forgotten = frozenset(entry for entry in self.forgotten if entry[1] not in announced)
        yield
        return None, None

    def _nothing(self, command: StageRules) -> Doing:
        yield
        return None, None

    def _take_switches(self, command: TakeSwitches) -> Doing:
        heard = frozenset(filter(self.hears, command.datapaths))
        self.late.taken_in |= dict.fromkeys(heard, self.late.term)
        yield
        return heard, None

    def _await_rounds(self, command: AwaitRounds) -> Doing:
        """Rounds end by themselves; where a ToR stands still, vswitches forward all the same."""
        until_s = max((self._lags_until_s.get(one, 0.0) for one in command.datapaths), default=0.0)
        self.now_s = max(self.now_s, until_s)
        yield
        return frozenset(), None

    def _pause(self, command: Pause) -> Doing:
        self.now_s += command.seconds
        yield
        return None, None

    def _record(self, command: Record) -> Doing:
        self.journal.append((command.what, command.details))
        yield
        return None, None

    def _save_state(self, command: SaveState) -> Doing:
        self.journal.append((command.what, {}))
        yield
        return None, None

    def _await_switches(self, command: AwaitSwitches) -> Doing:
        if not self.connected.issuperset(command.datapaths):
            self.now_s += command.timeout_s
        yield
        return frozenset(self.connected), None

    def _tor_away(self, rack: RackId) -> bool:
        return self.fabric.racks[rack].name in self.away

    def _read_vlans(self, command: ReadVlans) -> Doing:
        yield
        if self._tor_away(command.rack) or self._hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        return {n: self._membership(command.rack, n) for n in command.ports}, None

    def _membership(self, rack: RackId, name: str) -> PortVlans:
        server = self.server_at.get((rack, name))
        if server is not None and server.name in self.closed:
            return self.substrate.closed_ports([server])[name]
        port = self.port_named.get((rack, name))
        return self.substrate.fixed_ports(rack)[name] if port is None else self.vlans[port.id]

    def hears(self, datapath: DatapathId) -> bool:
        """Whether a switch is connected."""
        return datapath in self.connected or datapath in self.learning

    def name_of(self, datapath: DatapathId) -> str:
        return self.names.get(datapath) or self.learning[datapath]

    def _compare_rules(self, command: CompareRules) -> Doing:
        """As tables are: silent switches say nothing."""
        found: dict[DatapathId, RuleDrift] = {}
        for datapath, installations in command.intended.items():
            if not self.hears(datapath) or self._hit(self.faults.read):
                continue
            wanted = {match_key(rule): rule.args for rule in installed(installations)}
            held = {key: rule.args for key, rule in self.tables[datapath].items()}
            keys = wanted.keys() | held.keys()
            differing = [key for key in keys if wanted.get(key) != held.get(key)]
            differing += [match_key(rule) for rule in self.misnamed(datapath)]
            foreign = [Remove(self.tables[datapath][key]) for key in held.keys() - wanted.keys()]
            name = self.name_of(datapath)
            items = [
                Drift(
                    kind=DriftKind.RULE,
                    device=name,
                    subject=str(key),
                    intended=str(wanted.get(key)),
                    actual=str(held.get(key)),
                )
                for key in sorted(differing, key=str)
            ]
            found[datapath] = RuleDrift(tuple(items), tuple(foreign))
        yield
        return found, None

    def _confirm_rules(self, command: ConfirmRules) -> Doing:
        """As tables are: silent switches say nothing."""
        exact, rounds, relays = set(), {}, {}
        for datapath, installations in command.intended.items():
            if self.hears(datapath) and not self._hit(self.faults.read):
                wanted = {match_key(rule): rule.args for rule in installed(installations)}
                table = self.tables[datapath]
                held = {key: rule.args for key, rule in table.items()}
                if held == wanted and not self.misnamed(datapath):
                    exact.add(datapath)
                else:
                    cookies = {rule.cookie for rule in ROUND_RULES.rules}
                    rounds[datapath] = frozenset(
                        rule.cookie for rule in table.values() if rule.cookie in cookies
                    )
                    relays[datapath] = list(relay_rules(table.values()))
        yield
        return HeldRules(frozenset(exact), rounds, relays), None

    def _apply_rules(self, command: ApplyRules) -> Doing:
        failures: dict[DatapathId, Failure | None] = {}
        left = dict(command.changes)
        self.late.under_way.append(left)
        slow = self.late.slow
        if slow and not command.hurries:
            self.late.of_command[id(command)] = left
        asked = set(filter(self.hears, left))
        order = self.rng.sample(sorted(command.changes), len(command.changes))
        for datapath in sorted(order, key=slow.__contains__):
            kind = None
            del left[datapath]
            owes_more = datapath in self.late.mute and datapath in asked
            if not self.hears(datapath) and not owes_more:
                kind = FailureKind.NOT_CONNECTED
            elif command.hurries and datapath in self.late.slow:
                failures[datapath] = failure_of(command, FailureKind.LATE)
                self._be_late(datapath, command.changes[datapath])
                yield
                continue
            elif self._hit(self.faults.vswitch):
                kind = self.rng.choice((FailureKind.REFUSED, FailureKind.UNKNOWN))
            if kind is None or (kind is FailureKind.UNKNOWN and self._hit(0.5)):
                self.apply(datapath, command.changes[datapath])
            elif kind is FailureKind.REFUSED and self._hit(0.5):
                self.apply(datapath, self._without_members(command.changes[datapath]))
            elif kind is FailureKind.UNKNOWN:
                change = partial(self.apply, datapath, command.changes[datapath])
                self._postpone(self.name_of(datapath), [change], datapath)
            if kind is not None and self._hit(0.5):
                self.connected.discard(datapath)
            failures[datapath] = kind and failure_of(command, kind)
            yield
        self.late.of_command.pop(id(command), None)
        return failures, None

    def _without_members(self, changes: Sequence[RuleChange]) -> list[RuleChange]:
        """A bundle that is committed without the rules that its switch refused when they were
        added: those of one kind.
        """
        rules = [one for one in changes if isinstance(one, Install | InstallAll)]
        kinds = sorted({rule.kind for rule in installed(rules)}, key=lambda kind: kind.value)
        unknown = self.rng.choice(kinds) if kinds else None
        return [
            InstallAll(tuple(rule for rule in installed([one]) if rule.kind is not unknown))
            if isinstance(one, Install | InstallAll)
            else one
            for one in changes
        ]

    def _be_late(self, datapath: DatapathId, changes: Sequence[RuleChange]) -> None:
        self.connected.discard(datapath)
        self.late.mute.add(datapath)
        self._come_late(datapath, changes)

    def _come_late(self, datapath: DatapathId, changes: Sequence[RuleChange]) -> None:
        when_s = self.now_s + self.rng.uniform(0.0, LONGEST_DELAY_S)
        change = partial(self.apply, datapath, changes)
        self.late.changes.append(Late(when_s, change, datapath, self.late.term))

    def apply(self, datapath: DatapathId, changes: Sequence[RuleChange]) -> None:
        """One atomic bundle."""
        table = self.tables[datapath]
        self.rules_changed(datapath)
        cached_s = lag_s = self.rng.choice((0.0, 0.01, LONGEST_LAG_S))
        lags_s = self._lags_until_s.get(datapath, 0.0)
        self._lags_until_s[datapath] = max(lags_s, self.now_s + lag_s)
        rack = self.rack_of.get(datapath)
        if rack is not None and self._hit(self.faults.standstill):
            lag_s = self.rng.choice((0.5, LONGEST_STANDSTILL_S)) * self.rng.random()
            still_s = self.still_until_s.get(rack, 0.0)
            self.still_until_s[rack] = max(still_s, self.now_s + lag_s)
            (self.still_and_telling.add if self._hit(0.5) else self.still_and_telling.discard)(rack)
        if lag_s:
            stale = Stale(self.now_s + lag_s, self.now_s + cached_s, dict(table))
            self.stale.setdefault(datapath, []).append(stale)
        for change in changes:
            self._name_ports(datapath, change)
            if isinstance(change, Install | InstallAll):
                table.update((match_key(rule), rule) for rule in installed([change]))
            elif isinstance(change, Remove):
                table.pop(match_key(change.rule), None)
            elif isinstance(change, Modify):
                if match_key(change.rule) in table:
                    table[match_key(change.rule)] = change.rule
            elif isinstance(change, RemoveByPort):
                for key in self._about_port(datapath, change.number):
                    del table[key]
            else:
                gone = [k for k, r in table.items() if r.cookie & change.mask == change.cookie]
                for key in gone:
                    del table[key]

    def _extent(self, command: Command, chance: float, changes: int) -> tuple[int, Failure | None]:
        """How many of a write's changes take place, and how it ends."""
        if not self._hit(chance):
            return changes, None
        if self._hit(0.5):
            return 0, failure_of(command, FailureKind.REFUSED)
        return self.rng.randint(0, changes), failure_of(command, FailureKind.UNKNOWN)

    def _set_vlans(self, command: SetVlans) -> Doing:
        if self._tor_away(command.rack):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        self.now_s = max(self.now_s, self.still_until_s.get(command.rack, 0.0))
        ports = self.rng.sample(sorted(command.ports), len(command.ports))
        extent, failure = self._extent(command, self.faults.tor, len(ports))

        def change(name: str) -> None:
            server = self.server_at.get((command.rack, name))
            if server is None:
                end, vlans = self.port_named[command.rack, name].id, command.ports[name]
                if vlans != self.vlans[end]:
                    kept = self.vlans[end].tagged & vlans.tagged
                    self.forgotten |= {(end, vlan) for vlan in kept}
                self.vlans[end] = vlans
            elif command.ports[name] == self.substrate.closed_ports([server])[name]:
                self.closed.add(server.name)
            else:
                assert command.ports[name] == self.substrate.fixed_ports(server.rack)[name]
                self.reopen([server])

        for name in ports[:extent]:
            change(name)
            yield
        if failure and failure.kind is FailureKind.UNKNOWN:
            rack = self.fabric.racks[command.rack].name
            self._postpone(rack, [partial(change, name) for name in ports[extent:]])
        return None, failure

    def uplink_back(self, server: Server) -> None:
        """A vswitch's uplink that was down is up. No frame of it waits in front of the ToR."""
        datapath = self.switch_of[server.name].datapath
        self.stale[datapath] = [
            one for one in self.stale.get(datapath, ()) if self.now_s < one.cached_until_s
        ]
        self._let_in([server])
        self.dead_uplinks.discard(server.name)

    def reopen(self, servers: Collection[Server]) -> None:
        """Take again from servers what they send by circuit, and give them what is sent to them."""
        self._let_in(servers)
        self.closed.difference_update(server.name for server in servers)

    def _let_in(self, servers: Collection[Server]) -> None:
        off = self.dead_uplinks | self.closed
        for rack in {server.rack for server in servers}:
            if all(server.name in off for server in self.fabric.racks[rack].servers):
                for one in chain.from_iterable(self.stale.values()):
                    one.lost.add(rack)

    def _move_mirrors(self, command: MoveMirrors) -> Doing:
        if command.plane in self.away:
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        lit, halves = self.mirrors[command.plane], self.halves[command.plane]
        new = command.move.connect - (lit - command.move.disconnect)
        staying = (lit | halves) - command.move.disconnect - new
        ends = {cross.ingress for cross in staying} | {cross.egress for cross in staying}
        for cross in sorted(new):
            if cross.ingress in ends or cross.egress in ends:
                return None, failure_of(command, FailureKind.REFUSED, f"port of {cross} is taken")

        def darken(cross: CrossConnect) -> None:
            if cross in lit:
                lit.discard(cross)
                halves.add(cross)

        def delete(cross: CrossConnect) -> None:
            lit.discard(cross)
            halves.discard(cross)

        def light(cross: CrossConnect) -> None:
            halves.discard(cross)
            lit.add(cross)

        in_two = command.plane in self.in_two
        steps: list[tuple[Callable[[CrossConnect], None], CrossConnect]] = []
        for action, crosses in (
            (darken, command.move.disconnect if in_two else ()),
            (delete, command.move.disconnect),
            (halves.add, new if in_two else ()),
            (light, new),
        ):
            some = self.rng.sample(sorted(crosses), len(crosses))
            steps += [(action, cross) for cross in some]
        extent, failure = self._extent(command, self.faults.mirrors, len(steps))
        if failure is None and self._hit(self.faults.lie):
            extent -= self.rng.randint(0, len(new))
            self.unreliable.add(command.plane)
        for action, cross in steps[:extent]:
            action(cross)
            yield
        if failure and failure.kind is FailureKind.UNKNOWN:
            self._postpone(
                command.plane, [partial(action, cross) for action, cross in steps[extent:]]
            )
        return None, failure

    def _read_mirrors(self, command: ReadMirrors) -> Doing:
        yield
        if command.plane in self.away or self._hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        lit, halves = self.mirrors[command.plane], self.halves[command.plane]
        return Mirrors(frozenset(lit | halves), frozenset(halves)), None

    def _await_ports_up(self, command: AwaitPortsUp) -> Doing:
        """Light that is there is told of at once; what does not come is waited for."""
        until_s = self.now_s + command.timeout_s
        yield
        if self._tor_away(command.rack) or self._hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        dark = tuple(
            name
            for name in command.ports
            if not self._lit(self.port_named[command.rack, name])
            or self._hit(self.faults.no_carrier)
        )
        if dark:
            self.now_s = max(self.now_s, until_s)
        return dark, None

    def _lit(self, port: OpticalPort) -> bool:
        return any(cross.egress == port.egress for cross in self.mirrors[port.plane])

    def _probe(self, command: ProbePath) -> Doing:
        yield
        if self._hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        a, b = command.ends
        lost = tuple(
            f"{src.name} to {dst.name}"
            for src, dst in (((a, b),) if command.path.one_way else ((a, b), (b, a)))
            if not self._arrives(Marker(path=command.path, vlan=command.vlan, src=src, dst=dst))
            or self._hit(self.faults.probe)
        )
        return lost, None

    def _pass_markers(self, command: PassMarkers) -> Doing:
        """They wait where ToRs stand still, like the frames before them."""
        until_s = self.now_s + command.timeout_s
        while waiting := [one for one in command.markers if self.stands_still(one.src.rack)]:
            if self.now_s >= until_s:
                break
            self.now_s += 0.01
            yield
        yield
        lost = [
            one
            for one in command.markers
            if one in waiting or not self._arrives(one) or self._hit(self.faults.probe)
        ]
        if lost:
            self.now_s = max(self.now_s, until_s)
        return tuple(lost), None

    def stands_still(self, rack: RackId) -> bool:
        """Whether a rack's ToR stands still: what was sent to it waits, and it tells nothing."""
        return self.now_s < self.still_until_s.get(rack, 0.0)

    def _arrives(self, marker: Marker) -> bool:
        _, port = self.substrate.launch(marker.src, marker.path)
        if not self.closed.isdisjoint((marker.src.name, marker.dst.name)):
            return False
        return self.arrives((marker.vlan, port), marker.src.rack, marker.dst.rack)

    def _read_packets(self, command: ReadPortPackets) -> Doing:
        counts: dict[str, int] = {}
        still = self.stands_still(command.rack)
        for name in command.ports:
            port = self.port_named[command.rack, name].id
            if still:
                pass
            elif self._restless.get(port, 0) > 0:
                self._restless[port] -= 1
                self._counters[port] += self.rng.randint(1, 100)
            elif self._is_sent_to(port):
                self._counters[port] += self.rng.randint(1, 100)
            if command.rack not in self._uncounted:
                counts[name] = self._counters[port]
        yield
        mute = still and command.rack not in self.still_and_telling
        if mute or self._hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        return counts, None

    def _is_sent_to(self, end: PortId) -> bool:
        """Whether a switch still sends to this port, by rules that it has replaced."""
        return bool(self.stale) and any(
            self._passes(way, server.rack, end)
            for server in self.fabric.servers
            if self.cached(self.switch_of[server.name].datapath)
            for _, way in self.sent(server)
        )

    def _passes(self, way: Way, here: RackId, end: PortId) -> bool:
        if self.substrate.retags:
            return way[0] in self.vlans[end].tagged
        return end in self.followed(way, here)[:-1]

    def cached(self, datapath: DatapathId) -> list[Stale]:
        """Tables that a vswitch has replaced and still forwards some packets by."""
        entries = self.stale.get(datapath)
        if not entries:
            return []
        entries = [one for one in entries if self.now_s < one.until_s]
        if entries:
            self.stale[datapath] = entries
        else:
            del self.stale[datapath]
        return entries

    # -- what is to be held against it ------------------------------------------------------------

    def synchronised(self, state: NetworkState) -> frozenset[DatapathId]:
        """Connected switches that hold what ``state`` wants."""
        return frozenset(
            datapath
            for datapath in self.connected
            if not list(self.differing_rules(datapath, state))
        )

    def differing_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        """Rules about real racks that a switch lacks or has too many."""
        rules = self.substrate.path_rules(datapath, state)
        wanted = {(rule.kind, rule.args) for rule in rules}
        held = {
            (rule.kind, rule.args)
            for rule in self.tables[datapath].values()
            if rule.kind in ABOUT_PATHS
        }
        for kind, args in sorted(wanted ^ held, key=str):
            yield FlowRule(kind, args)


def failure_of(command: Command, kind: FailureKind, reason: str = "") -> Failure:
    """What a device or a switch says of a command; the executor knows who it was, and when."""
    return Failure(type(command).__name__, "a device", kind, reason or _WORDS[kind])


def _way(vlan: int, port: int = Port.OPTICAL) -> Way:
    return VlanId(vlan), port


def conditions_of(network: Network, state: NetworkState) -> Conditions:
    ready = network.synchronised(state)
    network.closed -= {
        name for name, switch in network.switch_of.items() if switch.datapath in ready
    }
    return Conditions(
        connected=ready,
        dead_uplinks=frozenset(network.dead_uplinks),
        closed=frozenset(network.closed),
    )


def shake(network: Network, rng: random.Random) -> None:
    """Between reconfigurations vswitches come and go, and the odds change."""
    network.faults = Faults.draw(rng)
    loss = rng.choice((0.0, 0.0, 0.1, 0.3))
    network.connected = {datapath for datapath in network.names if rng.random() >= loss}
