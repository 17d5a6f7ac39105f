"""Pairs that use both networks: part of a pair's flows is electrical while the circuits are full.

Flows are split by a hash, so the rate of a part is unknown beforehand. Spilling is therefore a
trial: measure the result, and undo a spill that does harm.
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
"""Share of every electrical link on the way that must be free of other traffic before flows
spill.
"""
_KEEP_FREE: Final = 0.25
"""If other traffic leaves a smaller share free, the spill ends."""
_ROUNDING: Final = 1.1
"""Spilled traffic beyond this multiple of the free electrical capacity is lost. A smaller excess is
measurement error.
"""
_HARDLY: Final = 0.25
"""A part that sends less than this share of the free electrical capacity is made larger."""
_MOST_PARTS: Final = 32
_LONGEST_PAUSE_S: Final = 3600.0

_Bools = NDArray[np.bool_]
_Direction = tuple[RackId, RackId]
"""(sending rack, receiving rack)"""


@dataclass(frozen=True, slots=True, eq=False)
class PairRates:
    """Current rates from rack to rack, Mbps; shapes (N, N)."""

    sent_mbps: DemandMatrix
    circuits_mbps: DemandMatrix
    """Capacity of the pair's paths together; 0 if the pair has no path, or the load is unknown."""
    carried_mbps: DemandMatrix
    """Used part of ``circuits_mbps``, by any traffic."""
    full: _Bools
    """True if ``carried_mbps`` is nearly all of ``circuits_mbps``."""
    slack: _Bools
    """True if ``carried_mbps`` is clearly below ``circuits_mbps``."""
    fits: _Bools
    """True if the pair's traffic alone would leave the pair's circuits slack."""
    free_mbps: DemandMatrix
    """Electrical capacity between the two racks that traffic without circuits leaves free."""
    free: DemandMatrix
    """Free share, 0 to 1, of the busiest electrical link between the two racks."""


@dataclass(frozen=True, slots=True)
class _Spill:
    parts: int
    tried_s: float
    """Time of the last change of ``parts``."""


class Spills:
    """Decides which pairs spill, and how much; remembers the outcome of trials.

    :meth:`decide` is for one thread, the other methods for any thread.
    """

    def __init__(self, racks: int) -> None:
        shape = racks, racks
        self._full_since_s = np.full(shape, np.inf)
        self._fits_since_s = np.full(shape, np.inf)
        """Times since which a pair's whole traffic would fit on the pair's circuits."""
        self._wait_until_s = np.full(shape, -np.inf)
        self._failures = np.zeros(shape, dtype=np.intp)
        self._spills: Mapping[_Direction, _Spill] = {}

    @property
    def parts(self) -> Mapping[_Direction, int]:
        """Number of parts of a direction's flows; one part is on the electrical network."""
        return {direction: spill.parts for direction, spill in self._spills.items()}

    def shares(self) -> DemandMatrix:
        """Electrical share of each direction's flows; shape (N, N)."""
        shares = np.zeros(self._failures.shape)
        for direction, parts in self.parts.items():
            shares[direction] = 1 / parts
        return shares

    def decide(
        self, room: PairRates | None, now_s: float, horizon_s: float, settle_s: float
    ) -> None:
        """Update the spills from the measured ``room``; None: end all spills.

        A pair spills after the pair's circuits were full for ``horizon_s``. The result of a change
        is judged ``settle_s`` after the change.
        """
        if room is None:
            self._spills = {}
            self._full_since_s[:] = np.inf
            return
        self._note(room, now_s)
        kept = {}
        for direction, spill in self._spills.items():
            after = self._after(direction, spill, room, now_s, horizon_s, settle_s)
            if after is not None:
                kept[direction] = after
        due = now_s - np.maximum(self._full_since_s, self._wait_until_s) >= horizon_s
        due &= (room.free >= _BEGIN_FREE) & room.full & ~room.fits
        for a, b in np.argwhere(due).tolist():
            src, dst = RackId(a), RackId(b)
            taken = any(src == kept_src or dst == other for kept_src, other in kept)
            if (src, dst) not in kept and not taken:
                circuits_mbps, free_mbps = room.circuits_mbps[src, dst], room.free_mbps[src, dst]
                parts = math.ceil((circuits_mbps + free_mbps) / free_mbps)
                if parts <= _MOST_PARTS:
                    kept[src, dst] = _Spill(parts, now_s)
        self._spills = kept

    def _note(self, room: PairRates, now_s: float) -> None:
        full = np.where(np.isinf(self._full_since_s), room.full, ~room.slack)
        for since_s, so in ((self._full_since_s, full), (self._fits_since_s, room.fits)):
            since_s[so] = np.minimum(since_s[so], now_s)
            since_s[~so] = np.inf
        self._full_since_s[room.circuits_mbps == 0] = np.inf

    def _after(
        self,
        direction: _Direction,
        spill: _Spill,
        room: PairRates,
        now_s: float,
        horizon_s: float,
        settle_s: float,
    ) -> _Spill | None:
        """The spill after judging its result; None: the spill ends."""
        free_mbps = room.free_mbps[direction]
        if not room.circuits_mbps[direction] or room.free[direction] < _KEEP_FREE:
            self._full_since_s[direction] = np.inf
            return None
        if now_s - self._fits_since_s[direction] >= horizon_s:
            self._failures[direction] = 0
            return None
        if now_s - spill.tried_s < settle_s:
            return spill
        spilled_mbps = room.sent_mbps[direction] - room.carried_mbps[direction]
        lost = not room.full[direction] and spilled_mbps > _ROUNDING * free_mbps
        if room.slack[direction] or lost:
            if now_s - spill.tried_s >= horizon_s:  # the spill has worked for a while
                self._failures[direction] = 0
            pause_s = horizon_s * 2.0 ** self._failures[direction]
            self._wait_until_s[direction] = now_s + min(pause_s, _LONGEST_PAUSE_S)
            self._failures[direction] += 1
            return None
        if spilled_mbps < _HARDLY * free_mbps and spill.parts > 2:
            return replace(spill, parts=math.ceil(spill.parts / 2), tried_s=now_s)
        return spill
