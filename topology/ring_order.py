"""Ring orders: hosts in a ring, with as few neighbours as possible joined by the electrical network
alone.

A ring order is a closed walk over racks: a step inside a rack is free, and a step to another rack
takes a path of circuits or the electrical network. The walk enters a rack once for each group of
consecutive hosts, so at least once and at most as often as the rack has hosts. Walks are found as
circulations on racks, paths and a node for the electrical network: mixed integer programming
minimises the cost, and a circulation in several parts gets cuts until the circulation is connected
(subtour elimination: Dantzig, Fulkerson and Johnson 1954). An Euler tour (Hierholzer 1873) of the
circulation is the walk. With one host in each rack the problem is the travelling salesman's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

EXACT_RACKS: Final = 24
"""Largest number of racks with a proven optimum; above, parts are joined one pair at a time."""


@dataclass(frozen=True, slots=True, order=True)
class RingCost:
    """Cost of a ring order; costs compare by their fields in this order."""

    electrical: int
    """Steps between racks without a path of circuits in the direction of the ring."""
    circuits: int
    """Sum of the circuits of all steps' paths."""


@dataclass(frozen=True, slots=True)
class RingOrder:
    racks: tuple[int, ...]
    """Rack of each place of the ring."""
    cost: RingCost
    fewest: int
    """No order has fewer electrical steps; lower than ``cost.electrical`` if not proven."""


def ring_cost(hops: NDArray[np.int64], racks: Sequence[int]) -> RingCost:
    """Cost of a ring with the given rack at each place; the last place is beside the first.

    ``hops`` has shape (R, R): the number of circuits of the shortest path from rack to rack, 0
    without a path.
    """
    steps = [(a, b) for a, b in zip(racks, (*racks[1:], *racks[:1]), strict=True) if a != b]
    taken = [int(hops[step]) for step in steps]
    return RingCost(taken.count(0), sum(taken))


def ring_order(hops: NDArray[np.int64], hosts: NDArray[np.int64]) -> RingOrder:
    """The order with the fewest electrical steps, then the fewest circuits taken.

    ``hops`` as in :func:`ring_cost`; ``hosts`` has shape (R,): hosts in each rack, at least 1. The
    optimum is proven for at most :data:`EXACT_RACKS` racks.
    """
    if len(hosts) == 1:
        return RingOrder((0,) * int(hosts[0]), RingCost(0, 0), 0)
    network = _Network(hops, hosts)
    flow = network.least_flow()
    fewest = int(flow[network.to_rack].sum())
    while len(parts := network.parts(flow)) > 1:
        if len(hosts) > EXACT_RACKS:
            flow = network.joined(flow, parts)
            break
        network.cut(parts)
        flow = network.least_flow()
        fewest = int(flow[network.to_rack].sum())
    racks = _fill(_euler_tour(network.steps(flow), len(hosts)), hosts)
    return RingOrder(racks, ring_cost(hops, racks), fewest)


class _Network:
    """Arcs from rack to rack over circuits, and through the electrical network (the node R)."""

    def __init__(self, hops: NDArray[np.int64], hosts: NDArray[np.int64]) -> None:
        n = len(hosts)
        joins = np.ones((n + 1, n + 1), dtype=np.bool_)
        joins[:n, :n] = hops > 0
        np.fill_diagonal(joins, False)
        self.tail, self.head = np.nonzero(joins)
        self.hosts = hosts
        self._joins = joins
        self._arc = np.zeros_like(joins, dtype=np.int64)
        self._arc[joins] = np.arange(len(self.tail))
        self.from_rack, self.to_rack = self._arc[:n, n], self._arc[n, :n]
        self._cost = np.zeros((n + 1, n + 1))
        self._cost[:n, :n] = hops
        self._cost[n, :n] = hops.max() * hosts.sum() + 1
        self._cuts: list[NDArray[np.float64]] = []

    def least_flow(self) -> NDArray[np.int64]:
        """The cheapest circulation that enters each rack from once to as often as it has hosts, and
        that leaves each side of each cut.
        """
        n, arcs = len(self.hosts), np.arange(len(self.tail))
        ones = np.ones(len(arcs))
        enters = coo_array((ones, (self.head, arcs)), shape=(n + 1, len(arcs)))
        leaves = coo_array((ones, (self.tail, arcs)), shape=(n + 1, len(arcs)))
        constraints = [
            LinearConstraint(enters - leaves, 0, 0),
            LinearConstraint(enters.tocsr()[:n], 1, self.hosts),
        ]
        if self._cuts:
            constraints.append(LinearConstraint(np.array(self._cuts), 1, np.inf))
        found = milp(
            self._cost[self._joins],
            integrality=ones,
            constraints=constraints,
            options={"mip_rel_gap": 0},
        )
        flow: NDArray[np.int64] = np.rint(found.x).astype(np.int64)
        return flow

    def parts(self, flow: NDArray[np.int64]) -> list[list[int]]:
        """Racks of each connected part; the part with the electrical network comes first."""
        n, used = len(self.hosts), flow > 0
        arcs = coo_array((flow[used], (self.tail[used], self.head[used])), shape=(n + 1, n + 1))
        _, part = connected_components(arcs)
        parts = [np.flatnonzero(part[:n] == number).tolist() for number in np.unique(part[:n])]
        return sorted(parts, key=lambda members: part[members[0]] != part[n])

    def cut(self, parts: Iterable[Sequence[int]]) -> None:
        """Demand that every circulation from now on leaves each of the parts."""
        for members in parts:
            inside = np.isin(self.tail, members) & ~np.isin(self.head, members)
            self._cuts.append(inside.astype(np.float64))

    def joined(self, flow: NDArray[np.int64], parts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Join the parts of a circulation: over circuits if possible, else electrically."""
        flow, waiting, whole = flow.copy(), list(parts[1:]), list(parts[0])
        while waiting:
            part = next((near for near in waiting if self._join(flow, whole, near)), None)
            if part is None:
                part = waiting[0]
                if not flow[self.to_rack[whole]].any():
                    self._divert(flow, whole)
                self._divert(flow, part)
            waiting.remove(part)
            whole += part
        return flow

    def _join(self, flow: NDArray[np.int64], whole: Sequence[int], part: Sequence[int]) -> bool:
        """Exchange the heads of an arc of each, or go there and back; False if neither is
        possible.
        """
        used = np.flatnonzero(flow)
        first = used[np.isin(self.head[used], whole) | np.isin(self.tail[used], whole)]
        second = used[np.isin(self.head[used], part)]
        there = self._joins[self.tail[first][:, None], self.head[second]]
        back = self._joins[self.tail[second], self.head[first][:, None]]
        for i, j in np.argwhere(there & back)[:1]:
            arc_a, arc_b = first[i], second[j]
            flow[[arc_a, arc_b]] -= 1
            flow[self._arc[self.tail[arc_a], self.head[arc_b]]] += 1
            flow[self._arc[self.tail[arc_b], self.head[arc_a]]] += 1
            return True
        enters = np.bincount(self.head, flow, len(self.hosts) + 1)[:-1]
        has_room = enters < self.hosts
        both = self._joins & self._joins.T
        for u, v in product(whole, part):
            if both[u, v] and has_room[u] and has_room[v]:
                flow[[self._arc[u, v], self._arc[v, u]]] += 1
                return True
        return False

    def _divert(self, flow: NDArray[np.int64], part: Sequence[int]) -> None:
        """Send a step of the part through the electrical network."""
        arc = np.flatnonzero((flow > 0) & np.isin(self.tail, part))[0]
        flow[arc] -= 1
        flow[[self.from_rack[self.tail[arc]], self.to_rack[self.head[arc]]]] += 1

    def steps(self, flow: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        for arc in np.flatnonzero(flow):
            yield from [(int(self.tail[arc]), int(self.head[arc]))] * int(flow[arc])


def _euler_tour(steps: Iterable[tuple[int, int]], electrical: int) -> list[int]:
    """Racks in the order of a closed walk that takes every step once.

    The walk begins with the electrical network, if there is a step to it.
    """
    heads: dict[int, list[int]] = defaultdict(list)
    for tail, head in steps:
        heads[tail].append(head)
    walk, stack = [], [max(heads)]
    while stack:
        if heads[stack[-1]]:
            stack.append(heads[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return [node for node in reversed(walk[1:]) if node != electrical]


def _fill(walk: Sequence[int], hosts: NDArray[np.int64]) -> tuple[int, ...]:
    """The rack of each place: a place for each visit, and the first visit has all further hosts."""
    spare = hosts - np.bincount(walk, minlength=len(hosts))
    places: list[int] = []
    for rack in walk:
        places += [rack] * (1 + int(spare[rack]))
        spare[rack] = 0
    return tuple(places)
