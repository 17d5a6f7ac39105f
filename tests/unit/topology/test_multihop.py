import itertools
from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from multihop_reference import reference_plan
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
from topology_reference import Reference

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, Circuit, Path, PlaneId, PortId, RackId, Topology
from topology.checks import check_topology
from topology.multihop import keep_current, plan_hydra_bfs, plan_hydra_bfs_plus
from topology.problem import Budget, PlanResult, Reserved, pair_demands
from topology.rounds import Rounds, Rule

pytestmark = pytest.mark.takes(15)

NOTHING_RESERVED = Reserved()


def plan(fabric, demand, current=EMPTY_TOPOLOGY, reserved=NOTHING_RESERVED, **budget):
    budget.setdefault("max_hops", 3)
    return plan_hydra_bfs(fabric, demand, current, reserved, Budget(**budget))


# --- the rounds -----------------------------------------------------------------------------


@given(st.data(), st.booleans(), st.booleans())
def test_rates_of_a_run_are_those_of_booking_its_paths_in_order(data, whole, widest):
    fabric = data.draw(fabrics())
    pairs = pair_demands(data.draw(demands(fabric.n_racks)))
    is_free = np.ones(fabric.n_ports, dtype=np.uint8)
    rounds = Rounds.on(fabric, pairs, 3, frozenset(), is_free, [], [])
    rule = Rule(whole=whole, partial=not whole, widest=widest)
    found = rounds.run(rule, np.arange(len(pairs), dtype=np.int32), pairs.mbps)
    residual = rounds.rates_mbps()
    for pair, row, given_mbps in zip(found.pair, found.links, found.given_mbps, strict=True):
        along = row[row >= 0]
        assert given_mbps == min(pairs.mbps[pair], residual[along].min())
        residual[along] -= given_mbps
    assert residual.tolist() == rounds.residual_mbps[: rounds.n_links].tolist()


def test_two_racks_get_a_circuit_on_the_lowest_plane():
    fabric = full(2, 2)
    result = plan(fabric, demand_of(2, {(1, 0): 50.0}))
    direct = circuit(fabric, 0, 2)
    assert result == PlanResult(topology_of(path(0, 1, direct)), (), 1.0, 1.0)


def test_the_largest_demand_goes_first_and_the_loser_goes_through_a_relay():
    # One port each: 0-1 takes the ports of both; 2 has nobody left, and no ports means no relay.
    fabric = full(3, 1)
    result = plan(fabric, demand_of(3, {(0, 1): 9.0, (1, 2): 8.0}))
    assert hops_of(result.topology) == {(0, 1): 1}
    assert result.unserved == ((1, 2),)
    # With a second plane, racks 0 and 2 each reach 1 and so each other, for the smallest demand.
    result = plan(full(3, 2), demand_of(3, {(0, 1): 9.0, (1, 2): 8.0, (0, 2): 7.0}))
    assert hops_of(result.topology) == {(0, 1): 1, (1, 2): 1, (0, 2): 1} or hops_of(
        result.topology
    ) == {(0, 1): 1, (1, 2): 1, (0, 2): 2}
    assert result.served_share == 1.0


def test_equal_demands_go_by_rack_number():
    result = plan(full(3, 1), demand_of(3, {(1, 2): 5.0, (0, 2): 5.0, (0, 1): 5.0}))
    assert hops_of(result.topology) == {(0, 1): 1}


def test_hop_by_hop_along_a_line():
    # A line of racks 0-1-2-3 is all that the wiring allows.
    fabric = arrays(4, 3, [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2)])
    demand = demand_of(4, {(0, 3): 5.0, (0, 1): 4.0, (1, 2): 3.0, (2, 3): 2.0, (0, 2): 1.0})
    for max_hops, expected in (
        (1, {(0, 1): 1, (1, 2): 1, (2, 3): 1}),
        (2, {(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 2): 2}),
        (3, {(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 2): 2, (0, 3): 3}),
    ):
        result = plan(fabric, demand, max_hops=max_hops)
        assert hops_of(result.topology) == expected
        assert set(result.unserved) == {(0, 2), (0, 3), *expected} - set(expected)
        assert result.mean_hops == sum(expected.values()) / len(expected)


def test_two_new_hops_are_booked_together_or_not_at_all():
    # 0 is on plane 0 only and 2 on plane 1 only; rack 1 can relay only with a port on each.
    both = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    result = plan(both, demand_of(3, {(0, 2): 1.0}))
    assert result.topology == topology_of(path(0, 2, circuit(both, 0, 1), circuit(both, 2, 3)))
    one = arrays(3, 2, [(0, 0), (1, 0), (2, 1)])
    assert plan(one, demand_of(3, {(0, 2): 1.0})).topology == EMPTY_TOPOLOGY


def test_three_new_hops_never_share_a_port():
    fabric = arrays(4, 3, [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2)])
    result = plan(fabric, demand_of(4, {(0, 3): 1.0}))
    assert hops_of(result.topology) == {(0, 3): 3}
    assert check_topology(fabric, result.topology, 3) == []


def test_two_ports_of_a_rack_on_one_plane_are_two_circuits():
    fabric = full(3, 1, per_plane=2)
    result = plan(fabric, demand_of(3, {(0, 1): 3.0, (0, 2): 2.0, (1, 2): 1.0}))
    assert hops_of(result.topology) == {(0, 1): 1, (0, 2): 1, (1, 2): 1}


def test_circuits_of_the_current_topology_are_preferred_to_lower_planes():
    fabric = full(4, 3)
    current = topology_of(path(0, 1, circuit(fabric, 2, 5)))
    result = plan(fabric, demand_of(4, {(0, 1): 1.0}), current)
    assert result.topology == current
    assert plan(fabric, demand_of(4, {(0, 1): 1.0})).topology != current


def test_circuits_that_serve_no_path_are_dropped():
    fabric = full(4, 1)
    current = topology_of(path(0, 1, circuit(fabric, 0, 1)))
    result = plan(fabric, demand_of(4, {(2, 3): 1.0}), current)
    assert result.topology == topology_of(path(2, 3, circuit(fabric, 2, 3)))


def test_more_hops_than_there_are_racks_change_nothing():
    fabric = arrays(4, 3, [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2)])
    demand = demand_of(4, {(0, 3): 5.0, (0, 1): 4.0})
    assert plan(fabric, demand, max_hops=10**9) == plan(fabric, demand, max_hops=3)


# --- Boolean and weighted demand ------------------------------------------------------------


def test_boolean_demand_takes_what_is_left_weighted_demand_takes_all_or_nothing():
    # Line 0-1-2 at 100 Mbps: 0-1 leaves 40, so 0-2 with 50 only fits partly.
    fabric = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    demand = demand_of(3, {(0, 1): 60.0, (0, 2): 50.0})
    boolean = plan(fabric, demand)
    assert hops_of(boolean.topology) == {(0, 1): 1, (0, 2): 2}
    assert boolean.served_share == pytest.approx(100 / 110)
    weighted = plan(fabric, demand, boolean=False)
    assert hops_of(weighted.topology) == {(0, 1): 1}
    assert weighted.unserved == ((0, 2),)
    assert weighted.served_share == pytest.approx(60 / 110)


def test_weighted_demand_fits_exactly():
    fabric = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    result = plan(fabric, demand_of(3, {(0, 1): 60.0, (0, 2): 40.0}), boolean=False)
    assert result.unserved == ()
    assert result.served_share == 1.0


def test_a_hop_gets_a_second_circuit_where_the_first_has_too_little_left():
    fabric = arrays(3, 3, [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (2, 2)])
    result = plan(fabric, demand_of(3, {(0, 1): 80.0, (0, 2): 50.0}))
    through = path(0, 2, circuit(fabric, 2, 3), circuit(fabric, 4, 5))
    assert result.topology == topology_of(path(0, 1, circuit(fabric, 0, 1)), through)
    assert result.served_share == 1.0


def test_a_full_circuit_carries_no_second_path():
    fabric = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    result = plan(fabric, demand_of(3, {(0, 1): 100.0, (0, 2): 50.0}))
    assert result.unserved == ((0, 2),)


def test_a_demand_chooses_ports_that_are_fast_enough():
    fabric = arrays(2, 2, [(0, 0, 10.0), (0, 1, 100.0), (1, 0, 100.0), (1, 1, 100.0)])
    demand = demand_of(2, {(0, 1): 50.0})
    assert plan(fabric, demand, boolean=False).topology.circuits == {circuit(fabric, 1, 3)}
    assert plan(fabric, demand).topology.circuits == {circuit(fabric, 1, 3)}
    assert plan(fabric, demand_of(2, {(0, 1): 500.0}), boolean=False).unserved == ((0, 1),)


# --- what stays -----------------------------------------------------------------------------


def test_a_pinned_path_comes_first_and_its_rate_is_gone():
    fabric = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    pinned = path(0, 1, circuit(fabric, 0, 1))
    demand = demand_of(3, {(0, 2): 50.0})
    reserved = Reserved(((pinned, 30.0), (pinned, 40.0)))
    result = plan(fabric, demand, reserved=reserved)
    assert pinned in result.topology.paths
    assert hops_of(result.topology) == {(0, 1): 1, (0, 2): 2}
    assert result.served_share == pytest.approx(30 / 50)
    assert plan(fabric, demand, reserved=reserved, boolean=False).unserved == ((0, 2),)
    all_taken = Reserved(((pinned, 100.0),))
    assert plan(fabric, demand, reserved=all_taken).unserved == ((0, 2),)


def test_a_pinned_pair_uses_its_path_beyond_what_it_reserved():
    fabric = full(2, 2)
    pinned = path(0, 1, circuit(fabric, 1, 3))
    result = plan(fabric, demand_of(2, {(0, 1): 80.0}), reserved=Reserved(((pinned, 30.0),)))
    assert result.topology == topology_of(pinned)
    assert result.served_share == 1.0


def test_pinned_paths_that_can_not_be_are_refused():
    fabric = full(3, 2)
    direct = circuit(fabric, 0, 2)
    nothing = np.zeros((3, 3))
    for pinned, budget, message in (
        (((path(0, 1, direct), 101.0),), {}, "1 Mbps too much"),
        (((path(0, 1, direct), -1.0),), {}, "must not be negative"),
        (((path(0, 1, direct), float("nan")),), {}, "must not be negative"),
        (((path(0, 2, direct), 1.0),), {}, "ends at rack 1, not at rack 2"),
        (((path(0, 1), 1.0),), {}, "ends at rack 0, not at rack 1"),
        (
            ((path(0, 1, direct), 1.0),),
            {"blocked_ports": frozenset({PortId(2)})},
            "port 2, a blocked port",
        ),
        (((path(0, 1, replace(direct, plane=PlaneId(1))), 1.0),), {}, "of plane 0"),
        (((path(0, 1, replace(direct, b=PortId(9))), 1.0),), {}, "port 9: no such port"),
        (
            ((path(0, 1, direct), 1.0), (path(0, 2, circuit(fabric, 0, 4)), 1.0)),
            {},
            "port 0 of rack 0 can't serve both",
        ),
    ):
        with pytest.raises(PlanError, match=message):
            plan(fabric, nothing, reserved=Reserved(pinned), **budget)


def test_circuits_on_other_planes_stay_with_their_paths():
    fabric = full(4, 2)
    stays = path(0, 1, circuit(fabric, 1, 3))
    goes = path(2, 3, circuit(fabric, 4, 6))
    demand = demand_of(4, {(0, 2): 1.0})
    result = plan(fabric, demand, topology_of(stays, goes), planes=frozenset({PlaneId(0)}))
    assert result.topology == topology_of(stays, path(0, 2, circuit(fabric, 0, 4)))


def test_a_circuit_outside_the_budget_stays_even_without_a_path():
    fabric = full(3, 1)
    current = Topology(frozenset({circuit(fabric, 1, 2)}))
    result = plan(fabric, np.zeros((3, 3)), current, racks=frozenset({RackId(0), RackId(1)}))
    assert result.topology == current


def test_racks_outside_the_budget_notice_nothing():
    # The path 0-2 through 1 belongs to rack 2 as well: its first hop stays though it might change.
    fabric = arrays(4, 2, [(0, 0), (1, 0), (1, 1), (2, 1), (3, 0)])
    foreign = path(0, 2, circuit(fabric, 0, 1), circuit(fabric, 2, 3))
    mine = frozenset({RackId(0), RackId(1), RackId(3)})
    demand = demand_of(4, {(0, 3): 90.0, (2, 3): 80.0, (0, 2): 10.0})
    result = plan(fabric, demand, topology_of(foreign), racks=mine)
    assert result.topology == topology_of(foreign)
    assert result.unserved == ((0, 3), (2, 3))


def test_a_foreign_path_on_a_blocked_port_of_mine_is_given_up():
    fabric = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    foreign = path(0, 2, circuit(fabric, 0, 1), circuit(fabric, 2, 3))
    result = plan(
        fabric,
        np.zeros((3, 3)),
        topology_of(foreign),
        racks=frozenset({RackId(0), RackId(1)}),
        blocked_ports=frozenset({PortId(0)}),
    )
    assert result.topology == Topology(frozenset({circuit(fabric, 2, 3)}))


def test_new_paths_may_use_what_standing_circuits_have_left():
    fabric = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    stays = path(0, 1, circuit(fabric, 0, 1))
    demand = demand_of(3, {(0, 1): 70.0, (0, 2): 50.0})
    second = frozenset({PlaneId(1)})
    result = plan(fabric, demand, topology_of(stays), planes=second)
    assert hops_of(result.topology) == {(0, 1): 1, (0, 2): 2}
    assert result.served_share == pytest.approx(100 / 120)
    weighted = plan(fabric, demand, topology_of(stays), planes=second, boolean=False)
    assert weighted.unserved == ((0, 2),)


def test_racks_outside_the_budget_are_no_relays():
    fabric = arrays(3, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    line = Topology(frozenset({circuit(fabric, 0, 1), circuit(fabric, 2, 3)}))
    demand = demand_of(3, {(0, 2): 1.0})
    ends = frozenset({RackId(0), RackId(2)})
    assert plan(fabric, demand, line, racks=ends).topology == line
    nowhere: frozenset[PlaneId] = frozenset()
    result = plan(fabric, demand, line, planes=nowhere)
    assert hops_of(result.topology) == {(0, 2): 2}


def test_a_standing_circuit_on_a_blocked_port_takes_no_new_path():
    fabric = full(2, 1)
    link = Topology(frozenset({circuit(fabric, 0, 1)}))
    demand = demand_of(2, {(0, 1): 1.0})
    budget = {"planes": frozenset(), "blocked_ports": frozenset({PortId(1)})}
    result = plan(fabric, demand, link, **budget)
    assert (result.topology, result.unserved) == (link, ((0, 1),))


def test_a_pinned_path_replaces_the_standing_one_of_its_pair():
    fabric = full(2, 2)
    stays = path(0, 1, circuit(fabric, 0, 2))
    pinned = path(0, 1, circuit(fabric, 1, 3))
    result = plan(
        fabric,
        np.zeros((2, 2)),
        topology_of(stays),
        Reserved(((pinned, 5.0),)),
        planes=frozenset({PlaneId(1)}),
    )
    assert result.topology.paths == (pinned,)
    assert result.topology.circuits == {*stays.circuits, *pinned.circuits}


def test_a_pin_that_needs_a_foreign_port_is_refused():
    fabric = full(3, 1)
    current = topology_of(path(1, 2, circuit(fabric, 1, 2)))
    pinned = Reserved(((path(0, 1, circuit(fabric, 0, 1)), 1.0),))
    with pytest.raises(PlanError, match="port 1 of rack 1"):
        plan(fabric, np.zeros((3, 3)), current, pinned, racks=frozenset({RackId(0), RackId(1)}))


def test_blocked_ports_are_not_used():
    fabric = full(2, 2)
    demand = demand_of(2, {(0, 1): 1.0})
    result = plan(fabric, demand, blocked_ports=frozenset({PortId(0)}))
    assert result.topology.circuits == {circuit(fabric, 1, 3)}
    current = topology_of(path(0, 1, circuit(fabric, 0, 2)))
    result = plan(fabric, demand, current, blocked_ports=frozenset({PortId(0), PortId(3)}))
    assert result.topology == EMPTY_TOPOLOGY


# --- edges of the input ---------------------------------------------------------------------


@pytest.mark.parametrize("fabric", [full(1, 3), full(4, 0), full(3, 2)])
def test_nothing_to_do(fabric):
    result = plan(fabric, np.zeros((fabric.n_racks, fabric.n_racks)))
    assert result == PlanResult(EMPTY_TOPOLOGY, (), 1.0, 0.0)


def test_without_planes_nobody_is_served():
    result = plan(full(3, 0), demand_of(3, {(0, 1): 1.0, (2, 1): 1.0}))
    assert result == PlanResult(EMPTY_TOPOLOGY, ((0, 1), (1, 2)), 0.0, 0.0)


@pytest.mark.parametrize("planner", [plan_hydra_bfs, keep_current])
def test_bad_input_is_refused(planner):
    fabric = full(2, 1)
    with pytest.raises(PlanError, match=r"demand\[0, 1\]"):
        planner(fabric, [[0, -1], [0, 0]], EMPTY_TOPOLOGY, Reserved(), Budget(1))
    with pytest.raises(PlanError, match="rack 7"):
        planner(fabric, np.zeros((2, 2)), EMPTY_TOPOLOGY, Reserved(), Budget(1, frozenset({7})))


def test_keeping_the_current_topology_measures_it():
    fabric = full(3, 1)
    current = topology_of(path(0, 1, circuit(fabric, 0, 1)))
    demand = demand_of(3, {(0, 1): 150.0, (1, 2): 50.0})
    result = keep_current(fabric, demand, current, Reserved(), Budget(1))
    assert result == PlanResult(current, ((1, 2),), 0.5, 1.0)


# --- against oracles ------------------------------------------------------------------------


@given(st.data())
def test_the_result_is_that_of_the_heuristic_written_out_on_networkx(data):
    fabric = data.draw(fabrics(max_racks=6, max_planes=3))
    budget = replace(data.draw(budgets(fabric)), racks=None, planes=None, paths_per_pair=1)
    first = data.draw(demands(fabric.n_racks))
    current = plan_hydra_bfs(fabric, first, EMPTY_TOPOLOGY, Reserved(), budget).topology
    demand = data.draw(demands(fabric.n_racks))
    ours = plan_hydra_bfs(fabric, demand, current, NOTHING_RESERVED, budget)
    expected = Reference(fabric, set(current.circuits), budget).plan(demand)
    assert ours.topology == topology_of(*expected)


def _instance(rng):
    """A fabric, two demands and a budget, larger and more even than Hypothesis draws them."""
    n, planes = int(rng.integers(2, 32)), int(rng.integers(1, 10))
    rates = [100.0] if rng.random() < 0.5 else [10.0, 40.0, 100.0]
    ports = [
        (rack, plane, float(rng.choice(rates)))
        for rack in range(n)
        for plane in range(planes)
        for _ in range(int(rng.integers(1, 3)))
        if rng.random() < 0.85
    ]
    fabric = arrays(n, planes, [ports[i] for i in rng.permutation(len(ports))])
    wanted = rng.lognormal(1.5, 1.5, (2, n, n)) * (rng.random((2, n, n)) < rng.random())
    wanted = np.round(wanted) if rng.random() < 0.3 else wanted
    wanted[:, range(n), range(n)] = 0.0
    some = rng.random(3) < 0.3
    budget = Budget(
        max_hops=int(rng.integers(1, 6)),
        racks=frozenset(np.flatnonzero(rng.random(n) < 0.7).tolist()) if some[0] else None,
        planes=frozenset(np.flatnonzero(rng.random(planes) < 0.7).tolist()) if some[1] else None,
        blocked_ports=frozenset(np.flatnonzero(rng.random(len(ports)) < 0.05).tolist())
        if some[2]
        else frozenset(),
        boolean=bool(rng.random() < 0.5),
        paths_per_pair=int(rng.integers(1, 4)),
    )
    return fabric, wanted, budget


def _slow_and_fast():
    """Two racks on a plane of 1 Gb/s and one of 10 Gb/s."""
    return arrays(2, 2, [(rack, plane, 10**plane * 1e3) for rack in (0, 1) for plane in (0, 1)])


@pytest.mark.parametrize("plan", [plan_hydra_bfs, plan_hydra_bfs_plus])
@pytest.mark.parametrize(
    ("mbps", "plane"), [(500.0, 0), (1e3, 0), (5e3, 1), (1e4, 1), (10_001.0, 1), (12e3, 1)]
)
def test_a_large_demand_takes_ports_that_carry_it_or_the_fastest(plan, mbps, plane):
    fabric, demand = _slow_and_fast(), np.array([[0.0, mbps], [0.0, 0.0]])
    slow = Circuit(PlaneId(0), PortId(0), PortId(2))
    standing = Topology(frozenset({slow}), (Path(RackId(0), RackId(1), (slow,)),))
    for current in (EMPTY_TOPOLOGY, standing):
        result = plan(fabric, demand, current, NOTHING_RESERVED, Budget(3))
        assert [circuit.plane for circuit in result.topology.circuits] == [plane]


def test_what_is_left_of_slower_planes_is_taken_where_the_fast_ones_are_not_free():
    budget = Budget(3, blocked_ports=frozenset({PortId(3)}))
    demand = np.array([[0.0, 5e3], [0.0, 0.0]])
    result = plan_hydra_bfs(_slow_and_fast(), demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget)
    assert [circuit.plane for circuit in result.topology.circuits] == [0]


@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_instances_agree_with_the_oracle(seed):
    rng = np.random.default_rng(seed)
    for _ in range(70):
        fabric, wanted, budget = _instance(rng)
        current = EMPTY_TOPOLOGY
        everywhere = replace(budget, racks=None, planes=None)
        for demand, within in zip(wanted, (everywhere, budget), strict=True):
            ours = plan_hydra_bfs(fabric, demand, current, NOTHING_RESERVED, within).topology
            assert ours == reference_plan(fabric, demand, current, NOTHING_RESERVED, within)
            current = ours


@given(st.data())
def test_a_single_demand_is_served_if_any_choice_of_circuits_serves_it(data):
    fabric = data.draw(fabrics(max_racks=4, max_planes=2))
    assume(fabric.n_racks >= 2 and fabric.n_ports <= 8)
    max_hops = data.draw(st.integers(1, 3))
    result = plan(fabric, demand_of(fabric.n_racks, {(0, 1): 1.0}), max_hops=max_hops)
    shortest = min(
        (
            nx.shortest_path_length(graph, 0, 1)
            for graph in _all_topologies(fabric)
            if nx.has_path(graph, 0, 1)
        ),
        default=None,
    )
    if shortest is None or shortest > max_hops:
        assert result.topology == EMPTY_TOPOLOGY
    else:
        assert hops_of(result.topology) == {(0, 1): shortest}


def _all_topologies(fabric):
    """Every set of at most three circuits that the ports allow, as a graph on racks."""
    possible = [
        (one, other)
        for one, other in itertools.combinations(range(fabric.n_ports), 2)
        if fabric.port_plane[one] == fabric.port_plane[other]
        and fabric.port_rack[one] != fabric.port_rack[other]
    ]
    for size in range(4):
        for chosen in itertools.combinations(possible, size):
            ports = [port for link in chosen for port in link]
            if len(set(ports)) == len(ports):
                graph = nx.Graph([(fabric.port_rack[a], fabric.port_rack[b]) for a, b in chosen])
                graph.add_nodes_from(range(fabric.n_racks))
                yield graph


@given(st.data())
def test_every_hop_count_is_shortest_when_there_is_room_for_all(data):
    # All demands at once on ample Boolean capacity: paths are shortest in the final circuits.
    n = data.draw(st.integers(2, 7))
    fabric = full(n, data.draw(st.integers(1, 3)), rate_mbps=1e6)
    result = plan(fabric, (data.draw(demands(n)) > 0).astype(float), max_hops=4)
    graph = nx.Graph([tuple(fabric.racks_of(c)) for c in result.topology.circuits])
    graph.add_nodes_from(range(n))
    for pair, hops in hops_of(result.topology).items():
        assert hops == nx.shortest_path_length(graph, *pair)
    for pair in result.unserved:
        assert not nx.has_path(graph, *pair) or nx.shortest_path_length(graph, *pair) > 4


# --- properties -----------------------------------------------------------------------------


@given(st.data())
def test_successive_partial_plans_stay_sound(data):
    fabric = data.draw(fabrics())
    n = fabric.n_racks
    current = EMPTY_TOPOLOGY
    reserved = Reserved()
    for _ in range(5):
        budget = data.draw(budgets(fabric))
        pinned_ports = {p for path_, _ in reserved.pinned for c in path_.circuits for p in _ends(c)}
        per_pair = Counter((path_.src, path_.dst) for path_, _ in reserved.pinned)
        budget = replace(
            budget,
            blocked_ports=budget.blocked_ports - pinned_ports,
            paths_per_pair=max([budget.paths_per_pair, *per_pair.values()]),
        )
        demand = data.draw(demands(n))
        result = plan_hydra_bfs(fabric, demand, current, reserved, budget)
        again = plan_hydra_bfs(fabric, demand.copy(), current, reserved, budget)
        assert result == again
        assert result.topology == reference_plan(fabric, demand, current, reserved, budget)
        _check(fabric, current, reserved, budget, demand, result)
        current = result.topology
        reserved = data.draw(_reservations(fabric, current))


def _ends(link):
    return link.a, link.b


def _check(fabric, current, reserved, budget, demand, result):
    topology = result.topology
    old_hops = max((p.hops for p in current.paths), default=0)
    most = max([budget.paths_per_pair, *Counter((p.src, p.dst) for p in current.paths).values()])
    longest = max(budget.max_hops, old_hops)
    assert check_topology(fabric, topology, longest, paths_per_pair=most) == []
    fixed = {c for c in current.circuits if not budget.may_change(fabric, c)}
    pinned = {path_ for path_, _ in reserved.pinned}
    assert fixed <= topology.circuits
    assert pinned <= set(topology.paths)
    new = topology.circuits - current.circuits
    assert all(budget.may_change(fabric, c) for c in new)
    assert not budget.blocked_ports.intersection(p for c in new for p in _ends(c))
    for old in current.paths:
        pair_pinned = any((old.src, old.dst) == (p.src, p.dst) for p in pinned)
        if fixed.issuperset(old.circuits) and not pair_pinned:
            assert old in topology.paths
    carrying = {c for p in topology.paths for c in p.circuits}
    assert topology.circuits <= carrying | fixed
    wanted = {(a, b) for a, b in np.argwhere(np.maximum(demand, demand.T)).tolist() if a < b}
    served = set(hops_of(topology))
    assert set(result.unserved) == wanted - served
    assert 0.0 <= result.served_share <= 1.0 + 1e-9
    if not budget.boolean and not fixed and not pinned:
        _check_capacity(fabric, topology, demand)
        total = sum(max(demand[p], demand[p[::-1]]) for p in wanted)
        kept = sum(max(demand[p], demand[p[::-1]]) for p in wanted & served)
        assert result.served_share == pytest.approx(kept / total if total else 1.0)


def _check_capacity(fabric, topology, demand):
    for link in topology.circuits:
        load = sum(
            max(demand[p.src, p.dst], demand[p.dst, p.src])
            for p in topology.paths
            if link in p.circuits
        )
        assert load <= fabric.rate_of(link) + 1e-3


@st.composite
def _reservations(draw, fabric, topology):
    """Some present paths become reserved, within what their circuits can carry."""
    left = {c: fabric.rate_of(c) for c in topology.circuits}
    pinned = []
    for path_ in topology.paths:
        if draw(st.sampled_from([False, False, True])):
            rate = draw(st.sampled_from([0.0, 1.0, 5.0, 100.0]))
            if all(left[c] >= rate for c in path_.circuits):
                pinned.append((path_, rate))
                left |= {c: left[c] - rate for c in path_.circuits}
    return Reserved(tuple(pinned))
