"""Labels of paths where ToRs forward by label."""

import random
from dataclasses import replace

import pytest

from hydra.errors import PlanError
from hydra.model import NetworkState, VlanId, VlanRange
from hydra.vlan_pool import VlanPool
from tests.unit.core.fabrics import (
    circuit_between,
    first_state,
    openflow_only,
    path_of,
    random_fabric,
    random_state,
    small_fabric,
    topology_of,
)
from topology.checks import check_labels
from topology.labels import assign_labels
from topology.marks import marks_of

FABRIC = small_fabric(racks=4, planes=2)
LABELS = VlanRange(VlanId(100), VlanId(109))
ONE, OTHER = circuit_between(FABRIC, 0, 1, 0), circuit_between(FABRIC, 1, 2, 1)
DIRECT, ALONG = path_of(FABRIC, 0, 1, ONE), path_of(FABRIC, 1, 2, OTHER)
RELAYED = path_of(FABRIC, 0, 2, ONE, OTHER)


def assigned(*paths, after=None):
    return assign_labels(after or NetworkState(), topology_of(*paths), LABELS)


def test_paths_over_one_circuit_differ_and_others_share():
    state = assigned(DIRECT, ALONG, RELAYED)
    assert state.vlans == {RELAYED: 100, DIRECT: 101, ALONG: 101}
    assert check_labels(state, LABELS) == []


def test_loops_are_no_concern():
    ring = [path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3), path_of(FABRIC, 0, 3)]
    ring[2] = path_of(FABRIC, 0, 3, circuit_between(FABRIC, 0, 3, 1))
    ring.append(path_of(FABRIC, 1, 2, circuit_between(FABRIC, 1, 2, 1)))
    assert set(assigned(*ring).vlans.values()) == {100}


def test_a_path_keeps_its_label_and_a_label_given_up_rests_for_an_epoch():
    first = assigned(DIRECT, RELAYED)
    second = assigned(DIRECT, ALONG, after=first)
    assert second.vlans == {DIRECT: first.vlans[DIRECT], ALONG: 101}
    assert second.pool.resting == {first.vlans[RELAYED]} == {100}
    third = assigned(DIRECT, ALONG, RELAYED, after=second)
    assert third.vlans[RELAYED] == 102, "101 is on its circuits, 100 rests"
    elsewhere = path_of(FABRIC, 0, 3)
    fourth = assigned(DIRECT, ALONG, elsewhere, after=third)
    assert (fourth.vlans[elsewhere], fourth.pool.resting) == (101, {102}), (
        "others have lost 100, 102"
    )


def test_what_was_lost_the_longest_ago_is_taken_first_once_all_were_in_use():
    state, taken = NetworkState(), []
    for number in range(2 * len(LABELS)):
        state = assigned((DIRECT, ALONG)[number % 2], after=state)
        taken += state.vlans.values()
    assert taken == [*range(100, 110)] * 2
    shares = assigned(ALONG, path_of(FABRIC, 0, 3), after=state)
    assert set(shares.vlans.values()) == {109}
    then = assigned(ALONG, after=shares)
    again = assigned(ALONG, path_of(FABRIC, 0, 3), after=then)
    assert set(again.vlans.values()) == {109, 100}, "109 is in use, and was lost just now"


def test_where_others_are_too_few_those_at_rest_are_taken_the_longest_lost_first():
    labels = VlanRange(VlanId(100), VlanId(102))
    rest = NetworkState(
        pool=VlanPool(frozenset(map(VlanId, (100, 101, 102))), (VlanId(101), VlanId(100)))
    )
    state = assign_labels(rest, topology_of(DIRECT, RELAYED), labels)
    assert state.vlans == {RELAYED: 101, DIRECT: 100}
    others = replace(rest, pool=rest.pool.closed_to({VlanId(101), VlanId(102)}))
    with pytest.raises(PlanError, match="does not suffice"):
        assign_labels(others, topology_of(DIRECT, RELAYED), labels)


def test_two_labels_serve_for_ever_where_one_is_in_use():
    labels, state = VlanRange(VlanId(100), VlanId(101)), NetworkState()
    for number in range(6):
        state = assign_labels(state, topology_of((DIRECT, ALONG)[number % 2]), labels)
    assert set(state.vlans.values()) == {101}


def test_a_range_too_small_is_named():
    labels = VlanRange(VlanId(100), VlanId(100))
    with pytest.raises(
        PlanError, match=r"range 100-100 does not suffice: paths over .* path 0-1 .* widen"
    ):
        assign_labels(NetworkState(), topology_of(DIRECT, RELAYED), labels)


def test_the_check_finds_what_it_should():
    state = assigned(DIRECT, ALONG, RELAYED)
    clash = NetworkState(1, state.topology, {**state.vlans, RELAYED: VlanId(101)})
    assert [p.partition(" stands")[0] for p in check_labels(clash, LABELS)] == [
        f"label 101 on {ONE}",
        f"label 101 on {OTHER}",
    ]
    outside = NetworkState(1, state.topology, {**state.vlans, RELAYED: VlanId(9)})
    assert check_labels(outside, LABELS) == ["VLAN 9 of path 0-2 is outside 100-109"]
    missing = NetworkState(1, state.topology, {DIRECT: VlanId(100), ALONG: VlanId(100)})
    assert check_labels(missing, LABELS) == ["path 0-2 has no VLAN"]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_changes_labels_are_sound(seed):
    rng = random.Random(seed)
    fabric = openflow_only(random_fabric(rng))
    marks = marks_of(fabric)
    state = first_state(fabric, rng)
    for _ in range(4):
        after = random_state(fabric, state, rng)
        order = marks.order(state, after)
        assert (order.disconnect_first, order.connect_last) == (frozenset(), frozenset())
        assert marks.problems(after) == []
        assert marks.transit_problems(state, after, (), ()) == []
        state = after


def test_a_label_taken_over_in_the_same_change_is_found():
    marks = marks_of(openflow_only(FABRIC))
    before = assigned(DIRECT)
    after = NetworkState(2, topology_of(ALONG), {ALONG: VlanId(100)})
    assert marks.transit_problems(before, after, (), ()) == [
        "label 100 of path 1-2 is being released by a different path"
    ]
