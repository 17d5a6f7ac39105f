"""The heaviest bipartite graph of bounded degrees, by the network simplex method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topology import _native

_CANDIDATES, _DESCENTS = 1.1, 4
"""Pairs per unit of degree in the first search, and steps of the descent that guesses the pairs."""
_CANDIDATES_IF_SKEWED, _DESCENTS_IF_SKEWED = 2.0, 8
_SKEWED = 2.0
"""Ratio of mean to median of the demands above which guesses miss more."""
_DENSE = 2.5
"""Pairs per unit of degree up to which the first search takes all pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class BMatching:
    """Edges, with a limit at each node, and a bound of the value of any such set."""

    rows: NDArray[np.int32]
    """Shape (E,): one end of each edge; the heaviest edges come first."""
    columns: NDArray[np.int32]
    """Shape (E,): the other end."""
    weight: int
    bound: int
    """The value of a dual solution: no set of edges carries more."""


def heaviest_b_matching(
    demand: NDArray[np.int64],
    capacity: NDArray[np.int64],
    row_degree: NDArray[np.int64],
    column_degree: NDArray[np.int64],
) -> BMatching:
    """The edges that carry most, at most ``row_degree[i]`` at row i, ``column_degree[j]`` at column
    j.

    ``demand`` and ``capacity`` have shape (N, M). The k-th edge between i and j carries the demand
    left by the first k - 1, at most the capacity; edges that would carry nothing are left out.
    Among several equally good sets the same set is found each time.

    A minimum-cost flow over edges of capacity one, by the primal network simplex method with
    strongly feasible trees, which can't cycle (Ahuja, Magnanti and Orlin, Network Flows, chapter
    11), from a greedy solution. The search starts with few pairs per node and then adds pairs that
    improve the solution by its dual prices, until there are none. Whole numbers throughout.
    """
    most = np.minimum(row_degree[:, None], column_degree)
    first = np.where(most > 0, np.minimum(demand, capacity), 0)
    degree = int(most.max(initial=0))
    new = first > 0
    if np.count_nonzero(new) > _DENSE * degree * max(first.shape):
        skewed = float(first.mean()) > _SKEWED * float(np.median(first))
        guess = _guessed_prices(first, degree, _DESCENTS_IF_SKEWED if skewed else _DESCENTS)
        few = degree * (_CANDIDATES_IF_SKEWED if skewed else _CANDIDATES)
        new &= _largest_of_lines(first - guess, round(few) + 4)
    network = _Network(row_degree, column_degree)
    seen = np.zeros(first.shape, dtype=bool)
    while True:
        network.solve_with(*_edges(new, demand, capacity, most))
        seen |= new
        row_price, column_price = network.prices
        surplus = np.where(seen, 0, first - row_price[:, None] - column_price)
        new = surplus > 0
        if not new.any():
            return network.solution()
        new &= _largest_of_lines(surplus, 2 * degree)


def _guessed_prices(first: NDArray[np.int64], degree: int, descents: int) -> NDArray[np.int64]:
    """Sum of row and column prices, by descent along rows and columns in turn; near the optimum."""
    transposed = np.ascontiguousarray(first.T)
    rows = _nth_largest(first, degree) // 2
    columns = np.zeros(first.shape[1], dtype=np.int64)
    for _ in range(descents):
        columns = np.maximum(_nth_largest(transposed - rows, degree), 0)
        rows = np.maximum(_nth_largest(first - columns, degree), 0)
    return rows[:, None] + columns


def _nth_largest(values: NDArray[np.int64], nth: int) -> NDArray[np.int64]:
    """The ``nth`` largest entry of each row; 0 if a row has fewer."""
    width = values.shape[1]
    if not 0 < nth <= width:
        return np.zeros(len(values), dtype=np.int64)
    return np.partition(values, width - nth, axis=1)[:, width - nth]


def _largest_of_lines(values: NDArray[np.int64], few: int) -> NDArray[np.bool_]:
    """The ``few`` largest entries of each row and of each column; equal entries spread
    diagonally.
    """
    n_rows, n_columns = values.shape
    span = max(n_rows, n_columns, 1)
    key = values * span + (np.arange(n_rows)[:, None] - np.arange(n_columns)) % span
    least_of_row = _nth_largest(key, min(few, n_columns))
    least_of_column = _nth_largest(np.ascontiguousarray(key.T), min(few, n_rows))
    largest: NDArray[np.bool_] = (least_of_row[:, None] <= key) | (least_of_column <= key)
    return largest


def _edges(
    pairs: NDArray[np.bool_],
    demand: NDArray[np.int64],
    capacity: NDArray[np.int64],
    most: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows, columns and gains of all possible edges between ``pairs``, heaviest first."""
    rows, columns = np.nonzero(pairs)
    wanted, each, limit = demand[rows, columns], capacity[rows, columns], most[rows, columns]
    full = np.minimum(wanted // each, limit)
    rest = np.where(full < limit, wanted - full * each, 0)
    part = np.flatnonzero(rest)
    rows = np.concatenate([np.repeat(rows, full), rows[part]])
    columns = np.concatenate([np.repeat(columns, full), columns[part]])
    gain = np.concatenate([np.repeat(each, full), rest[part]])
    order = np.argsort(-gain, kind="stable")
    return rows[order], columns[order], gain[order]


class _Network:
    """The linear programme, its flow, and the spanning tree of the simplex method.

    Nodes are the rows, then the columns, then the root; ``topology/native/simplex.h`` describes the
    arrays.
    """

    def __init__(self, row_degree: NDArray[np.int64], column_degree: NDArray[np.int64]) -> None:
        self._degree = np.concatenate([row_degree, column_degree]).astype(np.int64)
        self._n_rows = len(row_degree)
        root = len(self._degree)
        self._tail = np.zeros(0, dtype=np.int32)
        self._head = np.zeros(0, dtype=np.int32)
        self._gain = np.zeros(0, dtype=np.int64)
        self._flow = np.zeros(0, dtype=np.int8)
        self._at = np.zeros(0, dtype=np.int8)
        self._spare = self._degree.copy()
        self._potential = np.zeros(root + 1, dtype=np.int64)
        self._parent = np.full(root + 1, root, dtype=np.int32)
        self._via, self._child, self._following, self._preceding = np.full(
            (4, root + 1), -1, dtype=np.int32
        )
        self._depth = np.zeros(root + 1, dtype=np.int32)

    @property
    def prices(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Prices of the rows and of the columns."""
        return self._potential[: self._n_rows], -self._potential[self._n_rows : -1]

    def solve_with(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64], gain: NDArray[np.int64]
    ) -> None:
        """Add edges, the heaviest first, and find the best flow over all edges."""
        first = not self._gain.size
        self._tail = np.concatenate([self._tail, rows.astype(np.int32)])
        self._head = np.concatenate([self._head, (columns + self._n_rows).astype(np.int32)])
        self._gain = np.concatenate([self._gain, gain])
        self._flow = np.concatenate([self._flow, np.zeros(len(gain), dtype=np.int8)])
        self._at = np.concatenate([self._at, np.ones(len(gain), dtype=np.int8)])
        _native.improve_network(
            first,
            self._n_rows,
            len(self._degree),
            self._tail,
            self._head,
            self._gain,
            self._flow,
            self._at,
            self._spare,
            self._potential,
            self._parent,
            self._via,
            self._depth,
            self._child,
            self._following,
            self._preceding,
        )

    def solution(self) -> BMatching:
        taken = np.flatnonzero(self._flow)
        taken = taken[np.argsort(-self._gain[taken], kind="stable")]
        surplus = self._gain - self._potential[self._tail] + self._potential[self._head]
        return BMatching(
            rows=self._tail[taken],
            columns=self._head[taken] - np.int32(self._n_rows),
            weight=int(self._gain[taken].sum()),
            bound=int(self._degree @ np.concatenate(self.prices))
            + int(np.maximum(surplus, 0).sum()),
        )
