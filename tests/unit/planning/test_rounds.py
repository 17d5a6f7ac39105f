"""A round: the same code for the controller and for a rehearsal."""

import math

import numpy as np
import pytest

from apps.planning.engine import Planning
from apps.planning.rounds import NetworkNow, Rounds
from hydra.decisions.decision import Action
from hydra.errors import PlanError
from hydra.model import NetworkState, PlaneId, RackId
from hydra.policy import CurrentPolicy, Policy
from hydra.reconfiguration.course_choice import Ways
from hydra.reconfiguration.run import all_ready
from hydra.reservations.reservation import Pin
from hydra.service import DemandReport, DemandSource, PlanRequest
from tests.unit.controller.ways import all_at_once
from tests.unit.core.fabrics import parallel_paths, path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=2, servers=2)
EMPTY = NetworkState()
ONE = path_of(FABRIC, 0, 1)
JOINED = state_of(FABRIC, EMPTY, ONE)


def demand_of(*flows):
    demand = np.zeros((4, 4))
    for src, dst, mbps in flows:
        demand[src, dst] = mbps
    return demand


def standing(state=EMPTY, way=all_at_once, **others):
    return NetworkNow(state=state, outage_s=0.1, age_s=lambda _circuit: math.inf, way=way, **others)


@pytest.fixture
def rounds():
    return Rounds(FABRIC, CurrentPolicy(Policy()))


@pytest.fixture
def planning():
    return Planning(FABRIC, Policy())


def held(asked):
    """Stands in for the planner; records the pins."""

    def propose(current, request, demand, pins, blocked):
        asked.append(pins)
        return Planning(FABRIC, Policy()).propose(current, request, demand, pins, blocked)

    return propose


def test_a_plan_is_told_with_what_it_takes_and_is_worth(rounds, planning):
    demand = demand_of((0, 1, 90.0))
    report = rounds.plan(standing(), PlanRequest(), demand, planning.propose)
    assert report.plan.current == EMPTY
    assert len(report.plan.connect) == 1
    assert report.demand_mbps == 90.0
    assert report.verdict.pays


def test_what_stays_in_the_light_costs_nothing(rounds, planning):
    """A pair moves from plane to plane, by request."""
    demand = demand_of((0, 1, 90.0))
    request = PlanRequest(use_planes=frozenset({PlaneId(1)}))
    ours = Ways(fabric=FABRIC, conditions=all_ready(FABRIC))
    light = standing(JOINED, way=lambda plan: ours.way(plan.current, plan.target))
    report = rounds.plan(light, request, demand, planning.propose)
    assert report.plan.disconnect == JOINED.topology.circuits
    assert (report.verdict.cost_mbit, report.way.away) == (0.0, frozenset())
    diverted = rounds.plan(standing(JOINED), request, demand, planning.propose)
    assert diverted.verdict.cost_mbit == pytest.approx(0.1 * 90.0)
    assert diverted.way.away == {(0, 1)}


def test_held_pairs_keep_their_paths_but_for_those_that_reservations_pin(rounds):
    request = PlanRequest(hold=frozenset({(RackId(0), RackId(1))}))
    asked = []
    rounds.plan(standing(JOINED), request, demand_of(), held(asked))
    rounds.plan(
        standing(JOINED, pins=(Pin(RackId(0), RackId(1), ONE, 10.0, ("r",)),)),
        request,
        demand_of(),
        held(asked),
    )
    (free,), (reserved,) = asked
    assert free == Pin(RackId(0), RackId(1), ONE, 0.0, ())
    assert reserved.bandwidth_mbps == 10.0


def test_a_pair_keeps_no_more_paths_than_the_policy_gives_it_now():
    rounds = Rounds(FABRIC, CurrentPolicy(Policy(paths_per_pair=1)))
    two = state_of(FABRIC, EMPTY, *parallel_paths(FABRIC))
    asked = []
    request = PlanRequest(hold=frozenset({(RackId(0), RackId(1))}))
    rounds.plan(standing(two), request, demand_of(), held(asked))
    assert len(asked[0]) == 1


def seen(demand):
    return DemandReport(DemandSource.MEASURED, demand, demand, 0.0, ())


def test_a_round_that_changes_one_that_keeps_and_one_without_a_plan(rounds, planning):
    demand = demand_of((0, 1, 90.0))

    def plan(state):
        return lambda request: rounds.plan(standing(state), request, demand, planning.propose)

    done = rounds.periodic(standing(), seen(demand), plan(EMPTY), "test", 1.0)
    assert done.decision.action is Action.CHANGE
    again = rounds.periodic(
        standing(done.report.plan.target), seen(demand), plan(done.report.plan.target), "test", 2.0
    )
    assert again.decision.action is Action.KEEP

    def refuses(_request):
        raise PlanError("no time")

    failed = rounds.periodic(standing(), seen(demand), refuses, "test", 3.0)
    assert failed.decision.action is Action.NO_PLAN
    assert failed.decision.demand_mbps == 90.0
    assert failed.report is None
    assert failed.request is not None


def test_a_round_without_a_plan_tells_the_demand_of_all_pairs():
    """Of 90 pairs, the decision records 64."""
    fabric = small_fabric(racks=10, planes=1)
    demand = np.full((10, 10), 3.0)
    np.fill_diagonal(demand, 0.0)

    def refuses(_request):
        raise PlanError("no time")

    rounds = Rounds(fabric, CurrentPolicy(Policy()))
    done = rounds.periodic(standing(), seen(demand), refuses, "test", 1.0)
    assert len(done.decision.demand) == 64
    assert done.decision.demand_mbps == 270.0
