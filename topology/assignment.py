"""Assignment of rows to columns with the largest total weight, and prices that prove optimality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topology import _native


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """A one-to-one assignment of N rows to N columns, with a dual solution of the same value."""

    column_of: NDArray[np.int32]
    """Shape (N,): the column of each row."""
    profit: NDArray[np.float64]
    """Shape (N,): gain of each row; ``profit[i] + price[j] >= weight[i, j]``, with equality where
    row i has column j."""
    price: NDArray[np.float64]
    """Shape (N,): cost of each column."""


def heaviest_assignment(
    weight: NDArray[np.float64], price: NDArray[np.float64] | None = None
) -> Assignment:
    """The assignment of rows to columns that maximises the sum of ``weight``, shape (N, N).

    ``price``, shape (N,), is a guess at the columns' prices, such as the result for a similar
    matrix; the guess decides how long the search takes, and which of several optima is found. The
    same arguments give the same result: tied columns are taken in ascending order.

    Shortest augmenting paths after augmenting row reduction (Jonker and Volgenant, Computing 38,
    1987), in terms of gains and prices. If the reduction leaves many rows free, an auction on
    several levels (Bertsekas and Castañón, Parallel Computing 17, 1991) first brings the prices
    near the optimum. O(N³) at worst.
    """
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    n = len(weight)
    column_of = np.empty(n, dtype=np.int32)
    price = np.zeros(n) if price is None else price.astype(np.float64)
    _native.assign_rows(n, weight, price, column_of)
    profit = weight[np.arange(n), column_of] - price[column_of]
    return Assignment(column_of, profit, price)
