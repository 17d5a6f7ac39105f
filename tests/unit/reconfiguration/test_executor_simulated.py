"""The executor on a network with random faults: thousands of seeded reconfigurations.

A failure names its seed; :mod:`tests.unit.reconfiguration.seeds` describes the replay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from hydra.lifecycle import ReconfigurationState
from hydra.model import SubstrateKind
from hydra.policy import DrainPolicy, OnSilence, Policy
from hydra.reconfiguration.commands import AwaitRounds, Batch, Command, Outcome
from hydra.reconfiguration.executor import STEPS, Execution
from hydra.reconfiguration.gate import GATE
from hydra.reconfiguration.plan import diff, paths_by_pair
from mininet_scenarios.cycles.names import CycleName, cycle_of
from tests.unit.core.fabrics import (
    first_state,
    order_of,
    random_fabric,
    random_state,
    small_fabric,
)
from tests.unit.reconfiguration.courses import first_course
from tests.unit.reconfiguration.seeds import chunks, hold, remembering
from tests.unit.reconfiguration.simulation.network import Network, conditions_of, shake
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep
from tests.unit.reconfiguration.watch import Violation, Watch

pytestmark = pytest.mark.takes(30)

_RUNS = 300
RECONFIGURATIONS = 3
_TURNS = 6
"""Largest number of turns of upkeep between two reconfigurations."""
_MENDED = 0.01
"""The chance that an uplink comes back after a command's effect."""
_POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))


class Course(NamedTuple):
    network: Network
    executions: list[Execution]


class _Mended(Watch):
    """A reconfiguration during which uplinks are repaired. Closed servers are gone around."""

    def __init__(self, execution: Execution, upkeep: SimulatedUpkeep) -> None:
        super().__init__(upkeep.network, execution, upkeep.uncertain)
        self.upkeep = upkeep
        self.mended = 0

    def before(self, batch: Batch) -> None:
        closes = not self.upkeep.switches.dead_uplinks.issuperset(self.execution.closed)
        if closes or (self.mended and self.network.rng.random() < 0.5):
            self.upkeep.follow_uplinks_meanwhile(self.execution)
        super().before(batch)

    def learn(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """A switch's report of its ports comes before its answer, and is processed before the
        answer.
        """
        super().learn(batch, outcomes)
        if self.mended and any(isinstance(one, AwaitRounds) for one in batch.commands):
            self.upkeep.follow_uplinks_meanwhile(self.execution)

    def look(self, command: Command | None) -> None:
        dead = self.network.dead_uplinks if self.network.substrate.retags else ()
        if dead and self.network.rng.random() < _MENDED:
            name = self.network.rng.choice(sorted(dead))
            self.network.uplink_back(self.fabric.server_by_name[name])
            self.mended += 1
        super().look(command)


@remembering(300)
def simulate(seed: int) -> Course:
    """A fabric, its first state, and a few reconfigurations of it, all drawn from ``seed``."""
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    order = order_of(fabric)
    state = first_state(fabric, rng)
    network = Network(fabric, state, rng)
    network.dead_uplinks = {s.name for s in fabric.servers if rng.random() < 0.05}
    policy = Policy(
        drain=_POLICY.drain,
        on_silent_vswitch=OnSilence.CLOSE if seed % 3 == 0 else OnSilence.HOLD,
    )
    cycle = cycle_of(CycleName.HITLESS, rng.choice((0, 0, 7)))
    upkeep = SimulatedUpkeep.at_work(network, state)
    executions = []
    for _ in range(RECONFIGURATIONS):
        for _ in range(_TURNS):
            upkeep.reconnect()
            shake(network, rng)
            upkeep.reconnect()
            upkeep.look_after()
            if rng.random() < 0.1:
                network.dead_uplinks.add(rng.choice(fabric.servers).name)
            upkeep.run(upkeep.courses.detours.follow_all())
            if not upkeep.uncertain:
                break
        else:
            break  # no circuit is set up on devices in an unknown state
        state = upkeep.memory.state
        target, conditions = random_state(fabric, state, rng), upkeep.conditions()
        execution = first_course(fabric, policy, state, target, conditions, order, cycle=cycle)
        network.unsettle(sorted(execution.plan.disconnect))
        watch = _Mended(execution, upkeep)
        upkeep.look = watch.look
        upkeep.take_over(watch.run())
        executions.append(execution)
    return Course(network, executions)


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_whatever_fails_every_rack_stays_reachable(seeds):
    hold(simulate, seeds)


def test_frames_of_a_server_whose_uplink_comes_back_are_drained():
    """The uplink was down at the start of the change, and there are no detours; the ToR stands
    still.
    """
    hold(simulate, (5005371,))


def test_a_switch_that_refuses_rules_of_lost_paths_stays_diverted():
    """One of three new paths fails, and the switch commits only the end of the divert."""
    hold(simulate, (7001665,))


def test_the_seeds_reach_every_corner():
    courses = [simulate(seed) for seed in range(300)]
    executions = [execution for course in courses for execution in course.executions]
    assert {execution.state for execution in executions} == {
        ReconfigurationState.DONE,
        ReconfigurationState.PARTIAL,
    }
    assert any(execution.plan.connect_last for execution in executions)
    assert any(execution.uncertain_planes for execution in executions)
    for silence in OnSilence:
        assert any(one.closed for one in executions if one.policy.on_silent_vswitch is silence)
    several = {
        execution.fabric.substrate
        for execution in executions
        if any(len(paths) > 1 for paths in paths_by_pair(execution.result).values())
    }
    assert several == set(SubstrateKind)
    shifted = [execution for execution in executions if execution.in_light]
    assert {execution.fabric.substrate for execution in shifted} == set(SubstrateKind)
    assert any(execution.stuck for execution in shifted)
    reasons = " ".join(str(trouble) for e in executions for trouble in e.troubles)
    for words in (
        "did not confirm its divert",
        "did not confirm the new path",
        "stays where it was",
        "did not take",
        "after the drain bound",
        "was not retagged",
        "OCS",
        "no carrier",
        "no probe came through",
        "can be probed",
    ):
        assert words in reasons
    steps = {trouble.step for e in executions for trouble in e.troubles}
    assert steps | {"move"} == STEPS | GATE
    unreliable = set().union(*(course.network.unreliable for course in courses))
    kinds = {name[0] if isinstance(name, str) else "plane" for name in unreliable}
    assert kinds == {"h", "r", "plane"}, "servers, racks and planes do things late"


def _looped(seed: int, obeys: tuple[bool, bool]) -> bool:
    """True if a VLAN has a loop at any time of a change that needs an order, without faults.

    ``obeys``: whether circuits go and come in the required order.
    """
    rng = random.Random(seed)
    fabric = small_fabric(racks=5, planes=2, ports_per_plane=2, servers=1)
    order = order_of(fabric)
    state = target = first_state(fabric, rng)
    while not any(order(state, target)):
        state, target = target, random_state(fabric, target, rng)

    def obeyed(old, new):
        first, last = order(old, new)
        return first if obeys[0] else frozenset(), last if obeys[1] else frozenset()

    network = Network(fabric, state, rng)
    plan = diff(fabric, state, target, obeyed)
    execution = Execution(
        fabric=fabric,
        policy=_POLICY,
        plan=plan,
        conditions=conditions_of(network, state),
        order_of=obeyed,
    )
    try:
        Watch(network, execution).run()
    except Violation as violation:
        if "has a loop" not in str(violation):
            raise
        return True
    return False


def test_no_vlan_has_a_loop_on_the_way_as_it_has_without_the_order():
    seeds = range(80)
    assert not any(_looped(seed, (True, True)) for seed in seeds)
    assert any(_looped(seed, (True, False)) for seed in seeds)
    assert any(_looped(seed, (False, True)) for seed in seeds)


def test_one_seed_is_one_course_of_events():
    first, second = simulate(7).executions, simulate.__wrapped__(7).executions
    assert [e.result for e in first] == [e.result for e in second]
    assert [e.steps for e in first] == [e.steps for e in second]
