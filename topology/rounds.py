"""Rounds of the HydRA heuristic, each run on the capacity left by earlier rounds."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydra.circuit_arrays import CircuitTable
from hydra.model import Circuit
from topology import _native
from topology.problem import RATE_TOLERANCE_MBPS, FabricArrays, PairDemands
from topology.tables import IntArray


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for the choice of paths in rounds."""

    whole: bool
    """True for rounds in which a path must carry the whole demand of a pair."""
    partial: bool
    """True for later rounds, in which any capacity above zero serves a pair."""
    widest: bool = False
    """True for relays with the most capacity left, False for the lowest rack numbers."""
    direct_share: float = 1.0
    """Part of a rack's ports open to round 1."""
    spare: float = float("inf")
    """Racks with a demand of at least this part of their ports' rate are scarce: scarce racks relay
    nothing, and two scarce racks get a circuit of their own only if the circuit is filled.
    """
    order: int = 0
    """Order of pairs with equal demands: the salt of :func:`~topology.problem.tie_break`."""

    def direct_ports(self, fabric: FabricArrays) -> IntArray:
        """Shape (N,): the number of each rack's ports open to round 1."""
        ports: IntArray = np.ceil(fabric.ports_per_rack * self.direct_share).astype(np.int32)
        return ports

    def relays(self, fabric: FabricArrays, pairs: PairDemands) -> NDArray[np.uint8]:
        """Shape (N,): 1 for racks open to relaying."""
        if self.spare == float("inf"):
            return np.ones(fabric.n_racks, dtype=np.uint8)
        wanted = np.bincount(pairs.src, weights=pairs.mbps, minlength=fabric.n_racks)
        wanted += np.bincount(pairs.dst, weights=pairs.mbps, minlength=fabric.n_racks)
        ports = np.bincount(
            fabric.port_rack, weights=fabric.port_rate_mbps, minlength=fabric.n_racks
        )
        return (wanted < self.spare * ports).astype(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class FoundPaths:
    """F paths, in the order of booking."""

    pair: IntArray
    """Shape (F,): the pair of each path."""
    hops: IntArray
    """Shape (F,)."""
    links: IntArray
    """Shape (F, H): the circuits of each path, then -1."""
    given_mbps: NDArray[np.float64]
    """Shape (F,): Mbps of each path."""

    def chosen(self, which: NDArray[np.bool_]) -> FoundPaths:
        return FoundPaths(
            self.pair[which], self.hops[which], self.links[which], self.given_mbps[which]
        )

    def among(self, others: FoundPaths) -> NDArray[np.bool_]:
        """Shape (F,): True for paths also found in ``others``: same pair, same circuits."""
        theirs = others.chosen(np.isin(others.pair, self.pair))
        rows = np.concatenate(
            [np.column_stack([paths.pair, paths.links]) for paths in (theirs, self)]
        )
        order = np.lexsort(rows.T)  # stable: theirs first
        again = np.zeros(len(rows), dtype=np.bool_)
        again[order[1:]] = (rows[order[1:]] == rows[order[:-1]]).all(axis=1)
        return again[len(theirs.pair) :]

    @classmethod
    def joined(cls, runs: Sequence[FoundPaths]) -> FoundPaths:
        """The paths of several runs, in the order of the runs; at least one run."""
        if len(runs) == 1:
            return runs[0]
        return cls(
            np.concatenate([run.pair for run in runs]),
            np.concatenate([run.hops for run in runs]),
            np.concatenate([run.links for run in runs]),
            np.concatenate([run.given_mbps for run in runs]),
        )


@dataclass(slots=True, eq=False)
class Rounds:
    """Chosen circuits of an unfinished plan: arrays of L circuits, with room for as many as the
    ports allow.
    """

    fabric: FabricArrays
    pairs: PairDemands
    max_hops: int
    changing: tuple[IntArray, IntArray]
    """Ends of circuits for new circuits to equal, if there is a choice."""
    is_free: NDArray[np.uint8]
    """Shape (P,): 1 if new circuits may end at the port."""
    link_a: IntArray
    """Shape (room,): the lower port of each circuit."""
    link_b: IntArray
    residual_mbps: NDArray[np.float64]
    """Shape (room,): capacity left of each circuit."""
    n_links: int

    @classmethod
    def on(
        cls,
        fabric: FabricArrays,
        pairs: PairDemands,
        max_hops: int,
        changing: AbstractSet[Circuit],
        is_free: NDArray[np.uint8],
        given: Sequence[Circuit],
        given_mbps: Sequence[float],
    ) -> Rounds:
        """The start, with circuits ``given`` and the Mbps of each that paths may take."""
        ends = CircuitTable.of(given)
        preferred = CircuitTable.of(changing)
        room = len(given) + fabric.n_ports  # for all circuits that a run's ports could make
        link_a, link_b = np.zeros((2, room), dtype=np.int32)
        link_a[: len(given)], link_b[: len(given)] = ends.a, ends.b
        residual = np.zeros(room)
        residual[: len(given)] = given_mbps
        free = is_free.copy()
        free[ends.a] = free[ends.b] = False
        return cls(
            fabric,
            pairs,
            min(max_hops, max(1, fabric.n_racks - 1)),  # no rack twice
            (preferred.a, preferred.b),
            free,
            link_a,
            link_b,
            residual,
            len(given),
        )

    def run(self, rule: Rule, which: IntArray, wanted_mbps: NDArray[np.float64]) -> FoundPaths:
        """At most a further path for each pair of ``which``, positions in order of their turns.

        ``wanted_mbps``, shape (all pairs,), is the demand of each pair.
        """
        fabric = self.fabric
        mbps = wanted_mbps[which]
        pair_class = np.searchsorted(fabric.rates_mbps, mbps - RATE_TOLERANCE_MBPS)
        pair, hops = np.zeros((2, len(which)), dtype=np.int32)
        links = np.full((len(which), self.max_hops), -1, dtype=np.int32)
        given = np.zeros(len(which))
        before = self.n_links
        self.n_links, n_paths = _native.plan_paths(
            fabric.n_racks,
            fabric.n_planes,
            len(fabric.rates_mbps) + 1,
            fabric.port_rack,
            fabric.port_plane,
            fabric.port_class,
            fabric.port_rate_mbps,
            self.is_free,
            self.link_a[:before].copy(),
            self.link_b[:before].copy(),
            *self.changing,
            self.pairs.src[which],
            self.pairs.dst[which],
            pair_class.astype(np.int32),
            mbps,
            self.max_hops,
            rule.whole,
            rule.partial,
            rule.widest,
            rule.direct_ports(fabric),
            rule.relays(fabric, self.pairs),
            self.link_a,
            self.link_b,
            self.residual_mbps,
            pair,
            hops,
            links,
            given,
        )
        new = slice(before, self.n_links)
        self.is_free[self.link_a[new]] = self.is_free[self.link_b[new]] = False
        made = slice(n_paths)
        return FoundPaths(which[pair[made]], hops[made], links[made], given[made])

    def rates_mbps(self) -> NDArray[np.float64]:
        """Shape (L,): the rate of each circuit."""
        rate = self.fabric.port_rate_mbps
        made = slice(self.n_links)
        slower: NDArray[np.float64] = np.minimum(rate[self.link_a[made]], rate[self.link_b[made]])
        return slower

    def withdraw(self, paths: FoundPaths) -> None:
        """Give back the capacity that the paths took."""
        taken = np.repeat(paths.given_mbps, paths.hops)
        np.add.at(self.residual_mbps, paths.links[paths.links >= 0], taken)
