"""``hydra-bfs+``: never worse than the paper's rule, in time, and loath to disturb."""

from dataclasses import replace
from itertools import count

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
    hops_of,
    path,
    topology_of,
)

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, PlaneId, Topology
from topology.checks import check_topology
from topology.drafts import Ground
from topology.multihop import plan_hydra_bfs, plan_hydra_bfs_plus
from topology.problem import Budget, Reserved
from topology.rounds import Rule

NOTHING_RESERVED = Reserved()


def diamond():
    """Rack 0 reaches 3 through 1, whose first circuit is busy, or through 2."""
    fabric = arrays(4, 4, [(0, 0), (1, 0), (0, 1), (2, 1), (1, 2), (3, 2), (2, 3), (3, 3)])
    demand = demand_of(4, {(0, 1): 90.0, (0, 2): 20.0, (1, 3): 19.0, (2, 3): 18.0, (0, 3): 17.0})
    return fabric, demand


def test_the_relay_with_the_most_left_is_taken():
    fabric, demand = diamond()
    paper = plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(2))
    better = plan_hydra_bfs_plus(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(2))
    first, second = circuit(fabric, 0, 1), circuit(fabric, 4, 5)
    assert path(0, 3, first, second) in paper.topology.paths
    assert paper.served_share == pytest.approx(157 / 164)
    assert path(0, 3, circuit(fabric, 2, 3), circuit(fabric, 6, 7)) in better.topology.paths
    assert better.served_share == 1.0


def test_ports_kept_for_later_rounds_reach_more_racks():
    # Five ports a rack. The paper's rule spends them on pairs within two groups, largest first.
    n, fabric = 12, full(12, 5)
    demand = np.zeros((n, n))
    demand[:6, :6] = demand[6:, 6:] = 30.0
    demand[:6, 6:] = demand[6:, :6] = 10.0
    np.fill_diagonal(demand, 0.0)
    paper = plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(3))
    better = plan_hydra_bfs_plus(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(3))
    assert better.served_share > paper.served_share


def test_the_paper_s_plan_is_returned_where_nothing_serves_more():
    fabric = full(4, 3)
    demand = demand_of(4, {(0, 1): 9.0, (1, 2): 8.0, (0, 3): 7.0})
    budget = Budget(3)
    paper = plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget)
    assert plan_hydra_bfs_plus(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget) == paper


# --- time ------------------------------------------------------------------------------------


def crowded():
    rng = np.random.default_rng(3)
    demand = rng.lognormal(2.0, 1.0, (12, 12))
    np.fill_diagonal(demand, 0.0)
    return full(12, 4), demand


def test_when_time_is_up_at_once_the_paper_s_plan_is_there():
    fabric, demand = crowded()
    budget = Budget(3, paths_per_pair=1, expired=lambda: True)
    result = plan_hydra_bfs_plus(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget)
    assert result == plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget)


def test_with_more_time_the_plan_serves_no_less():
    fabric, demand = crowded()
    shares = []
    for calls in (1, 2, 4, 8, 100):
        ticks = count(1)
        budget = Budget(3, expired=lambda ticks=ticks, calls=calls: next(ticks) >= calls)
        result = plan_hydra_bfs_plus(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget)
        shares.append(result.served_share)
    assert shares == sorted(shares)
    assert shares[-1] > shares[0]


def test_trying_ends_when_everything_is_served():
    asked = []
    budget = Budget(3, expired=lambda: bool(asked.append(1)))
    demand = demand_of(3, {(0, 1): 1.0})
    result = plan_hydra_bfs_plus(full(3, 1), demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget)
    assert result.served_share == 1.0
    assert not asked


# --- disturbance -----------------------------------------------------------------------------


def moved_demand():
    """0-1 and 2-3 are joined; 0-2 wants a little more than 0-1, and there is one plane."""
    fabric = full(4, 1)
    current = topology_of(path(0, 1, circuit(fabric, 0, 1)), path(2, 3, circuit(fabric, 2, 3)))
    return fabric, current, demand_of(4, {(0, 2): 50.0, (0, 1): 40.0, (2, 3): 5.0})


@pytest.mark.parametrize(("disturbance_mbps", "moves"), [(0.0, True), (2.4, True), (2.6, False)])
def test_circuits_in_use_are_given_up_only_for_what_that_is_worth(disturbance_mbps, moves):
    # Moving gains 50 - 45 Mbps and gives up two circuits.
    fabric, current, demand = moved_demand()
    budget = Budget(1, disturbance_mbps=disturbance_mbps)
    result = plan_hydra_bfs_plus(fabric, demand, current, NOTHING_RESERVED, budget)
    assert (result.topology != current) == moves
    assert hops_of(result.topology) == ({(0, 2): 1} if moves else {(0, 1): 1, (2, 3): 1})


def test_a_circuit_nobody_wants_any_more_costs_nothing():
    fabric, current, demand = moved_demand()
    demand[0, 1] = demand[2, 3] = 0.0
    budget = Budget(1, disturbance_mbps=1000.0)
    result = plan_hydra_bfs_plus(fabric, demand, current, NOTHING_RESERVED, budget)
    assert hops_of(result.topology) == {(0, 2): 1}


def test_circuits_that_stay_anyway_are_not_counted():
    fabric = full(4, 2)
    current = topology_of(path(0, 1, circuit(fabric, 1, 3)))
    budget = Budget(1, planes=frozenset({PlaneId(0)}), disturbance_mbps=5.0)
    demand = demand_of(4, {(0, 1): 10.0, (0, 2): 10.0})
    result = plan_hydra_bfs_plus(fabric, demand, current, NOTHING_RESERVED, budget)
    assert hops_of(result.topology) == {(0, 1): 1, (0, 2): 1}


# --- properties ------------------------------------------------------------------------------


@given(st.data())
def test_it_is_sound_deterministic_and_never_worse(data):
    fabric = data.draw(fabrics())
    current = EMPTY_TOPOLOGY
    for _ in range(2):
        budget = data.draw(budgets(fabric))
        demand = data.draw(demands(fabric.n_racks))
        result = plan_hydra_bfs_plus(fabric, demand, current, NOTHING_RESERVED, budget)
        paper = plan_hydra_bfs(fabric, demand, current, NOTHING_RESERVED, budget)
        assert result == plan_hydra_bfs_plus(fabric, demand, current, NOTHING_RESERVED, budget)
        longest = max([budget.max_hops, *(p.hops for p in current.paths)])
        assert check_topology(fabric, result.topology, longest, paths_per_pair=3) == []
        fixed = {c for c in current.circuits if not budget.may_change(fabric, c)}
        assert fixed <= result.topology.circuits
        new = result.topology.circuits - current.circuits
        assert not budget.blocked_ports.intersection(p for c in new for p in (c.a, c.b))
        if not fixed:
            assert result.served_share >= paper.served_share - 1e-9
        current = result.topology


@given(st.data())
def test_with_disturbance_the_worth_is_never_less_than_standing_still_or_moving(data):
    fabric = data.draw(fabrics())
    budget = replace(data.draw(budgets(fabric)), racks=None, planes=None)
    first, demand = data.draw(demands(fabric.n_racks)), data.draw(demands(fabric.n_racks))
    current = plan_hydra_bfs(fabric, first, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget).topology
    disturbance = data.draw(st.sampled_from([1.0, 20.0, 1000.0]))
    budget = replace(budget, disturbance_mbps=disturbance)
    ground = Ground.of(fabric, demand, current, NOTHING_RESERVED, budget)
    in_use = set(ground.in_use())
    total = float(ground.pairs.mbps.sum())

    def worth(result):
        given_up = len(in_use - result.topology.circuits)
        return result.served_share * total - disturbance * given_up

    best = plan_hydra_bfs_plus(fabric, demand, current, NOTHING_RESERVED, budget)
    assert check_topology(fabric, best.topology, budget.max_hops, paths_per_pair=3) == []
    rule = Rule(whole=not budget.boolean, partial=budget.boolean)
    for kept in ((), sorted(in_use)):
        assert worth(best) >= worth(ground.result(ground.draft(rule, kept))) - 1e-6


def test_bad_input_is_refused():
    with pytest.raises(PlanError, match=r"demand\[0, 1\]"):
        plan_hydra_bfs_plus(
            full(2, 1), [[0, -1], [0, 0]], EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(1)
        )


def test_nothing_to_plan_for():
    for fabric in (full(1, 3), full(4, 0), full(3, 2)):
        nothing = np.zeros((fabric.n_racks, fabric.n_racks))
        result = plan_hydra_bfs_plus(
            fabric, nothing, EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(2, disturbance_mbps=1.0)
        )
        assert (result.topology, result.served_share) == (Topology(), 1.0)


def test_all_to_all_traffic_of_one_rate_does_not_end_in_islands():
    """The figures of docs/planning.md."""
    fabric = full(64, 8, rate_mbps=10_000.0)
    demand = np.full((64, 64), 100.0) - np.diag(np.full(64, 100.0))
    paper, ours = (
        plan(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(3)).served_share
        for plan in (plan_hydra_bfs, plan_hydra_bfs_plus)
    )
    assert paper > 0.99
    assert ours == pytest.approx(1.0)


def test_rules_that_are_the_same_on_a_fabric_are_tried_once(monkeypatch):
    tried = []
    draft = Ground.draft

    def noting(self, rule, kept=()):
        tried.append(rule)
        return draft(self, rule, kept)

    monkeypatch.setattr(Ground, "draft", noting)
    demand = demand_of(4, {(0, 1): 50.0, (0, 2): 40.0, (0, 3): 30.0})
    budget = Budget(2, boolean=False)
    for planes, ways in ((1, {1.0}), (2, {1.0, 0.5}), (8, {1.0, 0.875, 0.75, 0.625, 0.5})):
        tried.clear()
        plan_hydra_bfs_plus(
            full(4, planes), demand * planes, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget
        )
        first = [rule for rule in tried if rule.order == 0]
        assert {rule.direct_share for rule in first if rule.widest} == ways
        assert len(first) == 2 * len(ways)
        assert len(set(tried)) == len(tried)
        assert {rule.order for rule in tried} == {0, 1, 2}
