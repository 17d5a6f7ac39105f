"""Paths and their VLAN-IDs as arrays, for topologies of a hundred thousand paths.

:class:`Paths` replaces a tuple of paths, :class:`Lanes` a dict of VLAN-IDs by path, :class:`Pairs`
a frozenset of rack pairs. They create objects only on access.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar, cast, overload
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from hydra.circuit_arrays import Circuits, CircuitTable
from hydra.columns import IntArray, column, make, no_cycles, starts
from hydra.model import Circuit, NetworkState, Pair, Path, VlanId

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """F paths in sequence; the hops of path i are ``start[i] : start[i + 1]``."""

    src: IntArray
    """Shape (F,)."""
    dst: IntArray
    start: IntArray
    """Shape (F + 1,)."""
    hop_a: IntArray
    """Shape (all hops,): the lower port of the circuit of each hop, which identifies the
    circuit.
    """
    hop_b: IntArray

    @classmethod
    def of(cls, paths: Sequence[Path]) -> PathTable:
        """The table of ``paths``, in the same order."""
        if isinstance(paths, Paths):
            return paths.table
        circuits = [path.circuits for path in paths]
        hops = list(chain.from_iterable(circuits))
        return cls(
            src=column(map(attrgetter("src"), paths), len(paths)),
            dst=column(map(attrgetter("dst"), paths), len(paths)),
            start=starts(column(map(len, circuits), len(paths))),
            hop_a=column(map(attrgetter("a"), hops), len(hops)),
            hop_b=column(map(attrgetter("b"), hops), len(hops)),
        )

    @property
    def hops(self) -> IntArray:
        """Shape (F,): number of circuits of each path."""
        hops: IntArray = np.diff(self.start)
        return hops

    @property
    def path(self) -> IntArray:
        """Shape (all hops,): index of the path of each hop."""
        return np.repeat(np.arange(len(self.src), dtype=np.int32), self.hops)

    def any_hop(self, of_hop: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Shape (F,): True for paths with a hop that is True in ``of_hop``."""
        if not of_hop.size:
            return np.zeros(len(self.src), dtype=np.bool_)
        return np.bincount(self.path[of_hop], minlength=len(self.src)) > 0

    def pair_codes(self) -> NDArray[np.int64]:
        """Shape (F,): a code of the rack pair of each path, equal for both directions."""
        low, high = np.minimum(self.src, self.dst), np.maximum(self.src, self.dst)
        return low.astype(np.int64) << 32 | high


class Paths(Sequence[Path]):
    """A sequence of paths in arrays; equal to a tuple of the same paths."""

    __slots__ = ("__weakref__", "_found", "_keys", "_made", "circuits", "link", "table")

    circuits: Circuits
    """Circuits of the paths, and possibly further circuits."""
    link: IntArray
    """Shape (all hops,): index in the table of ``circuits`` of the circuit of each hop."""
    table: PathTable

    def __init__(self, circuits: Circuits, link: IntArray, table: PathTable) -> None:
        self.circuits, self.link, self.table = circuits, link, table
        self._made: tuple[Path, ...] | None = None
        self._keys: NDArray[np.uint64] | None = None
        self._found: tuple[ReferenceType[Paths], IntArray] | None = None

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Paths:
        """Convert paths to arrays."""
        if isinstance(paths, Paths):
            return paths
        hops = list(chain.from_iterable(path.circuits for path in paths))
        objects = np.fromiter(map(id, hops), np.int64, len(hops))
        _, first, link = np.unique(objects, return_index=True, return_inverse=True)
        different = CircuitTable.of([hops[place] for place in first.tolist()])
        circuits, place = Circuits.numbered(different)
        made = cls(circuits, place[link.reshape(-1)], PathTable.of(paths))
        made._made = tuple(paths)
        return made

    def __len__(self) -> int:
        return len(self.table.src)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Path, ...]: ...
    def __getitem__(self, index: int | slice) -> Path | tuple[Path, ...]:
        return self._objects()[index]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._objects())

    def __contains__(self, path: object) -> bool:
        return path in self._objects()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Paths | tuple):
            return NotImplemented
        if len(self) != len(other):
            return False
        theirs = Paths.of(other)
        return all(map(np.array_equal, self._columns(), theirs._columns()))

    def __hash__(self) -> int:
        return hash(self._objects())

    def __repr__(self) -> str:
        return repr(self._objects())

    def __reduce__(self) -> tuple[type[Paths], tuple[object, ...]]:
        return Paths, (self.circuits, self.link, self.table)

    def chosen(self, indices: NDArray[np.integer[Any]]) -> list[Path]:
        """The paths at the given indexes; creates no other paths."""
        if self._made is not None:
            return [self._made[place] for place in indices.tolist()]
        return self._make(indices)

    def places_in(self, other: Paths) -> IntArray:
        """Shape (F,), read-only: index of each path in ``other``; -1 for a missing path.

        The last result is kept: a change asks for the places in the current state again and again.
        """
        if not len(self) or not len(other):
            return np.full(len(self), -1, dtype=np.int32)
        found = self._found  # other threads may replace the result at any time
        if found is None or found[0]() is not other:
            places = self._search(other)
            places.setflags(write=False)
            self._found = found = ref(other), places
        return found[1]

    def _search(self, other: Paths) -> IntArray:
        places = np.full(len(self), -1, dtype=np.int32)
        own, theirs = self.keys(), other.keys()
        order = np.argsort(theirs, kind="stable").astype(np.int32)
        at = np.minimum(np.searchsorted(theirs[order], own), len(order) - 1)
        found = order[at]
        alike = np.flatnonzero(theirs[found] == own)
        same = self._same(alike, other, found[alike])
        places[alike[same]] = found[alike[same]]
        unsure = alike[~same]  # different paths with the same key
        if unsure.size:
            place_of = {path: place for place, path in enumerate(other)}
            places[unsure] = [place_of.get(path, -1) for path in self.chosen(unsure)]
        return places

    def _objects(self) -> tuple[Path, ...]:
        if self._made is None:
            self._made = tuple(self._make(np.arange(len(self))))
        return self._made

    def _make(self, indices: NDArray[np.integer[Any]]) -> list[Path]:
        start, hops = self.table.start[indices], self.table.hops[indices]
        place = np.empty(len(indices), dtype=np.intp)
        place[np.argsort(hops.astype(np.int16), kind="stable")] = np.arange(len(indices))
        with no_cycles():
            circuits = self.circuits.listed
            by_hops: list[tuple[Circuit, ...]] = [()] * int((hops == 0).sum())
            for count in range(1, int(hops.max(initial=0)) + 1):
                begins = start[hops == count]
                columns = ((self.link[begins + hop]).tolist() for hop in range(count))
                along = (map(circuits.__getitem__, column) for column in columns)
                by_hops += zip(*along, strict=True)
            return make(
                Path,
                len(indices),
                src=self.table.src[indices].tolist(),
                dst=self.table.dst[indices].tolist(),
                circuits=map(by_hops.__getitem__, place.tolist()),
            )

    def _columns(self) -> tuple[NDArray[Any], ...]:
        table = self.table
        return table.src, table.dst, table.start, table.hop_a, table.hop_b, self._kinds()

    def _kinds(self) -> IntArray:
        """Shape (all hops,): plane and direction type of the circuit of each hop."""
        kinds: IntArray = self.circuits.table.kinds()[self.link]
        return kinds

    def keys(self) -> NDArray[np.uint64]:
        """Shape (F,): a key of each path, mostly unique, ascending with the rack pair."""
        if self._keys is None:
            self._keys = self._hashed()
        return self._keys

    def _hashed(self) -> NDArray[np.uint64]:
        table = self.table
        mixed = table.hop_a.astype(np.uint64) << np.uint64(32) | table.hop_b.astype(np.uint64)
        mixed += np.arange(len(mixed), dtype=np.uint64)
        mixed -= np.repeat(table.start[:-1].astype(np.uint64), table.hops)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        sums = np.zeros(len(mixed) + 1, dtype=np.uint64)
        np.cumsum(mixed, out=sums[1:])
        along = (sums[table.start[1:]] - sums[table.start[:-1]]) >> np.uint64(40)
        ends = table.src.astype(np.uint64) << np.uint64(20) | table.dst.astype(np.uint64)
        return ends << np.uint64(24) | along

    def _same(self, indices: NDArray[Any], other: Paths, there: NDArray[Any]) -> NDArray[np.bool_]:
        """True where a path of ``indices`` equals the path of ``other`` at ``there``."""
        own, theirs = self.table, other.table
        hops = own.hops[indices]
        same: NDArray[np.bool_] = (
            (hops == theirs.hops[there])
            & (own.src[indices] == theirs.src[there])
            & (own.dst[indices] == theirs.dst[there])
        )
        kinds, other_kinds = self._kinds(), other._kinds()
        for hop in range(int(hops[same].max(initial=0))):
            rows = np.flatnonzero(same & (hops > hop))
            my_hops, their_hops = own.start[indices[rows]] + hop, theirs.start[there[rows]] + hop
            same[rows] = (
                (own.hop_a[my_hops] == theirs.hop_a[their_hops])
                & (own.hop_b[my_hops] == theirs.hop_b[their_hops])
                & (kinds[my_hops] == other_kinds[their_hops])
            )
        return same


class Lanes(Mapping[Path, VlanId]):
    """The VLAN-ID of each path, as an array; equal to a dict of the same paths and VLAN-IDs."""

    __slots__ = ("_made", "paths", "vlan")

    paths: Paths
    vlan: IntArray
    """Shape (F,): VLAN-IDs, in the order of ``paths``."""

    def __init__(self, paths: Paths, vlan: IntArray) -> None:
        self.paths, self.vlan = paths, vlan
        self._made: dict[Path, VlanId] | None = None

    @classmethod
    def of(cls, vlans: Mapping[Path, VlanId]) -> Lanes:
        """Convert VLAN-IDs to arrays, in the same order."""
        if isinstance(vlans, Lanes):
            return vlans
        made = cls(Paths.of(tuple(vlans)), column(vlans.values(), len(vlans)))
        made._made = dict(vlans)
        return made

    @property
    def ids(self) -> frozenset[VlanId]:
        """The VLAN-IDs of the paths."""
        return different(self.vlan)

    def unlike(self, other: Lanes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(Mask of ``self``, mask of ``other``), each of shape (F,): True for paths that the other
        side lacks, or has with a different VLAN-ID.
        """
        place = self.paths.places_in(other.paths)
        known = np.flatnonzero(place >= 0)
        theirs = place[known]
        same = self.vlan[known] == other.vlan[theirs]
        unlike = np.ones(len(self), dtype=np.bool_), np.ones(len(other), dtype=np.bool_)
        unlike[0][known[same]] = unlike[1][theirs[same]] = False
        return unlike

    def ids_beside(self, pairs: Pairs) -> frozenset[VlanId]:
        """VLAN-IDs of the paths of pairs that are not in ``pairs``."""
        beside = ~among(self.paths.table.pair_codes(), pairs.codes)
        return different(self.vlan[beside])

    def between(self, pairs: Collection[Pair]) -> list[Path]:
        """The paths of the given pairs, lower rack first; creates no other paths."""
        rows = among(self.paths.table.pair_codes(), Pairs.of(pairs).codes)
        return self.paths.chosen(np.flatnonzero(rows))

    def __len__(self) -> int:
        return len(self.vlan)

    def __iter__(self) -> Iterator[Path]:
        return iter(self.paths)

    def __getitem__(self, path: Path) -> VlanId:
        return self._objects()[path]

    def keys(self) -> KeysView[Path]:
        return self._objects().keys()

    def values(self) -> ValuesView[VlanId]:
        return self._objects().values()

    def items(self) -> ItemsView[Path, VlanId]:
        return self._objects().items()

    def __repr__(self) -> str:
        return repr(self._objects())

    def __reduce__(self) -> tuple[type[Lanes], tuple[Paths, IntArray]]:
        return Lanes, (self.paths, self.vlan)

    def _objects(self) -> dict[Path, VlanId]:
        if self._made is None:
            with no_cycles():
                vlans = cast(list[VlanId], self.vlan.tolist())
                self._made = dict(zip(self.paths, vlans, strict=True))
        return self._made


class Pairs(AbstractSet[Pair]):
    """Rack pairs, lower rack first, in an array; equal to a set of the same pairs.

    Pairs ascend in iteration.
    """

    __slots__ = ("_made", "codes")

    codes: NDArray[np.int64]
    """Codes as of :meth:`PathTable.pair_codes`, ascending, without duplicates."""

    def __init__(self, codes: NDArray[np.int64]) -> None:
        self.codes = codes
        self._made: frozenset[Pair] | None = None

    @classmethod
    def of(cls, pairs: Collection[Pair]) -> Pairs:
        """Convert pairs to an array."""
        if isinstance(pairs, Pairs):
            return pairs
        ends = column(chain.from_iterable(pairs), 2 * len(pairs)).astype(np.int64).reshape(-1, 2)
        return cls(np.unique(ends[:, 0] << 32 | ends[:, 1]))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Pair]:
        low, high = (self.codes >> 32).tolist(), (self.codes & 0xFFFFFFFF).tolist()
        return cast(Iterator[Pair], zip(low, high, strict=True))

    def __contains__(self, pair: object) -> bool:
        return pair in self._objects()

    def __repr__(self) -> str:
        return repr(self._objects())

    def __reduce__(self) -> tuple[type[Pairs], tuple[NDArray[np.int64]]]:
        return Pairs, (self.codes,)

    @classmethod
    def _from_iterable(cls, pairs: Iterable[T]) -> frozenset[T]:
        """The result of a set operation."""
        return frozenset(pairs)

    def _objects(self) -> frozenset[Pair]:
        if self._made is None:
            self._made = frozenset(self)
        return self._made


def lanes_of(state: NetworkState) -> Lanes:
    """The paths of ``state`` and their VLAN-IDs, in the order of its topology."""
    paths, vlans = state.topology.paths, state.vlans
    if isinstance(vlans, Lanes) and vlans.paths is paths:
        return vlans
    return Lanes(Paths.of(paths), column(map(vlans.__getitem__, paths), len(paths)))


def among(values: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for each value in ``known``, which must ascend: faster than np.isin."""
    if not len(known):
        return np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    same: NDArray[np.bool_] = known[place] == values
    return same


def different(ids: IntArray) -> frozenset[VlanId]:
    """The different VLAN-IDs."""
    return cast(frozenset[VlanId], frozenset(np.flatnonzero(np.bincount(ids)).tolist()))


def numbered(ids: IntArray) -> tuple[IntArray, IntArray]:
    """The different VLAN-IDs, ascending, and the place of each of ``ids`` among them."""
    there = np.bincount(ids) > 0
    place = np.cumsum(there, dtype=np.int32) - 1
    return np.flatnonzero(there).astype(np.int32), place[ids]


def order_by(
    first: NDArray[Any], then: Callable[[NDArray[np.intp]], NDArray[Any]]
) -> NDArray[np.intp]:
    """Places in ascending order of ``first``. Equal values go by ``then``, a function that is given
    the places of equal values, and returns the second key of each.
    """
    order = np.argsort(first)
    ranked = first[order]
    equal = np.flatnonzero(ranked[1:] == ranked[:-1])
    tied = np.union1d(equal, equal + 1)
    which = np.sort(order[tied])
    order[tied] = which[np.lexsort((then(which), first[which]))]
    return order
