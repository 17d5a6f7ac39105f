"""The HydRA topology heuristic (Christodoulopoulos et al., JOCN 2015, section III.B.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import Circuit, Path, Topology
from topology import _native
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    PairDemands,
    PlanResult,
    Reserved,
    measure,
    measure_table,
    pair_demands,
    validate_demand,
)
from topology.standing import Standing, standing_part
from topology.tables import IntArray, PathTable, end_ports, make_circuits, make_paths, starts


def plan_hydra_bfs(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Plan circuits and paths of at most ``budget.max_hops`` hops for ``demand``.

    ``demand`` has shape (N, N), Mbps from row to column. A pair of racks wants the larger of its
    two directions and gets at most one path. Pairs are taken largest first (ties by rack numbers)
    in rounds h = 1, 2, …, H; a round serves those that a breadth-first search of depth h on the
    auxiliary graph reaches: links are pairs of free ports on one plane, and circuits with capacity
    left. In round 1 that means a circuit of one's own. A served pair leaves the ordering and
    books ``min(demand, what the scarcest circuit of its path has left)``.

    Fixed here where the paper leaves a choice: among shortest paths the lexicographically smallest
    rack sequence; for a hop a circuit with all that is wanted, then a new circuit (one that exists
    in ``current`` first, then the lowest plane), then a circuit with something left (Boolean
    demands only). A hop runs between racks of the budget, on its planes or on circuits that stay.

    The result holds the circuits and paths that must stay (see :mod:`topology.standing`), and
    beyond them only circuits that some path uses. The same input gives the same result.

    Cost: O(H·N²) searches of O(K·N / 64) operations on words; of O(K²·N / 64) beyond two hops.

    Raises PlanError for a bad demand entry, an impossible budget, or pinned paths that do not fit.
    """
    ground = _Ground.of(fabric, demand, current, reserved, budget)
    return ground.result(ground.draft(Rule(whole=not budget.boolean, partial=budget.boolean)))


def keep_current(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """``current`` unchanged, and how much of ``demand`` it serves: the baseline of comparisons.

    Raises PlanError for a bad demand entry or budget.
    """
    pairs = pair_demands(validate_demand(demand, fabric.n_racks))
    budget.check(fabric)
    return measure(fabric, pairs, current, reserved)


@dataclass(frozen=True, slots=True)
class Rule:
    """How the rounds go."""

    whole: bool
    """Rounds in which a path must carry all that its pair wants."""
    partial: bool
    """(After them) rounds in which anything above zero serves a pair."""
    widest: bool = False
    """Relays with the most capacity left, rather than those with the lowest numbers."""
    direct_share: float = 1.0
    """The part of a rack's ports that round 1 may use."""


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """A plan in arrays."""

    link_a: IntArray
    """Shape (L,): the lower port of each circuit, those that stay first."""
    link_b: IntArray
    path_pair: IntArray
    """Shape (F,): which pair each new path serves."""
    path_hops: IntArray
    path_links: IntArray
    """Shape (F, H): the circuits of each path, as many as it has hops."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ground:
    """What all drafts of one call have in common."""

    fabric: FabricArrays
    current: Topology
    reserved: Reserved
    budget: Budget
    pairs: PairDemands
    open_pairs: PairDemands
    """Those that nothing standing serves already."""
    standing: Standing
    shared: Sequence[Circuit]
    """The circuits that stay and that new paths may use."""
    is_free: NDArray[np.uint8]
    """Shape (P,): ports where new circuits may end."""

    @classmethod
    def of(
        cls,
        fabric: FabricArrays,
        demand: ArrayLike,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> _Ground:
        pairs = pair_demands(validate_demand(demand, fabric.n_racks))
        budget.check(fabric)
        standing = standing_part(fabric, pairs, current, reserved, budget)
        rack_in = _members(budget.racks, fabric.n_racks)
        is_free = rack_in[fabric.port_rack]
        is_free &= _members(budget.planes, fabric.n_planes)[fabric.port_plane]
        is_free[list(standing.ports() | budget.blocked_ports)] = False
        is_open = rack_in[pairs.src] & rack_in[pairs.dst]
        if standing.paths:
            ends = np.array([(p.src, p.dst) for p in standing.paths], dtype=np.int32).T
            place = pairs.places(ends[0], ends[1], fabric.n_racks)
            is_open[place[place >= 0]] = False
        shared = [
            circuit
            for circuit in sorted(standing.circuits)
            if all(budget.includes_rack(rack) for rack in fabric.racks_of(circuit))
            and not budget.blocked_ports & {circuit.a, circuit.b}
        ]
        return cls(
            fabric=fabric,
            current=current,
            reserved=reserved,
            budget=budget,
            pairs=pairs,
            open_pairs=pairs.chosen(is_open),
            standing=standing,
            shared=shared,
            is_free=is_free.astype(np.uint8),
        )

    def draft(self, rule: Rule) -> _Draft:
        fabric, pairs, max_hops = self.fabric, self.open_pairs, self.budget.max_hops
        rates, port_class = np.unique(fabric.port_rate_mbps, return_inverse=True)
        pair_class = np.searchsorted(rates, pairs.mbps - RATE_TOLERANCE_MBPS)
        preferred = sorted(self.current.circuits - self.standing.circuits)
        ports = np.bincount(fabric.port_rack, minlength=fabric.n_racks)
        room = len(self.shared) + fabric.n_ports // 2
        link_a, link_b = np.zeros((2, room), dtype=np.int32)
        residual = np.zeros(room)
        residual[: len(self.shared)] = [self.standing.residual_mbps[c] for c in self.shared]
        path_pair, path_hops = np.zeros((2, len(pairs)), dtype=np.int32)
        path_links = np.zeros((len(pairs), max_hops), dtype=np.int32)
        n_links, n_paths = _native.plan_paths(
            fabric.n_racks,
            fabric.n_planes,
            len(rates) + 1,
            fabric.port_rack,
            fabric.port_plane,
            port_class.astype(np.int32),
            fabric.port_rate_mbps,
            self.is_free,
            *end_ports(self.shared),
            *end_ports(preferred),
            pairs.src,
            pairs.dst,
            pair_class.astype(np.int32),
            pairs.mbps,
            max_hops,
            rule.whole,
            rule.partial,
            rule.widest,
            np.ceil(ports * rule.direct_share).astype(np.int32),
            link_a,
            link_b,
            residual,
            path_pair,
            path_hops,
            path_links,
        )
        return _Draft(
            link_a[:n_links],
            link_b[:n_links],
            path_pair[:n_paths],
            path_hops[:n_paths],
            path_links[:n_paths],
        )

    def result(self, draft: _Draft) -> PlanResult:
        """The draft and what stands, as a topology, and what that serves."""
        fabric, shared = self.fabric, len(self.shared)
        new = make_circuits(
            fabric.port_plane[draft.link_a[shared:]],
            draft.link_a[shared:],
            draft.link_b[shared:],
            known=self.current.circuits,
        )
        src, dst = self.open_pairs.src[draft.path_pair], self.open_pairs.dst[draft.path_pair]
        order = np.lexsort((dst, src))
        paths = make_paths(
            src[order],
            dst[order],
            draft.path_hops[order],
            draft.path_links[order],
            [*self.shared, *new],
        )
        topology = Topology(self.standing.circuits.union(new), _merged(self.standing.paths, paths))
        if self.standing.paths:
            return measure(fabric, self.pairs, topology, self.reserved)
        table = _table_of(draft, src, dst, order)
        return measure_table(fabric, self.pairs, topology, table, self.reserved)


def _members(ids: frozenset[int] | None, count: int) -> NDArray[np.bool_]:
    """Which of ``count`` things are among ``ids``; all of them if that is None."""
    members = np.full(count, ids is None)
    members[list(ids or ())] = True
    return members


def _merged(standing: Sequence[Path], new: Sequence[Path]) -> tuple[Path, ...]:
    if not standing:
        return tuple(new)
    return tuple(sorted([*standing, *new], key=lambda path: (path.src, path.dst)))


def _table_of(draft: _Draft, src: IntArray, dst: IntArray, order: NDArray[np.intp]) -> PathTable:
    hops = draft.path_hops[order]
    used = np.arange(draft.path_links.shape[1]) < hops[:, np.newaxis]
    links = draft.path_links[order][used]
    return PathTable(src[order], dst[order], starts(hops), draft.link_a[links], draft.link_b[links])
