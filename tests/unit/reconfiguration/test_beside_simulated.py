"""Several simultaneous changes, on devices that fail; the controller dies during the changes.

A change begins beside another, and a third beside both, if they touch disjoint parts, or if one
leaves parts to the next. Their batches are carried out at the same time, and each change continues
as soon as its own batch is over. The first may go at the pace of slow switches, which other changes
skip. The next controller recovers from the journal's last entry. Replay as in
:mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import pytest

from hydra.model import Fabric, NetworkState, Topology, VlanId
from hydra.policy import DrainPolicy, Policy
from hydra.reconfiguration.commands import Command, Steps, next_batch
from hydra.reconfiguration.executor import Execution, intent
from hydra.reconfiguration.plan import Plan, diff, hold, moving_pairs, pair_of
from hydra.reconfiguration.scheduler import Running, Scheduler
from hydra.reconfiguration.side_by_side import SideBySide
from hydra.reconfiguration.touched import Touched, state_beside
from tests.unit.core.fabrics import (
    first_state,
    openflow_only,
    order_of,
    random_goal,
    random_state,
    single_homed,
    small_fabric,
)
from tests.unit.reconfiguration.courses import first_course
from tests.unit.reconfiguration.seeds import chunks, remembering
from tests.unit.reconfiguration.seeds import hold as hold_seeds
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.simulation.network import Flight, Network, shake
from tests.unit.reconfiguration.test_recovery_simulated import (
    CrashError,
    agrees,
    next_controller,
    time_passes,
)
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep
from tests.unit.reconfiguration.watch import Violation, Watch
from topology.marks import Marks, marks_of

pytestmark = pytest.mark.takes(10)

_RUNS = 150
_POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))
_DEEPEST = 3
"""Largest number of simultaneous changes."""
_CHANCE = 0.04
"""Chance, at each change of the network, of a request for a further change."""
_NO_VLAN = VlanId(0)


class Course(NamedTuple):
    most: int
    """Simultaneous changes so far."""
    made: tuple[int, ...]
    """The number of changes that were under way as each ended."""
    amid: frozenset[str]
    """Steps during which another change began."""
    left: bool
    """True if a change has left parts to another."""
    outlived: bool
    """True if the first change ended before one that began later."""
    died_among: int
    """Changes under way when the controller died; 0: no death."""


def _dual_homed(fabric: Fabric) -> Fabric:
    return fabric


@cache
def _built(
    racks: int, planes: int, ports: int, kind: Callable[[Fabric], Fabric]
) -> tuple[Fabric, Marks]:
    """Each of the few fabrics, built once."""
    fabric = kind(small_fabric(racks, planes, ports, servers=1))
    return fabric, marks_of(fabric)


def _without_new_vlans(state: NetworkState, goal: Topology) -> NetworkState:
    """The state that an allocator would make of a goal, as far as needed to know the moving
    pairs.
    """
    vlans = {path: state.vlans.get(path, _NO_VLAN) for path in goal.paths}
    return NetworkState(state.epoch + 1, goal, vlans)


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    """True if these are the same objects."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


class _Joint(Watch):
    """A change, beside others."""

    def __init__(self, world: _World, execution: Execution) -> None:
        super().__init__(world.network, execution, world.upkeep.uncertain)
        self._world = world
        self._others_unconfirmed: set[str] = set()
        self.running: Running | None = None
        self.flight: Flight | None = None
        """The batch that is being carried out."""

    @property
    def unconfirmed(self):
        return self.execution.unconfirmed | self._others_unconfirmed

    def vlans_in_use(self):
        state = self._world.upkeep.memory.state
        plans = [one.plan for one in self._world.under_way]
        known = self._world.in_use
        if known is None or known[0] is not state or not _same(known[1], plans):
            moving = frozenset().union(*(plan.affected for plan in plans))
            vlans = {vlan for path, vlan in state.vlans.items() if pair_of(path) not in moving}
            self._world.in_use = known = (state, plans, vlans)
        return known[2]

    def course(self) -> Steps:
        """The change, as the controller runs it."""
        steps = self.execution.run()
        batch = next_batch(steps)
        while batch is not None:
            self.before(batch)
            outcomes = yield batch
            self.learn(batch, outcomes)
            batch = next_batch(steps, outcomes)
        self.at_the_end()
        self._world.end(self)

    def see_from_now_on(self, other: _Joint) -> None:
        """The network as left by another change."""
        self._dark, self._seen_late = other._dark, -1

    def hear_of(self, other: _Joint) -> None:
        """A change beside this one is over."""
        self.see_from_now_on(other)
        self.passed |= other.passed
        self.carrier |= other.carrier
        self._uncertain |= other._uncertain | other.execution.uncertain_planes | other.unconfirmed
        self._others_unconfirmed |= other.unconfirmed

    def at_the_end(self):
        if self._world.under_way == (self.execution,):
            super().at_the_end()
        else:  # other changes are under way: the last one checks the devices
            self._circuits_share_no_port()
            self._all_new_paths_passed()


class _World:
    """A controller with changes under way, on one network."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        racks, planes, ports = rng.randint(5, 7), rng.randint(2, 3), rng.choice((1, 2))
        kind = rng.choice((_dual_homed, single_homed, openflow_only))
        self.fabric, self.marks = _built(racks, planes, ports, kind)
        self.order = order_of(self.fabric, self.marks)
        self.saved = state = first_state(self.fabric, rng)
        self.network = Network(self.fabric, state, rng)
        self.upkeep = SimulatedUpkeep.at_work(self.network, state)
        if rng.random() < 0.7:
            shake(self.network, rng)
        self.watches: list[_Joint] = []
        """Of the changes under way."""
        self.scheduler = Scheduler()
        self.in_use: tuple[NetworkState, list[Plan], set[VlanId]] | None = None
        """VLANs of staying pairs, by state and plans beside it."""
        self.most, self.made, self.amid = 0, [], set()
        self.left = self.outlived = False
        if self.network.substrate.retags and rng.random() < 0.5:
            self.network.late.slow = {dp for dp in self.network.names if rng.random() < 0.3}
        self.changes_left = rng.choice((0, rng.randint(1, 200), rng.randint(1, 1000)))
        """Number of changes of the network after which the controller dies; 0: no death."""

    @property
    def under_way(self) -> tuple[Execution, ...]:
        return tuple(one.execution for one in self.watches)

    # -- wishes -----------------------------------------------------------------------------------

    def want(self) -> None:
        """A request for a further change may come."""
        if len(self.watches) == _DEEPEST or not self.side_by_side.let_others_in:
            return
        if self.rng.random() < _CHANCE:
            for plan in self.wishes():
                self.amid |= {watch.steps[-1] for watch in self.watches}
                self.begin(plan)
                return

    def wishes(self) -> Iterator[Plan]:
        """Plans that touch nothing under way, or only parts that can be left, and no uncertain
        device.
        """
        state = self.upkeep.memory.state
        touched = self.side_by_side.touched
        start = state_beside(state, touched)
        drawn = random_goal(self.fabric, start, self.rng, self.marks)
        goal = drawn if isinstance(drawn, NetworkState) else _without_new_vlans(start, drawn)
        moving = moving_pairs(state, goal)
        everything = self.rng.random() < 0.5
        free = sorted(moving if everything else moving - touched.pairs)
        for _ in range(3):
            chosen = self.rng.sample(free, min(len(free), self.rng.randint(1, 2)))
            staying = moving.difference(chosen)
            target = hold(state, goal, staying, ())
            if self._meets_what_stays(state, target):
                continue
            if isinstance(drawn, Topology):
                goal = drawn = self.marks.state(start, drawn)
                target = hold(state, goal, staying, ())
            plan = diff(self.fabric, state, target, self.order)
            mine = Touched.by(self.fabric, plan)
            if not plan.empty and self.side_by_side.leaves(mine, ()) and not self._is_open(plan):
                yield plan

    def _meets_what_stays(self, state: NetworkState, target: NetworkState) -> bool:
        """True if a plan would touch pairs or ports of a change that leaves nothing to others:
        computed before the plan, since most plans would be refused.
        """
        firm = [one.touched for one in self.under_way if not one.may_cede]
        if not firm:
            return False
        moved = state.topology.circuits ^ target.topology.circuits
        ends = frozenset(end for circuit in moved for end in circuit.ends)
        mine = Touched(pairs=moving_pairs(state, target), ports=ends)
        return any(one.meets(mine) for one in firm)

    @property
    def side_by_side(self) -> SideBySide:
        return SideBySide(self.fabric, self.under_way)

    def _is_open(self, plan: Plan) -> bool:
        """True if a device of a plan may be in an unknown state."""
        planes = self.fabric.planes
        unsure = {
            one if isinstance(one, str) else planes[one].name for one in self.upkeep.uncertain
        }
        return bool(self.side_by_side.unknown(plan, unsure))

    # -- changes ----------------------------------------------------------------------------------

    def carry_out(self, plan: Plan) -> None:
        """A change, with all changes that begin beside it."""
        self.begin(plan)
        first = self.watches[0]
        while self.watches:
            watch, flight = self._advance()
            if flight.over:
                watch.flight = None
                self.scheduler.outcome(watch.running, lambda one=flight: one.outcomes)
                self._take_off()
            if first in self.watches:  # others begin beside the change in its turn
                self.want()

    def _take_off(self) -> None:
        """Begin the batches of the changes that have gone on."""
        for running in self.scheduler.moved():
            if running.error is not None:
                raise running.error
            for watch in self.watches:
                if watch.running is running and running.batch is not None:
                    watch.flight = self.network.begin(running.batch)

    def _advance(self) -> tuple[_Joint, Flight]:
        """A step in the network by one of the changes under way."""
        flying = [one for one in self.watches if one.flight is not None]
        flight, command = self.network.go_on([one.flight for one in flying])
        (watch,) = (one for one in flying if one.flight is flight)
        self._look(watch, command)
        return watch, flight

    def _look(self, watch: _Joint, command: Command) -> None:
        watch.look(command)
        for other in self.watches:
            if other is not watch:
                other.see_from_now_on(watch)
        if self.changes_left:
            self.changes_left -= 1
            if not self.changes_left:
                raise CrashError

    def begin(self, plan: Plan) -> None:
        """Begin a change."""
        beside = self.under_way
        waiting = self.side_by_side.leave(Touched.by(self.fabric, plan))
        self.left |= bool(waiting)
        conditions, gives_way = self.upkeep.conditions(), self.rng.random() < 0.7
        slow, hurries = self.network.late.slow, bool(beside) and self.rng.random() < 0.7
        options = {
            "beside": beside,
            "gives_way": gives_way,
            "hurries": hurries,
            "slow": frozenset() if beside else frozenset(slow),
        }
        if waiting:  # pairs left to the change are diverted already
            execution = Execution(
                fabric=self.fabric,
                policy=_POLICY,
                plan=plan,
                conditions=conditions,
                order_of=self.order,
                **options,
            )
        else:
            execution = first_course(
                self.fabric, _POLICY, plan.current, plan.target, conditions, self.order, **options
            )
            plan = execution.plan
        watch = _Joint(self, execution)
        self.network.unsettle(sorted(plan.disconnect), beside=bool(beside))
        if self.watches:
            watch.see_from_now_on(self.watches[-1])
        self.watches.append(watch)
        self.most = max(self.most, len(self.watches))
        watch.running = self.scheduler.begin(watch.course(), beside=bool(beside))
        self._take_off()

    def end(self, watch: _Joint) -> None:
        """A change has ended."""
        execution, before = watch.execution, self.upkeep.memory.state
        self.made.append(len(self.watches))
        self.outlived |= watch is self.watches[0] and len(self.watches) > 1
        self.watches.remove(watch)
        self.upkeep.take_over(execution)
        for one in self.watches:
            one.execution.rebase_on(before, execution.result)
            one.hear_of(watch)
        self.saved = self.upkeep.memory.saved
        if self.watches:  # as the ledger writes it, together with the state
            more = intent(self.fabric, self.saved, self.saved, self.under_way)
            self.network.journal.append((more.what, more.details))

    # -- a life -----------------------------------------------------------------------------------

    def play(self) -> Course:
        died_among = 0
        state = self.upkeep.memory.state
        goal = random_state(self.fabric, state, self.rng, self.marks)
        moving = sorted(moving_pairs(state, goal))
        chosen = self.rng.sample(moving, min(len(moving), self.rng.randint(1, 3)))
        target = hold(state, goal, set(moving).difference(chosen), ())
        plan = diff(self.fabric, state, target, self.order)
        try:
            if not plan.empty:
                self.carry_out(plan)
        except CrashError:
            died_among = len(self.under_way)
            self.die()
        else:
            self.settle_down()
        return Course(
            self.most,
            tuple(self.made),
            frozenset(self.amid),
            self.left,
            self.outlived,
            died_among,
        )

    def die(self) -> None:
        """The next controller knows the saved state, and the journal's last entry."""
        self.network.die()
        watch = Watch(self.network, self.under_way[-1])
        watch.holds_dark = False  # the last users of VLANs were known to the former controller only
        time_passes(self.network, watch)
        self.network.faults = Faults()
        self.network.connected = set(self.network.names)
        upkeep = next_controller(SimulatedUpkeep, self.network, self.saved, watch)
        upkeep.start()
        agrees(self.network, upkeep, watch)

    def settle_down(self) -> None:
        """Without faults, everything agrees with the last state."""
        upkeep, network = self.upkeep, self.network
        network.faults = Faults()
        upkeep.reconnect()
        network.connected = set(network.names)
        network.late.mute.clear()
        upkeep.look_after()
        upkeep.look_after()
        state = upkeep.memory.state
        if upkeep.memory.saved != state:
            raise Violation("the state was not saved")
        if network.unreliable:  # the device may differ from its confirmations
            return
        for datapath, name in network.names.items():
            if differing := list(network.differing_rules(datapath, state)):
                raise Violation(f"{name} differs from {state}: {differing}")


@remembering(_RUNS)
def simulate(seed: int) -> Course:
    return _World(seed).play()


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_changes_beside_each_other_cut_nobody_off_whenever_they_die(seeds):
    hold_seeds(simulate, seeds)


def test_the_seeds_reach_every_corner():
    rare = 251  # a change begins while the pairs of another go over
    courses = [simulate(seed) for seed in (*range(_RUNS), rare)]
    assert {1, 2, 3} <= {course.most for course in courses}
    assert {2, 3} <= {course.died_among for course in courses}
    assert any(course.left for course in courses)
    assert any(course.outlived for course in courses)
    amid = frozenset().union(*(course.amid for course in courses))
    steps = {"divert", "drain", "move", "carrier", "announce", "probe", "activate"}
    assert amid >= steps | {"make", "shift", "break"}, "in every substep"
