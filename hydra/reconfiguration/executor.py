"""Carries out a plan in the three substeps of HydRA (section III.B), and loses nothing on the way.

1. **Divert** the affected pairs to the electrical network, and **drain** the circuits that move:
   a barrier confirms tables, not the packets still in flight.
2. **Retag** ToR ports, **push** rules (inactive under the divert rules) and **move mirrors**, all
   devices in parallel; then **gate** each new path: carrier at both ToRs, probes both ways. A VLAN
   that other pairs use leaves a port before the port goes dark, and joins one that has light: a
   ToR that forgets an address floods, and frames flooded into the dark are frames lost.
3. **Activate** what passed by removing its divert rules. What failed stays electrical.

The executor decides; it does nothing itself. It yields batches of commands and is sent their
outcomes (see :mod:`hydra.reconfiguration.commands`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hydra.forwarding.pipeline import COOKIE_KIND_EPOCH_MASK, RuleKind, cookie
from hydra.forwarding.resteering import Resteering
from hydra.forwarding.rules import (
    FlowRule,
    Install,
    Remove,
    RemoveByCookie,
    RuleChange,
    emulated_rules,
)
from hydra.forwarding.substrate import Steering, Substrate, substrate_of
from hydra.journal_format import FINISHED, INTENDED, state_record
from hydra.lifecycle import (
    RECONFIGURATION_TRANSITIONS,
    ReconfigurationState,
    check_transition,
)
from hydra.model import (
    Circuit,
    DatapathId,
    Fabric,
    NetworkState,
    Path,
    PlaneId,
    RackId,
    Server,
    VlanId,
)
from hydra.policy import OnSilence, Policy, Transition
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    AwaitPortsUp,
    Batch,
    Command,
    MoveMirrors,
    Outcome,
    Pause,
    ProbePath,
    ReadMirrors,
    Record,
    SetVlans,
    StageRules,
    Status,
    Steps,
)
from hydra.reconfiguration.draining import Drain
from hydra.reconfiguration.plan import (
    OrderOf,
    Pair,
    Plan,
    PortsToTag,
    changed_pairs,
    diff,
    hold,
    merged,
    mirror_moves,
    pair_of,
    paths_by_pair,
    port_trunks,
    retagging,
    without,
)
from hydra.reconfiguration.relaying import abandoned, joining, leaving, only, unrelayed
from hydra.rings import rings_of, whole_rings
from hydra.roles import PortVlans

_NOT_READY: Final = "not ready for rules"


@dataclass(frozen=True, slots=True)
class Step:
    """When a step (or one device in it) ran, in seconds on the runner's clock."""

    name: str
    device: str | None
    started_s: float
    finished_s: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is known of the network when a plan starts."""

    connected: frozenset[DatapathId]
    """Switches that hold what they should, and take rules."""
    dead_uplinks: frozenset[str]
    """Servers whose optical uplink is down: nothing of theirs is on a circuit."""
    closed: frozenset[str] = frozenset()
    """Servers from whom their ToR takes nothing for circuits."""


@dataclass(frozen=True, slots=True)
class _Push:
    """The rules that a plan gives each switch that was there at its start."""

    plan: Plan
    changes: Mapping[DatapathId, tuple[RuleChange, ...]]


@dataclass(slots=True)
class Execution:
    """The progress and, at the end, the result of carrying out one plan."""

    fabric: Fabric
    policy: Policy
    plan: Plan
    conditions: Conditions
    order_of: OrderOf
    state: ReconfigurationState = ReconfigurationState.QUEUED
    steps: list[Step] = field(default_factory=list)
    failures: dict[Circuit, str] = field(default_factory=dict)
    unconfirmed: set[str] = field(default_factory=set)
    """Devices that did not confirm something, by name."""
    uncertain_planes: set[PlaneId] = field(default_factory=set)
    """Planes whose mirrors may differ from the resulting state."""
    asked_planes: set[PlaneId] = field(default_factory=set)
    """Those of them whose people were asked: what was to move there may stand later."""
    rules_pushed: int = 0
    ports_retagged: int = 0
    reason: str = ""
    wanted: NetworkState = field(init=False)
    """What was planned, whatever had to be given up since."""
    result: NetworkState = field(init=False)
    """The state that the network is in; valid at any time."""
    _diverted: dict[Steering, set[RackId]] = field(default_factory=dict)
    """Switches that take the new rules, with the racks concerned."""
    _substrate: Substrate = field(init=False)
    _lost_paths: set[Path] = field(default_factory=set)
    """Failed, although none of their circuits can be blamed."""
    _retag_failed: bool = False
    _stuck: set[DatapathId] = field(default_factory=set)
    """Switches that missed a push: they stay diverted until they are synchronised."""
    closed: set[str] = field(default_factory=set)
    """Servers of silent vswitches that were closed out, so that circuits could move."""
    _push: _Push | None = None

    def __post_init__(self) -> None:
        self.wanted = self.plan.target
        self.result = self.plan.current
        self._substrate = substrate_of(self.fabric)

    # -- the course of a reconfiguration ------------------------------------------------------

    def run(self) -> Steps:
        """Drive to the end with ``send``; afterwards read the attributes."""
        if self.plan.empty:
            self.result = self.plan.target
            self._enter(ReconfigurationState.DONE)
            return
        intent = {
            "current": state_record(self.fabric, self.plan.current),
            "target": state_record(self.fabric, self.plan.target),
        }
        yield Batch("intent", (Record(INTENDED, intent),))
        self._rules_to_push()  # before anything waits for them
        if self._hitless:
            self._enter(ReconfigurationState.DIVERTING)
            yield from self._divert()
            self._enter(ReconfigurationState.DRAINING)
            yield from self._drain()
        else:
            self._go_undiverted()
        self._enter(ReconfigurationState.MOVING)
        yield from self._move()
        self._enter(ReconfigurationState.GATING)
        yield from self._gate()
        self._enter(ReconfigurationState.ACTIVATING)
        yield from self._activate()
        outcome = {"state": state_record(self.fabric, self.result)}
        yield Batch("outcome", (Record(FINISHED, outcome),))
        partial = self.failures or self.reason
        self._enter(ReconfigurationState.PARTIAL if partial else ReconfigurationState.DONE)

    @property
    def _hitless(self) -> bool:
        return self.policy.transition is Transition.HITLESS

    def _enter(self, state: ReconfigurationState) -> None:
        check_transition(RECONFIGURATION_TRANSITIONS, self.state, state)
        self.state = state

    def _note(self, name: str, outcomes: Sequence[Outcome], note: str = "") -> None:
        """Record a step as a whole: from its first command's start to its last one's end."""
        if outcomes:
            started = min(outcome.started_s for outcome in outcomes)
            finished = max(outcome.finished_s for outcome in outcomes)
            self.steps.append(Step(name, None, started, finished, note))

    # -- substep 3-1 ----------------------------------------------------------------------------

    def _steering(self, pairs: Collection[Pair]) -> dict[Steering, set[RackId]]:
        """Each switch that steers these pairs, with the racks that it sends to among them."""
        towards: dict[RackId, set[RackId]] = {}
        for low, high in pairs:
            towards.setdefault(low, set()).add(high)
            towards.setdefault(high, set()).add(low)
        return {
            switch: racks
            for rack, racks in sorted(towards.items())
            for switch in self._substrate.steering(rack)
        }

    def _divert(self) -> Steps:
        switches = self._steering(self.plan.affected)
        epoch = self.plan.target.epoch
        changes: dict[DatapathId, tuple[RuleChange, ...]] = {
            switch.datapath: tuple(
                Install(self._substrate.divert(rack, epoch)) for rack in sorted(racks)
            )
            for switch, racks in switches.items()
            if switch.datapath in self.conditions.connected
        }
        outcomes = yield Batch("divert", (ApplyRules(changes),))
        self._note("divert", outcomes)
        errors: Mapping[DatapathId, str | None] = outcomes[0].value or {}
        silent: dict[Steering, str] = {}
        for switch, racks in switches.items():
            datapath = switch.datapath
            error = (
                errors.get(datapath, "not connected") if datapath in changes else "not connected"
            )
            if error is None:
                self._diverted[switch] = set(racks)
            else:
                self._stuck.add(datapath)
                silent[switch] = error
        if self.policy.on_silent_vswitch is OnSilence.CLOSE:
            yield from self._close(silent)
        self._hold_for_silent(silent)

    def _close(self, silent: Collection[Steering]) -> Steps:
        """Have ToRs take nothing for circuits from silent vswitches that may be sending there."""
        out: dict[RackId, list[Server]] = {}
        for switch in silent:
            if not self._is_off_circuits(switch) and self._held_by(switch):
                out.setdefault(switch.rack, []).extend(switch.servers)
        ports = {rack: self._substrate.closed_ports(its) for rack, its in sorted(out.items())}
        commands = [SetVlans(rack, closed) for rack, closed in ports.items() if closed]
        if not commands:
            return
        outcomes = yield Batch("close", tuple(commands))
        self._note("close", outcomes)
        for command, outcome in zip(commands, outcomes, strict=True):
            rack = self.fabric.racks[command.rack].name
            self._device_step("close", rack, outcome)
            if outcome.confirmed:
                self.closed |= {server.name for server in out[command.rack]}
            else:
                self.unconfirmed.add(rack)

    def _is_off_circuits(self, switch: Steering) -> bool:
        """Whatever it sends, nothing of it gets onto a circuit."""
        off = self.conditions.dead_uplinks | self.conditions.closed | self.closed
        return switch.name in off

    def _held_by(self, switch: Steering) -> set[Pair]:
        """Affected pairs of its rack that have paths now."""
        pairs = {pair for pair in self.plan.affected if switch.rack in pair}
        return pairs & paths_by_pair(self.plan.current).keys()

    def _go_undiverted(self) -> None:
        """Experiments: what is pushed takes effect at once, whatever the mirrors do meanwhile."""
        for switch, racks in self._steering(self.plan.affected).items():
            if switch.datapath in self.conditions.connected:
                self._diverted[switch] = set(racks)
            else:
                self._stuck.add(switch.datapath)
                self.unconfirmed.add(switch.name)

    def _hold_for_silent(self, silent: Mapping[Steering, str]) -> None:
        """A switch that can't confirm may still be sending: leave what it uses where it is."""
        held: set[Pair] = set()
        for switch, error in silent.items():
            self.unconfirmed.add(switch.name)
            if self._is_off_circuits(switch):
                continue
            held |= self._held_by(switch)
            self._explain(f"{switch.name} did not confirm its divert ({error})")
        if held:
            self._replan(held, ())

    def _replan(self, pairs: Collection[Pair], circuits: Collection[Circuit]) -> None:
        target = hold(self.plan, pairs, circuits)
        self.plan = diff(self.fabric, self.plan.current, target, self.order_of)

    def _explain(self, reason: str) -> None:
        self.reason = f"{self.reason}; {reason}" if self.reason else reason

    # -- drain ------------------------------------------------------------------------------------

    def _drain(self) -> Steps:
        """Wait until the counters at both ends of what diverted pairs leave stand still.

        Meanwhile the switches are sent the rules that they are to be given after it.

        OpenFlow port counters lag by at most 12 ms in Open vSwitch, so three equal reads a few
        milliseconds apart show an empty circuit. A circuit that stays is waited for, too: its ports
        leave the VLAN of frames that may be under way.
        """
        left, hidden = self._circuits_left()
        drain = Drain(self.fabric, left, self.policy.drain.reads)
        stage: tuple[Command, ...] = (StageRules(self._rules_to_push()),)
        if hidden and not left:
            yield Batch("drain", (Pause(self.policy.drain.bound_ms / 1000), *stage))
        first: Outcome | None = None
        while left:
            reads = drain.commands()
            outcomes = (yield Batch("drain", (*reads, *stage)))[: len(reads)]
            stage = ()
            first = first or outcomes[0]
            drain.take(reads, outcomes)
            settled = not hidden and drain.settled
            now_s = max(outcome.finished_s for outcome in outcomes)
            late = (now_s - first.started_s) * 1000 >= self.policy.drain.bound_ms
            if settled or late:
                self._note("drain", [first, *outcomes], "" if settled else "bound reached")
                break
            yield Batch("drain", (Pause(self.policy.drain.interval_ms / 1000),))
        if busy := drain.busy():
            self._explain(f"{len(busy)} circuit(s) still carried frames after the drain bound")
            self._replan((), busy)

    def _circuits_left(self) -> tuple[set[Circuit], bool]:
        """(circuits to drain, whether a path is hidden among the traffic of pairs that stay).

        Such a path has no circuit of its own whose counters could stand still: it is given the
        drain's bound.
        """
        old = paths_by_pair(self.plan.current)
        busy = {
            circuit
            for pair, paths in old.items()
            if pair not in self.plan.affected
            for path in paths
            for circuit in path.circuits
        }
        left = set(self.plan.disconnect)
        hidden = False
        for path in (path for pair in self.plan.affected for path in old.get(pair, ())):
            own = set(path.circuits) - busy
            left |= own
            hidden |= not own
        return left, hidden

    # -- substep 3-2 ------------------------------------------------------------------------------

    def _move(self) -> Steps:
        yield from self._retag_alone("untag", self.plan.untag_first)
        yield from self._unrelay()
        yield from self._disconnect_first()
        retags = [SetVlans(rack, ports) for rack, ports in sorted(self.plan.retag.items())]
        mirrors = [MoveMirrors(plane, move) for plane, move in sorted(self.plan.mirrors.items())]
        push = ApplyRules(self._rules_to_push())
        self.rules_pushed = sum(len(changes) for changes in push.changes.values())
        self.ports_retagged = self.plan.retagged_ports
        # In the order of how soon each has sent what its device takes its time for.
        commands: tuple[Command, ...] = (*mirrors, push, *retags)
        outcomes = yield Batch("move", commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, SetVlans):
                self._retagged("retag", command, outcome)
            elif isinstance(command, MoveMirrors):
                self._moved(command, outcome)
            else:
                self._pushed(outcome)
        self._note("move", outcomes)
        if self._retag_failed or self.uncertain_planes:
            for circuit in self.plan.connect_last:
                self._fail(circuit, "not set up: a device that it had to wait for did not confirm")
        else:
            yield from self._move_alone((), self.plan.connect_last)
        yield from self._settle_mirrors()
        self.result = self.plan.target

    def _retag_alone(self, step: str, ports: PortsToTag) -> Steps:
        """Retag ports that may not be retagged while mirrors move."""
        commands = tuple(SetVlans(rack, ports[rack]) for rack in sorted(ports))
        if not commands:
            return
        outcomes = yield Batch(step, commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            self._retagged(step, command, outcome)
        self._note(step, outcomes)

    @property
    def _taking(self) -> frozenset[DatapathId]:
        """Switches that take rules, as far as is known."""
        return self.conditions.connected - self._stuck

    def _unrelay(self) -> Steps:
        """Nothing is passed on along paths that are given up: what is late ends at a relay."""
        changes = only(leaving(self._substrate, self.plan), self._taking)
        if not changes:
            return
        outcomes = yield Batch("unrelay", (ApplyRules(changes),))
        self._note("unrelay", outcomes)
        self._note_relays(outcomes[0], changes)

    def _note_relays(self, outcome: Outcome, relays: Collection[DatapathId]) -> None:
        """Those that did not take their changes get them when they are synchronised."""
        names = self._substrate.owned()
        errors: Mapping[DatapathId, str | None] = outcome.value or {}
        for datapath in relays:
            if errors.get(datapath, _NOT_READY) is not None:
                self._stuck.add(datapath)
                self.unconfirmed.add(names[datapath])

    def _disconnect_first(self) -> Steps:
        """Tear down what would close a loop once ports are retagged; if it may stand, retag none.

        The plan shrinks to giving these circuits up: taking tags away closes no loop.
        """
        first = self.plan.disconnect_first
        yield from self._move_alone(first, ())
        if self.uncertain_planes:
            current = replace(self.plan.current, epoch=self.plan.target.epoch)
            target = without(current, first)
            plan = diff(self.fabric, self.plan.current, target, self.order_of)
            back = self._memberships_in(target, self.plan.untag_first)
            self.plan = replace(plan, retag=merged(back, plan.untag_first, plan.retag))
            self._explain("nothing else moves: a circuit that had to go first may still be up")

    def _memberships_in(self, state: NetworkState, ports: PortsToTag) -> PortsToTag:
        """What these ports, which were retagged already, are to have in ``state``."""
        trunks = port_trunks(self.fabric, state)
        return {
            rack: {
                name: trunks[self.fabric.port_by_name[self.fabric.racks[rack].name, name].id]
                for name in names
            }
            for rack, names in ports.items()
        }

    def _move_alone(self, disconnect: Collection[Circuit], connect: Collection[Circuit]) -> Steps:
        """Move mirrors that may not move while ports are being retagged."""
        moves = mirror_moves(self.fabric, disconnect, connect)
        if not moves:
            return
        commands = tuple(MoveMirrors(plane, move) for plane, move in sorted(moves.items()))
        outcomes = yield Batch("move", commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            self._moved(command, outcome)

    def _device_step(self, name: str, device: str, outcome: Outcome) -> None:
        self.steps.append(Step(name, device, outcome.started_s, outcome.finished_s, outcome.error))

    def _rules_to_push(self) -> Mapping[DatapathId, tuple[RuleChange, ...]]:
        """Circuit rules of the affected pairs, and those of their relays, for every switch that
        has confirmed so far. Of one plan, always the same tuples.
        """
        if self._push is None or self._push.plan is not self.plan:
            self._push = _Push(self.plan, self._rules_of_plan())
        taking = self._taking
        return {dp: mine for dp, mine in self._push.changes.items() if dp in taking}

    def _rules_of_plan(self) -> dict[DatapathId, tuple[RuleChange, ...]]:
        relays = joining(self._substrate, self.plan)
        changes = {dp: relays[dp] for dp in relays if dp in self.conditions.connected}
        steer = Resteering.between(self._substrate, self.plan.current, self.plan.target)
        for switch, racks in self._steering(self.plan.affected).items():
            if switch.datapath not in self.conditions.connected:
                continue
            mine = changes.setdefault(switch.datapath, [])
            for rack in sorted(racks):
                mine += steer.changes(switch.rack, rack)
        self._pad(changes)
        return {datapath: tuple(mine) for datapath, mine in changes.items() if mine}

    def _pad(self, changes: dict[DatapathId, list[RuleChange]]) -> None:
        """Experiments: fill up to ``policy.emulated_rules`` with rules for racks beyond ours."""
        missing = self.policy.emulated_rules - sum(len(mine) for mine in changes.values())
        if missing <= 0 or not changes:
            return
        share, rest = divmod(missing, len(changes))
        vlan = self.fabric.circuit_vlans.first
        for index, mine in enumerate(changes.values()):
            rules: Sequence[FlowRule] = emulated_rules(
                share + (index < rest), vlan, self.plan.target.epoch
            )
            mine.extend(Install(rule) for rule in rules)

    def _pushed(self, outcome: Outcome) -> None:
        self.steps.append(Step("push", None, outcome.started_s, outcome.finished_s, outcome.error))
        errors: Mapping[DatapathId, str | None] = outcome.value or {}
        for switch in self._diverted:
            error = errors.get(switch.datapath)
            if error is not None:
                self._stuck.add(switch.datapath)
                self.unconfirmed.add(switch.name)
                self._explain(f"{switch.name} did not take its rules ({error})")
        self._note_relays(outcome, errors.keys() - {switch.datapath for switch in self._diverted})
        lost = unrelayed(
            self._substrate, self.plan, lambda datapath: errors.get(datapath, _NOT_READY)
        )
        for path, reason in lost:
            self._lose(path, reason)

    def _retagged(self, step: str, command: SetVlans, outcome: Outcome) -> None:
        rack = self.fabric.racks[command.rack]
        self._device_step(step, rack.name, outcome)
        if outcome.confirmed:
            return
        self.unconfirmed.add(rack.name)
        self._retag_failed = True
        for circuit in self.plan.target.topology.circuits:
            for end in circuit.ends:
                port = self.fabric.ports[end]
                if port.rack == rack.id and port.tor_port in command.ports:
                    self._fail(circuit, f"{rack.name} was not retagged ({outcome.error})")

    def _moved(self, command: MoveMirrors, outcome: Outcome) -> None:
        plane = self.fabric.planes[command.plane]
        self._device_step("mirrors", plane.name, outcome)
        if not outcome.confirmed:
            self.unconfirmed.add(plane.name)
            self.uncertain_planes.add(plane.id)
            if outcome.status is Status.ASKED:
                self.asked_planes.add(plane.id)
            for circuit in self.plan.connect:
                if circuit.plane == plane.id:
                    self._fail(circuit, f"OCS {outcome.error}")

    def _settle_mirrors(self) -> Steps:
        """A refused or unanswered move may still have happened: read the device."""
        planes = sorted(self.uncertain_planes)
        if not planes:
            return
        outcomes = yield Batch("settle", tuple(ReadMirrors(plane) for plane in planes))
        for plane, outcome in zip(planes, outcomes, strict=True):
            if not outcome.confirmed:
                continue
            present = outcome.value
            for circuit in self.plan.connect:
                if circuit.plane == plane and present.issuperset(
                    self.fabric.cross_connects(circuit)
                ):
                    self.failures.pop(circuit, None)

    def _fail(self, circuit: Circuit, reason: str) -> None:
        """Give up a circuit. One that serves a pair which was not diverted stays up for it."""
        if circuit in self._serving():
            for path in self._new_paths():
                if circuit in path.circuits:
                    self._lose(path, reason)
        else:
            self.failures.setdefault(circuit, reason)

    def _lose(self, path: Path, reason: str) -> None:
        """Give up one path, and none of its circuits."""
        self._lost_paths.add(path)
        names = " - ".join(self.fabric.racks[rack].name for rack in pair_of(path))
        several = sum(pair_of(one) == pair_of(path) for one in self.plan.target.topology.paths) > 1
        fate = "does without one of its paths" if several else "stays electrical"
        self._explain(f"{names} {fate}: {reason}")

    def _serving(self) -> frozenset[Circuit]:
        """Circuits under pairs that keep their path: in use, since those are not diverted. With
        the rings that these are in.
        """
        used = {
            circuit
            for path in self.plan.target.topology.paths
            if pair_of(path) not in self.plan.affected
            for circuit in path.circuits
        }
        return rings_of(used, self.plan.target.topology.circuits)

    # -- the gate ---------------------------------------------------------------------------------

    def _new_paths(self) -> list[Path]:
        """Affected paths of the target that have not failed so far, nor have their circuits."""
        lit = self._lit()
        return [
            path
            for path in self.plan.target.topology.paths
            if pair_of(path) in self.plan.affected
            and path not in self._lost_paths
            and lit.issuperset(path.circuits)
        ]

    def _lit(self) -> frozenset[Circuit]:
        """Circuits of the target that have not failed so far, nor those that light them."""
        return whole_rings(self.plan.target.topology.circuits - self.failures.keys())

    def _gate(self) -> Steps:
        yield from self._await_carrier()
        yield from self._tag_last()
        paths = self._new_paths()
        if not paths:
            return
        yield from self._announce(paths)
        yield from self._probe(paths)

    def _await_carrier(self) -> Steps:
        lighting = rings_of(self.plan.connect, self.plan.target.topology.circuits)
        fresh = sorted(lighting - self.failures.keys())
        ports: dict[RackId, set[str]] = {}
        for circuit in fresh:
            for end in circuit.receivers:
                port = self.fabric.ports[end]
                ports.setdefault(port.rack, set()).add(port.tor_port)
        if not ports:
            return
        timeout_s = self.policy.timeouts.port_up_s
        commands = tuple(
            AwaitPortsUp(rack, tuple(sorted(names)), timeout_s)
            for rack, names in sorted(ports.items())
        )
        outcomes = yield Batch("carrier", commands)
        self._note("carrier", outcomes)
        dark: set[tuple[RackId, str]] = set()
        for command, outcome in zip(commands, outcomes, strict=True):
            missing = outcome.value if outcome.confirmed else command.ports
            dark |= {(command.rack, name) for name in missing}
        for circuit in fresh:
            for end in circuit.receivers:
                port = self.fabric.ports[end]
                if (port.rack, port.tor_port) in dark:
                    rack = self.fabric.racks[port.rack].name
                    self._fail(
                        circuit, f"no carrier at {rack}:{port.tor_port} within {timeout_s:g} s"
                    )

    def _tag_last(self) -> Steps:
        """Join circuits that have light to VLANs that are in use elsewhere."""
        lit = {
            (self.fabric.ports[end].rack, self.fabric.ports[end].tor_port)
            for circuit in self._lit()
            for end in circuit.ends
        }
        ports: dict[RackId, dict[str, PortVlans]] = {}
        for rack, named in self.plan.tag_last.items():
            for name, vlans in named.items():
                if (rack, name) in lit:
                    ports.setdefault(rack, {})[name] = vlans
        yield from self._retag_alone("tag", ports)

    def _able(self, rack: RackId) -> list[Server]:
        """Servers of a rack that can send and receive on circuits."""
        return [
            server
            for switch in self._substrate.steering(rack)
            if switch.datapath in self.conditions.connected - self._stuck
            for server in switch.servers
            if server.name not in self.conditions.dead_uplinks
        ]

    def _announce(self, paths: Collection[Path]) -> Steps:
        vlans: dict[RackId, set[VlanId]] = {}
        for path in paths:
            for rack in pair_of(path):
                vlans.setdefault(rack, set()).add(self.plan.target.vlans[path])
        servers = tuple(
            (server, tuple(sorted(tags)))
            for rack, tags in sorted(vlans.items())
            for server in self._able(rack)
        )
        outcomes = yield Batch("announce", (Announce(servers),))
        self._note("announce", outcomes)

    def _probe(self, paths: Collection[Path]) -> Steps:
        commands: list[ProbePath] = []
        probed: list[Path] = []
        for path in paths:
            a, b = self._able(path.src), self._able(path.dst)
            if a and b:
                vlan = self.plan.target.vlans[path]
                ends = (a[0], b[0])
                timeout_s = self.policy.timeouts.probe_s
                commands.append(ProbePath(path, vlan, ends, timeout_s))
                probed.append(path)
            else:
                rack = self.fabric.racks[path.dst if a else path.src].name
                self._fail_path(path, paths, f"no server of {rack} can be probed")
        if not commands:
            return
        outcomes = yield Batch("probe", tuple(commands))
        self._note("probe", outcomes)
        passed = {
            path
            for path, outcome in zip(probed, outcomes, strict=True)
            if outcome.confirmed and not outcome.value
        }
        for path, outcome in zip(probed, outcomes, strict=True):
            if path not in passed:
                what = outcome.error or f"no probe came through {', '.join(outcome.value)}"
                self._fail_path(path, passed, what)

    def _fail_path(self, path: Path, others: Collection[Path], reason: str) -> None:
        """Blame the circuits of ``path`` that no path which works uses; failing that, itself."""
        good = {circuit for other in others if other != path for circuit in other.circuits}
        blamed = set(path.circuits) - good - self._serving()
        for circuit in blamed:
            self._fail(circuit, reason)
        if not blamed:
            self._lose(path, reason)

    # -- substep 3-3 ------------------------------------------------------------------------------

    def _activate(self) -> Steps:
        self.result = without(self.plan.target, self.failures, self._lost_paths)
        lost = changed_pairs(self.plan.target, self.result)
        steer = Resteering.between(self._substrate, self.plan.target, self.result)
        changes: dict[DatapathId, list[RuleChange]] = {}
        epoch = self.plan.target.epoch
        for switch, racks in self._diverted.items():
            if switch.datapath in self._stuck:
                continue
            mine = changes.setdefault(switch.datapath, [])
            for rack in sorted(racks):
                if (min(switch.rack, rack), max(switch.rack, rack)) in lost:
                    mine += steer.changes(switch.rack, rack)
                if self._hitless:
                    mine.append(Remove(self._substrate.divert(rack, epoch)))
        frozen = {datapath: tuple(mine) for datapath, mine in changes.items() if mine}
        outcomes = yield Batch("activate", (ApplyRules(frozen),))
        self._note("activate", outcomes)
        errors: Mapping[DatapathId, str | None] = outcomes[0].value or {}
        self.unconfirmed |= {
            switch.name for switch in self._diverted if errors.get(switch.datapath) is not None
        }
        yield from self._tidy()

    def _tidy(self) -> Steps:
        """Untag what failed, relay it no more, and remove the last epoch's emulated rules."""
        given_up = self.plan.target.topology.circuits - self.result.topology.circuits
        self.uncertain_planes |= {circuit.plane for circuit in given_up | self.failures.keys()}
        untag = retagging(self.fabric, self.plan.target, self.result)
        commands: list[Command] = [SetVlans(rack, ports) for rack, ports in sorted(untag.items())]
        changes = abandoned(self._substrate, self.plan.target, self.result)
        relays = changes.keys() & self.conditions.connected
        if self.policy.emulated_rules:
            stale = RemoveByCookie(
                cookie(RuleKind.EMULATED_CIRCUIT, self.plan.current.epoch), COOKIE_KIND_EPOCH_MASK
            )
            for switch in self._diverted:
                changes.setdefault(switch.datapath, []).append(stale)
        if taken := only(changes, self.conditions.connected):
            commands.append(ApplyRules(taken))
        if not commands:
            return
        outcomes = yield Batch("tidy", tuple(commands))
        self._note("tidy", outcomes)
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, ApplyRules):
                self._note_relays(outcome, relays)
            elif isinstance(command, SetVlans) and not outcome.confirmed:
                self.unconfirmed.add(self.fabric.racks[command.rack].name)
