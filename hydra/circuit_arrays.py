"""Circuits as arrays, for topologies of ten thousand circuits.

:class:`Circuits` replaces a frozenset of circuits, and creates objects only on access.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hydra.columns import IntArray, column, make
from hydra.model import Circuit, OneWayCircuit

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class CircuitTable:
    """C circuits in sequence; arrays of shape (C,)."""

    plane: IntArray
    a: IntArray
    """The lower port of a duplex circuit, the sender of a one-way circuit."""
    b: IntArray
    one_way: NDArray[np.bool_]

    @classmethod
    def of(cls, circuits: Collection[Circuit]) -> CircuitTable:
        """The table of ``circuits``, in the order of iteration."""
        if isinstance(circuits, Circuits):
            return circuits.table
        plane, a, b, one_way = (
            column(map(attrgetter(name), circuits), len(circuits))
            for name in ("plane", "a", "b", "one_way")
        )
        return cls(plane, a, b, one_way.astype(np.bool_))

    @classmethod
    def duplex(cls, plane: IntArray, a: IntArray, b: IntArray) -> CircuitTable:
        """Duplex circuits between ports ``a`` < ``b``."""
        return cls(plane, a, b, np.zeros(len(plane), dtype=np.bool_))

    @classmethod
    def joined(cls, tables: Iterable[CircuitTable]) -> CircuitTable:
        """The circuits of all ``tables``, one table after the other."""
        rows = [(table.plane, table.a, table.b, table.one_way) for table in tables]
        return cls(*map(np.concatenate, zip(*rows, strict=True)))

    def __len__(self) -> int:
        return len(self.plane)

    def chosen(self, places: NDArray[np.integer[Any]] | NDArray[np.bool_]) -> CircuitTable:
        """The circuits at ``places``, or where ``places`` is True."""
        return CircuitTable(
            self.plane[places], self.a[places], self.b[places], self.one_way[places]
        )

    def circuits(self) -> list[Circuit]:
        """An object for each circuit."""
        columns = {"plane": self.plane.tolist(), "a": self.a.tolist(), "b": self.b.tolist()}
        if not self.one_way.any():
            return make(Circuit, len(self), **columns)
        kinds = [OneWayCircuit if one_way else Circuit for one_way in self.one_way.tolist()]
        return [kind(*ends) for kind, *ends in zip(kinds, *columns.values(), strict=True)]

    def order(self) -> NDArray[np.intp]:
        """Places of the circuits in the order of plane, ports and kind."""
        return np.lexsort((self.one_way, self.b, self.a, self.plane))

    def kinds(self) -> IntArray:
        """A number for each plane and kind of circuit."""
        kinds: IntArray = 2 * self.plane + self.one_way
        return kinds

    def keys(self) -> NDArray[np.int64]:
        """A key of each circuit, unique and ascending with the order while ports are below 2**24
        and planes below 2**14.
        """
        ends = self.a.astype(np.int64) << 25 | self.b.astype(np.int64) << 1 | self.one_way
        return self.plane.astype(np.int64) << 49 ^ ends

    def same(
        self, places: NDArray[np.integer[Any]], other: CircuitTable, there: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """True where the circuit of ``places`` equals the circuit of ``other`` at ``there``."""
        same: NDArray[np.bool_] = (
            (self.plane[places] == other.plane[there])
            & (self.a[places] == other.a[there])
            & (self.b[places] == other.b[there])
            & (self.one_way[places] == other.one_way[there])
        )
        return same


class Circuits(AbstractSet[Circuit]):
    """A set of circuits in arrays; equal to a frozenset of the same circuits.

    Circuits ascend in iteration. The other operand of a set operation must be a set of circuits.
    """

    __slots__ = ("_listed", "_made", "table")

    table: CircuitTable
    """In order, each circuit once."""

    def __init__(self, table: CircuitTable) -> None:
        self.table = table
        self._listed: list[Circuit] | None = None
        self._made: frozenset[Circuit] | None = None

    @classmethod
    def of(cls, circuits: Collection[Circuit]) -> Circuits:
        """Convert circuits to arrays."""
        if isinstance(circuits, Circuits):
            return circuits
        return cls.numbered(CircuitTable.of(circuits))[0]

    @classmethod
    def numbered(cls, table: CircuitTable) -> tuple[Circuits, IntArray]:
        """(The set of the table's circuits; the place of each row in the set's table)."""
        order = table.order()
        ordered = table.chosen(order)
        begins = np.ones(len(table), dtype=np.bool_)
        if len(table):
            rows = np.arange(1, len(table))
            begins[1:] = ~ordered.same(rows, ordered, rows - 1)
        place = np.empty(len(table), dtype=np.int32)
        place[order] = np.cumsum(begins, dtype=np.int32) - 1
        return cls(ordered if begins.all() else ordered.chosen(begins)), place

    @property
    def listed(self) -> list[Circuit]:
        """The circuits as objects, in the order of the table."""
        if self._listed is None:
            self._listed = self.table.circuits()
        return self._listed

    def places_in(self, other: Circuits) -> IntArray:
        """Shape (C,): index of each circuit in the table of ``other``; -1 for a missing circuit."""
        places = np.full(len(self), -1, dtype=np.int32)
        if not len(self) or not len(other):
            return places
        if self is other:
            return np.arange(len(self), dtype=np.int32)
        own, theirs = self.table.keys(), other.table.keys()
        order = np.argsort(theirs, kind="stable").astype(np.int32)
        at = order[np.minimum(np.searchsorted(theirs[order], own), len(order) - 1)]
        alike = np.flatnonzero(theirs[at] == own)
        same = self.table.same(alike, other.table, at[alike])
        if not same.all():  # ports beyond 2**24: different circuits with the same key
            place_of = {circuit: place for place, circuit in enumerate(other)}
            return column((place_of.get(circuit, -1) for circuit in self), len(self))
        places[alike] = at[alike]
        return places

    def _where(self, chosen: NDArray[np.bool_]) -> Circuits:
        return self if chosen.all() else Circuits(self.table.chosen(chosen))

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Circuit]:
        return iter(self.listed)

    def __contains__(self, circuit: object) -> bool:
        return circuit in self._objects()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Circuits):
            return isinstance(other, AbstractSet) and (
                len(self) == len(other) and self._objects() == other
            )
        if self is other:
            return True
        return len(self) == len(other) and bool(
            self.table.same(np.arange(len(self)), other.table, np.arange(len(other))).all()
        )

    def __hash__(self) -> int:
        return hash(self._objects())

    def __repr__(self) -> str:
        return repr(self._objects())

    def __reduce__(self) -> tuple[type[Circuits], tuple[CircuitTable]]:
        return Circuits, (self.table,)

    def __and__(self, other: AbstractSet[Any]) -> Circuits:
        return self._where(self.places_in(Circuits.of(other)) >= 0)

    def __sub__(self, other: AbstractSet[Any]) -> Circuits:
        return self._where(self.places_in(Circuits.of(other)) < 0)

    def __or__(self, other: AbstractSet[Any]) -> Circuits:
        added = Circuits.of(other) - self
        if not len(self) or not len(added):
            return self if len(self) else added
        return Circuits.numbered(CircuitTable.joined([self.table, added.table]))[0]

    def __xor__(self, other: AbstractSet[Any]) -> Circuits:
        return (self - other) | (other - self)

    def __rsub__(self, other: AbstractSet[Any]) -> Circuits:
        return Circuits.of(other) - self

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def isdisjoint(self, other: Iterable[Any]) -> bool:
        return self._objects().isdisjoint(other)

    @classmethod
    def _from_iterable(cls, circuits: Iterable[T]) -> frozenset[T]:
        """The result of a set operation."""
        return frozenset(circuits)

    def _objects(self) -> frozenset[Circuit]:
        if self._made is None:
            self._made = frozenset(self.listed)
        return self._made
