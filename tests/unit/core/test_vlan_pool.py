"""The life of a VLAN-ID: free, in use, at rest, closed to new paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.vlan_pool import RestClock, VlanId, VlanPool, VlanRange, taken_between

RANGE = VlanRange(VlanId(100), VlanId(105))
REST_S = 5.0


def ids(*numbers):
    return frozenset(map(VlanId, numbers))


def pool(resting=(), freed=(), closed=()):
    return VlanPool(ids(*resting), tuple(map(VlanId, freed)), ids(*closed))


def test_ids_that_no_path_ever_lost_come_first_then_those_lost_the_longest_ago():
    assert pool(freed=(103, 100)).in_turn(RANGE) == [101, 102, 104, 105, 103, 100]


def test_ids_that_a_change_which_broke_off_tried_come_last():
    tried = pool(freed=(103, 100)).rested(ids(104))
    assert tried.in_turn(RANGE) == [101, 102, 105, 103, 100, 104]


def test_an_id_in_use_or_at_rest_is_not_free():
    assert pool(resting=(100, 103), freed=(103,)).free(RANGE, ids(101)) == [102, 104, 105]


def test_ids_at_rest_come_in_the_same_order_but_for_closed_ones_and_those_in_use():
    some = pool(resting=(100, 101, 102, 103), freed=(101, 100, 102, 103), closed=(100,))
    assert some.at_rest(RANGE, ids(102)) == [101, 103]
    assert some.spare(ids(102)) == {101, 103}


def test_what_a_change_gives_up_rests_and_what_rested_before_is_free():
    before = pool(resting=(100,), freed=(100,))
    after = before.after(ids(102), rests=ids(101, 102), lost=ids(101), taken=ids(102))
    assert after == pool(resting=(101,), freed=(100, 101))
    assert 100 in after.free(RANGE, ids(102))


def test_an_id_that_is_taken_again_was_not_lost():
    after = pool(freed=(103, 100)).after(ids(100), rests=(), lost=ids(103), taken=ids(100))
    assert after == pool(freed=(103,))


def test_no_change_leads_to_closed_ids():
    closed = pool(freed=(104,)).closed_to(ids(104))
    assert closed == pool(resting=(104,), freed=(104,), closed=(104,))
    assert closed.barred(ids(101)) == pool(resting=(101, 104), freed=(104,), closed=(104,))
    after = closed.after(ids(101), rests=(), lost=(), taken=ids(101))
    for then in (after, closed.used(ids(101)), closed.rested(ids(101))):
        assert then.closed == frozenset()


def test_ids_lost_in_passing_are_handed_out_last_and_go_on_resting():
    assert pool(resting=(101,), freed=(100, 101)).put_last(ids(100)) == pool((101,), (101, 100))


def test_an_id_that_is_used_again_does_not_rest():
    assert pool(resting=(100, 101), freed=(100,)).used(ids(101)) == pool((100,), (100,))


VLANS = st.frozensets(st.sampled_from(range(100, 106)).map(VlanId))
POOLS = st.builds(
    VlanPool, VLANS, st.permutations(range(100, 106)).map(lambda some: tuple(some[:3])), VLANS
)


@given(POOLS, VLANS)
def test_every_id_is_of_one_kind(some, in_use):
    free, at_rest = some.free(RANGE, in_use), some.at_rest(RANGE, in_use)
    assert sorted(some.in_turn(RANGE)) == list(range(100, 106))
    barred = (some.resting & some.closed) - in_use
    kinds = [*free, *at_rest, *in_use, *barred]
    assert sorted(kinds) == list(range(100, 106))


@given(POOLS, VLANS, VLANS, VLANS)
def test_after_a_change_nothing_in_use_rests_and_what_was_lost_comes_last(some, use, lost, taken):
    after = some.after(use, rests=lost | use, lost=lost, taken=taken)
    assert after.resting == lost - use
    assert not set(after.freed) & taken
    last = after.freed[len(after.freed) - len(lost - taken) :] if lost - taken else ()
    assert set(last) <= lost | some.resting


def test_ids_change_hands_with_the_paths_that_take_them():
    before = {"a": VlanId(100), "b": VlanId(100), "c": VlanId(101)}
    after = {"a": VlanId(100), "b": VlanId(102), "d": VlanId(101)}
    assert taken_between(before, after) == {102: {"b"}, 101: {"d"}}
    assert taken_between(after, before) == {100: {"b"}, 101: {"c"}}


A, B = VlanId(100), VlanId(101)


@pytest.fixture
def clock():
    """A clock after path a has lost an ID at 10 s."""
    clock = RestClock()
    assert clock.lose(pool(), before={"a": A}, after={}, now_s=10.0) == pool(freed=(A,))
    return clock


def wait_s(clock, after, now_s, before=(), *, joins=False):
    return clock.wait_s(before=dict(before), after=after, joins=joins, rest_s=REST_S, now_s=now_s)


def test_another_path_waits_until_an_id_has_rested(clock):
    assert wait_s(clock, {"b": A}, 12.0) == 3.0
    assert wait_s(clock, {"b": A}, 15.0) == 0.0
    assert wait_s(clock, {"a": A, "b": A}, 12.0) == 3.0


def test_the_path_that_lost_an_id_gets_it_back_at_once(clock):
    assert wait_s(clock, {"a": A}, 10.0) == 0.0


def test_a_path_may_join_an_id_in_use_where_switches_learn(clock):
    before, after = {"c": A}, {"b": A, "c": A}
    assert wait_s(clock, after, 10.0, before, joins=True) == 0.0
    assert wait_s(clock, after, 10.0, before) == REST_S


def test_the_id_that_was_lost_last_decides(clock):
    later = clock.lose(pool(freed=(A,)), before={"c": B}, after={}, now_s=11.0)
    assert later == pool(freed=(A, B))
    assert wait_s(clock, {"b": A, "d": B, "e": VlanId(102)}, 12.0) == 4.0


def test_a_loss_of_nothing_leaves_the_pool(clock):
    some = pool(resting=(102,))
    assert clock.lose(some, before={"c": B}, after={"c": B}, now_s=11.0) is some


def test_after_a_start_ids_rest_whoever_had_them():
    clock = RestClock(ids(100), 1.0)
    assert wait_s(clock, {"a": A}, 2.0) == 4.0


def test_paths_get_free_ids_in_the_order_of_allocation_as_far_as_there_are_any():
    some = pool(resting=(100,), freed=(101,))
    assert some.assigned("abcd", VlanRange(VlanId(100), VlanId(103)), ids(102)) == {
        "a": 103,
        "b": 101,
    }


def test_ids_abound_while_half_of_a_range_is_free():
    assert pool(resting=(100,)).abounds(RANGE, ids(101, 102))
    assert not pool(resting=(100, 103)).abounds(RANGE, ids(101, 102))


def test_ids_given_up_rest_and_come_last():
    some = pool(freed=(104,))
    assert some.given_up(ids(101)) == pool(resting=(101,), freed=(104, 101))
    assert some.given_up(frozenset()) is some


def test_states_that_take_turns_rest_each_others_ids():
    some = pool(resting=(105,), freed=(104,))
    assert some.shared(ids(100, 101), ids(101)) == pool(resting=(100,), freed=(104,))
