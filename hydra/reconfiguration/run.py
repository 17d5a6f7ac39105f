"""State shared by the substeps of a reconfiguration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from hydra.failures import Failure
from hydra.forwarding.rules import RuleChange
from hydra.forwarding.substrate import Steering, Substrate, substrate_of
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReconfigurationState, check_transition
from hydra.model import (
    Circuit,
    DatapathId,
    Fabric,
    NetworkState,
    Pair,
    Path,
    PlaneId,
    PortId,
    RackId,
)
from hydra.policy import Policy
from hydra.reconfiguration.commands import Outcome
from hydra.reconfiguration.draining import Draining
from hydra.reconfiguration.plan import (
    OrderOf,
    Plan,
    Unsettled,
    begun_by,
    diff,
    hold,
    pair_named,
    pair_of,
)
from hydra.reconfiguration.touched import Touched
from hydra.rings import rings_of, whole_rings
from hydra.roles import PortVlans


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The time of a step, or of a device's part, in seconds on the runner's clock."""

    name: str
    device: str | None
    started_s: float
    finished_s: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The condition of the network when a plan starts."""

    connected: frozenset[DatapathId]
    """Switches that hold the intended rules and take changes."""
    dead_uplinks: frozenset[str]
    """Servers with a dead optical uplink: no circuit carries their traffic until the uplink
    returns.
    """
    closed: frozenset[str] = frozenset()
    """Servers whose ToR port is closed to circuits."""
    diverted: frozenset[Pair] = frozenset()
    """Pairs sent electrical by the death of circuits or paths. A pair stays electrical unless the
    plan moves the pair.
    """
    vacated: frozenset[Path] = frozenset()
    """Lost paths whose traffic has gone to surviving paths: nothing proves them empty."""
    awaited: frozenset[DatapathId] = frozenset()
    """Connected switches expected to hold the intended rules soon."""
    by_hand: frozenset[PlaneId] = frozenset()
    """Planes whose circuits people plug."""


def switches_of(fabric: Fabric, rack: RackId) -> frozenset[DatapathId]:
    """The switches steering a rack's traffic. Empty where servers have no vswitch, as on the
    fabrics of rehearsals.
    """
    try:
        return frozenset(switch.datapath for switch in substrate_of(fabric).steering(rack))
    except LookupError:
        return frozenset()


def all_ready(fabric: Fabric) -> Conditions:
    """The condition of a network without faults."""
    connected = frozenset[DatapathId]().union(*(switches_of(fabric, r.id) for r in fabric.racks))
    return Conditions(connected=connected, dead_uplinks=frozenset())


@dataclass(frozen=True, slots=True)
class Push:
    """A plan's rule changes for each switch present at the start."""

    plan: Plan
    changes: Mapping[DatapathId, tuple[RuleChange, ...]]


@dataclass(frozen=True, slots=True)
class Use:
    """The use of circuits in a plan's target."""

    plan: Plan
    serving: frozenset[Circuit]
    """Circuits, with their rings, of paths in constant use: the paths' pairs are not diverted."""
    paths: Mapping[Pair, int]
    """The number of paths of each pair."""


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """The progress and, at the end, the result of carrying out a plan."""

    fabric: Fabric
    policy: Policy
    plan: Plan
    conditions: Conditions
    order_of: OrderOf
    beside: tuple[Run, ...] = ()
    """Changes under way during the whole run; their steps interleave with the run's."""
    gives_way: bool = False
    """True if other changes may take over unmoved pairs."""
    hurries: bool = False
    """Skip vswitches far slower than the rest (decision 36), unless skipping would close their ToR
    ports.
    """
    slow: frozenset[DatapathId] = frozenset()
    """Switches skipped by an earlier change: the run makes the skipped paths, and waits for the
    switches.
    """
    in_light: bool = False
    """True for make before break: pairs go from circuit to circuit without a divert."""
    state: ReconfigurationState = ReconfigurationState.QUEUED
    steps: list[Step] = field(default_factory=list)
    failures: dict[Circuit, Failure] = field(default_factory=dict)
    """Circuits given up, each with the cause."""
    obstacles: list[Failure] = field(default_factory=list)
    """Other deviations from the plan: of switches, circuits kept up, paths."""
    silent: list[Failure] = field(default_factory=list)
    """Failures of devices to confirm a step."""
    uncertain_planes: set[PlaneId] = field(default_factory=set)
    """Planes whose mirrors may differ from the resulting state."""
    asked_planes: set[PlaneId] = field(default_factory=set)
    """Uncertain planes whose people were asked: new cross-connects may be made later."""
    rules_pushed: int = 0
    ports_retagged: int = 0
    began: NetworkState = field(init=False)
    """The state at the start, rebased on the results of other changes."""
    wanted: NetworkState = field(init=False)
    """The planned target, including parts given up since."""
    moving: frozenset[Pair] = field(init=False)
    """Pairs to move. The run owns their divert rules to the end. In a make-before-break run, a pair
    joins when its move starts.
    """
    result: NetworkState = field(init=False)
    """The state of the network; valid at any time."""
    diverted: dict[Steering, set[RackId]] = field(default_factory=dict)
    """Switches taking the new rules, with the racks concerned."""
    substrate: Substrate = field(init=False)
    lost_paths: set[Path] = field(default_factory=set)
    """Paths given up although none of their circuits is to blame."""
    retag_failed: bool = False
    untagging: dict[PortId, PortVlans] = field(default_factory=dict)
    """Ports of ToRs without an answer to the untagging before the moves, with the remaining VLANs
    of each port. The ToR may still carry out the untagging after later commands.
    """
    relearning: set[PortId] = field(default_factory=set)
    """Ports retagged since the last announcement. A ToR may forget the addresses of all VLANs of
    such a port.
    """
    untagged: dict[PortId, PortVlans] = field(default_factory=dict)
    """Ports untagged before the moves, with the remaining VLANs of each port."""
    stuck: set[DatapathId] = field(default_factory=set)
    """Switches without a confirmed push: diverted until synchronised."""
    activated: frozenset[Pair] = frozenset()
    """Pairs whose divert rules are gone, except at switches that did not confirm."""
    late: set[DatapathId] = field(default_factory=set)
    """Skipped switches; late answers are possible."""
    closed: set[str] = field(default_factory=set)
    """Servers of silent vswitches, closed out at the ToR to let circuits move."""
    pushed: Push | None = None
    in_use: Use | None = None
    planned: Plan = field(init=False)
    """The plan at the start. Its affected pairs were diverted, also pairs given up since."""
    draining: Draining | None = None
    ceded: Touched | None = None
    """Parts left to other changes."""

    def __post_init__(self) -> None:
        self.planned = self.plan
        self.began = self.plan.current
        self.wanted = self.plan.target
        self.moving = frozenset(() if self.in_light else self.plan.affected)
        self.result = self.plan.current
        self.substrate = substrate_of(self.fabric)

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Names of devices with an unconfirmed step."""
        return frozenset(failure.subject for failure in self.silent)

    @property
    def troubles(self) -> tuple[Failure, ...]:
        """Every failure, once each."""
        return tuple(dict.fromkeys((*self.silent, *self.obstacles, *self.failures.values())))

    @property
    def reason(self) -> str:
        """The reason for a deviation from the plan, in words; empty if none."""
        reasons = map(str, self.failures.values())
        return "; ".join(map(str, self.obstacles)) or "; ".join(sorted(set(reasons)))

    def set_dead_uplinks(self, dead: frozenset[str]) -> None:
        """Treat the servers in ``dead`` as cut off from circuits: their uplinks are down by now."""
        self.conditions = replace(self.conditions, dead_uplinks=dead)

    def keep_electrical(self, pairs: frozenset[Pair]) -> None:
        """Leave ``pairs``, whose circuits or paths have died, electrical unless the plan moves
        them.
        """
        diverted = self.conditions.diverted | pairs
        self.conditions = replace(self.conditions, diverted=diverted)

    @property
    def unsteady(self) -> AbstractSet[Pair]:
        """Pairs that may be off the paths of the recorded state."""
        return self.moving if self.in_light else self.plan.affected

    @property
    def unsettled(self) -> Unsettled:
        """Paths and circuits left open if the change breaks off now."""
        if not self.in_light:
            return Unsettled.by(self.plan.current, self.plan.target)
        before, after = self.plan.current.topology.paths, self.plan.target.topology.paths
        breaks = self.state is ReconfigurationState.BREAKING
        ended = frozenset(before).difference(after) if breaks else frozenset[Path]()
        circuits = self.wanted.topology.circuits - self.began.topology.circuits
        return Unsettled(ended, begun_by(self.began, self.wanted), circuits)

    def enter(self, state: ReconfigurationState) -> None:
        check_transition(RECONFIGURATION_TRANSITIONS, self.state, state, "the reconfiguration")
        self.state = state

    def note(self, name: str, outcomes: Sequence[Outcome[Any]], note: str = "") -> None:
        """Record a step from the start of the first command to the end of the last command."""
        if outcomes:
            started = min(outcome.started_s for outcome in outcomes)
            finished = max(outcome.finished_s for outcome in outcomes)
            self.steps.append(
                Step(name=name, device=None, started_s=started, finished_s=finished, note=note)
            )

    def missed(self, step: str, device: str, cause: Failure, words: str = "") -> Failure:
        """Note a step without a device's confirmation. The reason is ``words``, by default the
        reason of ``cause``.
        """
        failure = Failure(step, device, cause.kind, words or cause.reason)
        self.silent.append(failure)
        return failure

    def device_step(self, name: str, device: str | None, outcome: Outcome[Any]) -> None:
        note = str(outcome.failure or "")
        self.steps.append(
            Step(
                name=name,
                device=device,
                started_s=outcome.started_s,
                finished_s=outcome.finished_s,
                note=note,
            )
        )

    def fail(self, circuit: Circuit, failure: Failure) -> None:
        """Give up a circuit. If an undiverted pair uses the circuit, give up only the new paths on
        it.
        """
        if circuit in self.use().serving:
            for path in self.new_paths():
                if circuit in path.circuits:
                    self.lose(path, failure)
        else:
            self.failures.setdefault(circuit, failure)

    def lose(self, path: Path, cause: Failure) -> None:
        """Give up a path, and none of the path's circuits."""
        self.lost_paths.add(path)
        names = self.between(path)
        several = self.use().paths[pair_of(path)] > 1
        fate = "does without one of its paths" if several else "stays electrical"
        if self.in_light and any(pair_of(vlan) == pair_of(path) for vlan in self.began.vlans):
            fate = "stays where it was"
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
                if not self._moves_to(path)
                for circuit in path.circuits
            }
            serving = rings_of(used, topology.circuits)
            self.in_use = Use(self.plan, serving, Counter(map(pair_of, topology.paths)))
        return self.in_use

    def new_paths(self) -> list[Path]:
        """Affected paths of the target, without failed paths and paths over failed circuits."""
        lit = self.lit()
        return [
            path
            for path in self.plan.target.topology.paths
            if self._moves_to(path)
            and path not in self.lost_paths
            and lit.issuperset(path.circuits)
        ]

    def _moves_to(self, path: Path) -> bool:
        """True if a path of the target carries no traffic before the path has passed the gate."""
        if self.in_light and path in self.plan.current.vlans:
            return False
        return pair_of(path) in self.plan.affected

    def lit(self) -> frozenset[Circuit]:
        """Circuits of the target, without failed circuits and broken rings."""
        return whole_rings(self.plan.target.topology.circuits - self.failures.keys())

    def replan(self, pairs: Collection[Pair], circuits: Collection[Circuit]) -> None:
        target = hold(self.plan.current, self.plan.target, pairs, circuits)
        self.plan = diff(self.fabric, self.plan.current, target, self.order_of)
