"""A synthetic trace in coflow-benchmark form: few large shuffles carry most bytes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np

from hydra.errors import PlanError

SAMPLE_RACKS: Final = 32
SAMPLE_COFLOWS: Final = 120
SAMPLE_SEED: Final = 1
SAMPLE: Final = Path(str(resources.files("apps.traces").joinpath("data", "sample-coflows.txt")))
"""The trace in the package: :func:`coflow_lines` with the values above."""

_MEAN_GAP_MS: Final = 1000.0
_NARROW_SHARE: Final = 0.6
"""Share of coflows with one to four mappers and reducers; other coflows have up to all racks."""
_MEDIAN_MB: Final = 20.0
_SIGMA: Final = 1.5
"""Sigma of the log-normal size fetched by a reducer."""


def coflow_lines(racks: int, coflows: int, seed: int) -> Iterator[str]:
    """The lines of a trace; equal arguments give equal lines.

    Coflows arrive as a Poisson process, one a second. Sizes are log-normal by reducer, so that a
    tenth of the coflows carries most bytes, as in published traces. Raises PlanError for fewer than
    two racks, or no coflow.
    """
    if racks < 2 or coflows < 1:
        raise PlanError(f"{coflows} coflows on {racks} racks: two racks and a coflow are needed")
    chance = np.random.default_rng(seed)
    yield f"{racks} {coflows}"
    arrival_ms = 0.0
    for number in range(1, coflows + 1):
        arrival_ms += chance.exponential(_MEAN_GAP_MS)
        narrow = chance.random() < _NARROW_SHARE
        most = min(4, racks // 2) if narrow else racks // 2
        senders, receivers = chance.integers(1, most, 2, endpoint=True)
        order = chance.permutation(racks)
        mappers = np.sort(order[:senders])
        reducers = np.sort(order[senders : senders + receivers])
        sizes = np.ceil(_MEDIAN_MB * chance.lognormal(0, _SIGMA, receivers))
        fetched = zip(reducers.tolist(), sizes.tolist(), strict=True)
        fields = [number, int(arrival_ms), senders, *mappers.tolist(), receivers]
        fields += [f"{rack}:{megabytes}" for rack, megabytes in fetched]
        yield " ".join(map(str, fields))
