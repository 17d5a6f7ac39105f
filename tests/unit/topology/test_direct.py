"""Algorithms that choose which racks to join: the decorator does the rest of planning."""

from __future__ import annotations

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

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY
from topology.algorithms import algorithm
from topology.direct import Joins, direct
from topology.plan_checks import check_result
from topology.problem import Budget, Reserved


@direct
def greedy(joins: Joins) -> None:
    for a, b in joins.pairs():
        for plane in joins.planes(a, b)[:1]:
            joins.join(a, b, plane)


def plan(fabric, demand, current=EMPTY_TOPOLOGY, *, boolean=True):
    budget = Budget(1, boolean=boolean)
    result = greedy(fabric, demand, current, Reserved(), budget)
    assert check_result(fabric, demand, current, Reserved(), budget, result) == []
    return result


@given(st.data())
def test_whatever_it_chooses_is_a_plan(data):
    """Any choice among the offered joins, with standing circuits and paths that must stay."""
    fabric = data.draw(fabrics())
    demand = data.draw(demands(fabric.n_racks))
    before = algorithm("edmonds")(fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(1)).topology
    pinned = tuple((one, 1.0) for one in before.paths[: data.draw(st.integers(0, 2))])
    blocked = {port for one, _ in pinned for c in one.circuits for port in c.ends}
    budget = data.draw(budgets(fabric))
    if budget.blocked_ports & blocked:
        return

    @direct
    def anything(joins: Joins) -> None:
        for _ in range(8):
            a, b = data.draw(st.tuples(*[st.integers(0, fabric.n_racks - 1)] * 2))
            if planes := joins.planes(a, b):
                joins.join(a, b, data.draw(st.sampled_from(planes)))

    for choose in (greedy, anything):
        result = choose(fabric, demand, before, Reserved(pinned), budget)
        found = check_result(fabric, demand, before, Reserved(pinned), budget, result)
        assert found == []


def test_the_largest_demands_get_the_fastest_circuits():
    fabric = arrays(4, 2, [(rack, plane, 10.0 + plane) for rack in range(4) for plane in (0, 1)])
    made = plan(fabric, demand_of(4, {(2, 3): 8.0, (0, 1): 9.0, (0, 3): 1.0})).topology
    planes = {(one.src, one.dst): one.circuits[0].plane for one in made.paths}
    assert planes == {(0, 1): 1, (2, 3): 1, (0, 3): 0}


def test_a_pair_that_is_joined_again_keeps_its_ports():
    fabric = full(2, 1, per_plane=2)
    standing = topology_of(path(0, 1, circuit(fabric, 1, 3)))
    assert plan(fabric, demand_of(2, {(0, 1): 5.0}), standing).topology == standing


def test_what_a_pair_wants_sinks_with_what_it_is_given():
    seen: list[float] = []

    @direct
    def twice(joins: Joins) -> None:
        for _ in range(2):
            joins.join(1, 0, joins.planes(1, 0)[0])
            seen.append(float(joins.wanted_mbps[0, 1]))

    demand = demand_of(2, {(0, 1): 250.0})
    result = twice(full(2, 3), demand, EMPTY_TOPOLOGY, Reserved(), Budget(1, paths_per_pair=2))
    assert seen == [150.0, 0.0]
    assert result.served_share == 0.8


def test_demands_that_fit_on_no_circuit_get_none_where_they_go_whole():
    demand = demand_of(3, {(0, 1): 250.0, (0, 2): 50.0})
    made = plan(full(3, 1), demand, boolean=False).topology
    assert [(one.src, one.dst) for one in made.paths] == [(0, 2)]


@pytest.mark.parametrize("plane", [0, 1, 7])
def test_a_plane_that_is_not_offered_is_refused(plane):
    @direct
    def stubborn(joins: Joins) -> None:
        joins.join(0, 1, 0)
        joins.join(0, 1, plane)

    with pytest.raises(PlanError, match=f"racks 0 and 1 on plane {plane}"):
        budget = Budget(1, paths_per_pair=1)
        stubborn(full(2, 2), np.zeros((2, 2)), EMPTY_TOPOLOGY, Reserved(), budget)


@pytest.mark.parametrize("name", ["edmonds", "edmonds-perfect"])
@pytest.mark.parametrize("boolean", [True, False])
def test_a_present_circuit_of_slow_ports_gives_way_to_the_ports_that_the_matching_counts_on(
    name, boolean
):
    fabric = arrays(2, 1, [(0, 0, 10.0), (1, 0, 10.0), (0, 0, 100.0), (1, 0, 100.0)])
    slow, fast = circuit(fabric, 0, 1), circuit(fabric, 2, 3)
    demand, budget = demand_of(2, {(0, 1): 50.0}), Budget(1, boolean=boolean)
    for before, wanted in ((slow, fast), (fast, fast)):
        current = topology_of(path(0, 1, before))
        result = algorithm(name)(fabric, demand, current, Reserved(), budget)
        assert check_result(fabric, demand, current, Reserved(), budget, result) == []
        assert result.topology.circuits == {wanted}
        assert result.served_share == 1.0


def test_present_circuits_of_each_speed_stay():
    fabric = arrays(3, 1, [(0, 0, 100.0), (0, 0, 10.0), (1, 0, 100.0), (2, 0, 10.0), (1, 0, 100.0)])
    kept = path(0, 1, circuit(fabric, 0, 4)), path(0, 2, circuit(fabric, 1, 3))
    demand = demand_of(3, {(0, 1): 90.0, (0, 2): 9.0})
    result = algorithm("edmonds")(fabric, demand, topology_of(*kept), Reserved(), Budget(1))
    assert result.topology == topology_of(*kept)
