"""The state that the substeps of a reconfiguration share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hydra.failures import Failure
from hydra.forwarding.rules import RuleChange
from hydra.forwarding.substrate import Steering, Substrate, substrate_of
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReconfigurationState, check_transition
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, Path, PlaneId, PortId, RackId
from hydra.policy import Policy, Transition
from hydra.reconfiguration.beside import Touched
from hydra.reconfiguration.commands import Outcome
from hydra.reconfiguration.draining import Draining
from hydra.reconfiguration.plan import OrderOf, Pair, Plan, diff, hold, pair_named, pair_of
from hydra.rings import rings_of, whole_rings
from hydra.roles import PortVlans


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
class Push:
    """The rules that a plan gives each switch that was there at its start."""

    plan: Plan
    changes: Mapping[DatapathId, tuple[RuleChange, ...]]


@dataclass(frozen=True, slots=True)
class Use:
    """The use that a plan's target makes of its circuits."""

    plan: Plan
    serving: frozenset[Circuit]
    """Circuits of pairs that keep their path: in use, since these are not diverted. With the rings
    that they are in.
    """
    paths: Mapping[Pair, int]
    """The number of paths of each pair."""


@dataclass(slots=True, eq=False)
class Run:
    """The progress and, at the end, the result of carrying out one plan."""

    fabric: Fabric
    policy: Policy
    plan: Plan
    conditions: Conditions
    order_of: OrderOf
    beside: tuple[Run, ...] = ()
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
    diverted: dict[Steering, set[RackId]] = field(default_factory=dict)
    """Switches that take the new rules, with the racks concerned."""
    substrate: Substrate = field(init=False)
    lost_paths: set[Path] = field(default_factory=set)
    """Paths that failed, although none of their circuits can be blamed."""
    retag_failed: bool = False
    untagging: dict[PortId, PortVlans] = field(default_factory=dict)
    """Ports that were to be untagged first, with the VLANs left to them, where the ToR has not
    answered: it may do so yet, after whatever it is told later."""
    untagged: dict[PortId, PortVlans] = field(default_factory=dict)
    """Ports that were untagged first, with the VLANs left to them."""
    stuck: set[DatapathId] = field(default_factory=set)
    """Switches that missed a push: they stay diverted until they are synchronised."""
    activated: frozenset[Pair] = frozenset()
    """Pairs whose divert rules are gone, but at switches that did not confirm that."""
    late: set[DatapathId] = field(default_factory=set)
    """Switches that it has not waited for, though they may answer yet."""
    closed: set[str] = field(default_factory=set)
    """Servers of silent vswitches that were closed out, so that circuits could move."""
    pushed: Push | None = None
    in_use: Use | None = None
    planned: Plan = field(init=False)
    """The plan at its begin: what was given up since was diverted all the same."""
    draining: Draining | None = None
    left: Touched | None = None
    """What it has left to others."""

    def __post_init__(self) -> None:
        self.planned = self.plan
        self.wanted = self.plan.target
        self.moving = self.plan.affected
        self.result = self.plan.current
        self.substrate = substrate_of(self.fabric)

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

    @property
    def hitless(self) -> bool:
        return self.policy.transition is Transition.HITLESS

    def enter(self, state: ReconfigurationState) -> None:
        check_transition(RECONFIGURATION_TRANSITIONS, self.state, state, "the reconfiguration")
        self.state = state

    def note(self, name: str, outcomes: Sequence[Outcome], note: str = "") -> None:
        """Record a step as a whole: from its first command's start to its last one's end."""
        if outcomes:
            started = min(outcome.started_s for outcome in outcomes)
            finished = max(outcome.finished_s for outcome in outcomes)
            self.steps.append(Step(name, None, started, finished, note))

    def missed(self, step: str, device: str, cause: Failure, words: str = "") -> Failure:
        """Note a step that a device did not confirm, in ``words`` or those of the cause."""
        failure = Failure(step, device, cause.kind, words or cause.reason)
        self.silent.append(failure)
        return failure

    def device_step(self, name: str, device: str | None, outcome: Outcome) -> None:
        note = str(outcome.failure or "")
        self.steps.append(Step(name, device, outcome.started_s, outcome.finished_s, note))

    def fail(self, circuit: Circuit, failure: Failure) -> None:
        """Give up a circuit. One that serves a pair which was not diverted stays up for it."""
        if circuit in self.use().serving:
            for path in self.new_paths():
                if circuit in path.circuits:
                    self.lose(path, failure)
        else:
            self.failures.setdefault(circuit, failure)

    def lose(self, path: Path, cause: Failure) -> None:
        """Give up one path, and none of its circuits."""
        self.lost_paths.add(path)
        names = self.between(path)
        several = self.use().paths[pair_of(path)] > 1
        fate = "does without one of its paths" if several else "stays electrical"
        self.obstacles.append(replace(cause, subject=names, reason=f"{names} {fate}: {cause}"))

    def between(self, path: Path) -> str:
        return pair_named(self.fabric, pair_of(path))

    def named(self, circuit: Circuit) -> str:
        racks = (self.fabric.racks[rack].name for rack in self.fabric.racks_of(circuit))
        return f"{' - '.join(racks)} on {self.fabric.planes[circuit.plane].name}"

    def use(self) -> Use:
        if self.in_use is None or self.in_use.plan is not self.plan:
            topology = self.plan.target.topology
            used = {
                circuit
                for path in topology.paths
                if pair_of(path) not in self.plan.affected
                for circuit in path.circuits
            }
            serving = rings_of(used, topology.circuits)
            self.in_use = Use(self.plan, serving, Counter(map(pair_of, topology.paths)))
        return self.in_use

    def new_paths(self) -> list[Path]:
        """Affected paths of the target that have not failed so far, nor have their circuits."""
        lit = self.lit()
        return [
            path
            for path in self.plan.target.topology.paths
            if pair_of(path) in self.plan.affected
            and path not in self.lost_paths
            and lit.issuperset(path.circuits)
        ]

    def lit(self) -> frozenset[Circuit]:
        """Circuits of the target that have not failed so far, nor those that light them."""
        return whole_rings(self.plan.target.topology.circuits - self.failures.keys())

    def replan(self, pairs: Collection[Pair], circuits: Collection[Circuit]) -> None:
        target = hold(self.plan.current, self.plan.target, pairs, circuits)
        self.plan = diff(self.fabric, self.plan.current, target, self.order_of)


def by_switch(rules: Outcome) -> Mapping[DatapathId, Failure | None]:
    """The failure, or None, of each switch asked to change its tables; empty if none was."""
    return rules.value or {}
