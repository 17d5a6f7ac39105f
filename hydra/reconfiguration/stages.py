"""Stages of a change: no more is diverted at a time than the electrical network has room for.

A change diverts the pairs whose paths move. A few fit; those of thousands of circuits would go
through uplinks of a tenth of the rate. So a change is cut: a stage moves some of its pairs, is a
reconfiguration of its own, and leaves a state that is worth having. (Google's Jupiter drains and
moves its optical switches in increments, too: Poutievski et al., SIGCOMM 2022.)

A pair can take up its new path once others have let go of the ports that it needs. Pairs that need
each other's are a circle: it moves as a whole, or some of it goes first, and waits. It waits over
circuits of others where these have room (:mod:`hydra.reconfiguration.detours`), else electrically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from hydra.errors import HydraError
from hydra.model import Circuit, DemandMatrix, NetworkState, Path, RackId, Topology
from hydra.reconfiguration.detours import Detours, Room, rerouted
from hydra.reconfiguration.plan import (
    Pair,
    directions,
    hold,
    moving_pairs,
    pair_of,
    paths_by_pair,
)

_ROUNDING_MBPS: Final = 1e-6
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
    detoured: frozenset[Pair] = frozenset()
    """Those of its pairs that wait for their new paths on circuits of others."""


def next_stage(
    current: NetworkState,
    target: NetworkState,
    traffic: Traffic,
    detours: Detours | None = None,
) -> Stage:
    """The first stage on the way to ``target``.

    Everything, if that fits. Else pairs that can all take up their new paths, who gains most before
    others; else pairs of which some have to wait, where that takes least off circuits. Else pairs
    that all wait, over circuits of others, so that their ports are free. Else a circle as a whole,
    though it is more than there is room for: the smallest, and no other at its racks. Pairs that
    only lose their paths, and stand in nobody's way, come last.

    Without ``detours``, pairs wait electrically alone; so they do where circuits are one-way.
    """
    if detours is not None and detours.fabric.one_way:
        detours = None  # who leaves a ring, or joins one, moves all of it
    cut = _Cut(current, target, traffic)
    if cut.fits(cut.moving):
        chosen: Collection[Pair] = cut.moving
    else:
        chosen = cut.whole_moves() or cut.moves()
        if not chosen and detours is not None and (stage := cut.aside(detours)) is not None:
            return cut.stage(stage, moving_pairs(current, stage))
        chosen = chosen or cut.whole_moves(crowded=True) or cut.moving
    stage = hold(current, target, cut.moving.difference(chosen), ())
    pairs = moving_pairs(current, stage) if len(chosen) < len(cut.moving) else cut.moving
    if not pairs:  # rings that only move as a whole
        stage, pairs = target, cut.moving
    if detours is not None and cut.waiting(stage) and not cut.is_nearly_there(stage):
        stage = cut.on_detours(stage, detours)
    return cut.stage(stage, pairs)


def stages(
    current: NetworkState,
    target: NetworkState,
    traffic: Traffic,
    detours: Detours | None = None,
) -> Iterator[Stage]:
    """All stages, if nothing changes on the way.

    After detours, which have VLANs, the last one's target may have others than ``target``.
    """
    while True:
        stage = next_stage(current, target, traffic, detours)
        yield stage
        if stage.last:
            return
        current = stage.target
        if stage.detoured and detours is not None:
            target = detours.toward(current, target.topology)


class _Cut:
    """Pairs to choose a stage's from, with what each needs and costs."""

    def __init__(self, current: NetworkState, target: NetworkState, traffic: Traffic) -> None:
        self.moving = moving_pairs(current, target)
        self._current, self._target, self._traffic = current, target, traffic
        self._room = traffic.room_mbps(current).ravel().tolist()
        """Mbps out of each rack, then into each."""
        sent, on_circuits = traffic.sent_mbps, directions(current)
        racks = len(sent)
        self._loads: dict[Pair, _Load] = {}
        self._load_mbps: dict[Pair, float] = {}
        """Both ends and directions, summed."""
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
            self._load_mbps[pair] = sum(load.values())
        self._in_the_way = _InTheWay(current, target)
        arriving = self.moving.intersection(paths_by_pair(target))
        self._arriving = sorted(arriving, key=lambda pair: (-self._gain_mbps[pair], pair))

    def stage(self, reached: NetworkState, pairs: Collection[Pair]) -> Stage:
        """The stage that moves these pairs, and so gets to this state."""
        last = (reached.topology, reached.vlans) == (self._target.topology, self._target.vlans)
        load = self.load(pairs)
        wanted = set(self._target.topology.paths)
        news = set(reached.topology.paths).difference(self._current.topology.paths)
        return Stage(
            target=self._target if last else reached,
            pairs=frozenset(pairs),
            diverted_mbps=max(load.values(), default=0.0),
            beyond=self.beyond(load),
            last=last,
            detoured=frozenset(pair_of(path) for path in news - wanted),
        )

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
        left = self._in_the_way.users_left()
        circles = self._circles()
        if crowded:
            circles.sort(key=lambda circle: max(self.load(circle).values(), default=0.0))
        for circle in circles:
            more = self.load(circle)
            if self._fit(load, more, crowded=crowded) and self._in_the_way.of_none(circle, left):
                chosen |= circle
                _add(load, more)
                self._in_the_way.let_go(circle, left)
        return chosen

    def moves(self) -> set[Pair]:
        """Pairs that fit together, of which some let others have their ports, and wait."""
        chosen: set[Pair] = set()
        load: _Load = {}
        left = self._in_the_way.users_left()

        def free(bundle: set[Pair]) -> list[int]:
            """Take them, if they fit: circuits that nobody uses then, or one that waits for it."""
            more = self._fitting(load, bundle)
            if more is None:
                return []
            chosen.update(bundle)
            _add(load, more)
            return self._in_the_way.let_go(bundle, left)

        for pair in sorted(self._arriving, key=self._left_waiting_mbps):
            if pair in chosen:
                continue
            let_go = free({pair, *self._in_the_way.users_before(pair)} - chosen)
            while let_go:  # others may need nothing but their ports
                for rider in self._in_the_way.waiting(let_go.pop()):
                    if rider not in chosen and self._in_the_way.of_none({rider}, left):
                        let_go += free({rider})
        return chosen

    def waiting(self, reached: NetworkState) -> list[Pair]:
        """Pairs with traffic that have lost their paths in this state, and are to have others.

        The busiest come first.
        """
        left = paths_by_pair(self._current).keys() - paths_by_pair(reached).keys()
        pairs = [pair for pair in left.intersection(self._arriving) if self._load_mbps[pair]]
        return sorted(pairs, key=lambda pair: (-self._load_mbps[pair], pair))

    def is_nearly_there(self, reached: NetworkState) -> bool:
        """True if all that is left after this state fits into one stage: nobody waits long."""
        left = _Cut(reached, self._target, self._traffic)
        return left.fits(left.moving)

    def on_detours(self, reached: NetworkState, detours: Detours) -> NetworkState:
        """``reached``, with those who wait in it on circuits of others, as far as there is room."""
        room = self._room_in(reached, detours)
        leaving = reached.topology.circuits - self._target.topology.circuits
        found = [
            None if detours.expired() else room.take(pair, (), leaving)
            for pair in self.waiting(reached)
        ]
        added = [path for path in found if path is not None]
        if not added:
            return reached
        return self._reached(rerouted(reached.topology, added, ()), reached, detours) or reached

    def aside(self, detours: Detours) -> NetworkState | None:
        """A state in which pairs have left circuits that are in others' way, for detours.

        None if there is no room for any, or no detour.
        """
        room = self._room_in(self._current, detours)
        leaving = self._current.topology.circuits - self._target.topology.circuits
        paths = paths_by_pair(self._current)
        added: dict[Pair, Path] = {}
        gone: set[Circuit] = set()
        load: _Load = {}

        def clear(circuits: set[Circuit], users: set[Pair]) -> bool:
            """Give all users of these circuits detours, or none."""
            if detours.expired():
                return False
            more = self._fitting(load, users - added.keys())
            # What rides on circuits that are to go, or shares its traffic out, stays where it is.
            if more is None or any(len(paths[pair]) > 1 or pair in added for pair in users):
                return False
            if not circuits.isdisjoint(one for path in added.values() for one in path.circuits):
                return False
            found: list[Path] = []
            for pair in sorted(users):
                path = room.take(pair, gone | circuits, leaving)
                if path is None:
                    for other in found:
                        room.give_back(other)
                    return False
                found.append(path)
            added.update((pair_of(path), path) for path in found)
            gone.update(circuits)
            _add(load, more)
            return True

        for pair in sorted(self._arriving, key=self._left_waiting_mbps):
            blocking = self._in_the_way.before(pair).difference(gone)
            if blocking and pair not in added:
                clear(blocking, self._in_the_way.users_of(blocking) - added.keys())
        if not added:
            for circuit in self._in_the_way.circuits():
                clear({circuit}, self._in_the_way.users_of([circuit]))
        if not added:  # who rides on circuits that go may ride on others
            for pair in sorted(self._arriving, key=self._load_mbps.__getitem__):
                its = set(paths.get(pair, ()))
                if any(path.hops > 1 and not leaving.isdisjoint(path.circuits) for path in its):
                    clear(set(leaving), {pair})
            gone.clear()
        if not added:
            return None
        topology = rerouted(self._current.topology, added.values(), gone)
        return self._reached(topology, self._current, detours, frozenset(added))

    def _room_in(self, state: NetworkState, detours: Detours) -> Room:
        return Room(detours, state.topology, self._traffic.sent_mbps, self._traffic.share)

    def _reached(
        self,
        topology: Topology,
        plain: NetworkState,
        detours: Detours,
        more: frozenset[Pair] = frozenset(),
    ) -> NetworkState | None:
        """The state with this topology; None if its VLANs make others move than on the way to the
        ``plain`` one, and these.
        """
        try:
            state = detours.toward(self._current, topology)
        except HydraError:  # no VLANs are left
            return None
        moving = moving_pairs(self._current, state)
        return state if moving <= moving_pairs(self._current, plain) | more else None

    def _circles(self) -> list[set[Pair]]:
        """Pairs that wait for each other, as sets; pairs that do not, alone.

        Those that others wait for come first, and of several those that gain most.
        """
        graph = nx.DiGraph()
        graph.add_nodes_from(self._arriving)
        graph.add_edges_from(self._in_the_way.edges())
        circles = nx.condensation(graph)
        members: dict[int, set[Pair]] = {
            number: {one for one in both if not isinstance(one, int)}
            for number, both in circles.nodes(data="members")
        }
        gain_mbps = {
            number: sum(self._gain_mbps[pair] for pair in pairs)
            for number, pairs in members.items()
        }
        # A circuit alone is no circle: who waits for it comes as soon as its users have.
        order = nx.lexicographical_topological_sort(
            circles,
            key=lambda one: (bool(members[one]), -gain_mbps[one]),
        )
        return [members[one] for one in order if members[one]]

    def _fit(self, load: _Load, more: _Load, *, crowded: bool = False) -> bool:
        return all(
            load.get(place, 0.0) + mbps <= self._room[place] + _ROUNDING_MBPS
            or (crowded and place not in load)
            for place, mbps in more.items()
        )

    def _fitting(self, load: _Load, pairs: Iterable[Pair]) -> _Load | None:
        """Load of these pairs; None if there is no room for it."""
        more: _Load = {}
        for pair in pairs:
            for place, mbps in self._loads[pair].items():
                more[place] = more.get(place, 0.0) + mbps
                if load.get(place, 0.0) + more[place] > self._room[place] + _ROUNDING_MBPS:
                    return None
        return more

    def _left_waiting_mbps(self, pair: Pair) -> float:
        """Traffic on the circuits that are in its way."""
        return sum(self._load_mbps[other] for other in self._in_the_way.users_before(pair))


def _add(load: _Load, more: _Load) -> None:
    for place, mbps in more.items():
        load[place] = load.get(place, 0.0) + mbps


class _InTheWay:
    """Circuits that go, and have the ports that new paths need.

    Pairs are many, and circuits few: a pair waits for circuits, and so for all who use them. They
    go by numbers.
    """

    def __init__(self, current: NetworkState, target: NetworkState) -> None:
        going = {
            half: circuit
            for circuit in current.topology.circuits - target.topology.circuits
            for half in circuit.halves
        }
        self._circuits = sorted(set(going.values()))
        self._numbers = {circuit: number for number, circuit in enumerate(self._circuits)}
        numbers = self._numbers
        users: dict[int, set[Pair]] = {}
        for path in current.topology.paths:
            for circuit in path.circuits:
                if circuit in numbers:
                    users.setdefault(numbers[circuit], set()).add(pair_of(path))
        self._before: dict[Pair, set[int]] = {}
        """By pair with a new path: circuits in its way that somebody uses."""
        for path in target.topology.paths:
            for circuit in path.circuits:
                if circuit in current.topology.circuits:
                    continue
                blocking = {numbers[going[half]] for half in circuit.halves if half in going}
                self._before.setdefault(pair_of(path), set()).update(blocking & users.keys())
        self._waiting: dict[int, list[Pair]] = {}
        for pair, before in self._before.items():
            for number in before:
                self._waiting.setdefault(number, []).append(pair)
        self._users = {number: users[number] for number in self._waiting}
        self._used: dict[Pair, list[int]] = {}
        for number, pairs in self._users.items():
            for pair in pairs:
                self._used.setdefault(pair, []).append(number)

    def users_before(self, pair: Pair) -> set[Pair]:
        """Other pairs, who use the circuits in its way."""
        return set().union(*(self._users[one] for one in self._before.get(pair, ()))) - {pair}

    def before(self, pair: Pair) -> set[Circuit]:
        """Circuits in its way."""
        return {self._circuits[number] for number in self._before.get(pair, ())}

    def circuits(self) -> list[Circuit]:
        """Circuits in anybody's way."""
        return [self._circuits[number] for number in self._users]

    def users_of(self, circuits: Iterable[Circuit]) -> set[Pair]:
        """All pairs that use these, of :meth:`circuits`."""
        return set().union(*(self._users[self._numbers[one]] for one in circuits))

    def waiting(self, circuit: int) -> Sequence[Pair]:
        """Pairs in whose way it is."""
        return self._waiting[circuit]

    def edges(self) -> Iterator[tuple[Pair, int] | tuple[int, Pair]]:
        """From who has to go first: from users to their circuits, from these to who waits."""
        for circuit, pairs in self._users.items():
            for pair in pairs:
                yield pair, circuit
            for pair in self._waiting[circuit]:
                yield circuit, pair

    def users_left(self) -> dict[int, int]:
        """Users of each circuit, for :meth:`let_go`."""
        return {circuit: len(pairs) for circuit, pairs in self._users.items()}

    def let_go(self, pairs: Iterable[Pair], left: dict[int, int]) -> list[int]:
        """Count users that go; the circuits that at most one user has left by then."""
        for pair in pairs:
            for circuit in self._used.get(pair, ()):
                left[circuit] -= 1
        touched = {circuit for pair in pairs for circuit in self._used.get(pair, ())}
        return [circuit for circuit in touched if left[circuit] <= 1]

    def of_none(self, pairs: set[Pair], left: Mapping[int, int]) -> bool:
        """Whether circuits in these pairs' way are used by themselves alone."""
        return all(
            left[circuit] == len(self._users[circuit] & pairs)
            for pair in pairs
            for circuit in self._before.get(pair, ())
        )
