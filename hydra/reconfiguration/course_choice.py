"""The way to a target: which courses a change takes, and which pairs leave the light.

A change is carried out course by course. In the light, pairs go from circuit to circuit
(:mod:`hydra.reconfiguration.make_before_break`); in HydRA's order, pairs are diverted while mirrors
move. If no pair gets further in the light, either some pairs move aside
(:mod:`hydra.reconfiguration.moving_aside`), or the last course diverts all remaining pairs: the way
with the lower cost is chosen. Cost is traffic off circuits, in Mb/s, times courses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from hydra.errors import PlanError
from hydra.model import Fabric, NetworkState, Pair, Topology, VlanId
from hydra.reconfiguration.moving_aside import Board, Position, Spare
from hydra.reconfiguration.moving_aside_search import MOST_PAIRS, AsideSearch, Move
from hydra.reconfiguration.plan import moving_pairs, pair_of, paths_by_pair
from hydra.reconfiguration.run import Conditions
from hydra.reconfiguration.shifting import Shifting, in_light

MOST_COURSES: Final = 8
"""Limit of courses for a change: a course takes 0.2 to 0.4 s, and the change's gain has to wait."""


@dataclass(frozen=True, slots=True)
class Course:
    """A step on the way, with a plan of its own."""

    target: NetworkState
    in_light: bool
    """False: in HydRA's order."""
    away: frozenset[Pair]
    """Pairs with paths before the change, and off circuits during at least a part of the course."""


@dataclass(frozen=True, slots=True)
class Way:
    """Courses from a state to the target of a change."""

    courses: tuple[Course, ...] = ()

    @property
    def away(self) -> frozenset[Pair]:
        """Pairs that leave the light, if nothing fails."""
        return frozenset[Pair]().union(*(course.away for course in self.courses))

    def cost_mbps(self, mbps: Callable[[Pair], float]) -> float:
        """Mbps off circuits, summed over all courses."""
        return sum(mbps(pair) for course in self.courses for pair in sorted(course.away))


def onward(
    fabric: Fabric,
    state: NetworkState,
    target: NetworkState,
    others: Collection[VlanId] = (),
) -> NetworkState:
    """Adapt ``target`` to a change that begins at ``state``; ``others``: VLAN-IDs of other changes.

    VLAN-IDs in use only in ``state`` rest afterwards. If ``state`` uses the planned VLAN-ID of a
    new path, the path gets a free VLAN-ID, if any: paths in the light share no VLAN.
    """
    in_use = frozenset(state.vlans.values())
    pool = target.pool.given_up(in_use.difference(target.vlans.values(), target.pool.resting))
    vlans = dict(target.vlans)
    late = [path for path, vlan in vlans.items() if vlan in in_use and path not in state.vlans]
    if late:
        others_too = in_use.union(vlans.values(), others)
        vlans |= pool.assigned(late, fabric.circuit_vlans, others_too)
        pool = pool.used(vlans.values())
    return replace(target, epoch=state.epoch + 1, vlans=vlans, pool=pool)


def having(state: NetworkState) -> frozenset[Pair]:
    """Pairs that have paths."""
    return frozenset(map(pair_of, state.topology.paths))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ways:
    """Finds ways under the present conditions. Without ``spare`` room, no pair moves aside."""

    fabric: Fabric
    conditions: Conditions
    spare: Spare | None = None
    in_light: bool = True
    """False: all pairs are diverted."""

    def way(self, current: NetworkState, target: NetworkState) -> Way:
        """All courses to the target, if nothing fails."""
        courses: list[Course] = []
        state, had = current, having(current)
        while (state.topology, state.vlans) != (target.topology, target.vlans):
            course = self.next(state, target, MOST_COURSES - len(courses), had)
            courses.append(course)
            state = course.target
            target = onward(self.fabric, state, target)
        return Way(tuple(courses))

    def next(
        self, state: NetworkState, target: NetworkState, most: int, had: frozenset[Pair]
    ) -> Course:
        """The next course, if at most ``most`` courses are left; ``had``: pairs with paths before
        the change.
        """
        had -= self.conditions.diverted
        off = had - having(state)
        shifting = Shifting(
            fabric=self.fabric, current=state, target=target, conditions=self.conditions
        )
        if most > 1 and self.in_light:
            if (near := shifting.reached()) is not None:
                return Course(near, True, off)
            if (course := self._moving_aside(shifting, most, had)) is not None:
                return course
        moving = moving_pairs(state, target)
        leaving = moving.intersection(paths_by_pair(state, moving)) - self.conditions.diverted
        return Course(target, False, off | leaving)

    def _moving_aside(self, shifting: Shifting, most: int, had: frozenset[Pair]) -> Course | None:
        """The course in which pairs make way for other pairs; None if diverting all pairs costs
        less.
        """
        spare, before = self.spare, shifting.before
        if spare is None or len(shifting.moving) > MOST_PAIRS or spare.detours.expired():
            return None
        if not spare.sum_mbps(before):
            return None  # nothing to spare
        state, target = shifting.current, shifting.target
        start = Position.of(before, state.topology.circuits)
        standing, wanted = state.topology.circuits, target.topology.circuits
        still = tuple(p for p in state.topology.paths if pair_of(p) not in shifting.moving)
        up = (standing & wanted) | {circuit for path in still for circuit in path.circuits}
        board = Board(
            fabric=self.fabric,
            spare=spare,
            goal=shifting.after,
            able=frozenset(filter(shifting.is_able, shifting.moving)),
            movable=frozenset(filter(shifting.is_movable, shifting.moving)),
            still=Topology(up, still),
            wanted=wanted,
            by_hand=self.conditions.by_hand,
        )
        search = AsideSearch(
            board=board, spare=spare, start=start, moving=shifting.moving, had=had, most=most
        )
        move = search.best()
        if move is None:
            return None
        try:
            goal = _aside(state, target, move, self.fabric)
        except PlanError:
            return None
        off = had - having(state)
        if move.off:
            return Course(goal, False, off | (move.off & had))
        near = in_light(self.fabric, state, goal, self.conditions)
        return None if near is None else Course(near, True, off)


def _aside(state: NetworkState, target: NetworkState, move: Move, fabric: Fabric) -> NetworkState:
    """``state`` after a move, without circuits then idle, except the target's. Raises PlanError if
    no VLAN-IDs are left.
    """
    moved = {*move.aside, *move.off}
    aside = sorted(path for paths in move.aside.values() for path in paths)
    vlans = {
        path: vlan
        for path, vlan in state.vlans.items()
        if pair_of(path) not in moved or path in aside
    }
    new = [path for path in aside if path not in vlans]
    in_use = frozenset(state.vlans.values()).union(target.vlans.values())
    fresh = target.pool.assigned(new, fabric.circuit_vlans, in_use)
    if len(fresh) < len(new):
        raise PlanError("no VLAN-IDs are free for pairs that move aside")
    vlans |= fresh
    used = {circuit for path in vlans for circuit in path.circuits}
    circuits = (state.topology.circuits & target.topology.circuits) | used
    return target.joined(circuits, vlans)
