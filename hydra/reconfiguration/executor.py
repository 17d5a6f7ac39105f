"""Carries out a plan in the three substeps of HydRA (section III.B), and loses nothing on the way.

1. **Divert** the affected pairs to the electrical network, and **drain** the circuits that move:
   a barrier confirms tables, not the packets still in flight.
2. **Retag** ToR ports, **push** rules (inactive under the divert rules) and **move mirrors**, all
   devices in parallel; then **gate** each new path: carrier at both ToRs, probes both ways. A VLAN
   that other pairs use leaves a port before the port goes dark, and joins one that has light; that
   of a new path leaves the ports of circuits that got no light before anything is sent on it. A
   ToR that forgets an address floods, and frames flooded into the dark are frames lost.
3. **Activate** paths that passed, by removing their divert rules. Others stay electrical.

The executor decides; it does nothing itself. It yields batches of commands and is sent their
outcomes (see :mod:`hydra.reconfiguration.commands`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.forwarding.pipeline import COOKIE_KIND_EPOCH_MASK, RuleKind, cookie
from hydra.forwarding.resteering import Resteering, diverting, steering_of
from hydra.forwarding.rules import Remove, RemoveByCookie, RuleChange
from hydra.forwarding.substrate import Steering, Substrate, substrate_of
from hydra.journal_format import INTENDED, state_record
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
    PortId,
    RackId,
    Server,
    VlanId,
)
from hydra.policy import OnSilence, Policy, Transition
from hydra.reconfiguration.beside import Touched, left_to, moved_on
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    AwaitRounds,
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
    Steps,
)
from hydra.reconfiguration.draining import Draining
from hydra.reconfiguration.gating import await_carrier, probe
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
    off_the_dark,
    pair_named,
    pair_of,
    paths_by_pair,
    port_trunks,
    retagging,
    without,
)
from hydra.reconfiguration.pushing import rules_of
from hydra.reconfiguration.relaying import abandoned, leaving, only, unrelayed
from hydra.rings import rings_of, whole_rings
from hydra.roles import PortVlans

STEPS: Final = frozenset(
    {
        "activate", "close", "divert", "drain", "mirrors", "move", "push", "relay", "retag", "tag",
        "tidy", "untag",
    }
)  # fmt: skip
"""Steps of a reconfiguration that may fail, besides those of the gate (``GATE``)."""
_LETS_OTHERS_IN: Final = frozenset(
    {
        ReconfigurationState.DIVERTING,
        ReconfigurationState.DRAINING,
        ReconfigurationState.MOVING,
        ReconfigurationState.GATING,
    }
)
"""States after an intent and before the result is saved: either tells of the state as a whole."""


@dataclass(frozen=True, slots=True)
class Step:
    """The time in which a step (or one device in it) ran, in seconds on the runner's clock."""

    name: str
    device: str | None
    started_s: float
    finished_s: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The condition of the network when a plan starts."""

    connected: frozenset[DatapathId]
    """Switches that hold the rules that they should, and take others."""
    dead_uplinks: frozenset[str]
    """Servers whose optical uplink is down: nothing of theirs is on a circuit, until it comes back.
    """
    closed: frozenset[str] = frozenset()
    """Servers from whom their ToR takes nothing for circuits."""
    diverted: frozenset[Pair] = frozenset()
    """Pairs that are electrical since their circuits or paths have died. They stay so, unless the
    plan moves them.
    """
    awaited: frozenset[DatapathId] = frozenset()
    """Switches whose connection stands, and that may soon hold the rules that they should."""


@dataclass(frozen=True, slots=True)
class _Push:
    """The rules that a plan gives each switch that was there at its start."""

    plan: Plan
    changes: Mapping[DatapathId, tuple[RuleChange, ...]]


@dataclass(frozen=True, slots=True)
class _Use:
    """The use that a plan's target makes of its circuits."""

    plan: Plan
    serving: frozenset[Circuit]
    """Circuits of pairs that keep their path: in use, since these are not diverted. With the rings
    that they are in.
    """
    paths: Mapping[Pair, int]
    """The number of paths of each pair."""


@dataclass(slots=True, eq=False)
class Execution:
    """The progress and, at the end, the result of carrying out one plan."""

    fabric: Fabric
    policy: Policy
    plan: Plan
    conditions: Conditions
    order_of: OrderOf
    beside: tuple[Execution, ...] = ()
    """Changes under way between whose steps this one is made, from its begin to its end."""
    gives_way: bool = False
    """True if others may take over what it has not moved yet."""
    hurries: bool = False
    """True if it leaves out what few vswitches are far later with than all others, unless they
    would be closed out for it."""
    slow: frozenset[DatapathId] = frozenset()
    """Switches at whose pace it goes: it makes what another change has left out for them."""
    state: ReconfigurationState = ReconfigurationState.QUEUED
    steps: list[Step] = field(default_factory=list)
    failures: dict[Circuit, Failure] = field(default_factory=dict)
    """Circuits that are not made, each with the failure for which it is given up."""
    obstacles: list[Failure] = field(default_factory=list)
    """Other failures that keep it from its plan: of switches, circuits that stay, paths."""
    silent: list[Failure] = field(default_factory=list)
    """Failures of devices to confirm a step."""
    uncertain_planes: set[PlaneId] = field(default_factory=set)
    """Planes whose mirrors may differ from the resulting state."""
    asked_planes: set[PlaneId] = field(default_factory=set)
    """Uncertain planes whose people were asked: their new cross-connects may stand later."""
    rules_pushed: int = 0
    ports_retagged: int = 0
    wanted: NetworkState = field(init=False)
    """The target as it was planned, whatever had to be given up since."""
    moving: frozenset[Pair] = field(init=False)
    """The pairs that were to be moved: their divert rules are this change's, to its end."""
    result: NetworkState = field(init=False)
    """The state that the network is in; valid at any time."""
    _diverted: dict[Steering, set[RackId]] = field(default_factory=dict)
    """Switches that take the new rules, with the racks concerned."""
    _substrate: Substrate = field(init=False)
    _lost_paths: set[Path] = field(default_factory=set)
    """Paths that failed, although none of their circuits can be blamed."""
    _retag_failed: bool = False
    _untagging: dict[PortId, PortVlans] = field(default_factory=dict)
    """Ports that were to be untagged first, with the VLANs left to them, where the ToR has not
    answered: it may do so yet, after whatever it is told later."""
    _untagged: dict[PortId, PortVlans] = field(default_factory=dict)
    """Ports that were untagged first, with the VLANs left to them."""
    _stuck: set[DatapathId] = field(default_factory=set)
    """Switches that missed a push: they stay diverted until they are synchronised."""
    activated: frozenset[Pair] = frozenset()
    """Pairs whose divert rules are gone, but at switches that did not confirm that."""
    late: set[DatapathId] = field(default_factory=set)
    """Switches that it has not waited for, though they may answer yet."""
    closed: set[str] = field(default_factory=set)
    """Servers of silent vswitches that were closed out, so that circuits could move."""
    _push: _Push | None = None
    _in_use: _Use | None = None
    _planned: Plan = field(init=False)
    """The plan at its begin: what was given up since was diverted all the same."""
    _touched: Touched | None = None
    _draining: Draining | None = None
    left: Touched | None = None
    """What it has left to others."""

    def __post_init__(self) -> None:
        self._planned = self.plan
        self.wanted = self.plan.target
        self.moving = self.plan.affected
        self.result = self.plan.current
        self._substrate = substrate_of(self.fabric)

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Devices that did not confirm something, by name."""
        return frozenset(failure.subject for failure in self.silent)

    @property
    def troubles(self) -> tuple[Failure, ...]:
        """Everything that failed, once each."""
        return tuple(dict.fromkeys((*self.silent, *self.obstacles, *self.failures.values())))

    @property
    def reason(self) -> str:
        """The reason why the result is not what was planned, in words; empty if it is."""
        told = map(str, self.failures.values())
        return "; ".join(map(str, self.obstacles)) or "; ".join(sorted(set(told)))

    def hear_of_uplinks(self, dead: frozenset[str]) -> None:
        """Take servers for unable from now on whose uplink is down by now."""
        self.conditions = replace(self.conditions, dead_uplinks=dead)

    def hear_of_dead(self, pairs: frozenset[Pair]) -> None:
        """Leave these pairs electrical, unless they are moved: what they are on has died."""
        diverted = self.conditions.diverted | pairs
        self.conditions = replace(self.conditions, diverted=diverted)

    # -- beside others ----------------------------------------------------------------------------

    @property
    def lets_others_in(self) -> bool:
        """True if a change that touches nothing of this one may be made before the next step.

        Rules of emulated circuits are removed by epoch, whoever put them there, and rings move as
        wholes: there, changes have their turn.
        """
        return self._may_have_others_beside and self.state in _LETS_OTHERS_IN

    @property
    def lets_others_in_meanwhile(self) -> bool:
        """The same while it does nothing but wait. Once it has told switches to activate, it may
        wait for slow ones; before that, what has been probed is to be acted upon at once.
        """
        states = _LETS_OTHERS_IN | {ReconfigurationState.ACTIVATING}
        return self._may_have_others_beside and self.state in states

    @property
    def _may_have_others_beside(self) -> bool:
        return self._hitless and not (self.policy.emulated_rules or self.fabric.one_way)

    @property
    def touched(self) -> Touched:
        """All that it may have altered or alters yet, and counts on."""
        if self._touched is None:
            self._touched = Touched.by(self.fabric, self._planned)
        return self._touched

    def hear_of_change(self, before: NetworkState, after: NetworkState) -> None:
        """Take it for granted that a change beside this one has led from one state to the other."""
        old, plan = self.plan, self.plan
        self.plan = replace(
            plan,
            current=moved_on(plan.current, before, after),
            target=moved_on(plan.target, before, after),
        )
        self.wanted = moved_on(self.wanted, before, after)
        self.result = moved_on(self.result, before, after)
        if self._push is not None and self._push.plan is old:  # no rule of it is another now
            self._push = replace(self._push, plan=self.plan)

    @property
    def may_leave(self) -> bool:
        """True if it may leave some of what it touches to another: all that it has done so far is
        to divert pairs, and it waits for circuits to drain.
        """
        return (
            self.gives_way and self.lets_others_in and self.state is ReconfigurationState.DRAINING
        )

    def leaving_to(self, theirs: Touched) -> Plan | None:
        """The plan that leaves to another change all that this touches; None if there is none."""
        if not self.may_leave:
            return None
        target = left_to(theirs, self.plan.current, self.plan.target)
        plan = diff(self.fabric, self.plan.current, target, self.order_of)
        return None if Touched.by(self.fabric, plan).meets(theirs) else plan

    def leave_to(self, theirs: Touched, plan: Plan) -> None:
        """Go on by :meth:`leaving_to`'s plan. Pairs that are diverted and another's are that
        one's to activate from now on.
        """
        named = ", ".join(pair_named(self.fabric, one) for one in sorted(theirs.pairs))
        reason = f"gives way to another change, of {named}"
        self.obstacles.append(Failure("drain", named, FailureKind.HELD_UP, reason))
        self._touched = Touched.by(self.fabric, plan) | self.touched.but_for(theirs)
        self.left = theirs if self.left is None else self.left | theirs
        self.moving -= theirs.pairs
        self.plan = plan
        self.wanted = plan.target
        if self._draining is not None:
            self._draining.let_go(theirs.pairs, theirs.ports)

    def _intent(self, current: NetworkState, target: NetworkState) -> Record:
        """The intent, with those of the changes that this one is beside: after a death, the last
        entry of the journal has to tell of all.
        """
        return intent(self.fabric, current, target, self.beside)

    # -- the course of a reconfiguration ------------------------------------------------------

    def run(self) -> Steps:
        """Drive to the end with ``send``; afterwards read the attributes, and save the result.

        Until then, the journal's last entry is the intent.
        """
        if self.plan.empty:
            self.result = self.plan.target
            self._enter(ReconfigurationState.DONE)
            return
        yield Batch("intent", (self._intent(self.plan.current, self.plan.target),))
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
        partial = self.failures or self.obstacles
        self._enter(ReconfigurationState.PARTIAL if partial else ReconfigurationState.DONE)

    @property
    def _hitless(self) -> bool:
        return self.policy.transition is Transition.HITLESS

    def _enter(self, state: ReconfigurationState) -> None:
        check_transition(RECONFIGURATION_TRANSITIONS, self.state, state, "the reconfiguration")
        self.state = state

    def _note(self, name: str, outcomes: Sequence[Outcome], note: str = "") -> None:
        """Record a step as a whole: from its first command's start to its last one's end."""
        if outcomes:
            started = min(outcome.started_s for outcome in outcomes)
            finished = max(outcome.finished_s for outcome in outcomes)
            self.steps.append(Step(name, None, started, finished, note))

    def _missed(self, step: str, device: str, cause: Failure, words: str = "") -> Failure:
        """Note a step that a device did not confirm, in ``words`` or those of the cause."""
        failure = Failure(step, device, cause.kind, words or cause.reason)
        self.silent.append(failure)
        return failure

    # -- substep 3-1 ----------------------------------------------------------------------------

    def _divert(self) -> Steps:
        switches = steering_of(self._substrate, self.plan.affected)
        changes = diverting(self._substrate, switches, self.plan.target.epoch)
        taken = only(changes, self.conditions.connected)
        closes = self.policy.on_silent_vswitch is OnSilence.CLOSE
        hurries = self.hurries and self._substrate.retags and not closes
        outcomes = yield Batch("divert", (ApplyRules(taken, hurries, self.slow),))
        self._note("divert", outcomes)
        silent: dict[Steering, Failure] = {}
        for switch, racks in switches.items():
            failure = _by_switch(outcomes[0]).get(switch.datapath, _away(switch))
            if failure is None:
                self._diverted[switch] = set(racks)
            else:
                self._stuck.add(switch.datapath)
                silent[switch] = failure
                if hurries and (
                    failure.kind is FailureKind.LATE or switch.datapath in self.conditions.awaited
                ):
                    self.late.add(switch.datapath)
        yield from self._close(silent if closes else filter(self._is_cut_off, silent))
        self._hold_for_silent(silent)

    def _is_cut_off(self, silent: Steering) -> bool:
        """True if an uplink is down that would have to come back before the switch can send.

        A late switch may answer before that.
        """
        return silent.name in self.conditions.dead_uplinks and silent.datapath not in self.late

    def _close(self, silent: Iterable[Steering]) -> Steps:
        """Have ToRs take nothing for circuits from silent vswitches that may send there."""
        out: dict[RackId, list[Server]] = {}
        held = self._held_by_rack()
        for switch in silent:
            if not self._is_off_circuits(switch) and held.get(switch.rack):
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
            if outcome.failure is None:
                self.closed |= {server.name for server in out[command.rack]}
            else:
                self._missed("close", rack, outcome.failure)

    def _is_off_circuits(self, switch: Steering) -> bool:
        """True if nothing that the switch sends gets onto a circuit, whatever comes back."""
        return switch.name in self.conditions.closed or switch.name in self.closed

    def _held_by_rack(self) -> dict[RackId, set[Pair]]:
        """Affected pairs that have paths now, by each of their racks."""
        held: dict[RackId, set[Pair]] = {}
        for pair in self.plan.affected & paths_by_pair(self.plan.current).keys():
            for rack in pair:
                held.setdefault(rack, set()).add(pair)
        return held

    def _go_undiverted(self) -> None:
        """Experiments: pushed rules take effect at once, whatever the mirrors do meanwhile."""
        for switch, racks in steering_of(self._substrate, self.plan.affected).items():
            if switch.datapath in self.conditions.connected:
                self._diverted[switch] = set(racks)
            else:
                self._stuck.add(switch.datapath)
                self.silent.append(_away(switch))

    def _hold_for_silent(self, silent: Mapping[Steering, Failure]) -> None:
        """Leave paths of switches that can't confirm where they are: they may still be sending."""
        held: set[Pair] = set()
        of_rack = self._held_by_rack()
        for switch, cause in silent.items():
            words = f"{switch.name} did not confirm its divert ({cause})"
            failure = self._missed("divert", switch.name, cause, words)
            its = of_rack.get(switch.rack, set())
            if self._is_off_circuits(switch) or (self._is_cut_off(switch) and not its):
                continue
            held |= its
            self.obstacles.append(failure)
        if held:
            self._replan(held, ())

    def _replan(self, pairs: Collection[Pair], circuits: Collection[Circuit]) -> None:
        target = hold(self.plan.current, self.plan.target, pairs, circuits)
        self.plan = diff(self.fabric, self.plan.current, target, self.order_of)

    # -- drain ------------------------------------------------------------------------------------

    def _drain(self) -> Steps:
        """Wait until nothing is under way any more on the paths that diverted pairs leave.

        First, the switches that were diverted tell that they forward by no flow that they cached
        earlier; then :class:`~hydra.reconfiguration.draining.Draining` sees to the paths.

        Meanwhile switches are sent the rules that they are to be given afterwards.
        """
        beside: tuple[Command, ...] = (StageRules(self._rules_to_push()),)
        seen: list[Outcome] = []
        leaving = self._leaving()
        if leaving and self._substrate.tells_rounds:
            datapaths = tuple(switch.datapath for switch in leaving)
            told = AwaitRounds(datapaths, self.policy.timeouts.vswitch_s)
            seen += (yield Batch("drain", (told, *beside)))[:1]
            beside = ()
            late = seen[0].value or frozenset()
            self._hold_for_silent({one: _late(one) for one in leaving if one.datapath in late})
        draining = self._draining = Draining.of(
            self.fabric,
            self.plan,
            self.conditions.diverted,
            self.policy.drain,
            cache_told=self._substrate.tells_rounds,
        )
        senders: dict[RackId, list[Server]] = {}
        for switch in leaving:
            if switch.name not in self.conditions.dead_uplinks:
                senders.setdefault(switch.rack, []).extend(switch.servers[:1])
        receivers = {rack: self._able(rack) for rack in draining.ends}
        yield from draining.run(senders, receivers, beside)
        bound = "bound reached" if draining.bound_reached else ""
        self._note("drain", (*seen, *draining.outcomes), bound)
        self._hold_undrained(draining)

    def _hold_undrained(self, draining: Draining) -> None:
        """Hold what still carries frames, and what nothing shows to be empty."""
        busy = draining.busy()
        if busy:
            reason = f"{len(busy)} circuit(s) still carried frames after the drain bound"
            names = ", ".join(map(self._named, busy))
            self.obstacles.append(Failure("drain", names, FailureKind.BUSY, reason))
            self._replan((), busy)
        unproven = [
            path
            for path in draining.unproven(probed=bool(self.policy.probe_interval_s))
            if pair_of(path) not in self.conditions.diverted
        ]
        if unproven:
            reason = (
                f"nothing shows that {len(unproven)} path(s) are empty: no marker came through "
                "before the drain bound"
            )
            names = ", ".join(map(self._between, unproven))
            self.obstacles.append(Failure("drain", names, FailureKind.UNKNOWN, reason))
            self._replan({pair_of(path) for path in unproven}, ())

    def _leaving(self) -> list[Steering]:
        """Diverted switches that may have sent onto circuits until now."""
        held = self._held_by_rack()
        return [
            switch
            for switch in self._diverted
            if held.get(switch.rack) and not self._is_off_circuits(switch)
        ]

    # -- substep 3-2 ------------------------------------------------------------------------------

    def _move(self) -> Steps:
        yield from self._retag_alone("untag", self.plan.untag_first)
        yield from self._unrelay()
        yield from self._disconnect_first()
        retags = [SetVlans(rack, ports) for rack, ports in sorted(self.plan.retag.items())]
        mirrors = [MoveMirrors(plane, move) for plane, move in sorted(self.plan.mirrors.items())]
        push = ApplyRules(self._rules_to_push(), slow=self.slow)
        self.rules_pushed = sum(len(changes) for changes in push.changes.values())
        self.ports_retagged = self.plan.retagged_ports
        # Commands that are soonest sent come first: their devices are at work meanwhile.
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
            reason = "not set up: a device that it had to wait for did not confirm"
            for circuit in self.plan.connect_last:
                name = self._named(circuit)
                self._fail(circuit, Failure("move", name, FailureKind.HELD_UP, reason))
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

    def _takes_rules(self, datapath: DatapathId) -> bool:
        """True if a switch takes rules, as far as is known."""
        return datapath in self.conditions.connected and datapath not in self._stuck

    def _unrelay(self) -> Steps:
        """Stop relaying along paths that are given up: a late frame ends at a relay."""
        relays = leaving(self._substrate, self.plan)
        changes = only(relays, set(filter(self._takes_rules, relays)))
        if not changes:
            return
        outcomes = yield Batch("unrelay", (ApplyRules(changes),))
        self._note("unrelay", outcomes)
        self._note_relays(outcomes[0], changes)

    def _note_relays(self, outcome: Outcome, relays: Collection[DatapathId]) -> None:
        """Note the relays that did not take their changes: they are synchronised later."""
        for datapath in relays:
            failure = self._deaf(outcome, datapath)
            if failure is not None:
                self._stuck.add(datapath)
                self.silent.append(failure)

    def _deaf(self, outcome: Outcome, relay: DatapathId) -> Failure | None:
        """The failure of a relay to take its rules; None if it took them."""
        name = self._substrate.owned()[relay]
        away = Failure("relay", name, FailureKind.NOT_READY, "not ready for rules")
        failure = _by_switch(outcome).get(relay, away)
        return failure and replace(failure, step="relay", subject=name)

    def _disconnect_first(self) -> Steps:
        """Tear down circuits that would close a loop in retagging; if one may stand, retag none.

        The plan shrinks to giving these circuits up: taking tags away closes no loop.
        """
        first = self.plan.disconnect_first
        yield from self._move_alone(first, ())
        if self.uncertain_planes:
            current = replace(self.plan.current, epoch=self.plan.target.epoch)
            target = without(current, first, self._maybe_untagged())
            plan = diff(self.fabric, self.plan.current, target, self.order_of)
            back = self._memberships_in(target, self.plan.untag_first)
            self.plan = replace(plan, retag=merged(back, plan.untag_first, plan.retag))
            reason = "nothing else moves: a circuit that had to go first may still be up"
            names = ", ".join(map(self._named, sorted(first)))
            self.obstacles.append(Failure("move", names, FailureKind.HELD_UP, reason))

    def _maybe_untagged(self) -> list[Path]:
        """Paths that a ToR may yet untag: it was told to, and has not answered."""
        return self._through(self.plan.current, self._untagging)

    def _through(self, state: NetworkState, ports: Mapping[PortId, PortVlans]) -> list[Path]:
        """Paths through one of these ports that has not got their VLAN."""
        return [
            path
            for path, vlan in state.vlans.items()
            if any(
                end in ports and vlan not in ports[end].tagged
                for circuit in path.circuits
                for end in circuit.ends
            )
        ]

    def _memberships_in(self, state: NetworkState, ports: PortsToTag) -> PortsToTag:
        """VLANs that these ports, which were retagged already, are to have in ``state``."""
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

    def _device_step(self, name: str, device: str | None, outcome: Outcome) -> None:
        note = str(outcome.failure or "")
        self.steps.append(Step(name, device, outcome.started_s, outcome.finished_s, note))

    def _rules_to_push(self) -> Mapping[DatapathId, tuple[RuleChange, ...]]:
        """Circuit rules of the affected pairs, and those of their relays, for every switch that
        has confirmed so far. For one plan, they are always the same tuples.
        """
        if self._push is None or self._push.plan is not self.plan:
            self._push = _Push(
                self.plan,
                rules_of(
                    self.fabric,
                    self.plan,
                    self.conditions.connected,
                    emulated=self.policy.emulated_rules,
                ),
            )
        changes = self._push.changes
        return {dp: mine for dp, mine in changes.items() if self._takes_rules(dp)}

    def _pushed(self, outcome: Outcome) -> None:
        self._device_step("push", None, outcome)
        errors = _by_switch(outcome)
        for switch, racks in self._diverted.items():
            cause = errors.get(switch.datapath)
            if cause is not None:
                self._stuck.add(switch.datapath)
                pairs = sorted({(min(switch.rack, to), max(switch.rack, to)) for to in racks})
                named = ", ".join(pair_named(self.fabric, pair) for pair in pairs)
                verb = "refuses" if cause.kind is FailureKind.REFUSED else "did not take"
                words = f"{switch.name} {verb} the rules of {named} ({cause})"
                self.obstacles.append(self._missed("push", switch.name, cause, words))
        self._note_relays(outcome, errors.keys() - {switch.datapath for switch in self._diverted})
        for path, lost in unrelayed(
            self._substrate, self.plan, lambda relay: self._deaf(outcome, relay)
        ):
            self._lose(path, lost)

    def _retagged(self, step: str, command: SetVlans, outcome: Outcome) -> None:
        rack = self.fabric.racks[command.rack]
        self._device_step(step, rack.name, outcome)
        ports = {
            self.fabric.port_by_name[rack.name, name].id: vlans
            for name, vlans in command.ports.items()
        }
        if outcome.failure is None:
            if step == "untag":
                self._untagged |= ports
            return
        words = f"{rack.name} was not retagged ({outcome.failure})"
        failure = self._missed(step, rack.name, outcome.failure, words)
        self._retag_failed = True
        if step == "untag" and failure.kind is FailureKind.UNKNOWN:
            self._untagging |= ports
        for circuit in self.plan.target.topology.circuits:
            if not ports.keys().isdisjoint(circuit.ends):
                self._fail(circuit, failure)
        # Of pairs that the plan, since it shrank, leaves where they are: they have not got back.
        untagged = {end: self._untagged[end] for end in ports if end in self._untagged}
        for path in self._through(self.plan.target, untagged):
            if pair_of(path) not in self.plan.affected:
                self._lose(path, failure)

    def _moved(self, command: MoveMirrors, outcome: Outcome) -> None:
        plane = self.fabric.planes[command.plane]
        self._device_step("mirrors", plane.name, outcome)
        if outcome.failure is not None:
            words = f"OCS {outcome.failure}"
            failure = self._missed("mirrors", plane.name, outcome.failure, words)
            self.uncertain_planes.add(plane.id)
            if failure.kind is FailureKind.AWAITS_PEOPLE:
                self.asked_planes.add(plane.id)
            for circuit in self.plan.connect:
                if circuit.plane == plane.id:
                    self._fail(circuit, failure)

    def _settle_mirrors(self) -> Steps:
        """Read devices whose move was refused or unanswered: it may still have happened."""
        planes = sorted(self.uncertain_planes)
        if not planes:
            return
        outcomes = yield Batch("settle", tuple(ReadMirrors(plane) for plane in planes))
        for plane, outcome in zip(planes, outcomes, strict=True):
            if not outcome.confirmed:
                continue
            present = outcome.value.present  # the gate says whether they pass light
            for circuit in self.plan.connect:
                if circuit.plane == plane and present.issuperset(
                    self.fabric.cross_connects(circuit)
                ):
                    self.failures.pop(circuit, None)

    def _fail(self, circuit: Circuit, failure: Failure) -> None:
        """Give up a circuit. One that serves a pair which was not diverted stays up for it."""
        if circuit in self._use().serving:
            for path in self._new_paths():
                if circuit in path.circuits:
                    self._lose(path, failure)
        else:
            self.failures.setdefault(circuit, failure)

    def _lose(self, path: Path, cause: Failure) -> None:
        """Give up one path, and none of its circuits."""
        self._lost_paths.add(path)
        names = self._between(path)
        several = self._use().paths[pair_of(path)] > 1
        fate = "does without one of its paths" if several else "stays electrical"
        self.obstacles.append(replace(cause, subject=names, reason=f"{names} {fate}: {cause}"))

    def _between(self, path: Path) -> str:
        return pair_named(self.fabric, pair_of(path))

    def _named(self, circuit: Circuit) -> str:
        racks = (self.fabric.racks[rack].name for rack in self.fabric.racks_of(circuit))
        return f"{' - '.join(racks)} on {self.fabric.planes[circuit.plane].name}"

    def _use(self) -> _Use:
        if self._in_use is None or self._in_use.plan is not self.plan:
            topology = self.plan.target.topology
            used = {
                circuit
                for path in topology.paths
                if pair_of(path) not in self.plan.affected
                for circuit in path.circuits
            }
            serving = rings_of(used, topology.circuits)
            self._in_use = _Use(self.plan, serving, Counter(map(pair_of, topology.paths)))
        return self._in_use

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
        fresh = lighting - self.failures.keys()
        timeout_s = self.policy.timeouts.port_up_s
        dark = yield from await_carrier(self.fabric, fresh, timeout_s, self._note)
        for circuit, failure in dark.items():
            self._fail(circuit, failure)

    def _tag_last(self) -> Steps:
        """Join circuits that have light to VLANs that are in use elsewhere, and take those without
        light off the VLANs of paths that are about to be.
        """
        lit = {
            (self.fabric.ports[end].rack, self.fabric.ports[end].tor_port)
            for circuit in self._lit()
            for end in circuit.ends
        }
        flooded = {self.plan.target.vlans[path] for path in self._new_paths()}
        left = without(self.plan.target, self.failures, self._lost_paths)
        unlit = self.plan.target.topology.circuits - self._lit()
        ports = off_the_dark(self.fabric, self.plan.target, left, unlit, flooded)
        for rack, named in self.plan.tag_last.items():
            for name, vlans in named.items():
                if (rack, name) in lit:
                    ports.setdefault(rack, {})[name] = vlans
        yield from self._retag_alone("tag", ports)

    def _able(self, rack: RackId) -> list[Server]:
        """Servers of a rack that can send and receive on circuits."""
        off = self.conditions.dead_uplinks | self.conditions.closed | self.closed
        return [
            server
            for switch in self._substrate.steering(rack)
            if self._takes_rules(switch.datapath)
            for server in switch.servers
            if server.name not in off
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
        probes: list[ProbePath] = []
        uses = Counter(circuit for path in paths for circuit in path.circuits)
        shared = {circuit for circuit, number in uses.items() if number > 1}
        for path in paths:
            a, b = self._able(path.src), self._able(path.dst)
            if a and b:
                vlan = self.plan.target.vlans[path]
                probes.append(ProbePath(path, vlan, (a[0], b[0]), self.policy.timeouts.probe_s))
            else:
                self._fail_path(path, shared, self._not_probed(path, path.dst if a else path.src))
        if not probes:
            return
        port_up_s = self.policy.timeouts.port_up_s
        verdicts = yield from probe(self.fabric, probes, port_up_s, self._note)
        tried = list(zip(probes, verdicts, strict=True))
        good = {circuit for one, lost in tried if lost is None for circuit in one.path.circuits}
        dead = self.conditions.dead_uplinks  # by now
        for one, lost in tried:
            if lost is None:
                continue
            unable = [server for server in one.ends if server.name in dead]
            cause = self._not_probed(one.path, unable[0].rack) if unable else lost
            self._fail_path(one.path, good, cause)

    def _not_probed(self, path: Path, rack: RackId) -> Failure:
        reason = f"no server of {self.fabric.racks[rack].name} can be probed"
        return Failure("probe", self._between(path), FailureKind.NOT_PROBED, reason)

    def _fail_path(self, path: Path, good: Collection[Circuit], failure: Failure) -> None:
        """Give up the circuits of ``path`` but those that are ``good``, since other paths use them;
        if none is left, the path alone.
        """
        blamed = set(path.circuits).difference(good) - self._use().serving
        for circuit in blamed:
            self._fail(circuit, failure)
        if not blamed:
            self._lose(path, failure)

    # -- substep 3-3 ------------------------------------------------------------------------------

    def _activate(self) -> Steps:
        self.result = without(self.plan.target, self.failures, self._lost_paths)
        lost = changed_pairs(self.plan.target, self.result)
        steer = Resteering.between(self._substrate, self.plan.target, self.result)
        dead = self.conditions.diverted
        self.activated = self.moving - (dead - self.plan.affected)  # the dead that are held
        frozen: dict[DatapathId, tuple[RuleChange, ...]] = {}
        in_common: dict[tuple[RackId, tuple[RackId, ...]], tuple[RuleChange, ...]] = {}
        for switch, racks in self._diverted.items():
            if switch.datapath in self._stuck:
                continue
            key = switch.rack, tuple(sorted(racks))
            if key not in in_common:
                in_common[key] = tuple(self._activating(*key, steer, lost))
            if in_common[key]:
                frozen[switch.datapath] = in_common[key]
        outcomes = yield Batch("activate", (ApplyRules(frozen, slow=self.slow),))
        self._note("activate", outcomes)
        for switch in self._diverted:
            failure = _by_switch(outcomes[0]).get(switch.datapath)
            if failure is not None:
                self._missed("activate", switch.name, failure)
        yield from self._tidy()

    def _activating(
        self, rack: RackId, towards: Iterable[RackId], steer: Resteering, lost: Collection[Pair]
    ) -> Iterator[RuleChange]:
        """Changes that end the divert of a rack's traffic; ``lost`` pairs lose their circuits."""
        epoch, dead = self.plan.target.epoch, self.conditions.diverted
        for to in towards:
            pair = (min(rack, to), max(rack, to))
            if pair in lost:
                yield from steer.changes(rack, to)
            if pair in self.activated and (self._hitless or pair in dead):
                yield Remove(self._substrate.divert(to, epoch))

    def _tidy(self) -> Steps:
        """Untag failed circuits, stop relaying them, and remove the last epoch's emulated rules."""
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
            elif isinstance(command, SetVlans) and outcome.failure is not None:
                self._missed("tidy", self.fabric.racks[command.rack].name, outcome.failure)


def intent(
    fabric: Fabric, current: NetworkState, target: NetworkState, others: Collection[Execution]
) -> Record:
    """The intent to get from one state to the other, with what ``others`` are about to make."""
    for other in others:
        target = moved_on(target, other.plan.current, other.wanted)
    details = {
        "current": state_record(fabric, current),
        "target": state_record(fabric, target),
    }
    return Record(INTENDED, details)


def rest(seconds: float) -> Steps:
    """Let VLAN-IDs rest before a plan that takes them begins."""
    yield Batch("rest", (Pause(seconds),))


def _away(switch: Steering) -> Failure:
    return Failure("divert", switch.name, FailureKind.NOT_CONNECTED, "not connected")


def _late(switch: Steering) -> Failure:
    reason = "has not looked at all its cached flows"
    return Failure("forget", switch.name, FailureKind.UNKNOWN, reason)


def _by_switch(rules: Outcome) -> Mapping[DatapathId, Failure | None]:
    """The failure, or None, of each switch asked to change its tables; empty if none was."""
    return rules.value or {}
