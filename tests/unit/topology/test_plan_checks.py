"""Each kind of damage to a plan is found, and valid plans of any algorithm pass."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_fabrics import (
    arrays,
    budgets,
    circuit,
    demand_of,
    demands,
    fabrics,
    full,
    path,
    topology_of,
)
from topology_reference import matching_bound

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, Path, PlaneId, PortId, RackId, Topology
from topology.algorithms import ENTRIES, Product
from topology.bounds import served_share_bound
from topology.plan_checks import (
    check_matching,
    check_result,
    check_slots,
    count_load,
    slots_share,
)
from topology.problem import Budget, Lightpath, PlanResult, Reserved, Slot, Timing

FABRIC = full(4, 2)
DIRECT, ONWARD = circuit(FABRIC, 0, 2), circuit(FABRIC, 3, 5)
DEMAND = demand_of(4, {(0, 1): 60.0, (2, 0): 80.0, (1, 3): 60.0})
TOPOLOGY = topology_of(path(0, 1, DIRECT), path(0, 2, DIRECT, ONWARD))
GOOD = PlanResult(TOPOLOGY, ((RackId(1), RackId(3)),), served_share=0.5, mean_hops=1.5)
"""0-2 is served first and takes 80 of DIRECT, which leaves 20 of 60 for 0-1: 100 of 200."""
BUDGET = Budget(2)
NOTHING = Reserved()


def problems_of(result=GOOD, current=EMPTY_TOPOLOGY, reserved=NOTHING, budget=BUDGET):
    return check_result(FABRIC, DEMAND, current, reserved, budget, result)


def test_a_sound_plan_passes():
    assert problems_of() == []


PINNED = Reserved(((path(0, 1, DIRECT), 40.0),))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"result": replace(GOOD, served_share=0.6)}, "0.600000 of the demand is claimed served"),
        ({"result": replace(GOOD, mean_hops=1.0)}, "1 hops are claimed on average, not 1.5"),
        ({"result": replace(GOOD, unserved=())}, "pair 1-3 is unserved, and not reported"),
        (
            {"result": replace(GOOD, unserved=((RackId(0), RackId(1)), (RackId(1), RackId(3))))},
            "pair 0-1 is reported unserved, and is served",
        ),
        ({"budget": Budget(1)}, "path 0-2 has 2 hops, more than 1"),
        ({"budget": Budget(2, planes=frozenset({PlaneId(0)}))}, "outside the budget and is new"),
        ({"budget": Budget(2, racks=frozenset({RackId(0)}))}, "outside the budget and is new"),
        ({"budget": Budget(2, blocked_ports=frozenset({PortId(3)}))}, "port 3, a blocked port"),
        ({"budget": Budget(2, boolean=False)}, "carries 100 Mbps, and 140 are booked"),
        (
            {
                "current": Topology(frozenset({circuit(FABRIC, 1, 7)})),
                "budget": Budget(2, planes=frozenset({PlaneId(0)})),
            },
            "outside the budget and is gone",
        ),
        (
            {"reserved": Reserved(((path(1, 2, ONWARD), 40.0),))},
            "the reserved path 1-2 is gone",
        ),
        (
            {"reserved": Reserved(((path(0, 1, DIRECT), 140.0),))},
            "carries 100 Mbps, and 140 are reserved",
        ),
        (
            {"result": replace(GOOD, topology=replace(TOPOLOGY, circuits=frozenset({DIRECT})))},
            "missing",
        ),
    ],
)
def test_damage_is_found(arguments, message):
    assert any(message in problem for problem in problems_of(**arguments))


def test_a_circuit_may_be_reserved_to_the_last_bit():
    reserved = Reserved(((path(0, 1, DIRECT), 100.0),))
    assert not any("reserved" in problem for problem in problems_of(reserved=reserved))


def test_a_long_path_that_was_there_before_may_stay():
    assert problems_of(current=TOPOLOGY, budget=Budget(1)) == []


def test_a_weighted_plan_passes_where_the_demands_fit():
    demand = demand_of(4, {(0, 1): 60.0, (0, 2): 40.0})
    result = PlanResult(TOPOLOGY, (), served_share=1.0, mean_hops=1.5)
    weighted = Budget(2, boolean=False)
    assert check_result(FABRIC, demand, EMPTY_TOPOLOGY, Reserved(), weighted, result) == []
    problems = check_result(FABRIC, demand, EMPTY_TOPOLOGY, PINNED, weighted, result)
    assert problems == []  # what a path has reserved is part of what its pair wants


@given(st.data())
def test_plans_of_every_algorithm_pass(data):
    name = data.draw(st.sampled_from(sorted(ENTRIES)))
    fabric = data.draw(fabrics())
    demand = data.draw(demands(fabric.n_racks))
    budget = data.draw(budgets(fabric))
    if ENTRIES[name].objection(fabric) is not None:
        return
    result = ENTRIES[name].plan(fabric, demand, EMPTY_TOPOLOGY, Reserved(), budget)
    assert check_result(fabric, demand, EMPTY_TOPOLOGY, Reserved(), budget, result) == []
    one_way = ENTRIES[name].product is not Product.CIRCUITS
    bound = served_share_bound(fabric, demand, one_way=one_way)
    assert result.served_share <= bound + 1e-6


# --- slots ----------------------------------------------------------------------------------

RING = frozenset(Lightpath(PlaneId(0), PortId(2 * i), PortId((2 * i + 2) % 8)) for i in range(4))
TIMING = Timing(window_s=1.0, switching_s=0.1)


def one(plane, sender, receiver):
    return frozenset({Lightpath(PlaneId(plane), PortId(sender), PortId(receiver))})


def test_sound_slots_pass_and_add_up():
    back = frozenset(Lightpath(x.plane, x.receiver, x.sender) for x in RING)
    slots = (Slot(0.5, RING), Slot(0.3, back))
    assert check_slots(FABRIC, slots, TIMING) == []
    demand = demand_of(4, {(0, 1): 80.0, (1, 0): 20.0, (0, 2): 30.0})
    assert slots_share(FABRIC, demand, slots, TIMING) == pytest.approx((50 + 20) / 130)
    assert slots_share(FABRIC, demand, slots[:1], TIMING) == pytest.approx(80 / 130)
    assert slots_share(FABRIC, np.zeros((4, 4)), slots, TIMING) == 1.0


@pytest.mark.parametrize(
    ("lightpaths", "message"),
    [
        (RING | one(0, 0, 4), "port 0 sends to"),
        (RING - one(0, 0, 2) | one(0, 0, 4), "port 4 hears"),
        (one(0, 0, 3), "of a different plane"),
        (one(0, 0, 99), "missing"),
    ],
)
def test_what_is_no_matching_is_found(lightpaths, message):
    assert any(message in problem for problem in check_matching(FABRIC, Slot(1.0, lightpaths)))


def test_a_light_path_into_its_own_rack_is_found():
    fabric = full(2, 1, per_plane=2)
    assert "to itself" in check_matching(fabric, Slot(1.0, one(0, 0, 1)))[0]


def test_slots_that_do_not_fit_or_do_not_last_are_found():
    assert "1.1 s with switching" in check_slots(FABRIC, [Slot(0.45, RING)] * 2, TIMING)[0]
    assert check_slots(FABRIC, [Slot(0.4, RING)] * 2, TIMING) == []
    assert "lasts 0" in check_slots(FABRIC, [Slot(0.0, RING)], TIMING)[0]


def test_a_schedule_that_claims_too_much_is_found():
    result = PlanResult(EMPTY_TOPOLOGY, (), 0.9, 0.0, slots=(Slot(0.4, RING), Slot(0.4, RING)))
    demand = demand_of(4, {(0, 1): 100.0})
    budget = Budget(1, timing=TIMING)
    (problem,) = check_result(FABRIC, demand, EMPTY_TOPOLOGY, Reserved(), budget, result)
    assert "0.900000 of the demand is claimed served, not 0.800000" in problem


# --- bounds ---------------------------------------------------------------------------------


def test_bounds_of_small_cases():
    two = full(3, 1)
    demand = demand_of(3, {(0, 1): 100.0, (0, 2): 100.0, (1, 2): 100.0})
    assert served_share_bound(two, demand) == pytest.approx(0.5)  # half a triangle
    assert served_share_bound(two, demand, one_way=True) == pytest.approx(2 / 3)
    assert served_share_bound(two, np.zeros((3, 3))) == 1.0
    assert served_share_bound(full(3, 0), demand) == 0.0
    assert served_share_bound(full(1, 1), [[0.0]]) == 1.0


@given(st.data())
def test_no_matching_weighs_more_than_its_bound(data):
    import networkx as nx

    n = data.draw(st.integers(0, 6))
    weight = data.draw(demands(n))
    both = np.triu(np.maximum(weight, weight.T))
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, both[a, b]) for a, b in np.argwhere(both).tolist())
    best = sum(both[min(e), max(e)] for e in nx.max_weight_matching(graph))
    bound = matching_bound(weight)
    assert best <= bound + 1e-6
    assert bound <= 1.5 * best + 1e-6  # odd cycles hide at most a half


def test_bad_demands_are_refused_by_the_checks():
    with pytest.raises(PlanError, match=r"demand\[0, 1\] is nan"):
        check_result(full(2, 1), [[0, np.nan], [0, 0]], EMPTY_TOPOLOGY, Reserved(), BUDGET, GOOD)
    with pytest.raises(PlanError, match="shape"):
        served_share_bound(arrays(2, 1, []), np.zeros((3, 3)))


@pytest.mark.parametrize("seed", range(20))
def test_paths_get_what_they_would_get_one_by_one(seed):
    random = np.random.default_rng(seed)
    fabric = full(9, 3)
    demand = np.triu(random.integers(0, 5, (9, 9)) * 30.0, k=1)
    result = ENTRIES["anytime"].plan(fabric, demand, EMPTY_TOPOLOGY, NOTHING, Budget(3))
    topology = result.topology
    demand *= random.uniform(0.5, 1.5, (9, 9))  # a circuit of another pair than planned
    left = {each: fabric.rate_of(each) for each in topology.circuits}
    gets = {(path.src, path.dst): 0.0 for path in topology.paths}
    share = {}
    rounds: dict[int, list[Path]] = {}
    for src, dst in gets:
        own = [path for path in topology.paths if (path.src, path.dst) == (src, dst)]
        share[src, dst] = demand[src, dst] / len(own)
        for turn, each in enumerate(sorted(own, key=lambda one: one.hops)):
            rounds.setdefault(turn, []).append(each)
    further = [(turn, 0.25) for turn in sorted(rounds)[1:]]
    for turn, part in [(0, 1.0), *further * 4]:
        for each in sorted(rounds[turn], key=lambda one: -demand[one.src, one.dst]):
            pair = each.src, each.dst
            more = min([part * share[pair], *(left[hop] for hop in each.circuits)])
            gets[pair] += more
            for hop in each.circuits:
                left[hop] -= more
    load = count_load(fabric, demand, topology, NOTHING)
    assert load.carried_mbps == pytest.approx(gets)
    assert load.remaining_mbps == pytest.approx(left)
