"""Demand of rack pairs when last nothing held them back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix


@dataclass(slots=True)
class KnownDemand:
    """So that a pair which loses its circuit is not taken to want more than it had shown there.

    It is forgotten after ``memory_s``, and as soon as the pair sends more.
    """

    racks: int
    memory_s: float
    _mbps: DemandMatrix = field(init=False)
    _seen_s: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self._mbps = np.full((self.racks, self.racks), np.inf)
        self._seen_s = np.full((self.racks, self.racks), -np.inf)

    def most_mbps(self, sent_mbps: DemandMatrix, now_s: float) -> DemandMatrix:
        """Upper bound of each pair's demand, shape (N, N); infinite where nothing is known."""
        fresh = (now_s >= self._seen_s) & (now_s - self._seen_s <= self.memory_s)
        self._mbps[(sent_mbps > self._mbps) | ~fresh] = np.inf
        return self._mbps.copy()

    def learn(self, wanted_mbps: DemandMatrix, clear: NDArray[np.bool_], now_s: float) -> None:
        """Take in what pairs want that nothing was in the way of, shapes (N, N)."""
        self._mbps[clear] = wanted_mbps[clear]
        self._seen_s[clear] = now_s
