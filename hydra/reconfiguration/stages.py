"""Stages of a change: no more is diverted at a time than the electrical network has room for.

A change diverts the pairs whose paths move. A few fit; those of thousands of circuits would go
through uplinks of a tenth of the rate. So a change is cut: a stage moves some of its pairs, is a
reconfiguration of its own, and leaves a state that is worth having. (Google's Jupiter drains and
moves its optical switches in increments, too: Poutievski et al., SIGCOMM 2022.)

A pair can take up its new path once others have let go of the ports that it needs. Pairs that need
each other's are a circle: it moves as a whole, or some of it goes first, and waits, electrically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, DemandMatrix, NetworkState, RackId
from hydra.reconfiguration.plan import (
    Pair,
    directions,
    hold,
    moving_pairs,
    pair_of,
    paths_by_pair,
)

_ROUNDING_MBPS: Final = 1e-6
_NOBODY: Final[frozenset[Pair]] = frozenset()
_Floats = NDArray[np.float64]
_Load = dict[int, float]
"""Mbps out of each rack, by its number, and into each, by that and the number of racks."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Traffic that a change has to be gentle to."""

    sent_mbps: DemandMatrix
    """Mbps from rack to rack, shape (N, N); of pairs that wait for their turn, before it."""
    electrical_mbps: _Floats
    """Rate between each rack and the electrical network, in each direction; shape (N,)."""
    share: float
    """Part of the room there that diverted traffic may take, 0 to 1."""

    def room_mbps(self, state: NetworkState) -> _Floats:
        """Mbps that may be diverted in ``state``: out of each rack, and into each; shape (2, N)."""
        electrical = self.sent_mbps.copy()
        for direction in directions(state):
            electrical[direction] = 0.0
        taken = np.stack([electrical.sum(axis=1), electrical.sum(axis=0)])
        room: _Floats = self.share * np.maximum(0.0, self.electrical_mbps - taken)
        return room


@dataclass(frozen=True, slots=True)
class Stage:
    """Part of a change."""

    target: NetworkState
    """The state it leads to; of a change's last stage, the change's."""
    pairs: frozenset[Pair]
    """Pairs that it moves."""
    diverted_mbps: float
    """Mbps that it takes off circuits, most of any rack in either direction."""
    beyond: Mapping[RackId, float]
    """Mbps that it diverts more than there is room for, at the racks where that is so."""
    last: bool


def next_stage(current: NetworkState, target: NetworkState, traffic: Traffic) -> Stage:
    """The first stage on the way to ``target``.

    Everything, if that fits. Else pairs that can all take up their new paths, who gains most before
    others; else pairs of which some have to wait, where that takes least off circuits. Else a
    circle as a whole, though it is more than there is room for: the smallest, and no other at its
    racks. Pairs that only lose their paths, and stand in nobody's way, come last.
    """
    cut = _Cut(current, target, traffic)
    if cut.fits(cut.moving):
        chosen: Collection[Pair] = cut.moving
    else:
        chosen = cut.whole_moves() or cut.moves() or cut.whole_moves(crowded=True) or cut.moving
    stage = hold(current, target, cut.moving.difference(chosen), ())
    pairs = moving_pairs(current, stage) if len(chosen) < len(cut.moving) else cut.moving
    if not pairs:  # rings that only move as a whole
        stage, pairs = target, cut.moving
    last = stage.topology == target.topology
    load = cut.load(pairs)
    return Stage(
        target=target if last else stage,
        pairs=frozenset(pairs),
        diverted_mbps=max(load.values(), default=0.0),
        beyond=cut.beyond(load),
        last=last,
    )


def stages(current: NetworkState, target: NetworkState, traffic: Traffic) -> Iterator[Stage]:
    """All stages, if nothing changes on the way."""
    while True:
        stage = next_stage(current, target, traffic)
        yield stage
        if stage.last:
            return
        current = stage.target


class _Cut:
    """Pairs to choose a stage's from, with what each needs and costs."""

    def __init__(self, current: NetworkState, target: NetworkState, traffic: Traffic) -> None:
        self.moving = moving_pairs(current, target)
        self._room = traffic.room_mbps(current).ravel().tolist()
        """Mbps out of each rack, then into each."""
        sent, on_circuits = traffic.sent_mbps, directions(current)
        racks = len(sent)
        self._loads: dict[Pair, _Load] = {}
        self._gain_mbps: dict[Pair, float] = {}
        """Traffic that is electrical now, and is not once the pair has its path."""
        for pair in self.moving:
            load = self._loads[pair] = {}
            self._gain_mbps[pair] = 0.0
            for src, dst in (pair, pair[::-1]):
                mbps = float(sent[src, dst])
                if (src, dst) not in on_circuits:
                    self._gain_mbps[pair] += mbps
                elif mbps:
                    _add(load, {src: mbps, racks + dst: mbps})
        self._waits_for = _awaited(current, target)
        self._awaited_by: dict[Pair, list[Pair]] = {}
        for pair, others in self._waits_for.items():
            for other in others:
                self._awaited_by.setdefault(other, []).append(pair)
        arriving = self.moving.intersection(paths_by_pair(target))
        self._arriving = sorted(arriving, key=lambda pair: (-self._gain_mbps[pair], pair))

    def load(self, pairs: Iterable[Pair]) -> _Load:
        """Mbps that leave circuits with these pairs."""
        load: _Load = {}
        for pair in pairs:
            _add(load, self._loads[pair])
        return load

    def fits(self, pairs: Iterable[Pair]) -> bool:
        return self._fit({}, self.load(pairs))

    def beyond(self, load: _Load) -> dict[RackId, float]:
        """Mbps of a load that there is no room for, by rack."""
        excess: dict[RackId, float] = {}
        for place, mbps in load.items():
            more = mbps - self._room[place]
            if more > _ROUNDING_MBPS:
                rack = RackId(place % (len(self._room) // 2))
                excess[rack] = max(more, excess.get(rack, 0.0))
        return excess

    def whole_moves(self, *, crowded: bool = False) -> set[Pair]:
        """Pairs that fit together, and of which each finds the ports of its new path free.

        With ``crowded``, those that are too many for a rack fit if it has no others; the fewest
        come first.
        """
        chosen: set[Pair] = set()
        load: _Load = {}
        circles = self._circles()
        if crowded:
            circles.sort(key=lambda circle: max(self.load(circle).values(), default=0.0))
        for circle in circles:
            more = self.load(circle)
            ready = all(self._waits_for.get(pair, _NOBODY) <= chosen | circle for pair in circle)
            if ready and self._fit(load, more, crowded=crowded):
                chosen |= circle
                _add(load, more)
        return chosen

    def moves(self) -> set[Pair]:
        """Pairs that fit together, of which some let others have their ports, and wait."""
        chosen: set[Pair] = set()
        load: _Load = {}

        def took(bundle: set[Pair]) -> bool:
            more = self.load(bundle)
            if not self._fit(load, more):
                return False
            chosen.update(bundle)
            _add(load, more)
            return True

        for pair in sorted(self._arriving, key=self._left_waiting_mbps):
            bundle = {pair, *self._waits_for.get(pair, ())} - chosen
            if pair in chosen or not took(bundle):
                continue
            let_go = list(bundle)
            while let_go:  # others may need nothing but their ports
                let_go += [
                    rider
                    for rider in self._awaited_by.get(let_go.pop(), ())
                    if rider not in chosen and self._waits_for[rider] <= chosen and took({rider})
                ]
        return chosen

    def _circles(self) -> list[set[Pair]]:
        """Pairs that wait for each other, as sets; pairs that do not, alone.

        Those that others wait for come first, and of several those that gain most.
        """
        graph = nx.DiGraph()
        graph.add_nodes_from(self._arriving)
        for pair, others in self._waits_for.items():
            graph.add_edges_from((other, pair) for other in others)
        circles = nx.condensation(graph)
        members: Mapping[int, set[Pair]] = circles.nodes(data="members")
        gain = {one: sum(self._gain_mbps[pair] for pair in members[one]) for one in circles}
        order = nx.lexicographical_topological_sort(circles, key=lambda one: -gain[one])
        return [members[one] for one in order]

    def _fit(self, load: _Load, more: _Load, *, crowded: bool = False) -> bool:
        return all(
            load.get(place, 0.0) + mbps <= self._room[place] + _ROUNDING_MBPS
            or (crowded and place not in load)
            for place, mbps in more.items()
        )

    def _left_waiting_mbps(self, pair: Pair) -> float:
        """Traffic on the circuits that are in its way."""
        return sum(self.load(self._waits_for.get(pair, ())).values())


def _add(load: _Load, more: _Load) -> None:
    for place, mbps in more.items():
        load[place] = load.get(place, 0.0) + mbps


def _awaited(current: NetworkState, target: NetworkState) -> dict[Pair, set[Pair]]:
    """For each pair with a new path, the others whose circuits are in its way."""
    going = {
        half: circuit
        for circuit in current.topology.circuits - target.topology.circuits
        for half in circuit.halves
    }
    users: dict[Circuit, set[Pair]] = {}
    for path in current.topology.paths:
        for circuit in path.circuits:
            users.setdefault(circuit, set()).add(pair_of(path))
    awaited: dict[Pair, set[Pair]] = {}
    for path in target.topology.paths:
        pair = pair_of(path)
        for circuit in path.circuits:
            if circuit in current.topology.circuits:
                continue
            for half in circuit.halves:
                if half in going:
                    awaited.setdefault(pair, set()).update(users.get(going[half], ()))
    return {pair: others - {pair} for pair, others in awaited.items() if others - {pair}}
