"""Ring orders beside all permutations, and in cases worked out by hand."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topology.ring_order
from topology.ring_order import EXACT_RACKS, RingCost, ring_cost, ring_order


def both_ways(racks: int, *pairs: tuple[int, int]):
    """Paths of one circuit between these racks."""
    hops = np.zeros((racks, racks), dtype=np.int64)
    for a, b in pairs:
        hops[a, b] = hops[b, a] = 1
    return hops


CHAIN = both_ways(4, (0, 1), (1, 2), (2, 3))


@pytest.mark.parametrize(
    ("hops", "hosts", "cost"),
    [
        pytest.param(CHAIN, [1, 1, 1, 1], RingCost(1, 3), id="a chain has two ends"),
        pytest.param(CHAIN, [2, 2, 2, 2], RingCost(0, 6), id="there and back by two hosts each"),
        pytest.param(CHAIN, [1, 2, 2, 1], RingCost(0, 6), id="the ends need one host"),
        pytest.param(CHAIN, [2, 1, 2, 2], RingCost(1, 3), id="no way back through one host"),
        pytest.param(both_ways(4, (0, 2), (2, 1), (1, 3), (3, 0)), [2] * 4, RingCost(0, 4),
                     id="a ring in another order"),
        pytest.param(both_ways(4, (0, 1), (0, 2), (0, 3)), [3, 1, 1, 1], RingCost(0, 6),
                     id="a star by three hosts in the middle"),
        pytest.param(both_ways(4, (0, 1), (2, 3)), [2] * 4, RingCost(2, 2), id="two parts"),
        pytest.param(both_ways(3), [2, 1, 2], RingCost(3, 0), id="no circuits"),
        pytest.param(both_ways(1), [3], RingCost(0, 0), id="one rack"),
    ],
)  # fmt: skip
def test_by_hand(hops, hosts, cost):
    order = ring_order(hops, np.array(hosts))
    assert order.cost == cost == ring_cost(hops, order.racks)
    assert order.fewest == cost.electrical
    assert np.bincount(order.racks).tolist() == hosts


def test_one_way_circuits_are_taken_their_way():
    hops = np.zeros((3, 3), dtype=np.int64)
    hops[0, 2] = hops[2, 1] = hops[1, 0] = 1
    assert ring_order(hops, np.array([1, 1, 1])).cost == RingCost(0, 3)
    assert ring_cost(hops, [0, 1, 2]) == RingCost(3, 0)


def test_short_paths_are_preferred():
    """0, 1, 2, 3 takes 1 + 1 + 1 + 2 circuits, 0, 2, 1, 3 would take 2 + 1 + 2 + 2."""
    hops = both_ways(4, (0, 1), (1, 2), (2, 3))
    for a, b in ((0, 2), (1, 3), (0, 3)):
        hops[a, b] = hops[b, a] = 2
    assert ring_order(hops, np.array([1] * 4)).cost == RingCost(0, 5)


@st.composite
def cases(draw):
    racks = draw(st.integers(1, 5))
    hosts = draw(st.lists(st.integers(1, 3), min_size=racks, max_size=racks))
    while sum(hosts) > 7:
        hosts[hosts.index(max(hosts))] -= 1
    row = st.lists(st.sampled_from([0, 0, 1, 2]), min_size=racks, max_size=racks)
    hops = np.array(draw(st.lists(row, min_size=racks, max_size=racks)), dtype=np.int64)
    if draw(st.booleans()):
        hops = np.maximum(hops, hops.T)
    np.fill_diagonal(hops, 0)
    return hops, np.array(hosts)


def best_of_all(hops, hosts):
    places = np.repeat(np.arange(len(hosts)), hosts).tolist()
    return min(ring_cost(hops, (places[0], *rest)) for rest in set(permutations(places[1:])))


@given(cases())
def test_few_racks_get_the_best_of_all_orders(case):
    hops, hosts = case
    order = ring_order(hops, hosts)
    assert np.bincount(order.racks).tolist() == hosts.tolist()
    assert order.cost == ring_cost(hops, order.racks) == best_of_all(hops, hosts)
    assert order.fewest == order.cost.electrical


@given(cases())
def test_the_heuristic_knows_a_bound(case):
    hops, hosts = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology.ring_order, "EXACT_RACKS", 0)
        order = ring_order(hops, hosts)
    assert np.bincount(order.racks).tolist() == hosts.tolist()
    assert order.cost == ring_cost(hops, order.racks)
    assert order.fewest <= best_of_all(hops, hosts).electrical


def test_many_racks_in_a_chain_of_two_hosts_each():
    """The cheapest circulation is in pairs of racks; each joint costs two circuits more."""
    racks = 2 * EXACT_RACKS
    hops = both_ways(racks, *((one, one + 1) for one in range(racks - 1)))
    order = ring_order(hops, np.full(racks, 2))
    assert (order.cost, order.fewest) == (RingCost(0, 2 * (racks - 1)), 0)
