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
    valid = None if keys.min(initial=0) >= 0 else np.flatnonzero(keys >= 0)
    chosen = keys if valid is None else keys[valid]
    at = np.full(size, -1, dtype=np.int32)
    at[chosen] = np.arange(len(chosen), dtype=np.int32)
    order: IntArray = at[at >= 0]
    if len(order) < len(chosen):
        order = np.argsort(chosen, kind="stable").astype(np.int32)
    return order if valid is None else valid[order].astype(np.int32)
