"""Circuits shared by turns (Abu-Tair et al., 2019, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix, Pair, RackId

_HALVINGS: Final = 16
"""Largest number of halvings of a weight, so that no weight vanishes."""


@dataclass(slots=True)
class Turns:
    """Turns of rack pairs that want circuits: the pair with the longest wait comes first.

    Each epoch of waiting doubles a pair's weight. A matching therefore leaves out the
    longest-waiting pair only for pairs with a similar wait, and after their turn these pairs weigh
    less: no pair waits for ever.
    """

    one_way: bool = False
    """True if each direction has separate turns."""
    slowest_mbps: float = math.inf
    """Rate of the slowest port: a larger weight would have no further effect at the port."""
    _epoch: int = 0
    _served: dict[Pair, int] = field(default_factory=dict)

    def demand(self, wanting: NDArray[np.bool_]) -> DemandMatrix:
        """Demand to plan for: the longer a pair has waited, the larger.

        The largest demand is 1 Mbps for each waiting pair, at most ``slowest_mbps``, so that
        several pairs find room on a relay.

        ``wanting``, shape (racks, racks), is True where the row's rack wants to send to the
        column's rack. One direction is enough for both, unless circuits are one-way.
        """
        mask = wanting if self.one_way else np.triu(wanting | wanting.T, 1)
        pairs = [(RackId(int(src)), RackId(int(dst))) for src, dst in np.argwhere(mask)]
        order = sorted(pairs, key=lambda pair: (-self._served.get(pair, 0), pair))
        weights = np.zeros(wanting.shape)
        largest_mbps = min(float(len(order)), self.slowest_mbps)
        longest_since = min((self._served.get(pair, 0) for pair in pairs), default=0)
        for rank, pair in enumerate(order, start=1):
            fewer = min(self._served.get(pair, 0) - longest_since, _HALVINGS)
            even = (1 + rank / len(order)) / 2  # among pairs with an equal wait
            weights[pair] = largest_mbps * 0.5**fewer * even
            if not self.one_way:
                weights[pair[::-1]] = weights[pair]
        return weights

    def serve(self, pairs: Iterable[Pair]) -> None:
        """Begin an epoch in which ``pairs`` have circuits; one-way pairs are (from, to)."""
        self._epoch += 1
        for pair in pairs:
            self._served[pair] = self._epoch
