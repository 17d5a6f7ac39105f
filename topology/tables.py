"""Circuits and paths as arrays, and back: for topologies of a hundred thousand paths."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, Path

IntArray = NDArray[np.int32]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """F paths, one after the other; the hops of path i are ``start[i] : start[i + 1]``."""

    src: IntArray
    """Shape (F,)."""
    dst: IntArray
    start: IntArray
    """Shape (F + 1,)."""
    hop_a: IntArray
    """Shape (all hops,): the lower port of each hop's circuit, which identifies the circuit."""
    hop_b: IntArray

    @classmethod
    def of(cls, paths: Sequence[Path]) -> PathTable:
        circuits = [path.circuits for path in paths]
        hops = list(chain.from_iterable(circuits))
        return cls(
            src=_column(map(attrgetter("src"), paths), len(paths)),
            dst=_column(map(attrgetter("dst"), paths), len(paths)),
            start=starts(_column(map(len, circuits), len(paths))),
            hop_a=_column(map(attrgetter("a"), hops), len(hops)),
            hop_b=_column(map(attrgetter("b"), hops), len(hops)),
        )

    @property
    def hops(self) -> IntArray:
        """Shape (F,): number of circuits of each path."""
        hops: IntArray = np.diff(self.start)
        return hops

    def any_hop(self, of_hop: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Shape (F,): True for paths with any hop that is True in ``of_hop``."""
        if not of_hop.size:
            return np.zeros(len(self.src), dtype=np.bool_)
        path = np.repeat(np.arange(len(self.src)), self.hops)
        return np.bincount(path[of_hop], minlength=len(self.src)) > 0


def starts(lengths: IntArray) -> IntArray:
    """Start of each list, and the end, when lists of these lengths are put one after the other."""
    result = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=result[1:])
    return result


def ranked(keys: IntArray, size: int) -> IntArray:
    """Positions of the keys in ascending order of the keys, which are below ``size``.

    Negative keys are left out, equal ones stay in order. Keys that are all different, as they
    nearly always are, need no sorting.
    """
    at = np.full(size, -1, dtype=np.int32)
    valid = np.flatnonzero(keys >= 0).astype(np.int32)
    at[keys[valid]] = valid
    found: IntArray = at[at >= 0]
    if len(found) == len(valid):
        return found
    return valid[np.argsort(keys[valid], kind="stable")]


def _column(values: Iterable[int], count: int) -> IntArray:
    return np.fromiter(values, np.int32, count)


def end_ports(circuits: Collection[Circuit]) -> tuple[IntArray, IntArray]:
    """The lower and the higher port of each circuit, in the order of iteration."""
    lower = _column(map(attrgetter("a"), circuits), len(circuits))
    return lower, _column(map(attrgetter("b"), circuits), len(circuits))


def in_order(circuits: Collection[Circuit]) -> list[Circuit]:
    """``sorted(circuits)``, without a comparison in Python for each step."""
    listed = list(circuits)
    lower, higher = end_ports(listed)
    plane = _column(map(attrgetter("plane"), listed), len(listed))
    return [listed[i] for i in np.lexsort((higher, lower, plane)).tolist()]


def make_circuits(
    plane: IntArray, a: IntArray, b: IntArray, known: Iterable[Circuit]
) -> list[Circuit]:
    """Circuits between ports ``a`` < ``b`` on ``plane``; ``known`` ones are the same objects."""
    made = _make(Circuit, len(a), plane=plane.tolist(), a=a.tolist(), b=b.tolist())
    again = {(circuit.a, circuit.b): circuit for circuit in known}
    if not again:
        return made
    return [again.get((circuit.a, circuit.b), circuit) for circuit in made]


def make_paths(
    src: IntArray, dst: IntArray, hops: IntArray, links: IntArray, circuits: Sequence[Circuit]
) -> list[Path]:
    """Paths over ``circuits``; row i of ``links`` (F, H) names the ``hops[i]`` hops of path i."""
    place = np.empty(len(hops), dtype=np.intp)
    place[np.argsort(hops.astype(np.int16), kind="stable")] = np.arange(len(hops))
    with _no_cycles():
        by_hops: list[tuple[Circuit, ...]] = []
        for count in range(1, links.shape[1] + 1):
            columns = links[hops == count, :count].T.tolist()
            by_hops += zip(*(map(circuits.__getitem__, column) for column in columns), strict=True)
        along = map(by_hops.__getitem__, place.tolist())
        return _make(Path, len(hops), src=src.tolist(), dst=dst.tolist(), circuits=along)


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Pause the garbage collector: it would double the time, and find none in so many objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _make(kind: type[T], count: int, **columns: Iterable[object]) -> list[T]:
    """``count`` frozen, slotted objects, filled a column at a time.

    Calling the class takes four times as long, and planning then spends most of its time there.
    What ``__post_init__`` would check must hold already.
    """
    made = list(map(object.__new__, repeat(kind, count)))
    for name, values in columns.items():
        deque(map(getattr(kind, name).__set__, made, values), maxlen=0)
    return made
