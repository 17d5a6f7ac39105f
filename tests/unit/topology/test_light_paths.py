"""Direct circuits and one-way light paths by matchings, on even and uneven fabrics."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from topology_fabrics import (
    arrays,
    budgets,
    circuit,
    demand_of,
    demands,
    fabrics,
    full,
    hops_of,
    path,
    topology_of,
)
from topology_reference import matching_bound

from hydra.model import EMPTY_TOPOLOGY, PlaneId, PortId, RackId
from topology.algorithms import ENTRIES, Product, algorithm
from topology.bounds import served_share_bound
from topology.lightpaths import ring_topology
from topology.multihop import plan_hydra_bfs
from topology.plan_checks import check_result, slots_share
from topology.problem import Budget, Reserved
from topology.synthetic import synthetic_demand

PLANNERS = [
    name for name in ENTRIES if name not in ("hydra-bfs", "hydra-bfs+", "anytime", "static")
]
ONE_WAY = [name for name in PLANNERS if ENTRIES[name].product is Product.ONE_WAY]


NOTHING_RESERVED = Reserved()


def plan(name, fabric, demand, current=EMPTY_TOPOLOGY, reserved=NOTHING_RESERVED, **budget):
    budget = Budget(budget.pop("max_hops", 3), **budget)
    result = algorithm(name)(fabric, demand, current, reserved, budget)
    assert check_result(fabric, demand, current, reserved, budget, result) == []
    return result


def racks_lit(fabric, result):
    """(plane, sender, receiver) of the only slot."""
    (slot,) = result.slots
    return {
        (int(x.plane), int(fabric.port_rack[x.sender]), int(fabric.port_rack[x.receiver]))
        for x in slot.lightpaths
    }


# --- whatever the fabric --------------------------------------------------------------------


@settings(deadline=None)
@given(st.data())
def test_every_plan_keeps_what_must_stay_and_serves_what_it_says(data):
    name = data.draw(st.sampled_from(PLANNERS))
    fabric = data.draw(fabrics())
    before = data.draw(demands(fabric.n_racks))
    current = plan_hydra_bfs(fabric, before, EMPTY_TOPOLOGY, Reserved(), Budget(3)).topology
    pinned = data.draw(st.sets(st.sampled_from(current.paths)) if current.paths else st.just(()))
    budget = data.draw(budgets(fabric))
    pinned = [
        one
        for one in sorted(pinned)
        if not any({c.a, c.b} & budget.blocked_ports for c in one.circuits)
    ]
    reserved = Reserved(tuple((one, 0.0) for one in pinned))
    demand = data.draw(demands(fabric.n_racks))
    if ENTRIES[name].objection(fabric) is not None:
        return
    result = ENTRIES[name].plan(fabric, demand, current, reserved, budget)
    assert check_result(fabric, demand, current, reserved, budget, result) == []
    if budget.boolean and not current.paths:
        one_way = ENTRIES[name].product is not Product.CIRCUITS
        assert result.served_share <= served_share_bound(fabric, demand, one_way=one_way) + 1e-6


# --- edmonds --------------------------------------------------------------------------------


def test_the_heaviest_pairs_rather_than_the_heaviest_pair():
    # Largest first would take 1-2, and leave 0 and 3 without a partner.
    demand = demand_of(4, {(0, 1): 60.0, (1, 2): 70.0, (2, 3): 60.0})
    result = plan("edmonds", full(4, 1), demand)
    assert hops_of(result.topology) == {(0, 1): 1, (2, 3): 1}
    assert result.unserved == ((1, 2),)
    assert result.served_share == pytest.approx(120 / 190)
    assert result.gap == 0.0


def test_planes_take_what_those_before_them_leave():
    demand = demand_of(4, {(0, 1): 60.0, (1, 2): 70.0, (2, 3): 60.0})
    result = plan("edmonds", full(4, 2), demand)
    assert hops_of(result.topology) == {(0, 1): 1, (1, 2): 1, (2, 3): 1}
    assert result.served_share == 1.0
    assert result.gap == 0.0


def test_a_circuit_counts_for_no_more_than_its_rate():
    # 0-1 wants much, but a circuit carries 100: two pairs of 80 are worth more.
    demand = demand_of(4, {(0, 1): 900.0, (0, 2): 80.0, (1, 3): 80.0})
    result = plan("edmonds", full(4, 1), demand)
    assert hops_of(result.topology) == {(0, 2): 1, (1, 3): 1}


def test_whole_demands_only_where_parts_do_not_count():
    demand = demand_of(4, {(0, 1): 900.0, (0, 2): 30.0})
    assert hops_of(plan("edmonds", full(4, 1), demand).topology) == {(0, 1): 1}
    whole = plan("edmonds", full(4, 1), demand, boolean=False)
    assert hops_of(whole.topology) == {(0, 2): 1}


def test_perfect_where_asked():
    demand = demand_of(4, {(0, 1): 60.0, (1, 2): 70.0})
    assert hops_of(plan("edmonds", full(4, 1), demand).topology) == {(1, 2): 1}
    result = plan("edmonds-perfect", full(4, 1), demand)
    assert hops_of(result.topology) == {(0, 3): 1, (1, 2): 1}
    assert result.gap == 0.0
    odd = plan("edmonds-perfect", full(5, 1), demand_of(5, {(1, 2): 70.0}))
    assert len(odd.topology.paths) == 2
    assert (1, 2) in hops_of(odd.topology)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_perfect_matchings_by_exhaustion(n):
    random = np.random.default_rng(n)
    for _ in range(20):
        demand = np.triu(random.integers(0, 9, (n, n)).astype(float), 1)
        best = max(
            sum(
                max(demand[a, b], demand[b, a])
                for a, b in zip(order[0::2], order[1::2], strict=False)
            )
            for order in itertools.permutations(range(n))
        )
        result = plan("edmonds-perfect", full(n, 1), demand)
        assert len(result.topology.circuits) == n // 2
        assert result.served_share * demand.sum() == pytest.approx(best)


def test_several_ports_on_a_plane_are_several_matchings():
    demand = demand_of(3, {(0, 1): 60.0, (1, 2): 70.0, (0, 2): 50.0})
    result = plan("edmonds", full(3, 1, per_plane=2), demand)
    assert hops_of(result.topology) == {(0, 1): 1, (0, 2): 1, (1, 2): 1}


def test_the_fastest_planes_come_first():
    fabric = arrays(
        4, 2, [(rack, plane, (10.0, 100.0)[plane]) for rack in range(4) for plane in (0, 1)]
    )
    demand = demand_of(4, {(0, 1): 90.0, (2, 3): 80.0, (0, 2): 5.0})
    result = plan("edmonds", fabric, demand)
    assert {c.plane for p in result.topology.paths if p.dst - p.src == 1 for c in p.circuits} == {1}
    assert result.served_share == 1.0


def test_what_runs_stays_unless_the_gain_is_worth_it():
    fabric = full(4, 1)
    current = topology_of(path(0, 1, circuit(fabric, 0, 1)), path(2, 3, circuit(fabric, 2, 3)))
    demand = demand_of(4, {(0, 1): 50.0, (2, 3): 50.0, (0, 2): 55.0, (1, 3): 55.0})
    for margin_mbps, expected in (
        (0.0, {(0, 2), (1, 3)}),
        (4.0, {(0, 2), (1, 3)}),
        (6.0, {(0, 1), (2, 3)}),
    ):
        result = plan("edmonds", fabric, demand, current, disturbance_mbps=margin_mbps)
        assert set(hops_of(result.topology)) == expected


def test_a_circuit_that_stays_keeps_its_ports():
    fabric = full(3, 1, per_plane=2)
    current = topology_of(path(0, 1, circuit(fabric, 1, 3)))
    demand = demand_of(3, {(0, 1): 50.0, (0, 2): 60.0})
    assert plan("edmonds", fabric, demand, current).topology.circuits >= current.circuits


def test_a_pinned_pair_gets_no_second_path():
    fabric = full(4, 2)
    pinned = path(0, 1, circuit(fabric, 0, 2))
    result = plan(
        "edmonds",
        fabric,
        demand_of(4, {(0, 1): 500.0, (0, 2): 10.0}),
        topology_of(pinned),
        Reserved(((pinned, 40.0),)),
    )
    assert hops_of(result.topology) == {(0, 1): 1, (0, 2): 1}
    assert pinned in result.topology.paths


def test_time_runs_out_between_planes():
    answers = itertools.chain([False, False], itertools.repeat(True))
    result = plan(
        "edmonds", full(4, 3), synthetic_demand("dense", 4, 1, 60.0), expired=lambda: next(answers)
    )
    assert {c.plane for c in result.topology.circuits} == {0}


@pytest.mark.parametrize("kind", ["uniform", "gravity", "sparse"])
def test_the_gap_of_several_planes_holds_against_a_linear_programme(kind):
    n, n_planes = 64, 4
    fabric = full(n, n_planes)
    demand = synthetic_demand(kind, n, 1, 600.0)
    result = plan("edmonds", fabric, demand)
    weight = np.minimum(np.maximum(demand, demand.T), 100.0)
    value = result.served_share * np.triu(np.maximum(demand, demand.T)).sum()
    assert value <= matching_bound(weight, n_planes) + 1e-6
    assert matching_bound(weight, n_planes) <= value * (1 + result.gap) * (1 + 1e-9)
    assert result.gap < 0.02


# --- helios ---------------------------------------------------------------------------------


def test_a_sequence_of_matchings_as_in_figure_6_of_helios():
    """Four pods, superlinks of 4: each stage is the heaviest of all 24 matchings, on the remaining
    demand.

    The paper's demands are only in its drawing; these differ.
    """
    demand = demand_of(
        4,
        {
            (0, 1): 1.0, (0, 2): 3.0, (1, 0): 7.0, (1, 3): 2.0,
            (2, 0): 4.0, (2, 1): 6.0, (2, 3): 1.0, (3, 1): 3.0, (3, 2): 5.0,
        },
    )  # fmt: skip
    fabric = full(4, 3, rate_mbps=4.0)
    lit = racks_lit(fabric, plan("helios", fabric, demand))
    left = demand.copy()
    for plane in range(3):
        weight = np.minimum(left, 4.0)
        best = max(
            sum(weight[src, dst] for src, dst in enumerate(order))
            for order in itertools.permutations(range(4))
        )
        stage = [(src, dst) for p, src, dst in lit if p == plane]
        assert sum(weight[pair] for pair in stage) == best
        for pair in stage:
            left[pair] -= weight[pair]
    assert (0, 1, 0) in lit  # from pod 1 to pod 0, and not back
    assert (0, 0, 1) not in lit


@pytest.mark.parametrize("kind", ["uniform", "gravity", "sparse"])
def test_helios_serves_what_its_definition_does_with_scipy(kind):
    n, n_planes = 40, 5
    demand = np.round(synthetic_demand(kind, n, 3, 700.0), 3)
    left, served = demand.copy(), 0.0
    for _ in range(n_planes):
        weight = np.minimum(left, 100.0)
        rows, columns = linear_sum_assignment(weight, maximize=True)
        served += weight[rows, columns].sum()
        left[rows, columns] -= weight[rows, columns]
    result = plan("helios", full(n, n_planes), demand)
    # Among equally heavy matchings the two may choose differently, with consequences.
    assert result.served_share == pytest.approx(served / demand.sum(), rel=2e-3)


def test_parallel_light_paths_for_one_large_demand():
    result = plan("helios", full(3, 3), demand_of(3, {(0, 1): 250.0, (1, 0): 10.0}))
    assert result.served_share == 1.0
    assert len(result.slots[0].lightpaths) == 4


# --- b-matching -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["uniform", "gravity", "sparse", "dense"])
def test_all_planes_at_once_reach_the_linear_bound_where_racks_are_alike(kind):
    n, n_planes = 64, 6
    fabric, demand = full(n, n_planes), synthetic_demand(kind, n, 1, 900.0)
    best = plan("b-matching", fabric, demand)
    assert best.gap == 0.0
    assert best.served_share >= plan("helios", fabric, demand).served_share - 1e-9
    assert best.served_share <= served_share_bound(fabric, demand, one_way=True) + 1e-6


def test_light_paths_stand_on_the_planes_that_they_were_planned_on():
    fabric = full(4, 3)
    result = plan("helios", fabric, synthetic_demand("uniform", 4, 1, 200.0))
    planned = {(light.plane, light.sender, light.receiver) for light in result.slots[0].lightpaths}
    rings = ring_topology(fabric, result, EMPTY_TOPOLOGY, Budget(3))
    assert planned <= {(circuit.plane, circuit.a, circuit.b) for circuit in rings.circuits}


def test_all_at_once_is_better_than_in_turn():
    demand = demand_of(3, {(0, 1): 10.0, (0, 2): 9.0, (1, 2): 9.0, (2, 1): 9.0, (1, 0): 8.0})
    fabric = full(3, 2)
    assert (
        plan("b-matching", fabric, demand).served_share
        >= plan("helios", fabric, demand).served_share
    )


def test_tiny_fabrics_by_exhaustion():
    random = np.random.default_rng(5)
    n, n_planes = 3, 2
    permutations = list(itertools.permutations(range(n)))
    for _ in range(40):
        demand = random.integers(0, 250, (n, n)).astype(float)
        np.fill_diagonal(demand, 0.0)
        best = 0.0
        for planes in itertools.product(permutations, repeat=n_planes):
            offered = np.zeros((n, n))
            for order in planes:
                offered[np.arange(n), order] += 100.0
            best = max(best, float(np.minimum(offered, demand).sum()))
        result = plan("b-matching", full(n, n_planes), demand)
        assert result.served_share * demand.sum() == pytest.approx(best)
        assert result.gap == 0.0


def test_racks_that_miss_planes_get_what_is_left():
    # Rack 2 is on plane 1 only, rack 1 on plane 0 only: between them there is no way.
    fabric = arrays(3, 2, [(0, 0), (0, 1), (1, 0), (2, 1)])
    demand = demand_of(3, {(0, 1): 50.0, (0, 2): 40.0, (1, 2): 90.0})
    result = plan("b-matching", fabric, demand)
    assert racks_lit(fabric, result) == {(0, 0, 1), (1, 0, 2)}
    assert result.unserved == ((1, 2),)
    assert result.gap >= 0


def test_planes_of_several_rates():
    ports = [(rack, plane, (10.0, 40.0)[plane]) for rack in range(3) for plane in (0, 1)]
    result = plan("b-matching", arrays(3, 2, ports), demand_of(3, {(0, 1): 45.0, (0, 2): 8.0}))
    assert result.served_share == pytest.approx(48 / 53)
    assert result.gap >= 0


# --- both -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_WAY)
def test_what_stays_serves_its_pairs_and_keeps_its_ports(name):
    fabric = full(3, 1)
    pinned = path(0, 1, circuit(fabric, 0, 1))
    demand = demand_of(3, {(0, 1): 80.0, (1, 0): 30.0, (1, 2): 50.0})
    result = plan(name, fabric, demand, topology_of(pinned), Reserved(((pinned, 80.0),)))
    assert result.topology == topology_of(pinned)
    assert result.slots[0].lightpaths == frozenset()
    assert result.served_share == pytest.approx(110 / 160)
    assert result.unserved == ((RackId(1), RackId(2)),)


@pytest.mark.parametrize("name", ONE_WAY)
def test_blocked_ports_stay_dark(name):
    fabric = full(3, 1)
    demand = demand_of(3, {(0, 1): 80.0, (1, 2): 50.0})
    result = plan(name, fabric, demand, blocked_ports=frozenset({PortId(0)}))
    assert racks_lit(fabric, result) == {(0, 1, 2)}
    off = plan(name, full(3, 2), demand, planes=frozenset({PlaneId(1)}))
    assert {x.plane for x in off.slots[0].lightpaths} == {1}


@pytest.mark.parametrize("name", ONE_WAY)
def test_whole_demands_only(name):
    demand = demand_of(3, {(0, 1): 500.0, (0, 2): 60.0})
    result = plan(name, full(3, 1), demand, boolean=False)
    assert racks_lit(full(3, 1), result) == {(0, 0, 2)}


def test_shares_are_counted_with_what_stays():
    fabric = full(2, 1)
    demand = demand_of(2, {(0, 1): 50.0})
    idle = replace(plan("helios", fabric, demand), slots=())
    assert slots_share(fabric, demand, idle.slots, Budget(1).timing, {(0, 1): 25.0}) == 0.5
