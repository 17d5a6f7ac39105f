"""Schedules of duplex circuits: pairs and lengths of slots, and circuits that stay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_fabrics import arrays, circuit, demand_of, full, path, topology_of

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY
from topology.checks import check_topology
from topology.duplex import plan_tms_duplex, topologies
from topology.plan_checks import check_result
from topology.problem import Budget, Reserved, Timing
from topology.synthetic import synthetic_demand

WEEK = Timing(window_s=10.0, switching_s=0.1, shortest_s=0.5)


def week(fabric, demand, timing=WEEK, current=EMPTY_TOPOLOGY, reserved=None, **budget):
    """(day in seconds, pairs with a circuit) of each slot; the plan is checked."""
    reserved = reserved or Reserved()
    budget = Budget(2, timing=timing, **budget)
    result = plan_tms_duplex(fabric, demand, current, reserved, budget)
    assert check_result(fabric, demand, current, reserved, budget, result) == []
    slots = topologies(fabric, result)
    for topology in slots:
        assert check_topology(fabric, topology, max_hops=2) == []
        assert set(result.topology.paths) <= set(topology.paths)
    pairs = [{(p.src, p.dst) for p in topology.paths} for topology in slots]
    return list(zip((slot.duration_s for slot in result.slots), pairs, strict=True)), slots


def test_two_pairs_that_want_one_port_share_it_in_proportion():
    fabric = full(3, 1)
    slots, _ = week(fabric, demand_of(3, {(0, 1): 90.0, (2, 0): 30.0}))
    assert slots == [(pytest.approx(7.35), {(0, 1)}), (pytest.approx(2.45), {(0, 2)})]


def test_where_nobody_has_to_share_nothing_moves():
    slots, _ = week(full(4, 1), demand_of(4, {(0, 1): 90.0, (2, 3): 5.0}))
    assert slots == [(10.0, {(0, 1), (2, 3)})]


def test_nobody_wants_anything():
    slots, _ = week(full(4, 1), demand_of(4, {}))
    assert slots == [(10.0, set())]


def test_the_duty_cycle_is_the_formula_s():
    """All pairs of four racks on one plane: three slots, D = (T - n · t_setup) / T."""
    slots, _ = week(full(4, 1), np.ones((4, 4)) - np.eye(4))
    assert len(slots) == 3
    assert sum(day_s for day_s, _ in slots) / WEEK.window_s == pytest.approx(1 - 3 * 0.1 / 10)


@pytest.mark.parametrize(("shortest_s", "n_slots"), [(0.5, 4), (1.0, 3), (2.0, 2), (6.0, 1)])
def test_the_longest_stay_as_long_as_none_is_too_short(shortest_s, n_slots):
    wants = {(0, 1): 50.0, (0, 2): 25.0, (0, 3): 15.0, (0, 4): 5.0}
    timing = Timing(10.0, 0.1, shortest_s)
    slots, _ = week(full(5, 1), demand_of(5, wants), timing)
    assert [pairs for _, pairs in slots] == [{pair} for pair in list(wants)[:n_slots]]
    days = [day_s for day_s, _ in slots]
    assert days == sorted(days, reverse=True)
    if n_slots > 1:
        assert min(days) + timing.switching_s >= shortest_s


@pytest.mark.parametrize(("timing", "n_slots"), [((10.0, 0.1, 5.0), 2), ((1.0, 0.5, 0.0), 1)])
def test_slots_may_be_as_short_as_allowed_and_not_wholly_dark(timing, n_slots):
    slots, _ = week(full(3, 1), demand_of(3, {(0, 1): 60.0, (0, 2): 60.0}), Timing(*timing))
    assert len(slots) == n_slots
    assert all(day_s > 0 for day_s, _ in slots)


def test_a_reserved_pair_shares_with_nobody():
    """Its circuit stands in every slot, and the other pairs share the rest."""
    fabric = full(4, 2)
    pinned = path(0, 1, circuit(fabric, 0, 2))
    demand = demand_of(4, {(0, 1): 90.0, (0, 2): 90.0, (0, 3): 90.0})
    slots, topologies_ = week(
        fabric, demand, current=topology_of(pinned), reserved=Reserved(((pinned, 40.0),))
    )
    assert [pairs for _, pairs in slots] == [{(0, 1), (0, 3)}, {(0, 1), (0, 2)}]
    assert all(pinned in topology.paths for topology in topologies_)


def test_ports_that_are_blocked_are_left_out():
    fabric = full(3, 2)
    demand = demand_of(3, {(0, 1): 90.0, (0, 2): 90.0})
    assert len(week(fabric, demand)[0]) == 1, "two ports, two pairs"
    assert len(week(fabric, demand, blocked_ports=frozenset({0}))[0]) == 2


def test_what_nobody_needs_the_ports_of_stays():
    """Three pairs on two planes: the second slot needs only one of them."""
    slots, topologies_ = week(full(3, 2), demand_of(3, {(0, 1): 9, (0, 2): 9, (1, 2): 9}))
    assert len(slots) == 2
    kept = topologies_[0].circuits & topologies_[1].circuits
    assert len(kept) == 1


def test_racks_with_ports_of_two_rates_are_refused():
    fabric = arrays(2, 2, [(0, 0, 100.0), (0, 1, 40.0), (1, 0, 100.0), (1, 1, 100.0)])
    with pytest.raises(PlanError, match="the same rate"):
        plan_tms_duplex(fabric, demand_of(2, {(0, 1): 1.0}), EMPTY_TOPOLOGY, Reserved(), Budget(1))


def test_time_is_up_before_the_first_slot():
    slots, _ = week(full(4, 1), demand_of(4, {(0, 1): 90.0}), expired=lambda: True)
    assert slots == [(10.0, set())]


@settings(max_examples=60)
@given(
    n_racks=st.integers(2, 7),
    n_planes=st.integers(1, 3),
    kind=st.sampled_from(["sparse", "gravity", "dense"]),
    seed=st.integers(0, 99),
    shortest_s=st.sampled_from([0.0, 0.5, 2.0]),
)
def test_any_demand_makes_a_sound_week(n_racks, n_planes, kind, seed, shortest_s):
    timing = Timing(10.0, 0.1, shortest_s)
    demand = synthetic_demand(kind, n_racks, seed, 150.0)
    slots, _ = week(full(n_racks, n_planes), demand, timing)
    if len(slots) > 1:
        assert sum(day_s + 0.1 for day_s, _ in slots) == pytest.approx(timing.window_s)
        assert min(day_s for day_s, _ in slots) + 0.1 >= shortest_s * 0.999
