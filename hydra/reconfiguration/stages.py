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

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from importlib import import_module
from itertools import chain
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from hydra.errors import HydraError
from hydra.model import Circuit, DemandMatrix, NetworkState, Path, RackId, Topology
from hydra.reconfiguration.detours import Detours, Room, rerouted
from hydra.reconfiguration.plan import (
    Pair,
    hold,
    moving_pairs,
    pair_of,
    paths_by_pair,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_ROUNDING_MBPS: Final = 1e-6
_Floats = NDArray[np.float64]
_Numbers = NDArray[np.intp]
_Load = dict[int, float]
"""Mbps out of each rack, by its number, and into each, by that and the number of racks."""
_Number = int
"""Of a pair that moves, or of a circuit that goes."""


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
        electrical = self.sent_mbps * ~_on_circuits(state, len(self.sent_mbps))
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
    """Pairs to choose a stage's from, with what each needs and costs.

    They go by numbers, in the order of :attr:`_pairs`: of a large fabric there are 50,000.
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
        self._gain_mbps: _Floats = there * ~there_on + back * ~back_on
        """Traffic that is electrical now, and is not once the pair has its path."""
        self._places = np.stack([a, racks + b, b, racks + a], axis=1)
        leaving = np.stack([there * there_on, back * back_on], axis=1)
        self._leaving_mbps = leaving[:, [0, 0, 1, 1]]
        """Mbps that leave circuits with the pair, at each of its places."""
        self._load_mbps: list[float] = self._leaving_mbps.sum(axis=1).tolist()
        """Both ends and directions, summed."""
        self._there_mbps: list[float] = leaving[:, 0].tolist()
        self._back_mbps: list[float] = leaving[:, 1].tolist()

    @cached_property
    def _numbers(self) -> dict[Pair, _Number]:
        return {pair: number for number, pair in enumerate(self._pairs)}

    @cached_property
    def _number_of(self) -> _Numbers:
        """By racks, lower first; -1: it does not move. Shape (N, N)."""
        found = np.full((self._racks, self._racks), -1, dtype=np.intp)
        found[_columns(self._pairs)] = np.arange(len(self._pairs))
        return found

    def _load_of(self, number: _Number) -> tuple[tuple[int, float], ...]:
        """Mbps that leave circuits with a pair, with the places."""
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
    def _in_the_way(self) -> _InTheWay:
        return _InTheWay(self._current, self._target, self._number_of, len(self._pairs))

    @cached_property
    def _arriving(self) -> list[_Number]:
        """Pairs that are to have a path, who gains most before others."""
        ends = _ends(self._target.topology)
        numbers = np.unique(self._number_of[ends.min(axis=0), ends.max(axis=0)])
        return _by(-self._gain_mbps, numbers[numbers >= 0])

    def stage(self, reached: NetworkState, pairs: Collection[Pair], *, detours: bool) -> Stage:
        """The stage that moves these pairs, and so gets to this state, with detours or none."""
        last = (reached.topology, reached.vlans) == (self._target.topology, self._target.vlans)
        load = self._load(self._numbers[pair] for pair in pairs if pair in self._numbers)
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

    def _load(self, numbers: Iterable[_Number]) -> _Load:
        """Mbps that leave circuits with these pairs."""
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
        chosen: list[_Number] = []
        load: _Load = {}
        if crowded:
            left = self._in_the_way.users_left()
            circles = list(self._circles.all())
            loads = list(map(self._load, circles))
            most_mbps = [max(its.values(), default=0.0) for its in loads]
            for index in sorted(range(len(circles)), key=most_mbps.__getitem__):
                circle, more = circles[index], loads[index]
                if self._in_the_way.of_none(circle, left) and self._fit(load, more, crowded=True):
                    chosen += circle
                    _add(load, more.items())
                    self._in_the_way.let_go(circle, left)
        else:
            turns = self._circles.turns()
            free: list[_Number] | None = next(turns, None)
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
        """Pairs that fit together, of which some let others have their ports, and wait."""
        chosen: set[_Number] = set()
        load: _Load = {}
        left = self._in_the_way.users_left()

        def free(bundle: Collection[_Number]) -> list[int]:
            """Take them, if they fit: circuits that nobody uses then, or one that waits for it."""
            more = self._fitting(load, bundle)
            if more is None:
                return []
            chosen.update(bundle)
            _add(load, more.items())
            return self._in_the_way.let_go(bundle, left)

        for pair in self._by_others_waiting():
            if pair in chosen:
                continue
            let_go = free({pair, *self._in_the_way.users_before(pair)} - chosen)
            while let_go:  # others may need nothing but their ports
                for rider in self._in_the_way.waiting(let_go.pop()):
                    if rider not in chosen and self._in_the_way.of_none((rider,), left):
                        let_go += free((rider,))
        return {self._pairs[number] for number in chosen}

    def waiting(self, reached: NetworkState) -> list[Pair]:
        """Pairs with traffic that have lost their paths in this state, and are to have others.

        The busiest come first.
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
        """True if all that is left after this state fits into one stage: nobody waits long."""
        return _Cut(reached, self._target, self._traffic).everything_fits()

    def on_detours(self, reached: NetworkState, detours: Detours) -> NetworkState:
        """``reached``, with those who wait in it on circuits of others, as far as there is room."""
        room = self._room_in(reached, detours)
        found = [None if detours.expired() else room.take(pair) for pair in self.waiting(reached)]
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
        added: dict[_Number, Path] = {}
        gone: set[Circuit] = set()
        load: _Load = {}

        def clear(circuits: set[Circuit], users: Collection[_Number]) -> bool:
            """Give all users of these circuits detours, or none."""
            if detours.expired():
                return False
            more = self._fitting(load, [user for user in users if user not in added])
            # What rides on circuits that are to go, or shares its traffic out, stays where it is.
            if more is None or any(
                user in added or len(self._had[self._pairs[user]]) > 1 for user in users
            ):
                return False
            if not circuits.isdisjoint(one for path in added.values() for one in path.circuits):
                return False
            found: dict[_Number, Path] = {}
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
        if not added:  # who rides on circuits that go may ride on others
            shut = room.numbers(leaving)
            for pair in sorted(self._arriving, key=self._load_mbps.__getitem__):
                its = self._had.get(self._pairs[pair], ())
                rides = any(path.hops > 1 and not leaving.isdisjoint(path.circuits) for path in its)
                if not rides or len(its) > 1 or detours.expired():
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

    def _room_in(self, state: NetworkState, detours: Detours) -> Room:
        leaving = state.topology.circuits - self._target.topology.circuits
        traffic = self._traffic
        return Room(detours, state.topology, traffic.sent_mbps, traffic.share, leaving)

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

    @cached_property
    def _circles(self) -> _Circles:
        return _Circles(self._in_the_way, self._arriving, self._gain_mbps)

    def _fit(self, load: _Load, more: _Load, *, crowded: bool = False) -> bool:
        for place, mbps in more.items():
            if load.get(place, 0.0) + mbps > self._room[place] + _ROUNDING_MBPS and not (
                crowded and place not in load
            ):
                return False
        return True

    def _fitting(self, load: _Load, numbers: Iterable[_Number]) -> _Load | None:
        """Load of these pairs; None if there is no room for it."""
        more: _Load = {}
        for number in numbers:
            for place, mbps in self._load_of(number):
                more[place] = more.get(place, 0.0) + mbps
                if load.get(place, 0.0) + more[place] > self._room[place] + _ROUNDING_MBPS:
                    return None
        return more

    def _by_others_waiting(self) -> list[_Number]:
        """Arriving pairs; those first in whose way there is least traffic of others on circuits."""
        left_mbps = self._in_the_way.sums_before(np.array(self._load_mbps))
        return _by(left_mbps, np.array(self._arriving, dtype=np.intp))


def _by(values: _Floats, numbers: NDArray[np.intp]) -> list[_Number]:
    """These numbers, those with the lowest values first; of some with the same, as they were."""
    found: list[_Number] = numbers[np.argsort(values[numbers], kind="stable")].tolist()
    return found


def _columns(pairs: Collection[Pair]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Racks of pairs."""
    racks = np.fromiter(chain.from_iterable(pairs), np.intp, 2 * len(pairs)).reshape(-1, 2)
    return racks[:, 0], racks[:, 1]


def _on_circuits(state: NetworkState, racks: int) -> NDArray[np.bool_]:
    """Whether paths carry what one rack sends to another; shape (N, N)."""
    src, dst = _ends(state.topology)
    found = np.zeros((racks, racks), dtype=np.bool_)
    found[src, dst] = True
    one_way = any(path.one_way for path in state.topology.paths[:1])
    if not one_way:  # circuits of a fabric are of one kind
        found[dst, src] = True
    return found


def _add(load: _Load, more: Iterable[tuple[int, float]]) -> None:
    for place, mbps in more:
        load[place] = load.get(place, 0.0) + mbps


class _InTheWay:
    """Circuits that go, and have the ports that new paths need.

    Pairs are many, and circuits few: a pair waits for circuits, and so for all who use them.
    """

    def __init__(
        self, current: NetworkState, target: NetworkState, number_of: _Numbers, pairs: int
    ) -> None:
        """``number_of``: pairs' numbers by their racks, shape (N, N); ``pairs``: their number."""
        self.pairs = pairs
        going = sorted(
            current.topology.circuits - target.topology.circuits,
            key=attrgetter("plane", "a", "b"),
        )
        self._circuits = going
        # No two circuits of a topology have the same first port, which is soon looked up.
        now, now_at = _hops(current.topology, number_of)
        then, then_at = _hops(target.topology, number_of)
        ports = 1 + max(now_at.max(initial=0), then_at.max(initial=0))
        going_at = np.full(ports, -1, dtype=np.intp)
        for number, circuit in enumerate(going):
            going_at[circuit.a : circuit.a + 1] = number  # beyond ``ports``: nobody uses it
        used = going_at[now_at]
        users, used = _entries(now[used >= 0], used[used >= 0])
        in_use = set(used.tolist())
        at_half = {half: number for number, one in enumerate(going) for half in one.halves}
        blocked_by = np.full((2, ports), -1, dtype=np.intp)
        for circuit in target.topology.circuits - current.topology.circuits:
            its = {at_half[half] for half in circuit.halves if half in at_half} & in_use
            if its and circuit.a < ports:
                blocked_by[: len(its), circuit.a] = list(its)  # one at each end, at the most
        awaited = blocked_by[:, then_at]
        there = awaited >= 0
        self._waiting, self._awaited = _entries(np.tile(then, (2, 1))[there], awaited[there])
        """Pairs with a new path, and circuits in their way that somebody uses."""
        wanted = np.zeros(len(going) + 1, dtype=np.bool_)
        wanted[self._awaited] = True
        self._users, self._used = users[wanted[used]], used[wanted[used]]
        """Pairs, and circuits that they use and others wait for."""
        self._before = _Lists(self._waiting, self._awaited, pairs)
        self._waiting_for = _Lists(self._awaited, self._waiting, len(going))
        self._using = _Lists(self._users, self._used, pairs)
        self._users_of = _Lists(self._used, self._users, len(going))

    @cached_property
    def _numbers(self) -> dict[Circuit, int]:
        return {circuit: number for number, circuit in enumerate(self._circuits)}

    @property
    def number(self) -> int:
        """Circuits that go; those in nobody's way have no :meth:`edges`."""
        return len(self._circuits)

    @cached_property
    def _others(self) -> csr_array:
        """By pair: pairs who use the circuits in its way, itself among them if it does."""
        shape = self.pairs, len(self._circuits)
        before = _incidence(self._waiting, self._awaited, shape)
        using = _incidence(self._users, self._used, shape)
        found: csr_array = _sparse().csr_array(before @ using.T)
        found.data[:] = 1
        return found

    def users_before(self, pair: _Number) -> list[_Number]:
        """Pairs who use the circuits in its way, itself among them if it does."""
        ends = self._others.indptr[pair : pair + 2]
        found: list[_Number] = self._others.indices[ends[0] : ends[1]].tolist()
        return found

    def sums_before(self, load_mbps: _Floats) -> _Floats:
        """By pair: loads of the others who use the circuits in its way, summed."""
        its_own = self._others.diagonal() * load_mbps
        sums: _Floats = self._others @ load_mbps - its_own
        return sums

    def before(self, pair: _Number) -> set[Circuit]:
        """Circuits in its way."""
        return {self._circuits[number] for number in self._before[pair]}

    def circuits(self) -> list[Circuit]:
        """Circuits in anybody's way."""
        return [self._circuits[number] for number in sorted(set(self._awaited.tolist()))]

    def users_of(self, circuits: Iterable[Circuit]) -> set[_Number]:
        """All pairs that use these, of :meth:`circuits`."""
        return set().union(*(self._users_of[self._numbers[one]] for one in circuits))

    def waiting(self, circuit: int) -> Sequence[_Number]:
        """Pairs in whose way it is."""
        return self._waiting_for[circuit]

    def edges(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(who has to go first, who after that): users, their circuits, who waits for these.

        Circuits are numbered after :attr:`pairs`.
        """
        before = np.concatenate([self._users, self.pairs + self._awaited])
        return before, np.concatenate([self.pairs + self._used, self._waiting])

    def users_left(self) -> list[int]:
        """Number of users of each circuit, for :meth:`let_go`."""
        left: list[int] = np.bincount(self._used, minlength=len(self._circuits)).tolist()
        return left

    def let_go(self, pairs: Iterable[_Number], left: list[int]) -> list[int]:
        """Count users that go; the circuits that at most one user has left by then."""
        touched = set()
        for pair in pairs:
            for circuit in self._using[pair]:
                left[circuit] -= 1
                touched.add(circuit)
        return [circuit for circuit in sorted(touched) if left[circuit] <= 1]

    def of_none(self, pairs: Collection[_Number], left: Sequence[int]) -> bool:
        """Whether circuits in these pairs' way are used by themselves alone."""
        if len(pairs) == 1:  # most are
            (pair,) = pairs
            using = self._using[pair]
            return all(left[circuit] == (circuit in using) for circuit in self._before[pair])
        before = {circuit for pair in pairs for circuit in self._before[pair]}
        its = Counter(circuit for pair in pairs for circuit in self._using[pair])
        return all(left[circuit] == its[circuit] for circuit in before)


class _Circles:
    """Sets of pairs that need each other's ports; pairs that do not, alone."""

    def __init__(
        self, in_the_way: _InTheWay, arriving: Sequence[_Number], gain_mbps: _Floats
    ) -> None:
        before, after = in_the_way.edges()
        nodes = in_the_way.pairs + in_the_way.number
        joined = np.ones(len(before), dtype=np.int8), (before, after)
        graph = _sparse().csr_array(joined, (nodes, nodes))
        circles, circle_of = _sparse().csgraph.connected_components(graph, connection="strong")
        pairs = np.union1d(np.array(arriving, dtype=np.intp), before[before < in_the_way.pairs])
        order = np.argsort(circle_of[pairs], kind="stable")
        self._pairs: list[_Number] = pairs[order].tolist()
        places = np.arange(circles + 1)
        self._starts = np.searchsorted(circle_of[pairs][order], places).tolist()
        self._gain_mbps = np.bincount(circle_of[pairs], gain_mbps[pairs], circles).tolist()
        both = circle_of[before].astype(np.int64) * circles + circle_of[after]
        first, then = np.divmod(np.unique(both), circles)
        first, then = first[first != then], then[first != then]
        self._after = then.tolist()
        self._first_after = np.searchsorted(first, places).tolist()
        self._before = np.bincount(then, minlength=circles)

    def _members(self, circle: int) -> list[_Number]:
        return self._pairs[self._starts[circle] : self._starts[circle + 1]]

    def all(self) -> Iterator[list[_Number]]:
        return filter(None, map(self._members, range(len(self._gain_mbps))))

    def turns(self) -> Generator[list[_Number], bool]:
        """Circles that wait for nobody but those that have gone, who gains most before others.

        It is sent whether each goes.
        """
        missing = self._before.tolist()
        free = [self._entry(circle) for circle in np.flatnonzero(self._before == 0).tolist()]
        heapify(free)
        while free:
            *_, circle = heappop(free)
            # A circuit alone is no circle: who waits for it may go as soon as its users have gone.
            members = self._members(circle)
            if members and not (yield members):
                continue
            for other in self._after[self._first_after[circle] : self._first_after[circle + 1]]:
                missing[other] -= 1
                if not missing[other]:
                    heappush(free, self._entry(other))

    def _entry(self, circle: int) -> tuple[bool, float, int, int]:
        start, end = self._starts[circle : circle + 2]
        first = self._pairs[start] if end > start else -1
        return end > start, -self._gain_mbps[circle], first, circle


class _Lists:
    """For each number, the others that it is paired with, in order."""

    def __init__(self, numbers: _Numbers, others: _Numbers, most: int) -> None:
        """``others`` are in order; ``most``: numbers that there are."""
        order = np.argsort(numbers, kind="stable")
        self._others: list[int] = others[order].tolist()
        self._starts: list[int] = np.searchsorted(numbers[order], np.arange(most + 1)).tolist()

    def __getitem__(self, number: int) -> list[int]:
        return self._others[self._starts[number] : self._starts[number + 1]]


def _hops(topology: Topology, number_of: _Numbers) -> tuple[_Numbers, _Numbers]:
    """(a path's pair by its number, the first port of a circuit that it takes), of all hops."""
    ends = _ends(topology)
    along = [path.circuits for path in topology.paths]
    hops = np.fromiter(map(len, along), np.intp, len(along))
    first = np.fromiter(map(attrgetter("a"), chain.from_iterable(along)), np.intp, int(hops.sum()))
    return np.repeat(number_of[ends.min(axis=0), ends.max(axis=0)], hops), first


def _ends(topology: Topology) -> _Numbers:
    """Racks that paths lead from and to; shape (2, F)."""
    paths = topology.paths
    src = np.fromiter(map(attrgetter("src"), paths), np.intp, len(paths))
    dst = np.fromiter(map(attrgetter("dst"), paths), np.intp, len(paths))
    return np.stack([src, dst])


def _entries(one: _Numbers, other: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Pairs of numbers in order, each once."""
    width = 1 + int(other.max(initial=0))
    one, other = np.divmod(np.unique(one * width + other), width)
    return one, other


def _incidence(rows: _Numbers, columns: _Numbers, shape: tuple[int, int]) -> csr_array:
    """A matrix with ones at these places."""
    found: csr_array = _sparse().csr_array((np.ones(len(columns)), (rows, columns)), shape)
    return found


def _sparse() -> ModuleType:
    """``scipy.sparse``: a third of a second to load, for those alone who cut something."""
    import_module("scipy.sparse.csgraph")
    return import_module("scipy.sparse")
