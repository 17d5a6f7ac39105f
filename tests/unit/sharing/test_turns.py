"""Circuits in turns: every pair gets a circuit, and no pair twice before all others."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.sharing.turns import Turns
from topology.problem import RATE_TOLERANCE_MBPS


def wanting(racks, *pairs):
    mask = np.zeros((racks, racks), dtype=bool)
    for src, dst in pairs:
        mask[src, dst] = True
    return mask


def first(weights):
    return tuple(int(i) for i in np.unravel_index(weights.argmax(), weights.shape))


def test_who_waits_longest_weighs_most():
    turns, mask = Turns(), wanting(4, (0, 1), (2, 1), (3, 0))
    seen = []
    for _ in range(6):
        chosen = first(turns.demand(mask))
        seen.append(chosen)
        turns.serve([chosen])
    assert sorted(seen[:3]) == [(0, 1), (0, 3), (1, 2)]
    assert seen[3:] == seen[:3]


def test_one_direction_is_enough_and_both_get_the_same():
    weights = Turns().demand(wanting(3, (2, 0)))
    assert weights[2, 0] == weights[0, 2] == 1
    assert weights.sum() == 2


def test_directions_of_one_way_circuits_take_turns_by_themselves():
    turns, mask = Turns(one_way=True), wanting(3, (2, 0), (0, 2), (0, 1))
    seen = []
    for _ in range(6):
        weights = turns.demand(mask)
        assert (weights > 0).tolist() == mask.tolist()
        seen.append(first(weights))
        turns.serve([seen[-1]])
    assert sorted(seen[:3]) == [(0, 1), (0, 2), (2, 0)]
    assert seen[3:] == seen[:3]


@pytest.mark.parametrize("racks", [6, 40])
def test_a_matching_starves_nobody(racks):
    """A pair that conflicts with two compatible pairs, and a rack wanted by all."""
    turns = Turns(slowest_mbps=10_000.0)
    pairs = [(2, 3), (2, 4), (3, 5), *((0, other) for other in range(1, racks) if other != 0)]
    mask, waited = wanting(racks, *pairs), dict.fromkeys(pairs, 0)
    for _ in range(4 * racks):
        weights = turns.demand(mask)
        assert weights[mask].min() > RATE_TOLERANCE_MBPS
        assert weights.max() <= 10_000.0
        graph = nx.Graph()
        graph.add_weighted_edges_from((a, b, weights[a, b]) for a, b in pairs)
        chosen = {(min(pair), max(pair)) for pair in nx.max_weight_matching(graph)}
        turns.serve(chosen)
        waited = {pair: 0 if pair in chosen else waited[pair] + 1 for pair in pairs}
        assert max(waited.values()) <= 2 * racks


def test_weights_are_what_the_slowest_port_carries_at_most():
    turns = Turns(slowest_mbps=2.0)
    assert turns.demand(wanting(5, (0, 1), (0, 2), (0, 3), (0, 4))).max() == 2.0


def test_nobody_wants_anything():
    assert not Turns().demand(wanting(3)).any()


@given(st.integers(3, 8), st.integers(1, 3), st.randoms())
def test_nobody_starves(racks, circuits, random):
    """With room for some circuits, each pair has had its turn after the least number of epochs."""
    turns = Turns()
    every = [(a, b) for a in range(racks) for b in range(a + 1, racks)]
    pairs = random.sample(every, random.randint(1, len(every)))
    mask = wanting(racks, *pairs)
    served = set()
    for _ in range(-(-len(pairs) // circuits)):
        weights = turns.demand(mask)
        chosen = sorted(pairs, key=lambda pair: -weights[pair])[:circuits]
        turns.serve(chosen)
        served.update(chosen)
    assert served == set(pairs)
