"""Helpers for tables of paths, which are in :mod:`hydra.path_arrays`."""

from __future__ import annotations

import numpy as np

from hydra.columns import IntArray, starts
from hydra.path_arrays import PathTable

__all__ = ["IntArray", "PathTable", "ranked", "starts"]


def ranked(keys: IntArray, size: int) -> IntArray:
    """Positions of the keys in ascending order of the keys, which are below ``size``.

    Negative keys are left out, equal keys stay in order. All-different keys, the usual case, need
    no sorting.
    """
    at = np.full(size, -1, dtype=np.int32)
    valid = np.flatnonzero(keys >= 0).astype(np.int32)
    at[keys[valid]] = valid
    found: IntArray = at[at >= 0]
    if len(found) == len(valid):
        return found
    return valid[np.argsort(keys[valid], kind="stable")]
