"""The HydRA heuristic again, slow and obvious, on networkx: the oracle of the fast
implementation.
"""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
from multihop_reference import turn
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array
from topology_fabrics import circuit

from hydra.model import Circuit, Path
from topology.problem import Budget, FabricArrays

CRUMB = 1e-6


def matching_bound(weight: NDArray[np.float64], degree: int = 1) -> float:
    """At least the weight of any subgraph whose nodes have ``degree`` edges: a linear programme.

    An edge weighs the larger of its two entries. Exact on bipartite graphs.
    """
    edges = np.triu(np.maximum(weight, weight.T), k=1)
    src, dst = np.nonzero(edges > 0)
    if not src.size:
        return 0.0
    number = np.tile(np.arange(src.size), 2)
    ones = np.ones(2 * src.size)
    at_node = coo_array((ones, (np.concatenate([src, dst]), number)), shape=(len(edges), src.size))
    limits = np.full(len(edges), degree)
    solved = linprog(-edges[src, dst], A_ub=at_node.tocsr(), b_ub=limits, bounds=(0, 1))
    assert solved.status == 0
    return -float(solved.fun)


class Reference:
    """Whole-network planning without pinned paths: rounds, auxiliary graph, booking."""

    def __init__(self, fabric: FabricArrays, current: set[Circuit], budget: Budget) -> None:
        self.fabric = fabric
        self.current = current
        self.budget = budget
        self.free = set(range(fabric.n_ports)) - budget.blocked_ports
        self.residual: dict[Circuit, float] = {}

    def rate(self, one: int, other: int) -> float:
        return min(self.fabric.port_rate_mbps[one], self.fabric.port_rate_mbps[other])

    def joinable(self, need: float) -> list[Circuit]:
        """Every circuit that free ports allow and that carries ``need``."""
        rack, plane = self.fabric.port_rack, self.fabric.port_plane
        return [
            circuit(self.fabric, one, other)
            for one in self.free
            for other in self.free
            if one < other
            and rack[one] != rack[other]
            and plane[one] == plane[other]
            and self.rate(one, other) >= need - CRUMB
        ]

    def ends(self, link: Circuit) -> frozenset[int]:
        return frozenset(int(self.fabric.port_rack[port]) for port in (link.a, link.b))

    def left(self, here: int, there: int) -> list[Circuit]:
        return [link for link in self.residual if self.ends(link) == {here, there}]

    def graph(self, need: float) -> nx.Graph:
        graph = nx.Graph()
        graph.add_nodes_from(range(self.fabric.n_racks))
        graph.add_edges_from(tuple(self.ends(link)) for link in self.joinable(need))
        graph.add_edges_from(
            tuple(self.ends(link))
            for link, mbps in self.residual.items()
            if mbps > CRUMB and mbps >= need - CRUMB
        )
        return graph

    def hop(self, here: int, there: int, wanted: float, need: float) -> Circuit:
        best = max(self.left(here, there), key=lambda c: self.residual[c], default=None)
        if best is not None and self.residual[best] >= wanted - CRUMB:
            return best
        new = [link for link in self.joinable(need) if self.ends(link) == {here, there}]
        if not new:
            assert best is not None
            return best
        most = max(min(self.rate(link.a, link.b), wanted - CRUMB) for link in new)
        new = [link for link in new if self.rate(link.a, link.b) >= most]
        chosen = min(new, key=lambda link: self.preference(link, min(here, there)))
        self.free -= {chosen.a, chosen.b}
        self.residual[chosen] = float(self.rate(chosen.a, chosen.b))
        return chosen

    def preference(self, link: Circuit, rack: int) -> tuple[int, ...]:
        """An existing circuit first, then the lowest plane, then the lowest port at the lower
        rack.
        """
        if link in self.current:
            return 0, link.plane, link.a, link.b
        ends = (link.a, link.b)
        return 1, link.plane, *(ends if self.fabric.port_rack[link.a] == rack else ends[::-1])

    def serve(self, src: int, dst: int, wanted: float, depth: int) -> Path | None:
        need = 0.0 if self.budget.boolean else wanted
        graph = self.graph(need)
        if not nx.has_path(graph, src, dst):
            return None
        if nx.shortest_path_length(graph, src, dst) > depth:
            return None
        racks = min(nx.all_shortest_paths(graph, src, dst))
        links = [self.hop(here, there, wanted, need) for here, there in pairwise(racks)]
        given = min(wanted, *(self.residual[link] for link in links))
        for link in links:
            self.residual[link] -= given
        return Path(src, dst, tuple(links))

    def plan(self, demand: NDArray[np.float64]) -> tuple[Path, ...]:
        n = self.fabric.n_racks
        wanted = {
            (a, b): max(demand[a, b], demand[b, a]) for a in range(n) for b in range(a + 1, n)
        }
        waiting = sorted((p for p in wanted if wanted[p] > 0), key=lambda p: turn(wanted[p], *p))
        paths = []
        for depth in range(1, self.budget.max_hops + 1):
            for pair in list(waiting):
                found = self.serve(*pair, wanted[pair], depth)
                if found is not None:
                    waiting.remove(pair)
                    paths.append(found)
        return tuple(sorted(paths))
