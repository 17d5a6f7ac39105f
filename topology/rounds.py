"""Rounds of the HydRA heuristic, each run on the capacity that earlier ones leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit
from topology import _native
from topology.problem import RATE_TOLERANCE_MBPS, FabricArrays, PairDemands
from topology.tables import IntArray, end_ports, starts


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule by which rounds choose paths."""

    whole: bool
    """True for rounds in which a path must carry all that its pair wants."""
    partial: bool
    """True for rounds (after those) in which any capacity above zero serves a pair."""
    widest: bool = False
    """True for relays with the most capacity left, False for those with the lowest numbers."""
    direct_share: float = 1.0
    """Part of a rack's ports that round 1 may use."""
    spare: float = float("inf")
    """Racks that want at least this part of their ports' rate for themselves are scarce: they relay
    nothing, and two of them get a circuit of their own only if they fill it."""
    order: int = 0
    """Order of pairs with equal demands: the salt of :func:`~topology.problem.tie_break`."""

    def direct_ports(self, fabric: FabricArrays) -> IntArray:
        """Shape (N,): the number of each rack's ports that round 1 may use."""
        ports: IntArray = np.ceil(fabric.ports_per_rack * self.direct_share).astype(np.int32)
        return ports

    def relays(self, fabric: FabricArrays, pairs: PairDemands) -> NDArray[np.uint8]:
        """Shape (N,): 1 for racks that paths may lead through."""
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
    """F paths, in the order in which they were booked."""

    pair: IntArray
    """Shape (F,): the pair that each path serves."""
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
        """Shape (F,): True for paths that ``others`` have, too: same pair, same circuits."""
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
        """The paths of several runs, one after the other; at least one run."""
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
    """Circuits in the making: arrays of L circuits, with room for as many as the ports allow."""

    fabric: FabricArrays
    pairs: PairDemands
    max_hops: int
    changing: tuple[IntArray, IntArray]
    """Ends of circuits that new ones should equal, if there is a choice."""
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
        changing: Sequence[Circuit],
        is_free: NDArray[np.uint8],
        given: Sequence[Circuit],
        given_mbps: Sequence[float],
    ) -> Rounds:
        """The start, with circuits ``given`` and the Mbps that paths may take of each."""
        a, b = end_ports(given)
        room = len(given) + fabric.n_ports  # a run asks for all that its ports could make
        link_a, link_b = np.zeros((2, room), dtype=np.int32)
        link_a[: len(given)], link_b[: len(given)] = a, b
        residual = np.zeros(room)
        residual[: len(given)] = given_mbps
        free = is_free.copy()
        free[a] = free[b] = False
        return cls(
            fabric,
            pairs,
            min(max_hops, max(1, fabric.n_racks - 1)),  # no rack twice
            end_ports(changing),
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
        before = self.n_links
        left = self.residual_mbps.copy()
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
        )
        new = slice(before, self.n_links)
        left[new] = self.rates_mbps()[new]
        self.is_free[self.link_a[new]] = self.is_free[self.link_b[new]] = False
        turns = pair[:n_paths]
        given = _given(hops[:n_paths], links[:n_paths], turns, left, mbps)
        return FoundPaths(which[turns], hops[:n_paths], links[:n_paths], given)

    def rates_mbps(self) -> NDArray[np.float64]:
        """Shape (L,): the rate of each circuit."""
        rate = self.fabric.port_rate_mbps
        made = slice(self.n_links)
        slower: NDArray[np.float64] = np.minimum(rate[self.link_a[made]], rate[self.link_b[made]])
        return slower

    def withdraw(self, paths: FoundPaths) -> None:
        """Give back the capacity that these paths took."""
        taken = np.repeat(paths.given_mbps, paths.hops)
        np.add.at(self.residual_mbps, paths.links[paths.links >= 0], taken)


def _given(
    hops: IntArray,
    links: IntArray,
    turns: IntArray,
    residual_mbps: NDArray[np.float64],
    wanted_mbps: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Mbps that each path took when it was booked: the rounds' arithmetic once more, in order."""
    given = np.zeros(len(hops))
    order = np.arange(len(hops), dtype=np.int32)
    along = links[links >= 0]
    _native.serve_paths(residual_mbps, starts(hops), along, order, turns, wanted_mbps, given)
    return given
