"""Matchings of the largest weight on graphs that need not be bipartite (Edmonds 1965)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import rustworkx
from numpy.typing import NDArray

from topology.assignment import heaviest_assignment

_CANDIDATES = 4
"""Edges per node, the cheapest by reduced cost, that the first search looks at."""
_MOST_EDGES = 50_000
"""Beyond so many a search would take seconds: the result is returned with what it lacks."""


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Pairs of nodes, no node in two, and how heavy any such set could be."""

    mate: NDArray[np.int64]
    """Shape (N,): the other node of each node's pair; -1 where it has none."""
    weight: int
    bound: int
    """No matching weighs more; equal to ``weight`` if that is proven the largest."""


def heaviest_matching(weight: NDArray[np.int64]) -> Matching:
    """The matching of the largest weight, shape (N, N), symmetric; only positive edges count.

    The assignment of nodes to nodes is the same problem without its odd-cycle constraints: half
    its weight is a bound, and its prices give every edge a reduced cost. Nothing heavier than a
    matching that is D below the bound contains an edge whose reduced cost is above D. So the
    search (Galil's O(N³) form of Edmonds' algorithm, by rustworkx) begins with the few cheapest
    edges of each node, equal ones by distance in node numbers, and is repeated with those that D
    admits, until there are no more of them, which proves the optimum, or too many.
    """
    n = len(weight)
    assigned = heaviest_assignment(np.maximum(weight, 0))
    # Twice the price of each node: the two that it has, as a row and as a column, are whole.
    price = assigned.profit + assigned.price
    reduced = price[:, None] + price - 2 * weight
    reduced[weight <= 0] = np.inf
    bound = int(price.astype(np.int64).sum()) // 2
    chosen = _cheapest(reduced)
    chosen[np.arange(n), assigned.column_of] = True
    chosen |= chosen.T
    chosen &= np.isfinite(reduced)
    while True:
        mate = _search(weight, chosen)
        ends = np.flatnonzero(mate > np.arange(n))
        total = int(weight[ends, mate[ends]].sum())
        missing = (reduced <= 2 * (bound - total)) & ~chosen
        n_missing = np.count_nonzero(missing) // 2
        if not n_missing:
            return Matching(mate, total, total)
        if n_missing > _MOST_EDGES:
            return Matching(mate, total, bound)
        chosen |= missing


def _cheapest(reduced: NDArray[np.float64]) -> NDArray[np.bool_]:
    n = len(reduced)
    chosen = np.zeros((n, n), dtype=bool)
    if n > 1:
        nodes = np.arange(n)
        apart = np.abs(nodes[:, None] - nodes)
        # Reduced costs are whole numbers: less than one on top decides only between equal ones.
        key = reduced + np.minimum(apart, n - apart) / n
        few = min(_CANDIDATES, n - 1)
        chosen[nodes[:, None], np.argpartition(key, few - 1, axis=1)[:, :few]] = True
    return chosen


def _search(weight: NDArray[np.int64], edges: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows, columns = np.nonzero(np.triu(edges, 1))
    weights = weight[rows, columns].tolist()
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(weight)))
    graph.add_edges_from(list(zip(rows.tolist(), columns.tolist(), weights, strict=True)))
    mate = np.full(len(weight), -1, dtype=np.int64)
    for one, other in rustworkx.max_weight_matching(graph, weight_fn=int):
        mate[one], mate[other] = other, one
    return mate
