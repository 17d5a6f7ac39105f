"""The optimum under the data plane's own rules, on fabrics small enough for a full search.

A pair with k paths has a k-th of its demand on each path, at most a circuit's rate; each path is
served as far as its circuits allow, and no two paths of a pair have the same circuits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from topology.problem import PairDemands, pair_demands

GAP = 1e-4
"""Relative distance from the optimum at which the search ends."""
_LONGEST_S = 60.0
"""Time limit for the paths of a topology; afterwards, the bound proven by HiGHS counts."""

Edge = tuple[int, int]
Circuits = tuple[Edge, ...]
Matrix = NDArray[np.float64]


def optimum_by_rules(
    demand: Matrix, planes: int, rate_mbps: float, max_hops: int, most_paths: int, reached: float
) -> float:
    """The largest share served with at most ``most_paths`` paths for a pair, to :data:`GAP`.

    ``reached`` is the share served by a known plan. An even number of racks has a port each on
    every plane, so a plane's circuits are a perfect matching, or a part of one. For each union of
    matchings that a bound does not rule out, HiGHS finds paths that serve more than the best plan
    so far, or proves that there are none.
    """
    pairs = pair_demands(demand)
    total_mbps = float(pairs.mbps.sum())
    if not total_mbps:
        return 1.0
    best_mbps = reached * total_mbps
    candidates = list(topologies(len(demand), planes))
    wanted = np.zeros_like(demand)
    wanted[pairs.src, pairs.dst] = np.minimum(pairs.mbps, most_paths * rate_mbps)
    bounds = _most_mbps(candidates, wanted, rate_mbps, max_hops)
    for place in np.argsort(-bounds, kind="stable").tolist():
        least_mbps = best_mbps * (1 + GAP)
        if bounds[place] <= least_mbps:
            break
        routing = _Routing(candidates[place], pairs, rate_mbps, max_hops, most_paths)
        if routing.split_mbps() > least_mbps:
            best_mbps = routing.most_mbps(least_mbps) or best_mbps
    return best_mbps / total_mbps


def topologies(racks: int, planes: int) -> Iterator[Circuits]:
    """The distinct unions of perfect matchings, one for each plane."""
    choices = combinations_with_replacement(list(_matchings(tuple(range(racks)))), planes)
    unions = {tuple(sorted(edge for matching in choice for edge in matching)) for choice in choices}
    yield from sorted(unions)


def _matchings(racks: tuple[int, ...]) -> Iterator[Circuits]:
    if not racks:
        yield ()
        return
    for place in range(1, len(racks)):
        for others in _matchings(racks[1:place] + racks[place + 1 :]):
            yield ((racks[0], racks[place]), *others)


def _most_mbps(
    candidates: list[Circuits], wanted: Matrix, rate_mbps: float, max_hops: int
) -> Matrix:
    """An upper bound for each topology: a pair uses at least as many circuits as its distance in
    hops.
    """
    racks = len(wanted)
    edges = list(combinations(range(racks), 2))
    number = np.array([[circuits.count(edge) for edge in edges] for circuits in candidates])
    joined = np.zeros((len(candidates), racks, racks), dtype=np.bool_)
    for place, (a, b) in enumerate(edges):
        joined[:, a, b] = joined[:, b, a] = number[:, place] > 0
    row, column = np.array(edges).T
    direct = np.minimum(wanted[row, column], number * rate_mbps)
    rest = wanted[row, column] - direct
    left = number.sum(axis=1) * rate_mbps - direct.sum(axis=1)
    most = direct.sum(axis=1)
    reach, nearer = joined, np.zeros(rest.shape, dtype=np.bool_)
    for hops in range(2, max_hops + 1):
        reach = reach @ joined
        near = nearer | joined[:, row, column] | reach[:, row, column]
        here = np.where(near & ~nearer, rest, 0.0).sum(axis=1)
        served = np.minimum(here, left / hops)
        most += served
        left -= served * hops
        nearer = near
    return most


class _Routing:
    """Paths on given circuits, as integer programs."""

    def __init__(
        self,
        circuits: Circuits,
        pairs: PairDemands,
        rate_mbps: float,
        max_hops: int,
        most_paths: int,
    ) -> None:
        self._pairs, self._rate_mbps, self._most_paths = pairs, rate_mbps, most_paths
        ends = zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True)
        self._ways = [
            (pair, way)
            for pair, (src, dst) in enumerate(ends)
            for way in _ways(circuits, (src,), dst, max_hops)
        ]
        pair_of = np.array([pair for pair, _ in self._ways])
        self._of_pair = pair_of == np.arange(len(pairs))[:, np.newaxis]
        self._over = np.array(
            [[circuit in way for _, way in self._ways] for circuit in range(len(circuits))]
        )

    def split_mbps(self) -> float:
        """The served share if a pair's demand can be split freely over paths."""
        pairs, rate_mbps = self._pairs, self._rate_mbps
        room = np.full(len(self._over), rate_mbps)
        limits = np.concatenate([np.minimum(pairs.mbps, self._most_paths * rate_mbps), room])
        solved = linprog(
            -np.ones(len(self._ways)),
            A_ub=csr_array(np.concatenate([self._of_pair, self._over]).astype(np.float64)),
            b_ub=limits,
            bounds=(0.0, rate_mbps),
        )
        return float(-solved.fun)

    def most_mbps(self, least_mbps: float) -> float | None:
        """The highest rate served with even shares, or a bound after the time limit; None if below
        ``least_mbps``.

        Columns: Mbps of each path; for k = 1, 2, … whether a path is among k paths of its pair;
        whether a pair has k paths.
        """
        mbps, most, n_ways = self._pairs.mbps, self._most_paths, len(self._ways)
        ways, numbers = np.eye(n_ways), np.arange(1, most + 1)
        shares = np.minimum(mbps / numbers[:, np.newaxis], self._rate_mbps)
        pair_of = np.array([pair for pair, _ in self._ways])
        none = np.zeros((len(mbps), n_ways))
        taken = [ways, *(np.diag(-share[pair_of]) for share in shares), *[none.T] * most]
        rows: list[list[NDArray[np.float64]]] = [taken]
        limits = [np.zeros(n_ways)]
        rows.append([self._over, *[np.zeros(self._over.shape)] * most])
        rows[-1] += [np.zeros((len(self._over), len(mbps)))] * most
        limits.append(np.full(len(self._over), self._rate_mbps))
        rows.append([none] * (1 + most) + [np.eye(len(mbps))] * most)
        limits.append(np.ones(len(mbps)))
        for k in range(most):
            blocks, choice = [none] * (1 + most), [np.zeros((len(mbps),) * 2)] * most
            blocks[1 + k] = self._of_pair
            choice[k] = np.eye(len(mbps)) * -(k + 1.0)
            rows.append(blocks + choice)
            limits.append(np.zeros(len(mbps)))
        matrix = np.block(rows)
        gain = np.zeros(matrix.shape[1])
        gain[:n_ways] = -1.0
        solved = milp(
            gain,
            constraints=[
                LinearConstraint(csr_array(matrix), ub=np.concatenate(limits)),
                LinearConstraint(gain[np.newaxis], ub=-least_mbps),
            ],
            integrality=(gain == 0).astype(int),
            bounds=Bounds(0, np.where(gain == 0, 1.0, np.inf)),
            options={"mip_rel_gap": GAP, "time_limit": _LONGEST_S},
        )
        if solved.status == 2:  # infeasible
            return None
        if solved.mip_dual_bound is None:
            raise SystemExit(f"HiGHS has no bound: {solved.message}")
        return float(-solved.mip_dual_bound)


def _ways(
    circuits: Circuits, racks: tuple[int, ...], dst: int, hops: int
) -> Iterator[tuple[int, ...]]:
    """The circuits along each path that begins with ``racks``, with at most ``hops`` further
    hops.
    """
    if racks[-1] == dst:
        yield ()
        return
    for place, (a, b) in enumerate(circuits):
        if hops and racks[-1] in (a, b):
            there = b if racks[-1] == a else a
            if there not in racks:
                for along in _ways(circuits, (*racks, there), dst, hops - 1):
                    yield (place, *along)
