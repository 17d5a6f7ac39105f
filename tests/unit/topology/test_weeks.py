"""VLANs for a schedule that repeats."""

from dataclasses import replace

import pytest

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, NetworkState, VlanId, VlanRange
from tests.unit.core.fabrics import (
    circuit_between,
    openflow_only,
    path_of,
    small_fabric,
    state_of,
    topology_of,
)
from topology.marks import marks_of
from topology.weeks import week_states

FABRIC = small_fabric(racks=4, planes=2)
FIRST = path_of(FABRIC, 0, 1)
SECOND = path_of(FABRIC, 2, 3)
OTHER = path_of(FABRIC, 0, 2)
ALWAYS = path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, plane=1))
WEEK = [topology_of(FIRST, SECOND), topology_of(OTHER), topology_of(FIRST, SECOND)]


def test_a_path_has_one_vlan_all_week():
    states = week_states(marks_of(FABRIC), NetworkState(), WEEK)
    assert states[0].vlans == states[2].vlans
    assert [state.topology for state in states] == WEEK
    assert states[1].vlans[OTHER] not in states[0].vlans.values()


def test_the_week_s_vlans_are_nobody_else_s():
    """The IDs rest while they are not in use: an ordinary change takes other IDs."""
    states = week_states(marks_of(FABRIC), NetworkState(), WEEK)
    everything = {vlan for state in states for vlan in state.vlans.values()}
    for state in states:
        assert state.pool.resting == everything.difference(state.vlans.values())
        after = state_of(FABRIC, state, path_of(FABRIC, 1, 3))
        assert everything.isdisjoint(after.vlans.values())


@pytest.mark.parametrize("fabric", [FABRIC, openflow_only(FABRIC)], ids=["vlans", "labels"])
def test_no_path_joins_a_vlan_that_another_leaves(fabric):
    states = week_states(marks_of(fabric), NetworkState(), WEEK[:2])
    marks = marks_of(fabric)
    for old, new in (states, states[::-1]):
        order = marks.order(old, new)
        assert not marks.problems(new)
        assert not marks.transit_problems(old, new, order.disconnect_first, order.connect_last)
        left = {vlan for path, vlan in old.vlans.items() if path not in new.vlans}
        assert left.isdisjoint(new.vlans.values())


def test_what_stands_all_week_keeps_its_vlan():
    current = state_of(FABRIC, NetworkState(), ALWAYS, path_of(FABRIC, 1, 2))
    week = [topology_of(ALWAYS, SECOND), topology_of(ALWAYS, OTHER)]
    states = week_states(marks_of(FABRIC), current, week)
    assert all(state.vlans[ALWAYS] == current.vlans[ALWAYS] for state in states)
    others = {vlan for state in states for path, vlan in state.vlans.items() if path != ALWAYS}
    assert others.isdisjoint(current.vlans.values())


def test_week_after_week_the_range_suffices():
    """The IDs of the week before last are free again."""
    state = NetworkState()
    for number in range(200):
        week = [topology_of(path_of(FABRIC, 0, 1 + (number + i) % 3)) for i in range(2)]
        state = week_states(marks_of(FABRIC), state, week)[-1]
    assert len(state.pool.resting) <= 4


def test_where_others_are_too_few_weeks_take_ids_at_rest_and_none_in_use():
    """Three IDs suffice for two slots over many weeks, with one slot standing."""
    few = replace(FABRIC, circuit_vlans=VlanRange(VlanId(100), VlanId(102)))
    state = NetworkState()
    for _ in range(5):
        first, *_, last = week_states(marks_of(few), state, WEEK[:2])
        assert {*first.vlans.values(), *last.vlans.values()}.isdisjoint(state.vlans.values())
        state = last


def test_a_range_that_is_too_small():
    small = replace(FABRIC, circuit_vlans=VlanRange(VlanId(100), VlanId(100)))
    with pytest.raises(PlanError, match="widen the range"):
        week_states(marks_of(small), NetworkState(), WEEK)


def test_a_week_of_nothing():
    (state,) = week_states(marks_of(FABRIC), NetworkState(), [EMPTY_TOPOLOGY])
    assert (state.topology, state.vlans) == (EMPTY_TOPOLOGY, {})
