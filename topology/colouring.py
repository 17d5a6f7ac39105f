"""Edges of a bipartite graph spread over planes: an edge colouring."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topology import _native

_FREE = -1
_ABSENT = -2


def colour_edges(
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    row_has: NDArray[np.bool_],
    column_has: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """A colour for each edge, different at each node; shape (E,), -1 for edges left without a
    colour.

    ``row_has[i, c]``, shape (N, C), is True if row i may have an edge of colour c; ``column_has``,
    shape (M, C), is the table for columns. Parallel edges may occur.

    Edges are coloured in their order, with the lowest colour that is free at both ends; if there is
    none, the colours of an alternating path are swapped (König 1916). If all nodes may have all
    colours, and none has more edges than there are colours, every edge gets a colour, in O(E·(C +
    N)). Otherwise a node without one of the colours may bar the swap; all pairs of colours are
    tried before an edge is left out.
    """
    at_row = np.ascontiguousarray(np.where(row_has, _FREE, _ABSENT), dtype=np.int32)
    at_column = np.ascontiguousarray(np.where(column_has, _FREE, _ABSENT), dtype=np.int32)
    colour = np.full(len(rows), -1, dtype=np.int32)
    _native.colour_edges(
        len(at_row),
        len(at_column),
        at_row.shape[1],
        rows.astype(np.int32),
        columns.astype(np.int32),
        at_row,
        at_column,
        colour,
    )
    return colour
