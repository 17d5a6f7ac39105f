"""Patterns of shapes: joined pairs of racks, and refusals."""

from collections import Counter
from itertools import combinations, pairwise

import pytest

from hydra.errors import AdmissionError
from hydra.reservations.patterns import edges_of


def joined(pattern, racks):
    return sorted(tuple(sorted(edge)) for edge in edges_of(pattern, racks))


def first_fit(edges):
    """Number of planes in use if each edge takes the first plane free at both ends."""
    used = {}
    for one, other in edges:
        taken = used.setdefault(one, set()) | used.setdefault(other, set())
        plane = next(number for number in range(len(edges)) if number not in taken)
        used[one].add(plane)
        used[other].add(plane)
    return 1 + max(max(planes) for planes in used.values())


@pytest.mark.parametrize("racks", [3, 4, 7])
def test_ring(racks):
    around = [tuple(sorted(edge)) for edge in pairwise([*range(racks), 0])]
    assert joined("ring", racks) == sorted(around)


@pytest.mark.parametrize("racks", [2, 5, 8, 16])
def test_all_to_all(racks):
    assert joined("all-to-all", racks) == list(combinations(range(racks), 2))


def test_tree_and_pairs():
    assert joined("tree", 6) == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]
    assert joined("pairs", 4) == [(0, 1), (2, 3)]


def test_torus():
    assert joined("torus:2x2", 4) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert joined("torus:5", 5) == joined("ring", 5)
    assert joined("torus:1x3", 3) == joined("ring", 3)
    edges = joined("torus:4x3x2", 24)
    assert len(edges) == len(set(edges)) == 24 + 24 + 12
    degrees = Counter(end for edge in edges for end in edge)
    assert set(degrees.values()) == {5}
    assert (0, 1) in edges, "the last dimension varies fastest"
    assert (0, 18) in edges, "and the first one is a circle, too"


@pytest.mark.parametrize(
    ("pattern", "racks", "planes"),
    [
        ("ring", 8, 2),
        ("ring", 7, 3),
        ("torus:4x4x4", 64, 6),
        ("torus:2x2x2", 8, 3),
        ("all-to-all", 8, 7),
        ("all-to-all", 9, 9),
        ("all-to-all", 12, 11),
        ("tree", 15, 3),
        ("pairs", 10, 1),
    ],
)
def test_as_few_planes_as_any_order_needs(pattern, racks, planes):
    assert first_fit(edges_of(pattern, racks)) == planes


@pytest.mark.parametrize(
    ("pattern", "racks", "told"),
    [
        ("ring", 2, "ring needs 3 racks or more, and 2 are given"),
        ("tree", 1, "tree needs 2 racks or more"),
        ("all-to-all", 0, "all-to-all needs 2 racks or more"),
        ("all-to-all", 200, "are 19900 pairs, and a shape has 10000 at most"),
        ("pairs", 3, "an even number of racks"),
        ("torus:4x4x2", 31, "torus:4x4x2 needs 32 racks, and 31 are given"),
        ("torus:1x1", 1, "multiply to the number"),
        ("torus:2x3", 4, "name 6 racks, or write torus:2x2"),
        ("torus:2x2x2", 30, "or write torus:5x3x2"),
        ("torus:0x4", 0, "multiply to the number"),
        ("torus:", 4, "there is no pattern 'torus:'"),
        ("torus:2x-2", 4, "there is no pattern"),
        ("star", 4, "but ring, torus:AxBxC, all-to-all, tree, pairs"),
    ],
)
def test_bad_input_is_one_error(pattern, racks, told):
    with pytest.raises(AdmissionError, match=told.replace("(", r"\(")):
        edges_of(pattern, racks)
