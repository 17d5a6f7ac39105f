"""Circuits shared by turns (Abu-Tair et al., 2019, section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix, RackId
from hydra.reconfiguration.plan import Pair


@dataclass(slots=True)
class Turns:
    """Turns of pairs of racks that want circuits: the pair that has waited longest comes first."""

    one_way: bool = False
    """True if each direction has turns of its own."""
    _epoch: int = 0
    _served: dict[Pair, int] = field(default_factory=dict)

    def demand(self, wanting: NDArray[np.bool_]) -> DemandMatrix:
        """Demand to plan for, without a unit: the longer a pair has waited, the more.

        ``wanting``, shape (racks, racks), is True where the row's rack wants to send to the
        column's; one direction is enough for both, unless circuits are one-way.
        """
        mask = wanting if self.one_way else np.triu(wanting | wanting.T, 1)
        pairs = [(RackId(int(src)), RackId(int(dst))) for src, dst in np.argwhere(mask)]
        order = sorted(pairs, key=lambda pair: (-self._served.get(pair, 0), pair))
        weights = np.zeros(wanting.shape)
        for rank, pair in enumerate(order, start=1):
            weights[pair] = rank
            if not self.one_way:
                weights[pair[::-1]] = rank
        return weights

    def serve(self, pairs: Iterable[Pair]) -> None:
        """Begin an epoch in which these pairs have circuits; one-way pairs are (from, to)."""
        self._epoch += 1
        for pair in pairs:
            self._served[pair] = self._epoch
