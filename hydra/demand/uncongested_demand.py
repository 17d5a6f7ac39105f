"""Demand of rack pairs at the last time without congestion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix

_LONGER: Final = 4.0
_MOST_MEMORY_S: Final = 3600.0
_ALIKE: Final = 0.25
"""Tolerated relative difference of two measurements of an unchanged demand."""


@dataclass(slots=True)
class KnownDemand:
    """Demand seen on circuits: an upper bound for a pair that loses its circuit.

    The bound expires after ``memory_s``, and as soon as the pair sends more. If the demand is then
    found unchanged, the memory is extended by a factor of four, up to an hour, so that pairs with
    constant demand do not take turns.
    """

    racks: int
    memory_s: float
    _mbps: DemandMatrix = field(init=False)
    _measured_mbps: DemandMatrix = field(init=False)
    """Last measured demand, also after expiry."""
    _seen_s: NDArray[np.float64] = field(init=False)
    _memory_s: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        shape = self.racks, self.racks
        self._mbps = np.full(shape, np.inf)
        self._measured_mbps = np.zeros(shape)
        self._seen_s = np.full(shape, -np.inf)
        self._memory_s = np.full(shape, self.memory_s)

    def most_mbps(self, sent_mbps: DemandMatrix, now_s: float) -> DemandMatrix:
        """Upper bound of the demand of each pair, shape (N, N); infinite if unknown."""
        more = sent_mbps > self._mbps
        self._memory_s[more] = self.memory_s
        self._mbps[more | ~self._fresh(now_s)] = np.inf
        return self._mbps.copy()

    def learn(self, wanted_mbps: DemandMatrix, clear: NDArray[np.bool_], now_s: float) -> None:
        """Take the demand of unconstrained pairs, shapes (N, N)."""
        difference = np.abs(wanted_mbps - self._measured_mbps)
        alike = difference <= _ALIKE * np.maximum(wanted_mbps, self._measured_mbps)
        found_again = clear & alike & np.isfinite(self._seen_s) & ~self._fresh(now_s)
        self._memory_s[found_again] *= _LONGER
        np.minimum(self._memory_s, _MOST_MEMORY_S, out=self._memory_s)
        self._memory_s[clear & ~alike] = self.memory_s
        self._mbps[clear] = self._measured_mbps[clear] = wanted_mbps[clear]
        self._seen_s[clear] = now_s

    def _fresh(self, now_s: float) -> NDArray[np.bool_]:
        fresh: NDArray[np.bool_] = now_s >= self._seen_s
        return fresh & (now_s - self._seen_s <= self._memory_s)
