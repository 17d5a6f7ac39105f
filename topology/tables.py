"""Circuits as arrays, and back; paths as arrays are in :mod:`hydra.path_arrays`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter

import numpy as np

from hydra.model import Circuit
from hydra.path_arrays import IntArray, PathTable, column, make, starts

__all__ = ["IntArray", "PathTable", "end_ports", "in_order", "make_circuits", "ranked", "starts"]


def ranked(keys: IntArray, size: int) -> IntArray:
    """Positions of the keys in ascending order of the keys, which are below ``size``.

    Negative keys are left out, equal keys stay in order. All-different keys, the usual case, need
    no sorting.
    """
    at = np.full(size, -1, dtype=np.int32)
    valid = np.flatnonzero(keys >= 0).astype(np.int32)
    at[keys[valid]] = valid
    found: IntArray = at[at >= 0]
    if len(found) == len(valid):
        return found
    return valid[np.argsort(keys[valid], kind="stable")]


def end_ports(circuits: Collection[Circuit]) -> tuple[IntArray, IntArray]:
    """The lower and the higher port of each circuit, in the order of iteration."""
    lower = column(map(attrgetter("a"), circuits), len(circuits))
    return lower, column(map(attrgetter("b"), circuits), len(circuits))


def in_order(circuits: Collection[Circuit]) -> list[Circuit]:
    """``sorted(circuits)``, without a comparison in Python for each step."""
    listed = list(circuits)
    lower, higher = end_ports(listed)
    plane = column(map(attrgetter("plane"), listed), len(listed))
    return [listed[i] for i in np.lexsort((higher, lower, plane)).tolist()]


def make_circuits(
    plane: IntArray, a: IntArray, b: IntArray, known: Iterable[Circuit]
) -> list[Circuit]:
    """Circuits between ports ``a`` < ``b`` on ``plane``; ``known`` circuits are the same
    objects.
    """
    made = make(Circuit, len(a), plane=plane.tolist(), a=a.tolist(), b=b.tolist())
    again = {(circuit.a, circuit.b): circuit for circuit in known}
    if not again:
        return made
    return [again.get((circuit.a, circuit.b), circuit) for circuit in made]
