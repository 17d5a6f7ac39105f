"""Traffic that random changes take off circuits: computed, without devices.

8 racks have a port on each of 4 planes. In *other planes*, each pair keeps its traffic, and its
circuit moves to another plane. In *another demand*, the planner makes a topology for a random
demand, then for a second one; the first demand's pairs fill the circuits. The cost is Mb/s off
circuits times the number of courses; the baseline diverts all pairs in one course.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np

from apps.planning.engine import Planning
from benchmarks._report import Result
from benchmarks.stages import fabric_of, filled
from hydra.model import Circuit, Fabric, NetworkState, Path, PlaneId, RackId, Topology
from hydra.policy import Policy
from hydra.reconfiguration.course_choice import Ways, having
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.moving_aside import Spare
from hydra.reconfiguration.run import all_ready
from hydra.service import PlanRequest

RACKS: Final = 8
PLANES: Final = 4
PLANS: Final = 40
TARGET: Final = 0.1
CASES: Final = ((4, 0.9), (4, 0.3), (3, 0.9), (2, 0.9))
"""Number of planes in use, and load of the circuits."""
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """Two states of a network."""

    before: NetworkState
    after: NetworkState


def other_planes(planning: Planning, fabric: Fabric, used: int, rng: random.Random) -> Change:
    """A change in which each pair's circuit moves to another plane."""
    ports = {(port.rack, port.plane): port.id for port in fabric.ports}

    def topology(planes: list[list[Pair]]) -> Topology:
        paths = []
        for plane, pairs in enumerate(planes):
            for a, b in pairs:
                src, dst = RackId(min(a, b)), RackId(max(a, b))
                ends = sorted(ports[rack, PlaneId(plane)] for rack in (src, dst))
                paths.append(Path(src, dst, (Circuit(PlaneId(plane), *ends),)))
        circuits = frozenset(circuit for path in paths for circuit in path.circuits)
        return Topology(circuits, tuple(sorted(paths)))

    while True:
        first = _matchings(used, rng)
        then = _on_other_planes(first, rng)
        if then is not None:
            before = planning.toward(NetworkState(), topology(first))
            return Change(before, planning.toward(before, topology(then)))


def _matchings(number: int, rng: random.Random) -> list[list[Pair]]:
    """``count`` perfect matchings of the racks without a common pair."""
    found: list[list[Pair]] = []
    while len(found) < number:
        racks = rng.sample(range(RACKS), RACKS)
        pairs = [(min(two), max(two)) for two in zip(racks[::2], racks[1::2], strict=True)]
        if not any(pair in disjoint for disjoint in found for pair in pairs):
            found.append(pairs)
    return found


def _on_other_planes(planes: list[list[Pair]], rng: random.Random) -> list[list[Pair]] | None:
    """The same pairs, each on another plane; None if the random draw found none."""
    was = {pair: plane for plane, pairs in enumerate(planes) for pair in pairs}
    left = rng.sample(sorted(was), len(was))
    found: list[list[Pair]] = [[] for _ in planes]
    for pair in left:
        free = [
            plane
            for plane, circuits in enumerate(found)
            if plane != was[pair] and not any({*pair} & {*other} for other in circuits)
        ]
        if not free:
            return None
        found[rng.choice(free)].append(pair)
    return found


def another_demand(planning: Planning, _fabric: Fabric, used: int, rng: random.Random) -> Change:
    """A change from the plan for a random demand to the plan for another random demand."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    planes = frozenset(PlaneId(plane) for plane in range(used))
    state, request = NetworkState(), PlanRequest(use_planes=planes)
    states = []
    for _ in range(2):
        demand = numbers.lognormal(0.0, 1.5, (RACKS, RACKS)) * 1000.0
        np.fill_diagonal(demand, 0.0)
        state = planning.for_demand(state, request, demand, (), ())
        states.append(state)
    return Change(*states)


KINDS: Final = {"other planes": other_planes, "another demand": another_demand}


@dataclass(frozen=True, slots=True)
class Cost:
    """A change done in both ways: Mb/s off circuits times courses."""

    ours: float
    theirs: float
    stay_ours: float
    """Cost for pairs with paths both before and after the change."""
    stay_theirs: float
    alone: float
    """HydRA's cost if no pair moves aside."""
    courses: int
    search_s: float


def rows(plans: int = PLANS) -> Iterator[Result]:
    """Rows for all kinds of changes, with ``plans`` changes of each kind."""
    fabric, policy = fabric_of(RACKS, PLANES)
    planning = Planning(fabric, policy)
    for kind, draw in KINDS.items():
        for used, fill in CASES:
            rng = random.Random(0)
            costs = [
                _cost(fabric, policy, planning, draw(planning, fabric, used, rng), fill)
                for _ in range(plans)
            ]
            case = f"{kind}, {used} of {PLANES} planes in use, {fill:.0%} full"
            ours, theirs = sum(cost.ours for cost in costs), sum(cost.theirs for cost in costs)
            yield Result(case, "Mb/s off circuits, share", "", "lower", ours / theirs, 1.0,
                         "divert first", TARGET)  # fmt: skip
            ours = sum(cost.stay_ours for cost in costs)
            theirs = sum(cost.stay_theirs for cost in costs)
            yield Result(case, "of pairs with paths before and after", "", "lower", ours / theirs,
                         1.0, "divert first", TARGET)  # fmt: skip
            ours = sum(cost.alone for cost in costs)
            theirs = sum(cost.theirs for cost in costs)
            yield Result(case, "share if nobody moves aside", "", "lower", ours / theirs, 1.0,
                         "divert first")  # fmt: skip
            courses = [cost.courses for cost in costs]
            yield Result(case, "courses: mean", "", "lower", fmean(courses), 1.0, "divert first")
            yield Result(case, "courses: most", "", "lower", max(courses), 1.0, "divert first")
            search_s = fmean(cost.search_s for cost in costs)
            yield Result(case, "search: mean", "s", "lower", search_s)


def _cost(fabric: Fabric, policy: Policy, planning: Planning, change: Change, fill: float) -> Cost:
    sent_mbps = filled(fabric, change.before, fill)
    began_s = time.monotonic()
    until_s = began_s + policy.planning_budget_ms / 1000
    detours = Detours(
        fabric=fabric,
        max_hops=policy.max_hops,
        closed=frozenset(),
        toward=planning.toward,
        expired=lambda: time.monotonic() > until_s,
    )
    spare = Spare(detours=detours, sent_mbps=sent_mbps, share=policy.divert_share)
    conditions = all_ready(fabric)
    way = Ways(fabric=fabric, conditions=conditions, spare=spare).way(change.before, change.after)
    search_s = time.monotonic() - began_s
    diverts = Ways(fabric=fabric, conditions=conditions, in_light=False)
    base = diverts.way(change.before, change.after)
    alone = Ways(fabric=fabric, conditions=conditions).way(change.before, change.after)
    after = having(change.after)

    def stay_mbps(pair: tuple[RackId, RackId]) -> float:
        return spare.mbps(pair) if pair in after else 0.0

    return Cost(
        way.cost_mbps(spare.mbps),
        base.cost_mbps(spare.mbps),
        way.cost_mbps(stay_mbps),
        base.cost_mbps(stay_mbps),
        alone.cost_mbps(spare.mbps),
        len(way.courses),
        search_s,
    )
