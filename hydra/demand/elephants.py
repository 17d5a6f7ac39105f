"""Elephant rack pairs, with hysteresis against frequent changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix


@dataclass(slots=True)
class ElephantWatch:
    """A pair becomes an elephant at ``threshold_mbps``, and a mouse below ``release`` times the
    threshold.
    """

    threshold_mbps: float
    release: float
    """Between 0 and 1; 1: no hysteresis."""
    _mask: NDArray[np.bool_] | None = field(init=False, default=None)

    def elephants(self, rates_mbps: DemandMatrix) -> DemandMatrix:
        """The rates, shape (N, N), with zeros for mice."""
        keep = self._mask
        enough = rates_mbps >= self.threshold_mbps
        if keep is not None:
            enough |= keep & (rates_mbps >= self.release * self.threshold_mbps)
        self._mask = enough & (rates_mbps > 0)
        return np.where(self._mask, rates_mbps, 0.0)
