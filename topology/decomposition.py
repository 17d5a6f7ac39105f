"""Decomposition of matrices with equal row and column sums into permutations (Birkhoff 1946)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from topology import _native

Permutation = NDArray[np.int32]
"""Shape (N,): the column of each row."""

_SINKHORN_TOLERANCE = 1e-6
_SINKHORN_ROUNDS = 200
WHOLE = 1 << 30
"""Sum of each row and column of a scaled matrix, in whole units."""


def scaled(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """A non-negative matrix (N, N) scaled to rows and columns that all sum to :data:`WHOLE`.

    Rows and columns are divided by their sums in turn until all sums are within 1e-6 of one
    (Sinkhorn, Annals of Mathematical Statistics 35, 1964), or for 200 rounds: zeros can keep a
    matrix from equal sums. The rest after rounding down is then added by :func:`stuffed`, so that
    the result can be taken apart exactly.
    """
    remaining = matrix / matrix.max(initial=0.0) if matrix.any() else matrix
    for _ in range(_SINKHORN_ROUNDS):
        rows = remaining.sum(axis=1)
        if np.abs(rows[rows > 0] - 1).max(initial=0.0) < _SINKHORN_TOLERANCE:
            break
        remaining = remaining / np.where(rows > 0, rows, 1.0)[:, None]
        columns = remaining.sum(axis=0)
        remaining = remaining / np.where(columns > 0, columns, 1.0)
    largest = max(
        remaining.sum(axis=0).max(initial=0.0), remaining.sum(axis=1).max(initial=0.0), 1.0
    )
    return stuffed(np.floor(remaining * (WHOLE / largest) * (1 - 1e-12)).astype(np.int64), WHOLE)


def admissible(matrix: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """``matrix``, shape (N, N), with rows and columns that sum to more than ``most`` scaled down.

    Otherwise racks with demands beyond their ports would leave all other racks waiting.
    """
    for axis in (0, 1) if most > 0 else ():
        sums = matrix.sum(axis=axis, keepdims=True)
        matrix = matrix * (most / np.maximum(sums, most))
    return matrix


def stuffed(matrix: NDArray[np.int64], total: int | None = None) -> NDArray[np.int64]:
    """``matrix`` with entries raised until all rows and columns sum to ``total``.

    The default of ``total`` is the largest sum. Entries above zero are raised first, in row-major
    order (QuickStuff: Liu et al., Solstice, CoNEXT 2015, section 4.1).
    """
    result = np.array(matrix, dtype=np.int64, order="C")
    rows, columns = result.sum(axis=1), result.sum(axis=0)
    if total is None:
        total = int(max(rows.max(initial=0), columns.max(initial=0)))
    _native.stuff(len(result), result, total - rows, total - columns)
    return result


def longest_first(matrix: NDArray[np.int64]) -> Iterator[tuple[int, Permutation]]:
    """Lengths and permutations whose products sum to ``matrix``, the longest first.

    Each permutation is the longest in the rest of the matrix. The rows and columns of ``matrix``
    must have equal sums; there are at most N² - 2N + 2 permutations.
    """
    remaining = np.array(matrix, dtype=np.int64, order="C")
    column_of = np.full(len(remaining), -1, dtype=np.int32)
    length = int(remaining.max(initial=0))
    while length:
        length, matched = _widest(remaining, column_of, length, 1)
        if matched < len(remaining):
            return
        remaining[np.arange(len(remaining)), column_of] -= length
        yield length, column_of.copy()


def birkhoff(matrix: NDArray[np.int64]) -> Iterator[tuple[int, Permutation]]:
    """Lengths and permutations whose products sum to ``matrix``, in the order of Birkhoff's proof.

    Each is any permutation of entries above zero, for the smallest of these entries, which becomes
    zero (Birkhoff 1946, von Neumann 1953). The rows and columns of ``matrix`` must have equal sums;
    there are at most N² - 2N + 2 permutations.
    """
    remaining = np.array(matrix, dtype=np.int64, order="C")
    rows = np.arange(len(remaining))
    column_of = np.full(len(remaining), -1, dtype=np.int32)
    while remaining.any():
        _, matched = _widest(remaining, column_of, 1, 1)
        if matched < len(remaining):
            return
        entries = remaining[rows, column_of]
        length = int(entries.min())
        remaining[rows, column_of] = entries - length
        yield length, column_of.copy()


def big_slices(matrix: NDArray[np.int64]) -> Iterator[tuple[int, Permutation]]:
    """Lengths and permutations whose products sum to ``matrix``, roughly the longest first.

    Each permutation has only entries that reach a threshold, a power of two, halved when no such
    permutation is left (BigSlice: Liu et al., Solstice, CoNEXT 2015, section 4.2).
    """
    remaining = np.array(matrix, dtype=np.int64, order="C")
    rows = np.arange(len(remaining))
    column_of = np.full(len(remaining), -1, dtype=np.int32)
    missing = int(remaining[:1].sum())
    threshold = 1 << max(0, int(remaining.max(initial=0)).bit_length() - 1)
    while threshold and missing:
        _, matched = _widest(remaining, column_of, threshold, threshold)
        if matched < len(remaining):
            threshold //= 2
            continue
        entries = remaining[rows, column_of]
        length = int(entries.min())
        remaining[rows, column_of] = entries - length
        missing -= length
        yield length, column_of.copy()


def _widest(
    remaining: NDArray[np.int64], column_of: Permutation, start: int, least: int
) -> tuple[int, int]:
    limits = np.array([start, least], dtype=np.int64)
    return _native.widest_matching(
        len(remaining), remaining, limits[:1], limits[1:], True, column_of
    )
