"""Pairs with several paths: parallel circuits, and detours, for demand beyond a path."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_fabrics import (
    VLANS,
    arrays,
    circuit,
    demand_of,
    demands,
    fabrics,
    full,
    path,
    topology_of,
)

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, NetworkState, PlaneId
from hydra.policy import MOST_PATHS_PER_PAIR
from topology.algorithms import algorithm
from topology.carried import carried_mbps
from topology.checks import check_topology, check_vlans
from topology.demand import served_mbps
from topology.plan_checks import check_result, count_load
from topology.problem import Budget, Reserved, measure, pair_demands
from topology.vlan import allocate

NOTHING = Reserved()
DUPLEX = ["anytime", "hydra-bfs", "hydra-bfs+", "edmonds", "edmonds-perfect"]


def plan(name, fabric, demand, current=EMPTY_TOPOLOGY, reserved=NOTHING, **limits):
    budget = Budget(limits.pop("max_hops", 3), **limits)
    result = algorithm(name)(fabric, demand, current, reserved, budget)
    assert check_result(fabric, demand, current, reserved, budget, result) == []
    return result


def ways(result, src, dst):
    return [p for p in result.topology.paths if (p.src, p.dst) == (src, dst)]


@pytest.mark.parametrize("name", DUPLEX)
def test_a_demand_above_a_circuit_s_rate_gets_parallel_circuits(name):
    fabric = full(2, 4)
    demand = demand_of(2, {(1, 0): 250.0})
    one, three = (plan(name, fabric, demand, paths_per_pair=most) for most in (1, 3))
    assert (len(one.topology.paths), one.served_share) == (1, 0.4)
    assert [p.hops for p in ways(three, 0, 1)] == [1, 1, 1]
    assert len({p.circuits for p in ways(three, 0, 1)}) == 3
    assert three.served_share == 1.0


@pytest.mark.parametrize("name", DUPLEX)
def test_parallel_circuits_on_one_plane(name):
    fabric = full(2, 1, per_plane=3)
    result = plan(name, fabric, demand_of(2, {(0, 1): 180.0}), paths_per_pair=2)
    assert len(ways(result, 0, 1)) == 2
    again = plan(
        name, fabric, demand_of(2, {(0, 1): 180.0}), current=result.topology, paths_per_pair=2
    )
    assert again.topology == result.topology


def test_everybody_gets_a_path_before_anybody_gets_another():
    demand = demand_of(3, {(0, 1): 250.0, (0, 2): 10.0, (1, 2): 10.0})
    result = plan("hydra-bfs", full(3, 3), demand, paths_per_pair=2)
    assert result.unserved == ()
    assert [p.hops for p in ways(result, 0, 1)] == [1, 2]
    assert result.served_share == pytest.approx((100 + 90 + 20) / 270)


def test_another_path_may_lead_round():
    fabric = arrays(3, 3, [(0, 0), (1, 0), (0, 1), (2, 1), (2, 2), (1, 2)])
    result = plan("hydra-bfs", fabric, demand_of(3, {(0, 1): 150.0}), paths_per_pair=2)
    assert sorted(p.hops for p in ways(result, 0, 1)) == [1, 2]
    assert result.served_share == 1.0


def test_a_thin_path_beside_a_wide_one_is_not_taken():
    """Half of the flows would use the other path."""
    fabric = arrays(3, 3, [(0, 0), (1, 0), (0, 1), (2, 1), (2, 2), (1, 2)])
    demand = demand_of(3, {(0, 1): 140.0, (0, 2): 90.0})
    result = plan("hydra-bfs", fabric, demand, paths_per_pair=2)
    assert len(ways(result, 0, 1)) == 1
    roomy = demand_of(3, {(0, 1): 140.0, (0, 2): 40.0})
    assert len(ways(plan("hydra-bfs", fabric, roomy, paths_per_pair=2), 0, 1)) == 2


@pytest.mark.parametrize("name", ["anytime", "hydra-bfs", "hydra-bfs+"])
@pytest.mark.parametrize(
    ("wanted", "n_direct", "detour", "n_paths", "served"),
    [
        (300.0, 1, 10.0, 2, 110.0),  # each takes as much as possible
        (140.0, 1, 100.0, 2, 140.0),
        (140.0, 1, 20.0, 1, 100.0),  # not 70 + 20
        (140.0, 1, 30.0, 1, 100.0),  # 70 + 30 is no more
        (140.0, 1, 30.1, 2, 100.1),
        (210.0, 2, 50.0, 2, 200.0),  # not 70 + 70 + 50
    ],
)
def test_another_path_is_taken_where_an_even_spread_carries_more(
    name, wanted, n_direct, detour, n_paths, served
):
    direct = [(rack, plane) for plane in range(n_direct) for rack in (0, 1)]
    legs = [(0, 8, detour), (2, 8, detour), (2, 9, detour), (1, 9, detour)]
    demand = demand_of(3, {(0, 1): wanted})
    result = plan(name, arrays(3, 10, [*direct, *legs]), demand, paths_per_pair=3)
    assert len(ways(result, 0, 1)) == n_paths
    assert result.served_share == pytest.approx(served / wanted)


@pytest.mark.parametrize("name", DUPLEX)
def test_beside_a_reserved_path_there_is_no_other(name):
    fabric = full(2, 3)
    pinned = path(0, 1, circuit(fabric, 1, 4))
    result = plan(
        name,
        fabric,
        demand_of(2, {(0, 1): 250.0}),
        reserved=Reserved(((pinned, 30.0),)),
        paths_per_pair=3,
    )
    assert result.topology.paths == (pinned,)


@pytest.mark.parametrize("name", DUPLEX)
def test_a_path_outside_the_budget_counts_and_its_pair_gets_the_rest(name):
    fabric = full(2, 3)
    standing = path(0, 1, circuit(fabric, 0, 3))
    result = plan(
        name,
        fabric,
        demand_of(2, {(0, 1): 250.0}),
        current=topology_of(standing),
        planes=frozenset({PlaneId(1), PlaneId(2)}),
        paths_per_pair=2,
    )
    assert standing in result.topology.paths
    assert len(result.topology.paths) == 2
    assert result.served_share == pytest.approx(0.8)


@pytest.mark.parametrize("name", DUPLEX)
def test_demands_that_count_as_a_whole_take_one_path(name):
    result = plan(name, full(2, 3), demand_of(2, {(0, 1): 90.0}), boolean=False, paths_per_pair=3)
    assert len(result.topology.paths) == 1


@pytest.mark.parametrize("name", DUPLEX)
@pytest.mark.parametrize("allowed", [None, 1, 2])
def test_several_pinned_paths_of_a_pair_stay_however_many_are_allowed(name, allowed):
    fabric = full(2, 3)
    pins = [path(0, 1, circuit(fabric, port, port + 3)) for port in (0, 1)]
    reserved = Reserved(tuple((pin, 0.0) for pin in pins))
    demand = demand_of(2, {(0, 1): 150.0})
    result = plan(name, fabric, demand, reserved=reserved, paths_per_pair=allowed)
    assert result.topology.paths == tuple(pins)
    assert result.served_share == 1.0


def test_edmonds_with_parallel_circuits_is_proven_against_all_of_them():
    """Parallel edges are part of the relaxation: a share of 1 is a gap of 0."""
    fabric = full(4, 2)
    demand = demand_of(4, {(0, 1): 200.0, (2, 3): 150.0})
    result = plan("edmonds", fabric, demand, paths_per_pair=2)
    assert (result.served_share, result.gap) == (1.0, 0.0)


def test_each_path_of_a_pair_has_a_vlan_of_its_own():
    fabric = full(2, 3)
    result = plan("hydra-bfs", fabric, demand_of(2, {(0, 1): 300.0}), paths_per_pair=3)
    state = allocate(fabric, NetworkState(), result.topology, VLANS)
    assert len(set(state.vlans.values())) == 3
    assert check_vlans(fabric, state, VLANS) == []


def test_a_pair_spreads_its_demand_evenly():
    fabric = arrays(3, 2, [(0, 0), (1, 0), (0, 1, 10.0), (1, 1, 10.0)])
    both = topology_of(path(0, 1, circuit(fabric, 0, 1)), path(0, 1, circuit(fabric, 2, 3)))
    served = served_mbps(fabric, both, demand_of(3, {(0, 1): 60.0}), [0.0] * 3, [0.0] * 3)
    assert served[0, 1] == pytest.approx(40.0)  # 30 on the one, and 10 of 30 on the other


@settings(max_examples=100)
@given(st.data())
def test_each_path_carries_an_equal_part_at_most(data):
    """Planner, checks and estimate count alike; no path of k carries more than a k-th."""
    fabric = data.draw(fabrics())
    planned_for, demand = (data.draw(demands(fabric.n_racks)) for _ in range(2))
    topology = plan("anytime", fabric, planned_for).topology
    pairs = pair_demands(demand)
    share = measure(fabric, pairs, topology, NOTHING).served_share
    carried = carried_mbps(fabric, demand, topology, NOTHING)
    load = count_load(fabric, demand, topology, NOTHING)
    assert np.triu(carried).sum() == pytest.approx(share * pairs.mbps.sum() if len(pairs) else 0.0)
    for ends, mbps in load.carried_mbps.items():
        assert mbps == pytest.approx(carried[ends])
        wanted = max(demand[ends], demand[ends[::-1]])
        own = [p for p in topology.paths if (p.src, p.dst) == ends]
        most = [min(wanted / len(own), *map(fabric.rate_of, one.circuits)) for one in own]
        assert mbps <= sum(most) + 1e-6


def test_detours_that_compete_share_what_is_left():
    """Three elephants in a triangle meet at a fourth rack: none takes all of its circuits."""
    fabric = full(4, 3)
    ends = {(0, 1): 0, (2, 3): 0, (0, 2): 1, (1, 3): 1, (0, 3): 2, (1, 2): 2}
    joined = {pair: circuit(fabric, pair[0] * 3 + p, pair[1] * 3 + p) for pair, p in ends.items()}
    elephants = [(0, 1), (0, 2), (1, 2)]
    direct = [path(*pair, joined[pair]) for pair in elephants]
    round_3 = [path(a, b, joined[a, 3], joined[b, 3]) for a, b in elephants]
    topology = topology_of(*direct, *round_3)
    pairs = pair_demands(demand_of(4, dict.fromkeys(elephants, 300.0)))
    served = measure(fabric, pairs, topology, NOTHING).served_share * 900.0
    # A quarter of 150 for each, then 25 for the first: 100 on each of the fourth rack's circuits.
    assert served == pytest.approx(300.0 + 3 * 37.5 + 25.0)


def test_more_paths_than_allowed_and_equal_ones_are_found():
    fabric = full(2, 2)
    first, second = (path(0, 1, circuit(fabric, port, port + 2)) for port in (0, 1))
    both = topology_of(first, second)
    assert check_topology(fabric, both, 1, paths_per_pair=2) == []
    assert check_topology(fabric, both, 1) == ["pair 0-1 has 2 paths"]
    assert "a path is listed twice" in check_topology(
        fabric, topology_of(first, first), 1, paths_per_pair=2
    )
    demand = demand_of(2, {(0, 1): 150.0})
    two = plan("hydra-bfs", fabric, demand, paths_per_pair=2)
    single = Budget(1, paths_per_pair=1)
    problems = check_result(fabric, demand, EMPTY_TOPOLOGY, NOTHING, single, two)
    assert problems == ["pair 0-1 has 2 paths"]
    problems = check_result(fabric, demand, topology_of(first), NOTHING, single, two)
    assert problems == ["pair 0-1 has 2 paths"]


def test_without_a_number_a_pair_gets_as_many_paths_as_its_demand_can_use():
    ring = {(0, 1): 180.0, (1, 2): 180.0, (2, 3): 180.0, (0, 3): 180.0}
    for mbps, count in ((100.0, 1), (180.0, 2), (250.0, 3), (900.0, 4)):
        result = plan("hydra-bfs+", full(2, 4), demand_of(2, {(0, 1): mbps}))
        assert len(result.topology.paths) == count
    result = plan("hydra-bfs+", full(4, 4), demand_of(4, ring))
    assert (result.served_share, len(result.topology.circuits)) == (1.0, 8)
    result = plan("hydra-bfs+", full(2, 40), demand_of(2, {(0, 1): 4000.0}))
    assert len(result.topology.paths) == MOST_PATHS_PER_PAIR


@pytest.mark.parametrize("name", ["hydra-bfs", "edmonds", "edmonds-perfect"])
def test_without_a_number_published_algorithms_give_a_pair_one_path(name):
    result = plan(name, full(2, 4), demand_of(2, {(0, 1): 900.0}))
    assert len(result.topology.paths) == 1


@pytest.mark.parametrize("name", DUPLEX)
def test_a_pair_gets_no_more_paths_than_it_has_connections(name):
    """A connection never gets more than a circuit carries."""
    demand = demand_of(4, {(0, 1): 250.0, (2, 3): 250.0})
    connections = np.zeros((4, 4), dtype=np.int64)
    connections[0, 1], connections[3, 2] = 1, 2
    result = plan(name, full(4, 4), demand, paths_per_pair=3, connections=connections)
    assert (len(ways(result, 0, 1)), len(ways(result, 2, 3))) == (1, 2)
    assert result.served_share == pytest.approx(0.6)


def test_connections_of_another_number_of_racks_are_refused():
    with pytest.raises(PlanError, match=r"connections has shape \(2, 2\): 3 racks"):
        plan("hydra-bfs+", full(3, 1), np.zeros((3, 3)), connections=np.ones((2, 2), dtype=int))


def test_a_budget_without_paths_is_refused():
    with pytest.raises(PlanError, match="paths_per_pair is 0"):
        Budget(3, paths_per_pair=0)
