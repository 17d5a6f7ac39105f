"""Stages of a change: each stage diverts only as much as the electrical network has room for.

A change diverts pairs whose paths move, unless the pairs stay in the light
(:mod:`hydra.reconfiguration.course_choice`). The traffic of few pairs fits; the traffic of
thousands of circuits would go through uplinks of a tenth of the rate. So a change is cut into
stages. A stage moves some of the pairs, is a reconfiguration of its own, and leaves a useful state.
(Google's Jupiter drains and moves its optical switches in increments, too: Poutievski et al.,
SIGCOMM 2022.)

A pair can take up its new path once other pairs have freed the ports. Pairs that need each other's
ports form a circle: the circle moves as a whole, or some pairs leave first, and wait. A pair waits
over circuits of other pairs with room (:mod:`hydra.reconfiguration.detours`), else electrically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.errors import HydraError
from hydra.model import Circuit, DemandMatrix, NetworkState, Pair, Path, RackId, Topology
from hydra.reconfiguration.course_choice import Ways
from hydra.reconfiguration.detours import DetourRoom, Detours, rerouted
from hydra.reconfiguration.plan import hold, moving_pairs, pair_of, paths_by_pair
from hydra.reconfiguration.port_conflicts import (
    Circles,
    Floats,
    Number,
    Numbers,
    PortConflicts,
    lowest_first,
    path_ends,
)

_ROUNDING_MBPS: Final = 1e-6
_Load = dict[int, float]
"""Mbps by place: out of rack r at index r, into rack r at index N + r, for N racks."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Traffic that a change has to protect."""

    sent_mbps: DemandMatrix
    """Mbps from rack to rack, shape (N, N); for waiting pairs, the rate of before the wait."""
    electrical_mbps: Floats
    """Rate between each rack and the electrical network, in each direction; shape (N,)."""
    share: float
    """Part of the electrical room that diverted traffic may take, 0 to 1."""

    def room_mbps(self, state: NetworkState) -> Floats:
        """Mbps that may be diverted in ``state``: out of each rack, and into each; shape (2, N)."""
        electrical = self.sent_mbps * ~_on_circuits(state, len(self.sent_mbps))
        taken = np.stack([electrical.sum(axis=1), electrical.sum(axis=0)])
        room: Floats = self.share * np.maximum(0.0, self.electrical_mbps - taken)
        return room


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Part of a change."""

    target: NetworkState
    """The state after the stage; for the last stage, the target of the change."""
    pairs: frozenset[Pair]
    diverted_mbps: float
    """Mbps taken off circuits, at the most loaded rack and direction."""
    beyond: Mapping[RackId, float]
    """Diverted Mbps beyond the room, for racks with too little room."""
    last: bool
    detoured: frozenset[Pair] = frozenset()
    """Moved pairs waiting for new paths on spare circuits or on circuits of other pairs."""


def next_stage(
    current: NetworkState,
    target: NetworkState,
    traffic: Traffic,
    detours: Detours | None = None,
    ways: Ways | None = None,
) -> Stage:
    """The first stage on the way to ``target``, the first possible of:

    1. Everything, if the traffic leaving the light fits.
    2. All pairs that can go over in the light.
    3. Pairs that can all take up new paths, largest gain first.
    4. Pairs of which some have to wait, least traffic off circuits first.
    5. Pairs that all wait, over circuits of other pairs, to free ports.
    6. A circle as a whole, although beyond the room: the smallest circle, alone at its racks.

    Pairs that only lose their paths, and whose ports nobody needs, come last. Without ``detours``,
    or with one-way circuits, pairs wait electrically. Without ``ways``, all pairs that move leave
    the light.
    """
    if detours is not None and detours.fabric.one_way:
        detours = None  # a pair that leaves or joins a ring moves the whole ring
    cut = _Cut(current, target, traffic)
    if ways is not None and (courses := (way := ways.way(current, target)).courses):
        if not cut.beyond(cut.load(way.away)):
            return cut.stage(target, cut.moving, away=way.away)
        if courses[0].in_light:
            near = courses[0].target
            return cut.stage(near, moving_pairs(current, near), away=(), detours=True)
    if cut.everything_fits():
        chosen: Collection[Pair] = cut.moving
    else:
        chosen = cut.whole_moves() or cut.moves()
        if not chosen and detours is not None and (stage := cut.aside(detours)) is not None:
            return cut.stage(stage, moving_pairs(current, stage), detours=True)
        chosen = chosen or cut.whole_moves(crowded=True) or cut.moving
    stage = held = hold(current, target, cut.moving.difference(chosen), ())
    pairs = moving_pairs(current, stage) if len(chosen) < len(cut.moving) else cut.moving
    if not pairs:  # rings that only move as a whole
        stage, held, pairs = target, target, cut.moving
    if detours is not None and cut.waiting(stage) and not cut.is_nearly_there(stage):
        stage = cut.on_detours(held, detours)
    return cut.stage(stage, pairs, detours=stage is not held)


def stages(
    current: NetworkState,
    target: NetworkState,
    traffic: Traffic,
    detours: Detours | None = None,
    ways: Ways | None = None,
) -> Iterator[Stage]:
    """All stages, if nothing changes on the way.

    After detours, which have VLANs, the last stage's target may have other VLANs than ``target``.
    """
    while True:
        stage = next_stage(current, target, traffic, detours, ways)
        yield stage
        if stage.last:
            return
        current = stage.target
        if stage.detoured and detours is not None:
            target = detours.toward(current, target.topology)


class _Cut:
    """Candidate pairs of a stage, with the needs and costs of each.

    Pairs go by number, in the order of :attr:`_pairs`: a large fabric has 50,000 pairs.
    """

    def __init__(self, current: NetworkState, target: NetworkState, traffic: Traffic) -> None:
        self.moving = moving_pairs(current, target)
        self._current, self._target, self._traffic = current, target, traffic
        self._room = traffic.room_mbps(current).ravel().tolist()
        """Mbps out of each rack, then into each."""
        self._pairs = sorted(self.moving)
        self._racks = racks = len(traffic.sent_mbps)
        on_circuits = _on_circuits(current, racks)
        a, b = _columns(self._pairs)
        there, back = traffic.sent_mbps[a, b], traffic.sent_mbps[b, a]
        there_on, back_on = on_circuits[a, b], on_circuits[b, a]
        self._gain_mbps: Floats = there * ~there_on + back * ~back_on
        """Traffic now electrical that the pair's new path will carry."""
        self._places = np.stack([a, racks + b, b, racks + a], axis=1)
        leaving = np.stack([there * there_on, back * back_on], axis=1)
        self._leaving_mbps = leaving[:, [0, 0, 1, 1]]
        """Mbps that leave circuits with the pair, by place."""
        self._load_mbps: list[float] = self._leaving_mbps.sum(axis=1).tolist()
        """Both ends and directions, summed."""
        self._there_mbps: list[float] = leaving[:, 0].tolist()
        self._back_mbps: list[float] = leaving[:, 1].tolist()

    @cached_property
    def _numbers(self) -> dict[Pair, Number]:
        return {pair: number for number, pair in enumerate(self._pairs)}

    @cached_property
    def _number_of(self) -> Numbers:
        """Pair numbers by racks, lower first; -1: the pair does not move. Shape (N, N)."""
        found = np.full((self._racks, self._racks), -1, dtype=np.intp)
        found[_columns(self._pairs)] = np.arange(len(self._pairs))
        return found

    def _load_of(self, number: Number) -> tuple[tuple[int, float], ...]:
        """(place, Mbps) that leave circuits with a pair."""
        there, back = self._there_mbps[number], self._back_mbps[number]
        if not there and not back:
            return ()
        (a, b), racks = self._pairs[number], self._racks
        out = ((a, there), (racks + b, there)) if there else ()
        return (*out, (b, back), (racks + a, back)) if back else out

    @cached_property
    def _had(self) -> dict[Pair, tuple[Path, ...]]:
        return paths_by_pair(self._current)

    @cached_property
    def _in_the_way(self) -> PortConflicts:
        return PortConflicts(
            current=self._current,
            target=self._target,
            number_of=self._number_of,
            pairs=len(self._pairs),
        )

    @cached_property
    def _arriving(self) -> list[Number]:
        """Pairs that are to have a path, largest gain first."""
        ends = path_ends(self._target.topology)
        numbers = np.unique(self._number_of[ends.min(axis=0), ends.max(axis=0)])
        return lowest_first(-self._gain_mbps, numbers[numbers >= 0])

    def stage(
        self,
        reached: NetworkState,
        pairs: Collection[Pair],
        *,
        detours: bool = False,
        away: Collection[Pair] | None = None,
    ) -> Stage:
        """The stage that moves ``pairs`` to the state ``reached``, with or without detours.
        ``away``: the pairs to leave the light; None: all.
        """
        last = (reached.topology, reached.vlans) == (self._target.topology, self._target.vlans)
        load = self.load(pairs if away is None else away)
        detoured: set[Path] = set()
        if detours:
            known = self._current.topology.paths, self._target.topology.paths
            detoured = set(reached.topology.paths).difference(*known)
        return Stage(
            target=self._target if last else reached,
            pairs=frozenset(pairs),
            diverted_mbps=max(load.values(), default=0.0),
            beyond=self.beyond(load),
            last=last,
            detoured=frozenset(map(pair_of, detoured)),
        )

    def load(self, pairs: Collection[Pair]) -> _Load:
        """Mbps that leave circuits with the moving pairs among ``pairs``."""
        return self._load(self._numbers[pair] for pair in pairs if pair in self._numbers)

    def _load(self, numbers: Iterable[Number]) -> _Load:
        load: _Load = {}
        for number in numbers:
            _add(load, self._load_of(number))
        return load

    def everything_fits(self) -> bool:
        load = np.bincount(
            self._places.ravel(), self._leaving_mbps.ravel(), minlength=len(self._room)
        )
        return bool((load <= np.array(self._room) + _ROUNDING_MBPS).all())

    def beyond(self, load: _Load) -> dict[RackId, float]:
        """Mbps of a load beyond the room, by rack."""
        excess: dict[RackId, float] = {}
        for place, mbps in load.items():
            more = mbps - self._room[place]
            if more > _ROUNDING_MBPS:
                rack = RackId(place % (len(self._room) // 2))
                excess[rack] = max(more, excess.get(rack, 0.0))
        return excess

    def whole_moves(self, *, crowded: bool = False) -> set[Pair]:
        """Pairs that fit together, each with the ports of its new path free.

        With ``crowded``, a circle beyond the room of a rack fits if alone there; least load first.
        """
        chosen: list[Number] = []
        load: _Load = {}
        if crowded:
            remaining = self._in_the_way.remaining_users()
            circles = list(self._circles.all())
            loads = list(map(self._load, circles))
            most_mbps = [max(pair_circuits.values(), default=0.0) for pair_circuits in loads]
            for index in sorted(range(len(circles)), key=most_mbps.__getitem__):
                circle, more = circles[index], loads[index]
                if self._in_the_way.of_none(circle, remaining) and self._fit(
                    load, more, crowded=True
                ):
                    chosen += circle
                    _add(load, more.items())
                    self._in_the_way.let_go(circle, remaining)
        else:
            turns = self._circles.turns()
            free: list[Number] | None = next(turns, None)
            while free is not None:
                more = self._load(free)
                if fits := self._fit(load, more):
                    chosen += free
                    _add(load, more.items())
                try:
                    free = turns.send(fits)
                except StopIteration:
                    break
        return {self._pairs[number] for number in chosen}

    def moves(self) -> set[Pair]:
        """Pairs that fit together; some free ports for other pairs, and wait."""
        chosen: set[Number] = set()
        load: _Load = {}
        remaining = self._in_the_way.remaining_users()

        def free(bundle: Collection[Number]) -> list[int]:
            """Move ``bundle`` if there is room; return the circuits left with at most one user."""
            more = self._fitting(load, bundle)
            if more is None:
                return []
            chosen.update(bundle)
            _add(load, more.items())
            return self._in_the_way.let_go(bundle, remaining)

        for pair in self._by_others_waiting():
            if pair in chosen:
                continue
            let_go = free({pair, *self._in_the_way.users_before(pair)} - chosen)
            while let_go:  # other pairs may need nothing but these ports
                for rider in self._in_the_way.waiting(let_go.pop()):
                    if rider not in chosen and self._in_the_way.of_none((rider,), remaining):
                        let_go += free((rider,))
        return {self._pairs[number] for number in chosen}

    def waiting(self, reached: NetworkState) -> list[Pair]:
        """Pairs with traffic that lose their paths in ``reached``, and are to have new paths.

        Sorted by traffic, busiest first.
        """
        has = {pair_of(path) for path in reached.topology.paths}
        numbers = [
            number
            for number in self._arriving
            if self._load_mbps[number]
            and self._pairs[number] not in has
            and self._pairs[number] in self._had
        ]
        numbers.sort(key=lambda number: (-self._load_mbps[number], number))
        return [self._pairs[number] for number in numbers]

    def is_nearly_there(self, reached: NetworkState) -> bool:
        """True if the rest after ``reached`` fits into one stage: no pair waits long."""
        return _Cut(reached, self._target, self._traffic).everything_fits()

    def on_detours(self, reached: NetworkState, detours: Detours) -> NetworkState:
        """``reached``, with waiting pairs on circuits of other pairs, as far as there is room."""
        room = self._room_in(reached, detours)
        found = [None if detours.expired() else room.take(pair) for pair in self.waiting(reached)]
        added = [path for path in found if path is not None]
        if not added:
            return reached
        return self._reached(rerouted(reached.topology, added, ()), reached, detours) or reached

    def aside(self, detours: Detours) -> NetworkState | None:
        """A state in which pairs have left blocking circuits for detours.

        None if there is no room, or no detour.
        """
        room = self._room_in(self._current, detours)
        leaving = self._current.topology.circuits - self._target.topology.circuits
        added: dict[Number, Path] = {}
        gone: set[Circuit] = set()
        load: _Load = {}

        def clear(circuits: set[Circuit], users: Collection[Number]) -> bool:
            """Give all users of ``circuits`` detours, or none."""
            if detours.expired():
                return False
            more = self._fitting(load, [user for user in users if user not in added])
            # Pairs riding on circuits about to go, or spread over several paths, stay in place.
            if more is None or any(
                user in added or len(self._had[self._pairs[user]]) > 1 for user in users
            ):
                return False
            if not circuits.isdisjoint(
                circuit for path in added.values() for circuit in path.circuits
            ):
                return False
            found: dict[Number, Path] = {}
            shut = room.numbers(gone | circuits)
            for user in sorted(users):
                path = room.take(self._pairs[user], shut)
                if path is None:
                    for other in found.values():
                        room.give_back(other)
                    return False
                found[user] = path
            added.update(found)
            gone.update(circuits)
            _add(load, more.items())
            return True

        for pair in self._by_others_waiting():
            blocking = self._in_the_way.before(pair).difference(gone)
            if blocking and pair not in added:
                clear(blocking, self._in_the_way.users_of(blocking).difference(added))
        if not added:
            for circuit in self._in_the_way.circuits():
                clear({circuit}, self._in_the_way.users_of([circuit]))
        if not added:  # pairs on circuits about to go may ride on other circuits
            shut = room.numbers(leaving)
            for pair in sorted(self._arriving, key=self._load_mbps.__getitem__):
                pair_circuits = self._had.get(self._pairs[pair], ())
                rides = any(
                    path.hops > 1 and not leaving.isdisjoint(path.circuits)
                    for path in pair_circuits
                )
                if not rides or len(pair_circuits) > 1 or detours.expired():
                    continue
                more = self._fitting(load, (pair,))
                if more is not None and (path := room.take(self._pairs[pair], shut)) is not None:
                    added[pair] = path
                    _add(load, more.items())
        if not added:
            return None
        topology = rerouted(self._current.topology, added.values(), gone)
        pairs = frozenset(self._pairs[number] for number in added)
        return self._reached(topology, self._current, detours, pairs)

    def _room_in(self, state: NetworkState, detours: Detours) -> DetourRoom:
        leaving = state.topology.circuits - self._target.topology.circuits
        traffic = self._traffic
        return DetourRoom(
            detours=detours,
            topology=state.topology,
            sent_mbps=traffic.sent_mbps,
            share=traffic.share,
            leaving=leaving,
        )

    def _reached(
        self,
        topology: Topology,
        plain: NetworkState,
        detours: Detours,
        more: frozenset[Pair] = frozenset(),
    ) -> NetworkState | None:
        """The state with this topology; None if the new VLANs move pairs outside ``more`` and
        outside the way to ``plain``.
        """
        try:
            state = detours.toward(self._current, topology)
        except HydraError:  # no VLANs are left
            return None
        moving = moving_pairs(self._current, state)
        return state if moving <= moving_pairs(self._current, plain) | more else None

    @cached_property
    def _circles(self) -> Circles:
        return Circles(self._in_the_way, self._arriving, self._gain_mbps)

    def _fit(self, load: _Load, more: _Load, *, crowded: bool = False) -> bool:
        for place, mbps in more.items():
            if load.get(place, 0.0) + mbps > self._room[place] + _ROUNDING_MBPS and not (
                crowded and place not in load
            ):
                return False
        return True

    def _fitting(self, load: _Load, numbers: Iterable[Number]) -> _Load | None:
        """Load of these pairs; None if beyond the room."""
        more: _Load = {}
        for number in numbers:
            for place, mbps in self._load_of(number):
                more[place] = more.get(place, 0.0) + mbps
                if load.get(place, 0.0) + more[place] > self._room[place] + _ROUNDING_MBPS:
                    return None
        return more

    def _by_others_waiting(self) -> list[Number]:
        """Arriving pairs, sorted by the traffic on circuits in the way, least first."""
        remaining_mbps = self._in_the_way.sums_before(np.array(self._load_mbps))
        return lowest_first(remaining_mbps, np.array(self._arriving, dtype=np.intp))


def _columns(pairs: Collection[Pair]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    racks = np.fromiter(chain.from_iterable(pairs), np.intp, 2 * len(pairs)).reshape(-1, 2)
    return racks[:, 0], racks[:, 1]


def _on_circuits(state: NetworkState, racks: int) -> NDArray[np.bool_]:
    """True where the paths of ``state`` carry traffic from rack to rack; shape (N, N)."""
    src, dst = path_ends(state.topology)
    found = np.zeros((racks, racks), dtype=np.bool_)
    found[src, dst] = True
    one_way = any(path.one_way for path in state.topology.paths[:1])
    if not one_way:  # circuits of a fabric are of one kind
        found[dst, src] = True
    return found


def _add(load: _Load, more: Iterable[tuple[int, float]]) -> None:
    for place, mbps in more:
        load[place] = load.get(place, 0.0) + mbps
