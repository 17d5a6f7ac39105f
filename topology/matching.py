"""Matchings of the largest weight on graphs that need not be bipartite (Edmonds 1965)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import rustworkx
from numpy.typing import NDArray

from topology.assignment import heaviest_assignment

_CANDIDATES = 4
"""Edges per node in the first search: the cheapest by reduced cost."""
_COMMON = 0.9
"""Quantile of the reduced costs at which the first search cuts prices off."""
_MOST_EDGES = 50_000
"""Largest number of edges of a search: more would take seconds, so the result is returned with its
gap.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Pairs of nodes, no node in two, and a bound of the weight of any such set."""

    mate: NDArray[np.int64]
    """Shape (N,): the partner of each node; -1 if there is none."""
    weight: int
    bound: int
    """Upper bound of any matching's weight; equal to ``weight`` if the optimum is proven."""


def heaviest_matching(weight: NDArray[np.int64]) -> Matching:
    """The matching of the largest weight; only positive edges of ``weight`` count.

    ``weight`` has shape (N, N) and is symmetric.

    The assignment of nodes to nodes is the same problem without its odd-cycle constraints: half its
    weight is a bound, and its prices give every edge a reduced cost. A matching is below the bound
    by the reduced costs of its edges and the prices of unmatched nodes. Given a matching that is D
    below the bound, no heavier matching contains an edge with a reduced cost above D, or leaves out
    a node with a price above D. The search (Galil's O(N³) form of Edmonds' algorithm, by rustworkx)
    begins with the few cheapest edges of each node, ties by distance in node numbers. The search is
    repeated with the edges that D admits until there are no more of them, which proves the optimum,
    or too many.

    The search gets reduced costs, and prices cut off above 2 D, where prices decide nothing: most
    edges of the assignment are worth the same then, and taken at once.
    """
    n = len(weight)
    assigned = heaviest_assignment(np.maximum(weight, 0))
    # Twice the price of each node: the sum of its row price and its column price, both whole.
    price = assigned.profit + assigned.price
    reduced = price[:, None] + price - 2 * weight
    reduced[weight <= 0] = np.inf
    bound = int(price.astype(np.int64).sum()) // 2
    chosen = _cheapest(reduced)
    chosen[np.arange(n), assigned.column_of] = True
    chosen |= chosen.T
    chosen &= np.isfinite(reduced)
    decisive = _first_limit(reduced[chosen])
    while True:
        mate = _search(reduced, np.minimum(price, decisive), chosen)
        ends = np.flatnonzero(mate > np.arange(n))
        total = int(weight[ends, mate[ends]].sum())
        short = 2 * (bound - total)
        missing = (reduced <= short) & ~chosen
        n_missing = np.count_nonzero(missing) // 2
        if decisive > short:
            if not n_missing:
                return Matching(mate, total, total)
            if n_missing > _MOST_EDGES:
                return Matching(mate, total, bound)
        if n_missing <= _MOST_EDGES:
            chosen |= missing
        decisive = max(decisive, short + 1)


def _cheapest(reduced: NDArray[np.float64]) -> NDArray[np.bool_]:
    n = len(reduced)
    chosen = np.zeros((n, n), dtype=bool)
    if n > 1:
        nodes = np.arange(n)
        distance = np.abs(nodes[:, None] - nodes)
        # Reduced costs are whole numbers: a fraction on top decides only between equal costs.
        key = reduced + np.minimum(distance, n - distance) / n
        few = min(_CANDIDATES, n - 1)
        chosen[nodes[:, None], np.argpartition(key, few - 1, axis=1)[:, :few]] = True
    return chosen


def _first_limit(reduced: NDArray[np.float64]) -> int:
    """Limit at which the first search cuts prices off: few of its edges cost more."""
    return 1 + int(np.quantile(reduced, _COMMON)) if reduced.size else 1


def _search(
    reduced: NDArray[np.float64], price: NDArray[np.float64], edges: NDArray[np.bool_]
) -> NDArray[np.int64]:
    rows, columns = np.nonzero(np.triu(edges, 1))
    worth = (price[rows] + price[columns] - reduced[rows, columns]).astype(np.int64).tolist()
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(price)))
    graph.add_edges_from(list(zip(rows.tolist(), columns.tolist(), worth, strict=True)))
    mate = np.full(len(price), -1, dtype=np.int64)
    for u, v in rustworkx.max_weight_matching(graph, weight_fn=int):
        mate[u], mate[v] = v, u
    return mate
