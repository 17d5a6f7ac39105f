"""Circuits in the way of new paths: waiting pairs by circuit, and circles of pairs.

A pair can take up its new path once other pairs have freed the ports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from importlib import import_module
from itertools import chain
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, NetworkState, Topology

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]
Number = int
"""Number of a moving pair, or of a circuit to remove."""


class PortConflicts:
    """Circuits to remove, on ports needed by new paths.

    Pairs are many, and circuits few: a pair waits for circuits, and so for all users of the
    circuits.
    """

    def __init__(
        self, *, current: NetworkState, target: NetworkState, number_of: Numbers, pairs: int
    ) -> None:
        """``number_of``: pair number by racks, shape (N, N); ``pairs``: number of pairs."""
        self.pairs = pairs
        going = sorted(
            current.topology.circuits - target.topology.circuits,
            key=attrgetter("plane", "a", "b"),
        )
        self._circuits = going
        # No two circuits of a topology share the first port, so the first port is a fast key.
        now, now_at = _hops(current.topology, number_of)
        then, then_at = _hops(target.topology, number_of)
        ports = 1 + max(now_at.max(initial=0), then_at.max(initial=0))
        going_at = np.full(ports, -1, dtype=np.intp)
        for number, circuit in enumerate(going):
            going_at[circuit.a : circuit.a + 1] = number  # beyond ``ports``: unused
        used = going_at[now_at]
        users, used = _entries(now[used >= 0], used[used >= 0])
        in_use = set(used.tolist())
        at_half = {half: number for number, circuit in enumerate(going) for half in circuit.halves}
        blocked_by = np.full((2, ports), -1, dtype=np.intp)
        for circuit in target.topology.circuits - current.topology.circuits:
            pair_circuits = {at_half[half] for half in circuit.halves if half in at_half} & in_use
            if pair_circuits and circuit.a < ports:
                blocked_by[: len(pair_circuits), circuit.a] = list(
                    pair_circuits
                )  # at most one at each end
        awaited = blocked_by[:, then_at]
        there = awaited >= 0
        self._waiting, self._awaited = _entries(np.tile(then, (2, 1))[there], awaited[there])
        """Pairs with a new path, and used circuits in their way."""
        wanted = np.zeros(len(going) + 1, dtype=np.bool_)
        wanted[self._awaited] = True
        self._users, self._used = users[wanted[used]], used[wanted[used]]
        """Pairs, and awaited circuits under their paths."""
        self._before = _Lists(self._waiting, self._awaited, pairs)
        self._waiting_for = _Lists(self._awaited, self._waiting, len(going))
        self._using = _Lists(self._users, self._used, pairs)
        self._users_of = _Lists(self._used, self._users, len(going))

    @cached_property
    def _numbers(self) -> dict[Circuit, int]:
        return {circuit: number for number, circuit in enumerate(self._circuits)}

    @property
    def number(self) -> int:
        """Number of circuits to remove; a circuit in no pair's way has no :meth:`edges`."""
        return len(self._circuits)

    @cached_property
    def _blockers(self) -> csr_array:
        """Sparse matrix of :meth:`users_before`: a row for each pair."""
        shape = self.pairs, len(self._circuits)
        before = _incidence(self._waiting, self._awaited, shape)
        using = _incidence(self._users, self._used, shape)
        found: csr_array = _sparse().csr_array(before @ using.T)
        found.data[:] = 1
        return found

    def users_before(self, pair: Number) -> list[Number]:
        """Users of the circuits in the pair's way, possibly including the pair."""
        ends = self._blockers.indptr[pair : pair + 2]
        found: list[Number] = self._blockers.indices[ends[0] : ends[1]].tolist()
        return found

    def sums_before(self, load_mbps: Floats) -> Floats:
        """By pair: summed loads of the other users of the circuits in the pair's way."""
        own_mbps = self._blockers.diagonal() * load_mbps
        sums: Floats = self._blockers @ load_mbps - own_mbps
        return sums

    def before(self, pair: Number) -> set[Circuit]:
        """Circuits in the pair's way."""
        return {self._circuits[number] for number in self._before[pair]}

    def circuits(self) -> list[Circuit]:
        """Circuits in any pair's way."""
        return [self._circuits[number] for number in sorted(set(self._awaited.tolist()))]

    def users_of(self, circuits: Iterable[Circuit]) -> set[Number]:
        """All pairs using ``circuits``, a part of :meth:`circuits`."""
        return set().union(*(self._users_of[self._numbers[circuit]] for circuit in circuits))

    def waiting(self, circuit: int) -> Sequence[Number]:
        """Pairs waiting for the circuit."""
        return self._waiting_for[circuit]

    def edges(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(predecessors, successors): users before circuits, circuits before waiting pairs.

        Circuits are numbered after :attr:`pairs`.
        """
        before = np.concatenate([self._users, self.pairs + self._awaited])
        return before, np.concatenate([self.pairs + self._used, self._waiting])

    def remaining_users(self) -> list[int]:
        """Number of users of each circuit, for :meth:`let_go`."""
        remaining: list[int] = np.bincount(self._used, minlength=len(self._circuits)).tolist()
        return remaining

    def let_go(self, pairs: Iterable[Number], remaining: list[int]) -> list[int]:
        """Subtract leaving ``pairs`` from ``remaining``, the users of each circuit. Returns the
        touched circuits with at most one user.
        """
        touched = set()
        for pair in pairs:
            for circuit in self._using[pair]:
                remaining[circuit] -= 1
                touched.add(circuit)
        return [circuit for circuit in sorted(touched) if remaining[circuit] <= 1]

    def of_none(self, pairs: Collection[Number], remaining: Sequence[int]) -> bool:
        """True if the circuits in the way of ``pairs`` are used only by ``pairs``."""
        if len(pairs) == 1:  # the usual case
            (pair,) = pairs
            using = self._using[pair]
            return all(remaining[circuit] == (circuit in using) for circuit in self._before[pair])
        before = {circuit for pair in pairs for circuit in self._before[pair]}
        pair_circuits = Counter(circuit for pair in pairs for circuit in self._using[pair])
        return all(remaining[circuit] == pair_circuits[circuit] for circuit in before)


class Circles:
    """Sets of pairs that need each other's ports; every remaining pair is a set of one pair."""

    def __init__(
        self, in_the_way: PortConflicts, arriving: Sequence[Number], gain_mbps: Floats
    ) -> None:
        before, after = in_the_way.edges()
        nodes = in_the_way.pairs + in_the_way.number
        joined = np.ones(len(before), dtype=np.int8), (before, after)
        graph = _sparse().csr_array(joined, (nodes, nodes))
        circles, circle_of = _sparse().csgraph.connected_components(graph, connection="strong")
        pairs = np.union1d(np.array(arriving, dtype=np.intp), before[before < in_the_way.pairs])
        order = np.argsort(circle_of[pairs], kind="stable")
        self._pairs: list[Number] = pairs[order].tolist()
        places = np.arange(circles + 1)
        self._starts = np.searchsorted(circle_of[pairs][order], places).tolist()
        self._gain_mbps = np.bincount(circle_of[pairs], gain_mbps[pairs], circles).tolist()
        both = circle_of[before].astype(np.int64) * circles + circle_of[after]
        first, then = np.divmod(np.unique(both), circles)
        first, then = first[first != then], then[first != then]
        self._after = then.tolist()
        self._first_after = np.searchsorted(first, places).tolist()
        self._before = np.bincount(then, minlength=circles)

    def _members(self, circle: int) -> list[Number]:
        return self._pairs[self._starts[circle] : self._starts[circle + 1]]

    def all(self) -> Iterator[list[Number]]:
        return filter(None, map(self._members, range(len(self._gain_mbps))))

    def turns(self) -> Generator[list[Number], bool]:
        """Yield circles that wait for no remaining circle, largest gain first.

        Send True for a circle that goes, False otherwise.
        """
        missing = self._before.tolist()
        free = [self._entry(circle) for circle in np.flatnonzero(self._before == 0).tolist()]
        heapify(free)
        while free:
            *_, circle = heappop(free)
            # A lone circuit is no circle: waiting pairs may go as soon as its users have gone.
            members = self._members(circle)
            if members and not (yield members):
                continue
            for other in self._after[self._first_after[circle] : self._first_after[circle + 1]]:
                missing[other] -= 1
                if not missing[other]:
                    heappush(free, self._entry(other))

    def _entry(self, circle: int) -> tuple[bool, float, int, int]:
        start, end = self._starts[circle : circle + 2]
        first = self._pairs[start] if end > start else -1
        return end > start, -self._gain_mbps[circle], first, circle


class _Lists:
    """For each number, the partners in order."""

    def __init__(self, numbers: Numbers, partners: Numbers, most: int) -> None:
        """``partners``: partners of ``numbers``, in order; ``most``: number of possible numbers."""
        order = np.argsort(numbers, kind="stable")
        self._partners: list[int] = partners[order].tolist()
        self._starts: list[int] = np.searchsorted(numbers[order], np.arange(most + 1)).tolist()

    def __getitem__(self, number: int) -> list[int]:
        return self._partners[self._starts[number] : self._starts[number + 1]]


def _hops(topology: Topology, number_of: Numbers) -> tuple[Numbers, Numbers]:
    """(number of the path's pair, first port of the circuit), for all hops of all paths."""
    ends = path_ends(topology)
    along = [path.circuits for path in topology.paths]
    hops = np.fromiter(map(len, along), np.intp, len(along))
    first = np.fromiter(map(attrgetter("a"), chain.from_iterable(along)), np.intp, int(hops.sum()))
    return np.repeat(number_of[ends.min(axis=0), ends.max(axis=0)], hops), first


def path_ends(topology: Topology) -> Numbers:
    """Racks at the start and the end of paths; shape (2, F)."""
    paths = topology.paths
    src = np.fromiter(map(attrgetter("src"), paths), np.intp, len(paths))
    dst = np.fromiter(map(attrgetter("dst"), paths), np.intp, len(paths))
    return np.stack([src, dst])


def _entries(rows: Numbers, columns: Numbers) -> tuple[Numbers, Numbers]:
    """Pairs of numbers in order, each once."""
    width = 1 + int(columns.max(initial=0))
    rows, columns = np.divmod(np.unique(rows * width + columns), width)
    return rows, columns


def _incidence(rows: Numbers, columns: Numbers, shape: tuple[int, int]) -> csr_array:
    """Sparse matrix with ones at the given places."""
    found: csr_array = _sparse().csr_array((np.ones(len(columns)), (rows, columns)), shape)
    return found


def _sparse() -> ModuleType:
    """``scipy.sparse``, loaded only if a change is cut into stages: loading takes a third of a
    second.
    """
    import_module("scipy.sparse.csgraph")
    return import_module("scipy.sparse")


def lowest_first(values: Floats, numbers: NDArray[np.intp]) -> list[Number]:
    """``numbers`` by ascending value; stable for equal values."""
    found: list[Number] = numbers[np.argsort(values[numbers], kind="stable")].tolist()
    return found
