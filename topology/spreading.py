"""Pieces of a schedule spread over planes, each of which switches by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

import numpy as np

from topology.oneway import Configuration, OneWayProblem, configuration_of
from topology.problem import Timing
from topology.tables import IntArray

_FAINT = 1e-9
"""Negligible time, as a part of a plane's time."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Light paths of a plane, and their duration; arrays of shape (E,)."""

    length_s: float
    sender: IntArray
    receiver: IntArray


def planes_are_alike(problem: OneWayProblem) -> bool:
    """True if every rack has a port of the same rate on each layer: pieces may go to any."""
    rates_mbps = problem.rates_mbps
    return bool(rates_mbps.size) and bool((rates_mbps == rates_mbps[0]).all())


@dataclass(slots=True, eq=False)
class Lane:
    """The pieces of a plane, and their total time with switching."""

    switching_s: float
    pieces: list[Piece] = field(default_factory=list)
    lasts_s: float = 0.0

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.lasts_s += piece.length_s + self.switching_s


def spread(pieces: Sequence[Piece], n_planes: int, switching_s: float) -> list[Lane]:
    """The pieces on planes: the longest first, each on the plane with the least load (LPT).

    Then, as long as the end comes sooner, the plane that takes longest gives part of its longest
    piece to the plane that takes shortest.
    """
    lanes = [Lane(switching_s) for _ in range(n_planes)]
    queue = [(0.0, number) for number in range(n_planes)]
    heapify(queue)
    for piece in sorted(pieces, key=lambda piece: -piece.length_s):
        number = queue[0][1]
        lanes[number].add(piece)
        heapreplace(queue, (lanes[number].lasts_s, number))
    while _even_out(lanes, switching_s):
        pass
    return lanes


def _even_out(lanes: Sequence[Lane], switching_s: float) -> bool:
    """Divide the longest piece of the plane with the most load; False if nothing is gained."""
    fullest = max(lanes, key=lambda lane: lane.lasts_s)
    emptiest = min(lanes, key=lambda lane: lane.lasts_s)
    mean_s = sum(lane.lasts_s for lane in lanes) / len(lanes)
    # To the mean of all planes rather than of the two: later parts go to other planes.
    part_s = min(fullest.lasts_s - mean_s, mean_s - emptiest.lasts_s - switching_s)
    part_s = max(part_s, (fullest.lasts_s - emptiest.lasts_s - switching_s) / 2)
    if part_s <= _FAINT * fullest.lasts_s:
        return False
    place = max(range(len(fullest.pieces)), key=lambda place: fullest.pieces[place].length_s)
    piece = fullest.pieces[place]
    part_s = min(part_s, piece.length_s / 2)
    fullest.pieces[place] = Piece(piece.length_s - part_s, piece.sender, piece.receiver)
    fullest.lasts_s -= part_s
    emptiest.add(Piece(part_s, piece.sender, piece.receiver))
    return True


def slots_of_lane(timing: Timing, lane: int, pieces: Sequence[Piece]) -> list[Configuration]:
    """The slots of a lane, lengthened until they fill the window, or cut at the window's end."""
    if len(pieces) == 1:
        return [_slot(timing.window_s, lane, pieces[0])]
    needed_s = sum(piece.length_s for piece in pieces)
    spare_s = timing.window_s - needed_s - timing.switching_s * len(pieces)
    if spare_s >= 0:
        stretch = 1 + spare_s / needed_s if needed_s else 1.0
        return [_slot(piece.length_s * stretch, lane, piece) for piece in pieces]
    slots, remaining_s = [], timing.window_s
    for piece in pieces:
        remaining_s -= timing.switching_s
        if remaining_s <= 0:
            break
        slots.append(_slot(min(piece.length_s, remaining_s), lane, piece))
        remaining_s -= piece.length_s
    return slots


def _slot(length_s: float, lane: int, piece: Piece) -> Configuration:
    ends = piece.sender.astype(np.int32), piece.receiver.astype(np.int32)
    return configuration_of(length_s, [(lane, *ends)], lane)
