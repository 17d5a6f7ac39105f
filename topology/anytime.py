"""Circuits and paths by construction and local search: the default algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from hydra.circuit_arrays import CircuitTable
from hydra.model import Topology
from topology import _native
from topology.drafts import Draft, Ground
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    PlanResult,
    Reserved,
)
from topology.rounds import Rule

_LONGEST: Final = 3
"""Hops of the longest paths that the local search finds."""
_RUNGS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of paths of a pair to plan for, in ascending order."""
_LEAST_STEPS: Final = 150_000
_STEPS_PER_PAIR: Final = 300
"""Circuits that the local search may look at for each of its limits: the least, and more for each
pair and port of a rack.
"""
_MOST_STEPS: Final = 20_000_000
_LEAST_REROUTE: Final = 20_000
"""Least number of circuits that may be looked at for better paths on the same topology."""
_CONSTRUCTIONS: Final = (
    Rule(whole=False, partial=True, widest=True),
    Rule(whole=False, partial=True, widest=True, direct_share=0.5, order=1),
)
"""Rules of the rounds at the start of each search."""
_LARGE_CONSTRUCTIONS: Final = (
    Rule(whole=False, partial=True, widest=True, direct_share=0.5, spare=0.75),
    Rule(whole=False, partial=True, widest=True, spare=0.75),
)
"""Rules for fabrics without improvement of topologies, if routing a topology takes long."""
_FURTHER: Final = 2
"""Number of times that more paths are booked there on the capacity left by earlier paths."""


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """A draft, and its worth in Mbps: the demand served, less the cost of changing to the draft."""

    draft: Draft
    worth_mbps: float


def plan_anytime(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """The best plan of several constructions, each improved by local search.

    ``demand`` has shape (N, N), Mbps from row to column; a pair of racks wants the larger of its
    two directions. Plans are made for one hop, then two, up to ``budget.max_hops``, and for one
    path a pair, then more. Each plan begins with the best plan of the smaller limits, with rounds
    of :func:`~topology.multihop.plan_hydra_bfs` by several rules, and with the circuits in use
    kept. The best of these is improved, and the improved plan counts if more demand is served. So a
    plan for more hops or paths never serves less.

    The improvement joins two ports of a plane, and their former partners, while the demand served
    grows, and begins again from random changes of the best plan (iterated local search). Each
    topology is routed anew: by one hop, then two and three, each pair by the widest paths, the
    largest demand first. A pair gets a further path only if an even spread over its paths then
    serves more. Then pairs with unserved demand are routed before pairs in their way, two at a
    time, while the total served grows. Longer paths come from the rounds. The effort is counted in
    circuits looked at, by the size of fabric and demand, so the same input gives the same result;
    when ``budget.expired()``, the best plan so far is returned. If routing a topology takes long,
    none is improved: the plan comes from rounds that spare racks in need of their ports, with more
    paths on the capacity left.

    Each circuit in use that a plan gives up has to serve ``budget.disturbance_mbps`` more. Reserved
    paths and everything outside the budget stay (see :mod:`topology.standing`).

    Raises PlanError for a bad demand entry, an impossible budget, or pinned paths that do not fit.
    """
    ground = Ground.of(fabric, demand, current, reserved, budget)
    return ground.result(_best(_Search(ground)).draft)


def _best(search: _Search) -> _Plan:
    """The best plan within all limits; if time is up before the largest limits, the best so far."""
    by_hops: dict[int, _Plan] = {}
    for paths in search.rungs():
        for hops in range(1, search.max_hops + 1):
            before = [by_hops[fewer] for fewer in (hops - 1, hops) if fewer in by_hops]
            plan = by_hops[hops] = search.plan(hops, paths, before)
            if plan.worth_mbps >= search.all_mbps or search.expired():
                return max(by_hops.values(), key=lambda plan: plan.worth_mbps)
    return by_hops[search.max_hops]


class _Search:
    """Inputs of a call, and a search for plans within smaller limits than the budget's."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        fabric = ground.fabric
        self.max_hops = min(ground.budget.max_hops, max(1, fabric.n_racks - 1))
        self.all_mbps = float(ground.open_mbps.sum()) - RATE_TOLERANCE_MBPS
        self.expired = ground.budget.expired
        degree = int(fabric.ports_per_rack.max(initial=0))
        wanted = _LEAST_STEPS + _STEPS_PER_PAIR * len(ground.pairs) * degree
        self._steps = min(_MOST_STEPS, wanted)
        self._reroute_steps = max(_LEAST_REROUTE, wanted // 16)
        self._improves = 10 * len(ground.pairs) * degree**2 <= self._steps
        self._disturbance_mbps = ground.budget.disturbance_mbps
        self._in_use = ground.in_use() if self._disturbance_mbps > 0 else []
        self._mate = np.full(fabric.n_ports, -1, dtype=np.int32)
        for circuit in self._in_use:
            self._mate[[circuit.a, circuit.b]] = circuit.b, circuit.a

    def rungs(self) -> list[int]:
        """Numbers of paths of a pair to plan for, ascending; at least one."""
        ground = self._ground
        ports = int(ground.fabric.ports_per_rack.max(initial=1))
        most = min(int(ground.open_paths.max(initial=1)), ports)
        if not self._improves:
            return [max(1, most)]
        return [paths for paths in _RUNGS if paths <= max(1, most)]

    def plan(self, hops: int, paths: int, before: Sequence[_Plan]) -> _Plan:
        """The best plan for pairs of at most ``paths`` paths of at most ``hops`` circuits.

        ``before``: plans for smaller limits, none of which serves more than the result.
        """
        ground = replace(
            self._ground,
            budget=replace(self._ground.budget, max_hops=hops),
            open_paths=np.minimum(self._ground.open_paths, paths),
        )
        plans = chain(before, self._constructed(ground))
        best = next(plans)
        for plan in plans:
            if best.worth_mbps >= self.all_mbps:
                break
            best = max(best, plan, key=lambda plan: plan.worth_mbps)
        if best.worth_mbps >= self.all_mbps or not self._improves:
            return best
        improved = self._improved(ground, best.draft)
        return improved if improved.worth_mbps > best.worth_mbps + RATE_TOLERANCE_MBPS else best

    def _constructed(self, ground: Ground) -> Iterator[_Plan]:
        weighted = not ground.budget.boolean
        rules = _CONSTRUCTIONS if self._improves else _LARGE_CONSTRUCTIONS
        further = 0 if self._improves else _FURTHER
        for rule in rules:
            rule_of_kind = replace(rule, whole=True, partial=False) if weighted else rule
            yield self._judged(ground, ground.draft(rule_of_kind, further=further))
        if self._in_use:
            yield self._judged(ground, ground.draft(_CONSTRUCTIONS[0], self._in_use))

    def _judged(self, ground: Ground, draft: Draft) -> _Plan:
        given_up = len(self._in_use) - draft.count_of(self._in_use) if self._in_use else 0
        # In the order of the result's paths, since equally long paths of a pair take turns in
        # order.
        draft = draft.ordered(ground.pairs, ground.fabric)
        served = ground.served_mbps(draft)
        return _Plan(draft, served - self._disturbance_mbps * given_up)

    def _improved(self, ground: Ground, draft: Draft) -> _Plan:
        fabric, pairs = ground.fabric, ground.pairs
        fixed = len(ground.shared)
        movable = draft.used()
        movable[:fixed] = False
        room = fixed + fabric.n_ports
        link_a, link_b = np.zeros((2, room), dtype=np.int32)
        capacity = np.zeros(room)
        shared = CircuitTable.of(ground.shared)
        link_a[:fixed], link_b[:fixed] = shared.a, shared.b
        capacity[:fixed] = [ground.standing.residual_mbps[link] for link in ground.shared]
        count = fixed + int(movable.sum())
        link_a[fixed:count], link_b[fixed:count] = draft.link_a[movable], draft.link_b[movable]
        rate = fabric.port_rate_mbps
        capacity[fixed:count] = np.minimum(rate[link_a[fixed:count]], rate[link_b[fixed:count]])
        most = int(np.minimum(ground.open_paths, fabric.n_ports).sum())
        pair, hops = np.zeros((2, most), dtype=np.int32)
        links = np.full((most, _LONGEST), -1, dtype=np.int32)
        count, n_paths, _ = _native.improve_links(
            fabric.n_racks,
            fabric.n_planes,
            fabric.port_rack,
            fabric.port_plane,
            fabric.port_rate_mbps,
            ground.is_free,
            pairs.src,
            pairs.dst,
            pairs.mbps,
            ground.open_mbps,
            ground.open_paths.astype(np.int32),
            ground.n_standing.astype(np.int32),
            min(ground.budget.max_hops, _LONGEST),
            not ground.budget.boolean,
            self._mate,
            np.array([self._disturbance_mbps]),
            self._steps,
            self._reroute_steps,
            ground.budget.max_hops,
            fixed,
            count,
            link_a,
            link_b,
            capacity,
            pair,
            hops,
            links,
            np.zeros(1),
        )
        improved = Draft(
            ground.shared,
            link_a[:count],
            link_b[:count],
            capacity[:count],
            pair[:n_paths],
            hops[:n_paths],
            links[:n_paths],
        )
        return self._judged(ground, improved)
