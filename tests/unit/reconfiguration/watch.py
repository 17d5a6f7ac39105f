"""Checks an execution on a simulated network after every change."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import Install, Remove
from hydra.model import (
    DatapathId,
    Path,
    PlaneId,
    PortId,
    RackId,
    VlanId,
)
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    AwaitPortsUp,
    AwaitRounds,
    Batch,
    Command,
    MoveMirrors,
    Outcome,
    PassMarkers,
    Pause,
    ProbePath,
    ReadMirrors,
    ReadPortPackets,
    Record,
    next_batch,
)
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import pair_of, port_trunks
from hydra.reconfiguration.steering import able
from hydra.reconfiguration.substeps import OWN_CYCLE
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.simulation.wiring import Wiring


class Violation(AssertionError):
    """An invariant is broken."""


DIVERTED = (
    "intent",
    "divert",
    "close",
    "drain",
    "untag",
    "unrelay",
    "move",
    "settle",
    "carrier",
    "tag",
    "announce",
    "probe",
    "isolate",
    "relearn",  # once ports of failed circuits are off the VLANs of new paths
    "activate",
    "tidy",
    "relearn",  # after the retags of tidy, too
)


IN_LIGHT = (
    "intent",
    "make",
    "settle",
    "carrier",
    "tag",
    "announce",
    "probe",
    "isolate",
    "relearn",  # once ports of failed circuits are off the VLANs of new paths
    "shift",
    "keep",  # if a switch did not confirm the shift
    "drain",
    "keep",  # if an old path is not proven empty
    "untag",
    "unrelay",
    "break",
    "relearn",  # after the retags of break
)


_OF_EXPERIMENTS = ("tidy",)
"""Emulated rules of earlier changes are removed after the controller's own steps."""


_READING = (
    Announce,
    AwaitPortsUp,
    AwaitRounds,
    PassMarkers,
    Pause,
    ProbePath,
    ReadMirrors,
    ReadPortPackets,
    Record,
)


def in_order(steps: Sequence[str], order: Sequence[str]) -> bool:
    """True if ``steps`` follow ``order``; steps may be left out, and repeated in their place."""
    place = 0
    for step in steps:
        if step not in order[place:]:
            return False
        place = order.index(step, place)
    return True


class Watch:
    """Checks the invariants after every single change of the network."""

    def __init__(
        self, network: Network, execution: Execution, uncertain: Collection[PlaneId | str] = ()
    ) -> None:
        """``uncertain``: planes and racks (by name) that upkeep has not repaired yet."""
        self.network = network
        self._uncertain = frozenset(uncertain)
        self.execution = execution
        self.fabric = network.fabric
        self.start = execution.plan.current
        self.left: set[tuple[DatapathId, RackId]] = set()
        """Confirmed changes of destinations at vswitches: (vswitch, destination)."""
        self.passed: set[tuple[Path, VlanId]] = set()
        self.carrier: set[PortId] = set()
        self.steps: list[str] = []
        self._forgotten = frozenset(network.forgotten)
        self.holds_dark = True
        """True if no frame may go into the dark: invariant (f)."""
        self._led_back: set[tuple[str, VlanId]] = set()
        """Servers of new paths when ports of failed circuits were isolated, with VLAN-IDs, until
        the servers are announced again.
        """
        self._seen_late = -1
        self._dark: frozenset[PortId] | None = frozenset()
        """Ports in the dark on VLANs in use, after the last change; None: not known."""

    def run(self) -> Execution:
        """Drive the execution to its end."""
        steps = self.execution.run()
        batch = next_batch(steps)
        while batch is not None:
            self.before(batch)
            outcomes = self.network.perform(batch, self.look)
            self.learn(batch, outcomes)
            batch = next_batch(steps, outcomes)
        self.at_the_end()
        return self.execution

    @property
    def _unreliable(self) -> set[PlaneId | str]:
        return self.network.unreliable | self._uncertain

    def _demand(self, holds: bool, words: str) -> None:
        if not holds:
            self._fail(words)

    def _fail(self, words: str) -> NoReturn:
        raise Violation(f"after {self.steps}: {words}")

    # -- before a batch ---------------------------------------------------------------------------

    def before(self, batch: Batch) -> None:
        self.steps.append(batch.step)
        order = IN_LIGHT if self.execution.in_light else DIVERTED
        if self.execution.cycle is not OWN_CYCLE:
            order += _OF_EXPERIMENTS
        self._demand(in_order(self.steps, order), "the steps are out of order")
        if batch.step != "intent":
            self._demand(bool(self.network.journal), "the intent is not in the journal yet")
        for command in batch.commands:
            if isinstance(command, MoveMirrors):
                self._mirrors_may_move(command)
            elif isinstance(command, Announce):
                self._announced_into_light(command)
                if self._led_back:
                    self._tors_learn_all_servers_of_new_paths(command)
        if batch.step == "isolate":
            self._led_back = self._servers_of_new_paths()
        if batch.step in {"activate", "shift"}:
            self._new_paths_are_apart_from_failed_circuits()
            learned = not self._led_back or not self.execution.new_paths()
            self._demand(learned, "servers are not announced again")

    def _new_paths_are_apart_from_failed_circuits(self) -> None:
        """Invariant (h): if ToRs follow their commands, the VLANs of new paths are on no port of a
        failed circuit, since its light may come back to the same ToR, or out at another ToR.
        """
        run = self.execution
        if self.network.faults.tor or self._unreliable or not self.network.substrate.retags:
            return
        used = {run.plan.target.vlans[path] for path in run.new_paths()}
        for circuit in run.plan.target.topology.circuits - run.lit():
            for end in circuit.ends:
                tagged = self.network.vlans[end].tagged & used
                self._demand(not tagged, f"{circuit} failed, and its port is on {tagged} in use")

    def _servers_of_new_paths(self) -> set[tuple[str, VlanId]]:
        run = self.execution
        return {
            (server.name, run.plan.target.vlans[path])
            for path in run.new_paths()
            for rack in (path.src, path.dst)
            for server in able(run, rack)
        }

    def _tors_learn_all_servers_of_new_paths(self, command: Announce) -> None:
        """Invariant (j): once failed circuits are isolated, the servers of new paths are announced
        again: light led back has passed all ToRs of the VLAN, which learned wrong ports.
        """
        announced = {(server.name, vlan) for server, vlans in command.servers for vlan in vlans}
        left = (self._led_back & self._servers_of_new_paths()) - announced
        self._demand(not left, f"{left} are not announced again")
        self._led_back = set()

    def _announced_into_light(self, command: Announce) -> None:
        """Invariant (g): if ToRs follow their commands, none floods an announcement, or the
        following traffic, into a port without light.
        """
        if self.network.faults.tor or self._unreliable or not self.network.substrate.retags:
            return
        flooded = {vlan for _, vlans in command.servers for vlan in vlans}
        for port in self.fabric.ports:
            if not flooded.isdisjoint(self.network.vlans[port.id].tagged):
                rack = self.fabric.racks[port.rack].name
                lit = self.network.lit(port)
                self._demand(lit, f"{rack}:{port.tor_port} is dark, on VLANs that are announced")

    def _mirrors_may_move(self, command: MoveMirrors) -> None:
        """Invariant (b), and no command that an optical switch must refuse."""
        for circuit in self.start.topology.circuits:
            crosses = self.fabric.cross_connects(circuit)
            if circuit.plane != command.plane or command.move.disconnect.isdisjoint(crosses):
                continue
            if self.network.seen_busy(circuit):
                self._fail(f"a mirror moves under frames in flight on {circuit}")
            for path in self.start.topology.paths:
                if circuit in path.circuits:
                    self._path_is_left(path)
        uses = sorted(cross.ingress for cross in command.move.connect)
        if len(uses) != len(set(uses)):
            self._fail(f"two circuits share a port: {command}")
        if command.plane in self.execution.uncertain_planes | self._unreliable:
            return
        present = self.network.mirrors[command.plane] | self.network.halves[command.plane]
        staying = present - command.move.disconnect
        for cross in command.move.connect - staying:
            for other in staying:
                if cross.ingress == other.ingress or cross.egress == other.egress:
                    self._fail(f"{cross} would share a port with {other}")

    def _path_is_left(self, path: Path) -> None:
        for here, there in path.directions:
            for switch in self.network.substrate.steering(here):
                sure = (switch.datapath, there) in self.left
                if not sure and switch.name not in self.network.closed:
                    self._fail(f"a mirror moves under {path}, which {switch.name} may still use")

    # -- after every change -----------------------------------------------------------------------

    def look(self, command: Command | None) -> None:
        """Invariant (a): every server reaches every rack; and no VLAN has a loop.

        Reads change nothing, unless a late command takes effect in the meantime.
        """
        if isinstance(command, _READING) and self._seen_late == self.network.late.happened:
            return
        self._seen_late = self.network.late.happened
        network, wiring = self.network, self.network.wiring()
        if wiring.all_seen != (looked_at := network.senders()):
            self._everything_arrives(wiring, command)
            wiring.all_seen = looked_at
        self._no_frame_is_flooded_into_the_dark(wiring, command)

    def _everything_arrives(self, wiring: Wiring, command: Command | None) -> None:
        for server in self.fabric.servers:
            sent = self.network.sent(server)
            if wiring.seen.get(server.name) is sent:
                continue  # so that all frames arrive
            for to, way in sent:
                if not wiring.arrives(way, server.rack, to):
                    self._fail(
                        f"{server.name} sends to {self.fabric.racks[to].name} on VLAN {way[0]}, "
                        f"which does not lead there ({command})"
                    )
            wiring.seen[server.name] = sent
        for vlan in wiring.loops:
            self._fail(f"VLAN {vlan} has a loop ({command})")

    def _no_frame_is_flooded_into_the_dark(self, wiring: Wiring, command: Command | None) -> None:
        """Invariant (f): if devices follow their commands, a VLAN in use stays off ports without
        light.
        """
        faults = self.network.faults
        if not self.holds_dark or faults.tor or faults.mirrors or faults.lie or self._unreliable:
            self._dark = None  # effects until devices follow their commands again
            return
        in_use = self.vlans_in_use()
        dark = wiring.dark(in_use)
        for end in dark - (dark if self._dark is None else self._dark):
            port = self.fabric.ports[end]
            name = self.fabric.racks[port.rack].name
            self._fail(f"{name}:{port.tor_port} is dark, on VLANs {in_use} in use ({command})")
        self._dark = dark

    def vlans_in_use(self) -> set[VlanId]:
        """VLANs of staying pairs."""
        affected = self.execution.plan.affected
        return {vlan for path, vlan in self.start.vlans.items() if pair_of(path) not in affected}

    # -- after a batch ----------------------------------------------------------------------------

    @property
    def unconfirmed(self) -> Collection[str]:
        """Devices with an unconfirmed command, by name."""
        return self.execution.unconfirmed

    def learn(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        for command, outcome in zip(batch.commands, outcomes, strict=True):
            if isinstance(command, ApplyRules):
                self._learn_rules(command, outcome, shifts=batch.step == "shift")
            elif isinstance(command, ProbePath) and outcome.confirmed and not outcome.value:
                self.passed.add((command.path, command.vlan))
            elif isinstance(command, AwaitPortsUp) and outcome.confirmed:
                up = set(command.ports) - set(outcome.value)
                self.carrier |= {self.network.port_named[command.rack, n].id for n in up}

    def _learn_rules(self, command: ApplyRules, outcome: Outcome, *, shifts: bool) -> None:
        for datapath, changes in command.changes.items():
            if outcome.value[datapath] is not None:
                continue
            for change in changes:
                if not isinstance(change, Install | Remove):
                    continue
                kind, to = change.rule.kind, RackId(change.rule.args[0] - 1)
                diverts = kind is RuleKind.DIVERT and isinstance(change, Install)
                if diverts or (shifts and kind is not RuleKind.DIVERT):
                    self.left.add((datapath, to))

    # -- at the end -------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        self._circuits_share_no_port()
        self._all_new_paths_passed()
        self._devices_are_as_the_result_says()
        self._no_tor_has_forgotten_who_is_where()

    def _circuits_share_no_port(self) -> None:
        halves = [half for c in self.execution.result.topology.circuits for half in c.halves]
        self._demand(len(halves) == len(set(halves)), "two circuits of the result share a port")

    def _no_tor_has_forgotten_who_is_where(self) -> None:
        """Invariant (i): if ToRs follow their commands, no path of the result leads through a port
        that was retagged without an announcement of its servers since: the ToR would flood their
        frames.
        """
        if self.network.faults.tor or self._unreliable:
            return
        for path, vlan in self.execution.result.vlans.items():
            if not any(able(self.execution, rack) for rack in pair_of(path)):
                continue  # their switches announce them when they are brought to the present state
            for end in {end for circuit in path.circuits for end in circuit.ends}:
                forgotten = (end, vlan) in self.network.forgotten - self._forgotten
                self._demand(not forgotten, f"{self.fabric.ports[end]} forgot VLAN {vlan}")

    def _all_new_paths_passed(self) -> None:
        """Invariant (d)."""
        for path, vlan in self.execution.result.vlans.items():
            if self.start.vlans.get(path) == vlan:
                continue
            if (path, vlan) not in self.passed:
                self._fail(f"{path} is in use and was not probed")
            for circuit in set(path.circuits) - self.start.topology.circuits:
                if not self.carrier.issuperset(circuit.receivers):
                    self._fail(f"{circuit} is in use without carrier")

    def _devices_are_as_the_result_says(self) -> None:
        """Invariant (e)."""
        execution, network, state = self.execution, self.network, self.execution.result
        for plane in self.fabric.planes:
            wanted = {
                cross
                for circuit in state.topology.circuits
                if circuit.plane == plane.id
                for cross in self.fabric.cross_connects(circuit)
            }
            missing = wanted - network.mirrors[plane.id]
            used = {
                cross
                for path in state.topology.paths
                for circuit in path.circuits
                if circuit.plane == plane.id
                for cross in self.fabric.cross_connects(circuit)
            }
            if missing & used:
                self._fail(f"{plane.name} lacks {missing & used}")
            if plane.id not in execution.uncertain_planes | self._unreliable:
                there = network.mirrors[plane.id]
                if wanted != there:
                    self._fail(f"{plane.name} has {there}, the result says {wanted}")
                if halves := network.halves[plane.id]:
                    self._fail(f"{plane.name} has {halves} without light")
        unsure = {*self.unconfirmed, *self._unreliable}
        for end, vlans in port_trunks(self.fabric, state).items():
            has = network.vlans[end]
            port = self.fabric.ports[end]
            rack = self.fabric.racks[port.rack].name
            if has != vlans and rack not in unsure:
                self._fail(f"{rack}:{port.tor_port} has {has}, the result says {vlans}")
        unconfirmed = self.unconfirmed
        for datapath, name in network.names.items():
            if name in unconfirmed or datapath not in execution.conditions.connected:
                continue
            if datapath in network.electrical():
                continue
            if differing := list(network.differing_rules(datapath, state)):
                self._fail(f"{name} differs from the result: {differing}")
