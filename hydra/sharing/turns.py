"""Circuits shared by turns (Abu-Tair et al., 2019, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix, RackId
from hydra.reconfiguration.plan import Pair

_HALVINGS: Final = 16
"""Epochs less of waiting than the longest that count: no weight vanishes."""


@dataclass(slots=True)
class Turns:
    """Turns of pairs of racks that want circuits: the pair that has waited longest comes first.

    Each epoch of waiting doubles a pair's weight, so that a matching leaves out the longest waiting
    pair only for others that have waited about as long. These have had their turn then: no pair
    waits for ever.
    """

    one_way: bool = False
    """True if each direction has turns of its own."""
    slowest_mbps: float = math.inf
    """Rate of the slowest port: a weight above it would count for no more there."""
    _epoch: int = 0
    _served: dict[Pair, int] = field(default_factory=dict)

    def demand(self, wanting: NDArray[np.bool_]) -> DemandMatrix:
        """Demand to plan for, up to ``slowest_mbps``: the longer a pair has waited, the more.

        The most is 1 Mbps for each pair that waits, so that several find room on a relay.

        ``wanting``, shape (racks, racks), is True where the row's rack wants to send to the
        column's; one direction is enough for both, unless circuits are one-way.
        """
        mask = wanting if self.one_way else np.triu(wanting | wanting.T, 1)
        pairs = [(RackId(int(src)), RackId(int(dst))) for src, dst in np.argwhere(mask)]
        order = sorted(pairs, key=lambda pair: (-self._served.get(pair, 0), pair))
        weights = np.zeros(wanting.shape)
        largest_mbps = min(float(len(order)), self.slowest_mbps)
        longest_since = min((self._served.get(pair, 0) for pair in pairs), default=0)
        for rank, pair in enumerate(order, start=1):
            fewer = min(self._served.get(pair, 0) - longest_since, _HALVINGS)
            even = (1 + rank / len(order)) / 2  # of those that have waited equally long
            weights[pair] = largest_mbps * 0.5**fewer * even
            if not self.one_way:
                weights[pair[::-1]] = weights[pair]
        return weights

    def serve(self, pairs: Iterable[Pair]) -> None:
        """Begin an epoch in which these pairs have circuits; one-way pairs are (from, to)."""
        self._epoch += 1
        for pair in pairs:
            self._served[pair] = self._epoch
