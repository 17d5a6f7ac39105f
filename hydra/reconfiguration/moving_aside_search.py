"""The cheapest way to go on if no pair gets further in the light: which pairs move aside first.

A beam search looks ahead on a board. After each move, the search goes on from the positions where a
last course that diverts all other pairs would cost least. The cost is traffic off circuits, in
Mb/s, times courses. Equal boards give equal ways, unless time runs out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from hydra.model import Circuit, Pair, Path, PlaneId
from hydra.reconfiguration.moving_aside import Board, Position, Spare

MOST_PAIRS: Final = 800
"""Limit of pairs on a board: with more, the search would try fewer than ten moves."""
_BEAM: Final = 8
"""Positions from which the search goes on after each move."""
_MOST_TRIED: Final = 16
"""Limit of sets of pairs to try to divert first; sets with the least traffic come first."""
_WORK: Final = 8_000
"""Limit of moves to try, times the pairs of the board: 500 moves of 16 pairs, or 20 of 400."""


@dataclass(frozen=True, slots=True)
class Move:
    """Pairs that make way in one course: to other paths in the light, or diverted."""

    aside: Mapping[Pair, tuple[Path, ...]]
    off: frozenset[Pair] = frozenset()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Node:
    position: Position
    cost_mbps: float
    """Cost of the courses so far."""
    courses: int
    first: Move | None
    """The first move, from the starting position."""


class AsideSearch:
    """Finds the cheapest way from a position in which no pair gets further on its own."""

    def __init__(
        self,
        *,
        board: Board,
        spare: Spare,
        start: Position,
        moving: frozenset[Pair],
        had: frozenset[Pair],
        most: int,
    ) -> None:
        """``moving``: pairs of the board; ``had``: pairs with paths before the change; ``most``:
        courses left.
        """
        self._board, self._spare, self._start = board, spare, start
        self._moving = sorted(moving)
        self._mbps = {pair: spare.mbps(pair) if pair in had else 0.0 for pair in self._moving}
        self._most = most
        self._tries = 1 + _WORK // max(1, len(moving))

    def best(self) -> Move | None:
        """The first move of the cheapest way; None to divert all remaining pairs."""
        root = _Node(position=self._start, cost_mbps=0.0, courses=0, first=None)
        best, found = root, self._ended(root)
        beam = [root] if self._board.in_the_way(self._start) else []
        while beam:
            after: dict[object, tuple[tuple[float, ...], _Node]] = {}
            for node in beam:
                for child in self._children(node):
                    ended = self._ended(child)
                    if ended < found:
                        best, found = child, ended
                    if child.cost_mbps < found[0] and child.courses < self._most - 1:
                        key = frozenset(child.position.paths.items())
                        value = (*ended, child.cost_mbps)
                        if key not in after or value < after[key][0]:
                            after[key] = value, child
            ranked = sorted(after.values(), key=lambda entry: entry[0])
            beam = [node for _, node in ranked[:_BEAM] if not self._spare.detours.expired()]
        return best.first

    def _children(self, node: _Node) -> Iterator[_Node]:
        """Positions after a move, once all able pairs have gone over."""
        for move in self._moves(node.position):
            if not self._tries or self._spare.detours.expired():
                return
            self._tries -= 1
            position = self._board.after(node.position, move.aside, move.off)
            off_mbps = sum(self._mbps[pair] for pair in sorted(move.off))
            cost_mbps = node.cost_mbps + self._off_mbps(node.position) + off_mbps
            courses = node.courses + 1
            while courses < self._most and (then := self._board.gone_over(position)) is not None:
                cost_mbps += self._off_mbps(position)
                position = then
                courses += 1
            if courses < self._most or self._is_over(position):
                yield _Node(
                    position=position,
                    cost_mbps=cost_mbps,
                    courses=courses,
                    first=node.first or move,
                )

    def _moves(self, position: Position) -> Iterator[Move]:
        ways = self._board.in_the_way(position)
        users = self._board.users(position)
        everything = frozenset[Circuit]().union(*ways)
        by_plane: dict[PlaneId, set[Circuit]] = {}
        for circuit in users:
            by_plane.setdefault(circuit.plane, set()).add(circuit)
        planes = [frozenset(members) for _, members in sorted(by_plane.items())]
        room = cache(partial(self._board.room, position))
        tried: list[Mapping[Pair, tuple[Path, ...]]] = []
        for circuits in (*planes, everything, *ways):
            aside = self._board.places(position, circuits, users, room)
            if aside and aside not in tried:
                tried.append(aside)
                yield Move(aside)
        no_pairs = frozenset[Pair]()
        sets = {no_pairs.union(*(users.get(circuit, no_pairs) for circuit in way)) for way in ways}
        alone = {frozenset({pair}) for pair in no_pairs.union(*sets)}
        for pairs in sorted((sets | alone) - {no_pairs}, key=self._order)[:_MOST_TRIED]:
            yield Move({}, pairs)

    def _order(self, pairs: frozenset[Pair]) -> tuple[float, list[Pair]]:
        return sum(self._mbps[pair] for pair in sorted(pairs)), sorted(pairs)

    def _is_over(self, position: Position) -> bool:
        return all(self._board.arrived(position, pair) for pair in self._moving)

    def _off_mbps(self, position: Position) -> float:
        """Traffic off circuits in a course without diverts."""
        return sum(mbps for pair, mbps in self._mbps.items() if pair not in position.paths)

    def _ended(self, node: _Node) -> tuple[float, int]:
        """(cost, courses) of the way so far and a last course that diverts all other pairs."""
        position = node.position
        if self._is_over(position):
            return node.cost_mbps, node.courses
        last_mbps = sum(
            mbps
            for pair, mbps in self._mbps.items()
            if pair not in position.paths or not self._board.arrived(position, pair)
        )
        return node.cost_mbps + last_mbps, node.courses + 1
