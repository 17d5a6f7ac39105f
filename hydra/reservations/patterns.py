"""Patterns of shapes: the pairs of racks that a ring, a torus or a tree joins.

Edges come in rounds; in a round, no rack occurs twice. Admission gives an edge the first plane that
is free at both ends, so each round fits on a plane of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import Final

from hydra.errors import AdmissionError

Edge = tuple[int, int]
"""Positions of two racks in the list of the shape's racks."""

PATTERNS: Final = ("ring", "torus:AxBxC", "all-to-all", "tree", "pairs")
MOST_EDGES: Final = 10_000
"""Largest number of edges of a shape."""
_TORUS: Final = re.compile(r"torus:([0-9]{1,4}(?:x[0-9]{1,4})*)")
_LEAST: Final = {"ring": 3, "all-to-all": 2, "tree": 2, "pairs": 2}
"""Number of racks that a pattern needs."""


def edges_of(pattern: str, racks: int) -> list[Edge]:
    """Edges of ``pattern`` among ``racks`` racks, in rounds.

    Raises AdmissionError for an unknown pattern, and for a number of racks that does not suit.
    """
    if (torus := _TORUS.fullmatch(pattern)) is not None:
        return _torus(pattern, [int(length) for length in torus[1].split("x")], racks)
    if pattern not in _LEAST:
        raise AdmissionError(f"there is no pattern {pattern!r}, but {', '.join(PATTERNS)}")
    if racks < _LEAST[pattern]:
        raise AdmissionError(
            f"the pattern {pattern} needs {_LEAST[pattern]} racks or more, and {racks} are given: "
            "name more racks"
        )
    if pattern == "all-to-all" and racks * (racks - 1) // 2 > MOST_EDGES:
        raise AdmissionError(
            f"all-to-all among {racks} racks are {racks * (racks - 1) // 2} pairs, and a shape has "
            f"{MOST_EDGES} at most: name fewer racks"
        )
    if pattern == "ring":
        return list(chain(*_circle(racks)))
    if pattern == "all-to-all":
        return _all_to_all(racks)
    if pattern == "tree":  # each rack's edge to its parent in a binary tree, from the root on
        return [((rack - 1) // 2, rack) for rack in range(1, racks)]
    if racks % 2:
        raise AdmissionError(
            f"the pattern pairs needs an even number of racks, and {racks} are given: name one "
            "more, or one less"
        )
    return [(rack, rack + 1) for rack in range(0, racks, 2)]


def _circle(length: int) -> Iterator[list[Edge]]:
    """Rounds of a circle; two racks have a single edge."""
    if length == 2:
        yield [(0, 1)]
    elif length > 2:
        even = length - length % 2
        yield [(place, place + 1) for place in range(0, even, 2)]
        yield [(place, (place + 1) % length) for place in range(1, even, 2)]
        if length % 2:
            yield [(length - 1, 0)]


def _torus(pattern: str, lengths: Sequence[int], racks: int) -> list[Edge]:
    """A circle along each dimension; the last dimension varies fastest."""
    if prod(lengths) != racks or racks < 2:
        fits = f", or write {_nearest(racks, len(lengths))}" if racks > 1 else ""
        raise AdmissionError(
            f"{pattern} needs {prod(lengths)} racks, and {racks} are given: the lengths multiply "
            f"to the number of racks; name {prod(lengths)} racks{fits}"
        )
    edges = []
    step = racks
    for length in lengths:
        step //= length
        firsts = [rack for rack in range(racks) if rack // step % length == 0]
        for matching in _circle(length):
            edges += [(base + a * step, base + b * step) for a, b in matching for base in firsts]
    return edges


def _nearest(racks: int, dimensions: int) -> str:
    """The torus of a number of racks with lengths as even as its divisors allow."""
    lengths = []
    for left in range(dimensions, 0, -1):
        divisors = (length for length in range(1, racks + 1) if racks % length == 0)
        lengths.append(min(divisors, key=lambda length: abs(length**left - racks)))
        racks //= lengths[-1]
    return f"torus:{'x'.join(map(str, sorted(lengths, reverse=True)))}"


def _all_to_all(racks: int) -> list[Edge]:
    """Every pair, in the rounds of a tournament by the circle method.

    The order of the rounds is scattered: beyond the number of planes, edges go over the circuits of
    the first rounds, and scattered rounds leave shorter paths than successive rounds.
    """
    turning = racks - 1 + racks % 2
    edges = []
    for turn in sorted(range(turning), key=lambda turn: turn * turn * 40503 % 65521):
        edges += [] if racks % 2 else [(turn, turning)]
        aways = range(1, (turning + 1) // 2)
        edges += [((turn + away) % turning, (turn - away) % turning) for away in aways]
    return edges
