"""Changes in stages, with detours, on devices that fail; the controller dies in or between stages.

The next controller recovers, and continues towards the same goal. Replay as in
:mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pytest

from hydra.model import NetworkState
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import diff
from hydra.reconfiguration.stages import Traffic, next_stage
from tests.unit.core.fabrics import (
    first_state,
    order_of,
    random_fabric,
    random_state,
    small_fabric,
)
from tests.unit.reconfiguration.courses import first_course, ways
from tests.unit.reconfiguration.seeds import chunks, hold, remembering
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.simulation.network import Network, shake
from tests.unit.reconfiguration.test_recovery_simulated import (
    CrashError,
    Death,
    DoomedWatch,
    agrees,
    next_controller,
    time_passes,
)
from tests.unit.reconfiguration.test_stages import round_robin
from tests.unit.reconfiguration.upkeep import POLICY, SimulatedUpkeep
from tests.unit.reconfiguration.watch import Watch
from topology.marks import marks_of

pytestmark = pytest.mark.takes(20)

_RUNS = 120
_STAGES = 8
"""Largest number of stages of a change: with a device that always fails, a change would be retried
for ever.
"""
_TURNS = 6


class Course(NamedTuple):
    stages: int
    detours: int
    died_in: str
    """The step of the crash within a stage; empty: no crash."""
    died_between: bool
    reached: bool
    """True if the last state has the goal's topology."""
    faults: bool


@remembering(120)
def simulate(seed: int) -> Course:
    """A change in stages, with up to one crash within a stage and one crash between two."""
    rng = random.Random(seed)
    if seed % 4:
        fabric = random_fabric(rng)
        state = first_state(fabric, rng)
        goal = random_state(fabric, state, rng).topology
        traffic = _traffic(rng, len(fabric.racks))
    else:  # a circle that only a detour opens
        fabric = small_fabric(racks=4, planes=3)
        state = round_robin(fabric, 0)
        goal = round_robin(fabric, 1, state).topology
        traffic = Traffic(20.0 * (1 - np.eye(4)), np.full(4, 40.0), 0.8)
    order, marks = order_of(fabric), marks_of(fabric)
    network = Network(fabric, state, rng)
    upkeep = SimulatedUpkeep.at_work(network, state)
    detours = Detours(fabric=fabric, max_hops=3, closed=frozenset(), toward=marks.state)
    faults, in_light = rng.random() < 0.5, seed % 3 > 0
    within, between = rng.randrange(4), rng.randrange(4)
    made = detoured = 0
    died_in, died_between = "", False
    while made < _STAGES:
        state = upkeep.memory.state
        if state.topology == goal or not _settled(upkeep, network, rng, faults=faults):
            break
        state = upkeep.memory.state
        conditions = upkeep.conditions()
        light = ways(fabric, conditions, sent_mbps=traffic.sent_mbps) if in_light else None
        stage = next_stage(state, marks.state(state, goal), traffic, detours, light)
        plan = diff(fabric, state, stage.target, order)
        if plan.empty:
            break
        detoured += len(stage.detoured)
        execution = first_course(fabric, POLICY, state, stage.target, conditions, order)
        network.unsettle(sorted(execution.plan.disconnect))
        if made == within:
            death = Death.within(execution, rng)
            doomed = DoomedWatch(network, execution, death)
            with suppress(CrashError):
                doomed.run()
            died_in = doomed.steps[-1] if doomed.steps else "before"
            upkeep = _next_one(network, state, execution, doomed)
        else:
            watch = Watch(network, execution, upkeep.uncertain)
            upkeep.look = watch.look
            upkeep.take_over(watch.run())
            if made == between:
                died_between = True
                upkeep = _next_one(network, upkeep.memory.saved, execution, watch)
        made += 1
    reached = upkeep.memory.state.topology == goal
    return Course(made, detoured, died_in, died_between, reached, faults)


def _traffic(rng: random.Random, racks: int) -> Traffic:
    numbers = np.random.default_rng(rng.randrange(2**32))
    sent = 50.0 * numbers.random((racks, racks))
    np.fill_diagonal(sent, 0.0)
    return Traffic(sent, np.full(racks, rng.choice([60.0, 100.0, 300.0])), 0.8)


def _settled(
    upkeep: SimulatedUpkeep, network: Network, rng: random.Random, *, faults: bool
) -> bool:
    """True if the upkeep knows all devices, after a few turns at most."""
    for _ in range(_TURNS):
        upkeep.reconnect()
        if faults:
            shake(network, rng)
        upkeep.reconnect()
        upkeep.look_after()
        if not upkeep.uncertain:
            return True
    return False


def _next_one(
    network: Network, saved: NetworkState, execution: Execution, before: Watch
) -> SimulatedUpkeep:
    """The successor of a crashed controller, after a recovery on devices that do not fail."""
    after = Watch(network, execution)
    after.holds_dark = False  # the last users of VLANs were known to the former controller only
    after.steps = [*before.steps, "recovery"]
    time_passes(network, after)
    network.faults = Faults()
    network.connected = set(network.names)
    upkeep = next_controller(SimulatedUpkeep, network, saved, after)
    upkeep.start()
    agrees(network, upkeep, after)
    return upkeep


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_whenever_they_die_the_change_goes_on_and_nobody_is_cut_off(seeds):
    hold(simulate, seeds)


def test_the_seeds_reach_every_corner():
    courses = [simulate(seed) for seed in range(150)]
    assert any(course.stages > 2 for course in courses)
    assert any(course.detours for course in courses)
    assert any(course.died_between for course in courses)
    steps = {one.died_in for one in courses}
    assert {"divert", "drain", "move", "probe", "activate", "make", "shift", "break"} <= steps
    quiet = [one for one in courses if not one.faults and one.stages < _STAGES]
    assert quiet
    assert all(one.reached for one in quiet), "a death costs no circuit where nothing else fails"
