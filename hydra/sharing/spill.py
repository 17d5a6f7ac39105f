"""Pairs that use both networks: part of their flows is electrical while their circuits are full.

Flows are told apart by a hash, so that nobody knows beforehand what a part of them sends. So it is
tried, looked at, and taken back where it does harm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix, RackId

_BEGIN_FREE: Final = 0.5
"""Part of every electrical link on the way that others have to leave before flows spill."""
_KEEP_FREE: Final = 0.25
"""They go back where others leave less."""
_ROUNDING: Final = 1.1
"""Traffic beyond this many times what is free electrically is lost, not measured badly."""
_HARDLY: Final = 0.25
"""A part that sends less than this of what is free is made larger."""
_MOST_PARTS: Final = 32
_LONGEST_PAUSE_S: Final = 3600.0

_Bools = NDArray[np.bool_]
_Direction = tuple[RackId, RackId]
"""Racks that send and that receive."""


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Rates of now from rack to rack, Mbps; shapes (N, N)."""

    sent_mbps: DemandMatrix
    circuits_mbps: DemandMatrix
    """Capacity of the pair's paths together; 0 if it has none, or nobody knows what they carry."""
    carried_mbps: DemandMatrix
    """Part of that which is used, by whomever."""
    full: _Bools
    """True if that is nearly all."""
    slack: _Bools
    """True if that is clearly not all."""
    fits: _Bools
    """True if the pair's traffic alone would leave its circuits slack."""
    free_mbps: DemandMatrix
    """Capacity that traffic without circuits leaves of the electrical network between the two."""
    free: DemandMatrix
    """Part that it leaves of the busiest link there."""


@dataclass(frozen=True, slots=True)
class _Spill:
    parts: int
    tried_s: float
    """Time since which there are so many parts."""


class Spills:
    """Decides which pairs spill, and how much; remembers what was tried.

    :meth:`decide` is for one thread, the rest for any.
    """

    def __init__(self, racks: int) -> None:
        shape = racks, racks
        self._full_since_s = np.full(shape, np.inf)
        self._fits_since_s = np.full(shape, np.inf)
        """Times since which all that a pair sends would fit on its circuits."""
        self._wait_until_s = np.full(shape, -np.inf)
        self._failures = np.zeros(shape, dtype=np.intp)
        self._spills: Mapping[_Direction, _Spill] = {}

    @property
    def parts(self) -> Mapping[_Direction, int]:
        """Of so many parts of its flows a direction has one on the electrical network."""
        return {direction: one.parts for direction, one in self._spills.items()}

    def shares(self) -> DemandMatrix:
        """Part of each direction's flows that is electrical; shape (N, N)."""
        shares = np.zeros(self._failures.shape)
        for direction, parts in self.parts.items():
            shares[direction] = 1 / parts
        return shares

    def decide(self, room: Room | None, now_s: float, horizon_s: float, settle_s: float) -> None:
        """Take in what is measured; None: nothing may spill.

        A pair's circuits have to be full for ``horizon_s``. What a change brings is looked at
        ``settle_s`` after it.
        """
        if room is None:
            self._spills = {}
            self._full_since_s[:] = np.inf
            return
        self._note(room, now_s)
        kept = {}
        for direction, one in self._spills.items():
            after = self._after(direction, one, room, now_s, horizon_s, settle_s)
            if after is not None:
                kept[direction] = after
        due = now_s - np.maximum(self._full_since_s, self._wait_until_s) >= horizon_s
        due &= (room.free >= _BEGIN_FREE) & room.full & ~room.fits
        for a, b in np.argwhere(due).tolist():
            src, dst = RackId(a), RackId(b)
            taken = any(src == one or dst == other for one, other in kept)
            if (src, dst) not in kept and not taken:
                circuits_mbps, free_mbps = room.circuits_mbps[src, dst], room.free_mbps[src, dst]
                parts = math.ceil((circuits_mbps + free_mbps) / free_mbps)
                if parts <= _MOST_PARTS:
                    kept[src, dst] = _Spill(parts, now_s)
        self._spills = kept

    def _note(self, room: Room, now_s: float) -> None:
        full = np.where(np.isinf(self._full_since_s), room.full, ~room.slack)
        for since_s, so in ((self._full_since_s, full), (self._fits_since_s, room.fits)):
            since_s[so] = np.minimum(since_s[so], now_s)
            since_s[~so] = np.inf
        self._full_since_s[room.circuits_mbps == 0] = np.inf

    def _after(
        self,
        direction: _Direction,
        one: _Spill,
        room: Room,
        now_s: float,
        horizon_s: float,
        settle_s: float,
    ) -> _Spill | None:
        """What becomes of a spill; None: it ends."""
        free_mbps = room.free_mbps[direction]
        if not room.circuits_mbps[direction] or room.free[direction] < _KEEP_FREE:
            self._full_since_s[direction] = np.inf
            return None
        if now_s - self._fits_since_s[direction] >= horizon_s:
            self._failures[direction] = 0
            return None
        if now_s - one.tried_s < settle_s:
            return one
        spilled_mbps = room.sent_mbps[direction] - room.carried_mbps[direction]
        lost = not room.full[direction] and spilled_mbps > _ROUNDING * free_mbps
        if room.slack[direction] or lost:
            if now_s - one.tried_s >= horizon_s:  # it has been good for a while
                self._failures[direction] = 0
            pause_s = horizon_s * 2.0 ** self._failures[direction]
            self._wait_until_s[direction] = now_s + min(pause_s, _LONGEST_PAUSE_S)
            self._failures[direction] += 1
            return None
        if spilled_mbps < _HARDLY * free_mbps and one.parts > 2:
            return replace(one, parts=math.ceil(one.parts / 2), tried_s=now_s)
        return one
