"""Topology algorithms and estimators as usually written with networkx, scipy and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final

import networkx as nx
import numpy as np
import rustworkx
from scipy.optimize import linear_sum_assignment

from topology.layers import whole_units

RATE_MBPS: Final = 10_000.0
"""Rate of every port in these comparisons."""
MAX_HOPS: Final = 3

Prepared = Callable[[], float]
"""A function that plans once, and returns the served share of the demand."""
Way = Callable[[int, int, np.ndarray], Prepared]
"""Function of racks, planes and a demand in Mbps; returns a function to be timed."""


def _networkx_multihop(racks: int, planes: int, demand: np.ndarray) -> Prepared:
    """The rounds of HydRA's heuristic on a networkx graph of free planes and residual circuits."""
    both = np.triu(np.maximum(demand, demand.T))

    def plan() -> float:
        free = [set(range(planes)) for _ in range(racks)]
        left: dict[tuple[int, int], float] = {}
        graph = nx.complete_graph(racks)
        waiting = sorted(
            ((float(both[a, b]), a, b) for a, b in np.argwhere(both).tolist()), reverse=True
        )
        served = 0.0
        for depth in range(1, MAX_HOPS + 1):
            over = []
            for mbps, src, dst in waiting:
                paths = nx.single_source_shortest_path(graph, src, cutoff=depth)
                if dst not in paths:
                    over.append((mbps, src, dst))
                    continue
                hops = [(min(hop), max(hop)) for hop in pairwise(paths[dst])]
                for a, b in hops:
                    common = free[a] & free[b]
                    if left.get((a, b), 0.0) < mbps and common:
                        plane = min(common)
                        free[a].discard(plane)
                        free[b].discard(plane)
                        left[a, b] = left.get((a, b), 0.0) + RATE_MBPS
                given = min([mbps, *(left[hop] for hop in hops)])
                served += given
                touched = set()
                for hop in hops:
                    left[hop] -= given
                    touched |= set(hop)
                for rack in touched:
                    for other in range(racks):
                        pair = (min(rack, other), max(rack, other))
                        if other != rack:
                            usable = left.get(pair, 0.0) > 0 or free[rack] & free[other]
                            (graph.add_edge if usable else _drop(graph))(*pair)
            waiting = over
        return served / float(both.sum())

    return plan


def _drop(graph) -> Callable[[int, int], None]:
    return lambda a, b: graph.remove_edges_from([(a, b)])


def _in_turn(matching: Callable[[np.ndarray], Iterator[tuple[int, int]]], *, one_way: bool) -> Way:
    """A matching for each plane in turn, on the demand that earlier planes do not serve."""

    def prepare(_racks: int, planes: int, demand: np.ndarray) -> Prepared:
        wanted = demand if one_way else np.triu(np.maximum(demand, demand.T))

        def plan() -> float:
            residual = wanted.copy()
            for _ in range(planes):
                for a, b in matching(np.minimum(residual, RATE_MBPS)):
                    residual[a, b] -= min(RATE_MBPS, residual[a, b])
            return 1.0 - float(residual.sum() / wanted.sum())

        return plan

    return prepare


def _networkx_matching(weight: np.ndarray) -> Iterator[tuple[int, int]]:
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, weight[a, b]) for a, b in np.argwhere(weight).tolist())
    return ((min(edge), max(edge)) for edge in nx.max_weight_matching(graph))


def _rustworkx_matching(weight: np.ndarray) -> Iterator[tuple[int, int]]:
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(weight)))
    rows, columns = np.nonzero(weight)
    units = whole_units(weight[rows, columns])  # rustworkx takes integers
    edges = zip(rows.tolist(), columns.tolist(), units.tolist(), strict=True)
    graph.add_edges_from(list(edges))
    return ((min(edge), max(edge)) for edge in rustworkx.max_weight_matching(graph, weight_fn=int))


def _scipy_matching(weight: np.ndarray) -> Iterator[tuple[int, int]]:
    rows, columns = linear_sum_assignment(weight, maximize=True)
    return (
        (a, b) for a, b in zip(rows.tolist(), columns.tolist(), strict=True) if weight[a, b] > 0
    )


BASELINES: Mapping[str, Way] = {
    "networkx multi-hop": _networkx_multihop,
    "networkx matchings": _in_turn(_networkx_matching, one_way=False),
    "rustworkx matchings": _in_turn(_rustworkx_matching, one_way=False),
    "scipy assignments": _in_turn(_scipy_matching, one_way=True),
}
BASELINES_OF: Mapping[str, tuple[str, ...]] = {
    "hydra-bfs": ("networkx multi-hop",),
    "hydra-bfs+": ("networkx multi-hop",),
    "edmonds": ("networkx matchings", "rustworkx matchings"),
    "helios": ("scipy assignments",),
    "b-matching": ("scipy assignments",),
}
"""Equivalent baselines, by algorithm; algorithms without a baseline are compared with the bound
only.
"""


def plain_estimate(src: np.ndarray, dst: np.ndarray, racks: int, mbps: float) -> np.ndarray:
    """The estimator as printed in Hedera: senders and receivers alternate until the estimate is
    stable.
    """
    flows = list(zip(src.tolist(), dst.tolist(), strict=True))
    rate = [0.0] * len(flows)
    settled = [False] * len(flows)
    by_src: list[list[int]] = [[] for _ in range(racks)]
    by_dst: list[list[int]] = [[] for _ in range(racks)]
    for number, (sender, receiver) in enumerate(flows):
        by_src[sender].append(number)
        by_dst[receiver].append(number)
    changed = True
    while changed:
        before = list(rate)
        for numbers in by_src:
            open_ones = [f for f in numbers if not settled[f]]
            if open_ones:
                share = (mbps - sum(rate[f] for f in numbers if settled[f])) / len(open_ones)
                for f in open_ones:
                    rate[f] = share
        for numbers in by_dst:
            if sum(rate[f] for f in numbers) > mbps * (1 + 1e-9):
                _limit(numbers, rate, settled, mbps)
        changed = any(abs(a - b) > 1e-6 for a, b in zip(before, rate, strict=True))
    estimate = np.zeros((racks, racks))
    np.add.at(estimate, (src, dst), rate)
    return estimate


def _limit(numbers: list[int], rate: list[float], settled: list[bool], mbps: float) -> None:
    limited = set(numbers)
    share = mbps / len(numbers)
    while True:
        small = {f for f in limited if rate[f] < share}
        if not small:
            break
        limited -= small
        share = (mbps - sum(rate[f] for f in numbers if f not in limited)) / len(limited)
    for f in limited:
        rate[f], settled[f] = share, True
