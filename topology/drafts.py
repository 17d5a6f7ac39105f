"""Unfinished plans: their inputs, arranged for the compiled rounds, and the rounds' results."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.circuit_arrays import Circuits, CircuitTable
from hydra.model import Circuit, Path, Topology
from hydra.path_arrays import Paths
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    PairDemands,
    PlanResult,
    Reserved,
    largest_first,
    measure,
    measure_table,
    members,
    pair_demands,
    serve,
    shares,
    validate_demand,
)
from topology.rounds import FoundPaths, Rounds, Rule
from topology.standing import Standing, standing_part
from topology.tables import (
    IntArray,
    PathTable,
    ranked,
    starts,
)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A plan in arrays: L circuits, the given circuits first, and F new paths."""

    given: Sequence[Circuit]
    link_a: IntArray
    """Shape (L,): the lower port of each circuit."""
    link_b: IntArray
    capacity_mbps: NDArray[np.float64]
    """Shape (L,): capacity of each circuit for new paths."""
    pair: IntArray
    """Shape (F,): the pair of each path, by position in ``Ground.pairs``."""
    hops: IntArray
    """Shape (F,)."""
    links: IntArray
    """Shape (F, H): the circuits of each path, then -1."""

    def used(self) -> NDArray[np.bool_]:
        """Shape (L,): True for circuits used by new paths."""
        used = np.zeros(len(self.link_a) + 1, dtype=np.bool_)  # one more for the -1
        used[self.links] = True
        return used[:-1]

    def count_of(self, circuits: Sequence[Circuit]) -> int:
        """Number of ``circuits`` used by new paths."""
        used = self.used()
        ends = set(zip(self.link_a[used].tolist(), self.link_b[used].tolist(), strict=True))
        return sum((circuit.a, circuit.b) in ends for circuit in circuits)

    def given_mbps(
        self,
        share_mbps: NDArray[np.float64],
        pairs: PairDemands,
        residual_mbps: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Shape (F,): Mbps that each path carries of its pair's ``share_mbps``, shape (pairs,).

        The rates are taken from ``residual_mbps``, shape (L,).
        """
        table, links = self.table(pairs, np.arange(len(self.pair), dtype=np.int32))
        return serve(table, links, residual_mbps, self.pair, share_mbps)

    def ordered(self, pairs: PairDemands, fabric: FabricArrays) -> Draft:
        """The same draft, its paths in the order of :class:`~hydra.model.Path`, each once."""
        order = self.in_order(pairs, fabric)
        pair, links = self.pair[order], self.links[order]
        again = np.zeros(len(order), dtype=np.bool_)
        again[1:] = (pair[1:] == pair[:-1]) & (links[1:] == links[:-1]).all(axis=1)
        order = order[~again]
        return replace(self, pair=self.pair[order], hops=self.hops[order], links=self.links[order])

    def in_order(self, pairs: PairDemands, fabric: FabricArrays) -> IntArray:
        """New paths in the order of :class:`~hydra.model.Path`."""
        by_port = np.lexsort((self.link_b, self.link_a, fabric.port_plane[self.link_a]))
        # Words of 16 bits, enough for most fabrics, are sorted by radix.
        small = np.min_scalar_type(max(len(by_port), fabric.n_racks))
        rank = np.zeros(len(by_port) + 1, dtype=small)  # an ended path, link -1, sorts first
        rank[by_port] = np.arange(1, len(by_port) + 1)
        hops = rank[self.links.T]
        src, dst = pairs.src[self.pair].astype(small), pairs.dst[self.pair].astype(small)
        return np.lexsort([*hops[::-1], dst, src]).astype(np.int32)

    def table(self, pairs: PairDemands, order: IntArray) -> tuple[PathTable, IntArray]:
        """The table of the new paths in ``order``, and the circuit of each hop, by position."""
        along = self.links.take(order, axis=0).ravel()
        links: IntArray = along[along >= 0]
        pair = self.pair.take(order)
        table = PathTable(
            pairs.src.take(pair),
            pairs.dst.take(pair),
            starts(self.hops[order]),
            self.link_a[links],
            self.link_b[links],
        )
        return table, links


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """Common part of all drafts of one call."""

    fabric: FabricArrays
    current: Topology
    reserved: Reserved
    budget: Budget
    pairs: PairDemands
    standing: Standing
    n_standing: NDArray[np.int64]
    """Shape (F,): number of standing paths of each pair."""
    open_paths: NDArray[np.int64]
    """Shape (F,): number of new paths that each pair may get."""
    open_mbps: NDArray[np.float64]
    """Shape (F,): rate that each pair may get on new paths."""
    waits: IntArray
    """Positions in ``pairs`` of pairs without a standing path that may get a path."""
    shared: Sequence[Circuit]
    """The standing circuits that new paths may use."""
    changing: AbstractSet[Circuit]
    """The circuits of ``current`` that may change: preferred to new circuits."""
    is_free: NDArray[np.uint8]
    """Shape (P,): 1 if new circuits may end at the port."""

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
        inside = rack_in[pairs.src] & rack_in[pairs.dst]
        n_standing = _count_paths(standing.paths, pairs, fabric.n_racks)
        # Beside reserved paths, further paths would take the traffic meant for the reserved rate.
        most = budget.paths_between(pairs.src, pairs.dst)
        most[_count_paths(list(reserved.rate_by_path()), pairs, fabric.n_racks) > 0] = 0
        open_paths = np.where(inside, np.maximum(0, most - n_standing), 0)
        return cls(
            fabric=fabric,
            current=current,
            reserved=reserved,
            budget=budget,
            pairs=pairs,
            standing=standing,
            n_standing=n_standing,
            open_paths=open_paths,
            open_mbps=np.where(open_paths > 0, standing.remaining_mbps, 0.0),
            waits=np.flatnonzero(inside & (n_standing == 0)).astype(np.int32),
            shared=[
                circuit
                for circuit in Circuits.of(standing.circuits)
                if all(budget.includes_rack(rack) for rack in fabric.racks_of(circuit))
                and not budget.blocked_ports & {circuit.a, circuit.b}
            ],
            changing=Circuits.of(current.circuits - standing.circuits),
            is_free=is_free.astype(np.uint8),
        )

    def in_use(self) -> list[Circuit]:
        """Circuits that could be given up, and carry a path of a pair with a demand."""
        table = PathTable.of(self.current.paths)
        wanted = self.pairs.places(table.src, table.dst, self.fabric.n_racks) >= 0
        carrying = np.zeros(self.fabric.n_ports, dtype=np.bool_)
        carrying[table.hop_a[np.repeat(wanted, table.hops)]] = True
        return [
            circuit
            for circuit in self.changing
            if carrying[circuit.a] and self.is_free[circuit.a] and self.is_free[circuit.b]
        ]

    def draft(self, rule: Rule, kept: Sequence[Circuit] = (), further: int = 0) -> Draft:
        """Run the rounds; ``kept`` circuits of ``current`` are there from the start.

        If pairs may have several paths, the rounds are run again for each further path. The result
        counts a pair's equally long paths in another order than the order of booking, so some
        capacity may be left. ``further`` is the number of times that more paths are booked on the
        capacity left.
        """
        given = [*self.shared, *kept]
        given_mbps = [self.standing.residual_mbps[circuit] for circuit in self.shared]
        given_mbps += [self.fabric.rate_of(circuit) for circuit in kept]
        rounds = Rounds.on(
            self.fabric,
            self.pairs,
            self.budget.max_hops,
            self.changing,
            self.is_free,
            given,
            given_mbps,
        )
        paths = rounds.run(rule, self._in_order(rule.order, self.waits), self.open_mbps)
        more = replace(rule, whole=False, partial=True, direct_share=1.0)
        anywhere = replace(more, spare=float("inf"))
        beside = self.open_paths - (self.n_standing == 0)  # the rounds above were for a first path
        for _ in range(beside.max(initial=0)):
            circuits, before = rounds.n_links, len(paths.pair)
            paths = self._one_more(rounds, more, paths)
            if len(paths.pair) == before and rounds.n_links == circuits:
                if more == anywhere:
                    break  # every further round would begin and end alike
                more = anywhere
        for _ in range(further if beside.any() else 0):
            paths = self._as_counted(rounds, self._as_draft(rounds, paths, given, given_mbps))
            for one_more in (replace(more, spare=rule.spare), anywhere):
                paths = self._one_more(rounds, one_more, paths)
        return self._as_draft(rounds, paths, given, given_mbps)

    def _as_draft(
        self,
        rounds: Rounds,
        paths: FoundPaths,
        given: Sequence[Circuit],
        given_mbps: Sequence[float],
    ) -> Draft:
        capacity = rounds.rates_mbps()
        capacity[: len(given)] = given_mbps
        made = slice(rounds.n_links)
        return Draft(
            given,
            rounds.link_a[made],
            rounds.link_b[made],
            capacity,
            paths.pair,
            paths.hops,
            paths.links,
        )

    def _as_counted(self, rounds: Rounds, draft: Draft) -> FoundPaths:
        """The draft's paths with the rates that they carry in the order of the result.

        ``rounds`` gets the capacity left afterwards.
        """
        draft = draft.ordered(self.pairs, self.fabric)
        residual = draft.capacity_mbps.copy()
        share = shares(self.pairs.mbps, self._n_paths(draft.pair))
        given_mbps = draft.given_mbps(share, self.pairs, residual)
        rounds.residual_mbps[: rounds.n_links] = residual
        return FoundPaths(draft.pair, draft.hops, draft.links, given_mbps)

    def _in_order(self, order: int, which: IntArray) -> IntArray:
        """``which``, positions of pairs, largest demand first, with ties by the salt ``order``."""
        if order == 0:
            return which
        pairs = self.pairs.chosen(which)
        return which[largest_first(pairs.mbps, pairs.src, pairs.dst, order)]

    def _n_paths(self, pair: IntArray) -> NDArray[np.int64]:
        """Shape (pairs,): number of paths of each pair; ``pair`` has the pairs of new paths."""
        return self.n_standing + np.bincount(pair, minlength=len(self.pairs))

    def _lost_mbps(
        self, share_mbps: NDArray[np.float64], beside: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Shape (pairs,): rate that the standing paths of pairs ``beside`` new paths lose."""
        lost = self.pairs.mbps - self.open_mbps - self.n_standing * share_mbps
        return np.where(beside, np.maximum(lost, 0.0), 0.0)

    def served_mbps(self, draft: Draft) -> float:
        """Mbps that new paths add, if switches spread a pair's flows evenly over its paths."""
        n_paths = self._n_paths(draft.pair)
        share = shares(self.pairs.mbps, n_paths)
        given = draft.given_mbps(share, self.pairs, draft.capacity_mbps.copy())
        return float(given.sum() - self._lost_mbps(share, n_paths > self.n_standing).sum())

    def _one_more(self, rounds: Rounds, rule: Rule, found: FoundPaths) -> FoundPaths:
        """``found``, and a further path for each pair that gains by it, the largest wants first.

        A further path lowers the share of its pair's other paths, which give back the excess.
        """
        count = len(self.pairs)
        n_new = np.bincount(found.pair, minlength=count)
        n_paths = n_new + self.n_standing
        carried = np.bincount(found.pair, weights=found.given_mbps, minlength=count)
        remaining_mbps = self.open_mbps - carried
        wants = (n_paths > 0) & (n_new < self.open_paths) & (remaining_mbps > RATE_TOLERANCE_MBPS)
        which = np.flatnonzero(wants)
        pairs = self.pairs.chosen(which)
        by_rest = which[largest_first(remaining_mbps[which], pairs.src, pairs.dst, rule.order)]
        share = shares(self.pairs.mbps, n_paths + 1)
        spread = np.minimum(found.given_mbps, share[found.pair])
        given_back = carried - np.bincount(found.pair, weights=spread, minlength=count)
        lost = given_back + self._lost_mbps(share, wants)
        more = rounds.run(rule, by_rest.astype(np.int32), share)
        better = more.given_mbps > lost[more.pair] + RATE_TOLERANCE_MBPS
        better &= ~more.among(found)
        rounds.withdraw(more.chosen(~better))
        more = more.chosen(better)
        has_more = np.zeros(count, dtype=np.bool_)
        has_more[more.pair] = True
        spread = np.where(has_more[found.pair], spread, found.given_mbps)
        rounds.withdraw(replace(found, given_mbps=found.given_mbps - spread))
        return FoundPaths.joined([replace(found, given_mbps=spread), more])

    def result(self, draft: Draft) -> PlanResult:
        """The plan: standing parts, the draft's paths and circuits, and the demand served."""
        used = draft.used()
        a, b = draft.link_a[used], draft.link_b[used]
        circuits, place = Circuits.numbered(CircuitTable.duplex(self.fabric.port_plane[a], a, b))
        place_of_link = np.full(len(used), -1, dtype=np.int32)
        place_of_link[used] = place
        n_racks = self.fabric.n_racks
        ends = self.pairs.src[draft.pair] * n_racks + self.pairs.dst[draft.pair]
        order = ranked(ends, n_racks * n_racks)
        if (np.diff(ends[order]) == 0).any():
            order = draft.in_order(self.pairs, self.fabric)
        table, links = draft.table(self.pairs, order)
        paths = Paths(circuits, place_of_link[links], table)
        topology = Topology(self.standing.circuits | circuits, _merged(self.standing.paths, paths))
        if self.standing.paths:
            return measure(self.fabric, self.pairs, topology, self.reserved)
        return measure_table(
            self.fabric, self.pairs, topology, table, draft.pair[order], self.reserved
        )


def _merged(standing: Sequence[Path], new: Paths) -> Sequence[Path]:
    if not standing:
        return new
    return tuple(sorted([*standing, *new], key=lambda path: (path.src, path.dst, path.circuits)))


def _count_paths(paths: Sequence[Path], pairs: PairDemands, n_racks: int) -> NDArray[np.int64]:
    """Shape (F,): number of ``paths`` of each pair."""
    if not paths:
        return np.zeros(len(pairs), dtype=np.int64)
    table = PathTable.of(paths)
    place = pairs.places(table.src, table.dst, n_racks)
    return np.bincount(place[place >= 0], minlength=len(pairs))
