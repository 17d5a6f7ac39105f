"""Bounds that no plan can exceed: linear programs whose only limits are the racks' ports.

They share no code with the planners, and are solved by HiGHS (``scipy.optimize.linprog``).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

from hydra.errors import PlanError
from topology.problem import FabricArrays, validate_demand

LARGEST: Final = 600_000
"""Most pairs with a demand for which a bound takes seconds rather than minutes."""


def served_share_bound(
    fabric: FabricArrays, demand: ArrayLike, *, one_way: bool = False
) -> float | None:
    """The largest ``served_share`` that any topology of this fabric could have.

    A pair that is served takes at least one circuit's worth of ports at both of its ends, over
    however many hops. So the pairs of a rack together get at most the sum of its ports' rates: a
    fractional b-matching (Schrijver, Combinatorial Optimization, chapter 31). With duplex circuits
    a pair wants the larger of its two directions; with ``one_way`` light paths each direction
    counts for itself, and so do a rack's transmitters and receivers.

    None if the demand has more than :data:`LARGEST` pairs. Raises PlanError for a bad demand.
    """
    wanted = validate_demand(demand, fabric.n_racks)
    ports = np.zeros(fabric.n_racks)
    np.add.at(ports, fabric.port_rack, fabric.port_rate_mbps)
    if not one_way:
        wanted = np.triu(np.maximum(wanted, wanted.T))
    src, dst = np.nonzero(wanted)
    if src.size > LARGEST:
        return None
    total = float(wanted.sum())
    if not total:
        return 1.0
    limits = np.concatenate([ports, ports]) if one_way else ports
    receivers = dst + fabric.n_racks if one_way else dst
    most = _fractional(np.ones(src.size), src, receivers, limits, wanted[src, dst])
    return min(1.0, most / total)


def _fractional(
    value: NDArray[np.float64],
    one: NDArray[np.intp],
    other: NDArray[np.intp],
    limits: NDArray[np.float64],
    most: NDArray[np.float64],
) -> float:
    """The largest Σ value·x with x at most ``most``, and sums at each end within its limit."""
    if not value.size:
        return 0.0
    ends = np.concatenate([one, other])
    edges = np.tile(np.arange(value.size), 2)
    incidence = coo_array((np.ones(ends.size), (ends, edges)), shape=(limits.size, value.size))
    bounds = np.stack([np.zeros(value.size), most], axis=1)
    solved = linprog(-value, A_ub=incidence.tocsr(), b_ub=limits, bounds=bounds, method="highs")
    if solved.status != 0:
        raise PlanError(f"no bound could be computed: {solved.message}")
    return -float(solved.fun)
