"""Bounds that no plan can exceed: linear programs over racks' ports, planes and hops.

The bounds share no code with the planners, and are solved by HiGHS (``scipy.optimize.linprog``).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.errors import PlanError
from topology.problem import FabricArrays, validate_demand

LARGEST: Final = 600_000
"""Largest number of pairs with a demand for which a bound takes seconds rather than minutes."""


def served_share_bound(
    fabric: FabricArrays,
    demand: ArrayLike,
    *,
    one_way: bool = False,
    max_hops: int | None = None,
) -> float | None:
    """The largest ``served_share`` that any topology of this fabric could have.

    A served pair takes at least a circuit's worth of ports at both of its ends, over however many
    hops. So the pairs of a rack together get at most the sum of its ports' rates: a fractional
    b-matching (Schrijver, Combinatorial Optimization, chapter 31). With duplex circuits a pair
    wants the larger of its two directions; with ``one_way`` light paths each direction counts for
    itself, and so do a rack's transmitters and receivers.

    With ``max_hops``, the bound of duplex plans whose paths have at most so many hops: a rack has
    no more neighbours than ports, so within each number of hops a rack reaches a limited number of
    racks, and a demand takes capacity from as many circuits as its path has hops. On a plane with
    an odd number of ports, a port stays dark.

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
    by_hops = total
    if max_hops is not None and not one_way:
        within = _within_hops(fabric, wanted + wanted.T, max_hops)
        ports = np.minimum(ports, within[-1])
        by_hops = _by_capacity(np.minimum(within, ports), _usable_mbps(fabric))
    limits = np.concatenate([ports, ports]) if one_way else ports
    receivers = dst + fabric.n_racks if one_way else dst
    most = _fractional(src, receivers, limits, wanted[src, dst])
    return min(1.0, most / total, by_hops / total)


def plan_bound(
    fabric: FabricArrays, demand: ArrayLike, max_hops: int, *, one_way: bool, whole_fabric: bool
) -> float | None:
    """The largest ``served_share`` of any plan whose new paths have at most ``max_hops`` circuits.

    ``whole_fabric`` is False if some paths stay, which can have more hops: then hops set no bound.
    None and errors as in :func:`served_share_bound`.
    """
    hops = max_hops if whole_fabric else None
    return served_share_bound(fabric, demand, one_way=one_way, max_hops=hops)


def _within_hops(
    fabric: FabricArrays, wanted: NDArray[np.float64], max_hops: int
) -> NDArray[np.float64]:
    """Shape (max_hops, N): largest demand of each rack with racks within 1, 2, … hops."""
    n = len(wanted)
    largest = np.zeros((n, n + 1))
    np.cumsum(-np.sort(-wanted, axis=1), axis=1, out=largest[:, 1:])
    further = max(0, int(fabric.ports_per_rack.max(initial=0)) - 1)
    ring = np.minimum(fabric.ports_per_rack, n)
    reached = np.zeros(n, dtype=np.int64)
    within = []
    for _ in range(max_hops):
        reached = np.minimum(reached + ring, n)
        ring = np.minimum(ring * further, n)
        within.append(largest[np.arange(n), reached])
    return np.array(within)


def _usable_mbps(fabric: FabricArrays) -> float:
    """Rate of all ports together, without one port of each plane with an odd number of ports."""
    usable = float(fabric.port_rate_mbps.sum())
    for plane in range(fabric.n_planes):
        rates = fabric.port_rate_mbps[fabric.port_plane == plane]
        if len(rates) % 2:
            usable -= float(rates.min())
    return usable


def _by_capacity(within_mbps: NDArray[np.float64], usable_mbps: float) -> float:
    """Largest demand served if each Mbps takes as many circuits as hops, the nearest first."""
    carried = 0.0
    more = np.diff(within_mbps, axis=0, prepend=0.0).sum(axis=1)
    for hops, mbps in enumerate(more.tolist(), start=1):
        given = min(mbps, usable_mbps / hops)
        carried += given
        usable_mbps -= given * hops
    return carried / 2  # each pair counts at both of its racks


def _fractional(
    a: NDArray[np.intp],
    b: NDArray[np.intp],
    limits: NDArray[np.float64],
    most: NDArray[np.float64],
) -> float:
    """The largest Σ x with x at most ``most``, and sums at each end within its limit."""
    carried = np.bincount(a, most, limits.size) + np.bincount(b, most, limits.size)
    full = carried > limits
    bounded = full[a] | full[b]
    most, others = most[bounded], float(most[~bounded].sum())
    if not most.size:
        return others
    # Late import: a planner's process starts without SciPy, and seldom needs SciPy.
    from scipy.optimize import linprog  # noqa: PLC0415
    from scipy.sparse import coo_array  # noqa: PLC0415

    ends = np.concatenate([a[bounded], b[bounded]])
    edges = np.tile(np.arange(most.size), 2)
    incidence = coo_array((np.ones(ends.size), (ends, edges)), shape=(limits.size, most.size))
    bounds = np.stack([np.zeros(most.size), most], axis=1)
    solved = linprog(
        -np.ones(most.size), A_ub=incidence.tocsr(), b_ub=limits, bounds=bounds, method="highs"
    )
    if solved.status != 0:
        raise PlanError(f"no bound could be computed: {solved.message}")
    return others - float(solved.fun)
