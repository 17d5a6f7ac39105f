"""Racks in groups and in blocks, in cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.nearness import Group, block_order, nearest_groups


def rates(racks: int, mbps: dict[tuple[int, int], int]):
    rate = np.zeros((racks, racks), dtype=np.int64)
    for (a, b), one in mbps.items():
        rate[a, b] = rate[b, a] = one
    return rate


def test_the_heaviest_pairs_come_first_and_then_pairs_of_pairs():
    """{0, 1} alone is heavier than {0, 2} or {1, 3} alone, and both together are heavier."""
    rate = rates(5, {(0, 1): 15, (0, 2): 10, (1, 3): 10})
    assert nearest_groups(rate) == [Group((Group((0, 2)), Group((1, 3)))), 4]


def test_all_leaves_of_a_star_are_one_group():
    assert nearest_groups(rates(4, {(0, 1): 1, (0, 2): 1, (0, 3): 1})) == [Group((0, 1, 2, 3))]


@pytest.mark.parametrize(
    ("rate", "order"),
    [
        (rates(4, {(0, 3): 1, (1, 2): 1}), [0, 3, 1, 2]),
        (rates(8, {(0, 4): 9, (1, 5): 9, (2, 6): 9, (3, 7): 9, (4, 6): 1, (5, 7): 1}),
         [0, 4, 2, 6, 1, 5, 3, 7]),
        (rates(5, {(0, 4): 1, (2, 3): 1}), [0, 4, 2, 3, 1]),
        (rates(3, {}), [0, 1, 2]),
        (rates(1, {}), [0]),
    ],
)  # fmt: skip
def test_block_orders(rate, order):
    assert block_order(rate) == order


@st.composite
def any_rates(draw):
    racks = draw(st.integers(0, 12))
    row = st.lists(st.sampled_from([0, 0, 0, 1, 5]), min_size=racks, max_size=racks)
    rate = np.array(draw(st.lists(row, min_size=racks, max_size=racks)), dtype=np.int64)
    rate = rate.reshape(racks, racks)
    return rate + rate.T


def racks_in(group) -> list[int]:
    if not isinstance(group, Group):
        return [group]
    return [rack for member in group.members for rack in racks_in(member)]


def parts_of(rate) -> set[frozenset[int]]:
    """Racks joined by rates, by one search from each rack."""
    parts = set()
    for start in range(len(rate)):
        seen, todo = {start}, [start]
        while todo:
            near = set(np.flatnonzero(rate[todo.pop()]).tolist()) - seen
            seen |= near
            todo += near
        parts.add(frozenset(seen))
    return parts


@given(any_rates())
def test_groups_are_as_far_as_rates_lead(rate):
    groups = [racks_in(group) for group in nearest_groups(rate)]
    assert sorted(rack for group in groups for rack in group) == list(range(len(rate)))
    assert {frozenset(group) for group in groups} == parts_of(rate)


@given(any_rates())
def test_a_block_order_has_every_rack_once(rate):
    assert sorted(block_order(rate)) == list(range(len(rate)))
