"""Plans in the making: what is given, arranged for the compiled rounds, and what they answer."""

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
    members,
    pair_demands,
    serve,
    validate_demand,
)
from topology.standing import Standing, standing_part
from topology.tables import (
    IntArray,
    PathTable,
    end_ports,
    in_order,
    make_circuits,
    make_paths,
    ranked,
    starts,
)


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
class Draft:
    """A plan in arrays: L circuits, the given ones first, and F new paths."""

    given: Sequence[Circuit]
    link_a: IntArray
    """Shape (L,): the lower port of each circuit."""
    link_b: IntArray
    capacity_mbps: NDArray[np.float64]
    """Shape (L,): what each circuit has for new paths."""
    pair: IntArray
    """Shape (F,): which pair each path serves."""
    hops: IntArray
    """Shape (F,)."""
    links: IntArray
    """Shape (F, H): the circuits of each path, then -1."""

    def used(self) -> NDArray[np.bool_]:
        """Shape (L,): which circuits a new path runs over."""
        used = np.zeros(len(self.link_a) + 1, dtype=np.bool_)  # one more for the -1
        used[self.links] = True
        return used[:-1]

    def count_of(self, circuits: Sequence[Circuit]) -> int:
        """How many of ``circuits`` new paths run over."""
        used = self.used()
        ends = set(zip(self.link_a[used].tolist(), self.link_b[used].tolist(), strict=True))
        return sum((circuit.a, circuit.b) in ends for circuit in circuits)

    def served_mbps(self, pairs: PairDemands) -> float:
        """What ``pairs`` get on the new paths when they take their share in turn."""
        table = self.table(pairs, slice(None))
        links = self._hop_links(slice(None))
        return float(
            serve(table, links, self.capacity_mbps.copy(), self.pair, pairs.mbps.copy()).sum()
        )

    def table(self, pairs: PairDemands, order: slice | IntArray) -> PathTable:
        """The new paths in ``order``."""
        links = self._hop_links(order)
        return PathTable(
            pairs.src[self.pair[order]],
            pairs.dst[self.pair[order]],
            starts(self.hops[order]),
            self.link_a[links],
            self.link_b[links],
        )

    def _hop_links(self, order: slice | IntArray) -> IntArray:
        links: IntArray = self.links[order].ravel()
        return links[links >= 0]


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What all drafts of one call have in common."""

    fabric: FabricArrays
    current: Topology
    reserved: Reserved
    budget: Budget
    pairs: PairDemands
    standing: Standing
    waits: IntArray
    """The positions in ``pairs`` of those that nothing standing serves."""
    waiting: PairDemands
    """Those."""
    shared: Sequence[Circuit]
    """The standing circuits that new paths may use."""
    changing: Sequence[Circuit]
    """The circuits of ``current`` that may change: preferred to others."""
    is_free: NDArray[np.uint8]
    """Shape (P,): whether new circuits may end at a port."""

    @classmethod
    def of(
        cls,
        fabric: FabricArrays,
        demand: ArrayLike,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> Ground:
        """Raises PlanError for a bad demand or budget, or pinned paths that do not fit."""
        pairs = pair_demands(validate_demand(demand, fabric.n_racks))
        budget.check(fabric)
        standing = standing_part(fabric, pairs, current, reserved, budget)
        rack_in = members(budget.racks, fabric.n_racks)
        is_free = rack_in[fabric.port_rack]
        is_free &= members(budget.planes, fabric.n_planes)[fabric.port_plane]
        is_free[list(standing.ports() | budget.blocked_ports)] = False
        waits = rack_in[pairs.src] & rack_in[pairs.dst]
        if standing.paths:
            table = PathTable.of(standing.paths)
            place = pairs.places(table.src, table.dst, fabric.n_racks)
            waits[place[place >= 0]] = False
        return cls(
            fabric=fabric,
            current=current,
            reserved=reserved,
            budget=budget,
            pairs=pairs,
            standing=standing,
            waits=np.flatnonzero(waits).astype(np.int32),
            waiting=pairs.chosen(waits),
            shared=[
                circuit
                for circuit in in_order(standing.circuits)
                if all(budget.includes_rack(rack) for rack in fabric.racks_of(circuit))
                and not budget.blocked_ports & {circuit.a, circuit.b}
            ],
            changing=in_order(current.circuits - standing.circuits),
            is_free=is_free.astype(np.uint8),
        )

    def in_use(self) -> list[Circuit]:
        """Circuits that could be given up, and now carry a path whose pair still wants it."""
        table = PathTable.of(self.current.paths)
        wanted = self.pairs.places(table.src, table.dst, self.fabric.n_racks) >= 0
        carrying = np.zeros(self.fabric.n_ports, dtype=np.bool_)
        carrying[table.hop_a[np.repeat(wanted, table.hops)]] = True
        return [
            circuit
            for circuit in self.changing
            if carrying[circuit.a] and self.is_free[circuit.a] and self.is_free[circuit.b]
        ]

    def draft(self, rule: Rule, kept: Sequence[Circuit] = ()) -> Draft:
        """Run the rounds; circuits of ``current`` that are ``kept`` are there from the start."""
        fabric, pairs = self.fabric, self.waiting
        max_hops = min(self.budget.max_hops, max(1, fabric.n_racks - 1))  # no rack twice
        given = [*self.shared, *kept]
        given_a, given_b = end_ports(given)
        is_free = self.is_free.copy()
        is_free[given_a] = is_free[given_b] = False
        rates, port_class = np.unique(fabric.port_rate_mbps, return_inverse=True)
        pair_class = np.searchsorted(rates, pairs.mbps - RATE_TOLERANCE_MBPS)
        ports = np.bincount(fabric.port_rack, minlength=fabric.n_racks)
        room = len(given) + fabric.n_ports // 2
        link_a, link_b = np.zeros((2, room), dtype=np.int32)
        residual = np.zeros(room)
        residual[: len(self.shared)] = [self.standing.residual_mbps[c] for c in self.shared]
        residual[len(self.shared) : len(given)] = [fabric.rate_of(c) for c in kept]
        capacity = residual.copy()
        pair, hops = np.zeros((2, len(pairs)), dtype=np.int32)
        links = np.full((len(pairs), max_hops), -1, dtype=np.int32)
        n_links, n_paths = _native.plan_paths(
            fabric.n_racks,
            fabric.n_planes,
            len(rates) + 1,
            fabric.port_rack,
            fabric.port_plane,
            port_class.astype(np.int32),
            fabric.port_rate_mbps,
            is_free,
            given_a,
            given_b,
            *end_ports(self.changing),
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
            pair,
            hops,
            links,
        )
        new = slice(len(given), n_links)
        capacity[new] = np.minimum(
            fabric.port_rate_mbps[link_a[new]], fabric.port_rate_mbps[link_b[new]]
        )
        return Draft(
            given,
            link_a[:n_links],
            link_b[:n_links],
            capacity[:n_links],
            pair[:n_paths],
            hops[:n_paths],
            links[:n_paths],
        )

    def result(self, draft: Draft) -> PlanResult:
        """What stands, the draft's paths and their circuits, and how much all that serves."""
        new = slice(len(draft.given), None)
        plane = self.fabric.port_plane[draft.link_a[new]]
        made = make_circuits(plane, draft.link_a[new], draft.link_b[new], self.current.circuits)
        circuits = [*draft.given, *made]
        chosen = [circuits[link] for link in np.flatnonzero(draft.used()).tolist()]
        n_racks = self.fabric.n_racks
        ends = self.waiting.src[draft.pair] * n_racks + self.waiting.dst[draft.pair]
        order = ranked(ends, n_racks * n_racks)
        table = draft.table(self.waiting, order)
        paths = make_paths(table.src, table.dst, draft.hops[order], draft.links[order], circuits)
        topology = Topology(
            self.standing.circuits.union(chosen), _merged(self.standing.paths, paths)
        )
        if self.standing.paths:
            return measure(self.fabric, self.pairs, topology, self.reserved)
        place = self.waits[draft.pair[order]]
        return measure_table(self.fabric, self.pairs, topology, table, place, self.reserved)


def _merged(standing: Sequence[Path], new: Sequence[Path]) -> tuple[Path, ...]:
    if not standing:
        return tuple(new)
    return tuple(sorted([*standing, *new], key=lambda path: (path.src, path.dst)))
