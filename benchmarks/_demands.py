"""Synthetic demand matrices for the planners, in Mbps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topology.problem import FabricArrays, pair_demands

RATE_MBPS = 10_000.0
SEED = 1


def full_fabric(racks: int, planes: int) -> FabricArrays:
    """A fabric with a port of every rack on every plane."""
    rack, plane = np.divmod(np.arange(racks * planes, dtype=np.int32), planes)
    rates = np.full(racks * planes, RATE_MBPS)
    return FabricArrays(racks, planes, rack.astype(np.int32), plane.astype(np.int32), rates)


def sparse(racks: int) -> NDArray[np.float64]:
    """Demand of a quarter of the racks; each of these racks sends to a quarter of the racks."""
    random = np.random.default_rng(SEED)
    demand = np.zeros((racks, racks))
    for rack in random.choice(racks, racks // 4, replace=False):
        others = random.choice(racks, racks // 4, replace=False)
        demand[rack, others] = random.uniform(100, 1000, racks // 4)
    np.fill_diagonal(demand, 0.0)
    return demand


def dense(racks: int) -> NDArray[np.float64]:
    """Demand between all racks, of similar rates."""
    demand = np.random.default_rng(SEED).uniform(0.5, 1.5, (racks, racks))
    np.fill_diagonal(demand, 0.0)
    return demand


def gravity(racks: int) -> NDArray[np.float64]:
    """Demand proportional to the product of both ends' weights, which are skewed (log-normal)."""
    random = np.random.default_rng(SEED)
    out, into = random.lognormal(0, 1, (2, racks))
    demand = np.outer(out, into) * random.lognormal(0, 0.5, (racks, racks))
    demand[random.random((racks, racks)) < 0.2] = 0.0
    np.fill_diagonal(demand, 0.0)
    return demand


KINDS = {"sparse": (sparse, 0.4), "dense": (dense, 0.43), "gravity": (gravity, 0.2)}
"""Matrix by name, scaled to a part of all ports' capacity."""


def scaled(kind: str, fabric: FabricArrays) -> NDArray[np.float64]:
    make, load = KINDS[kind]
    demand = make(fabric.n_racks)
    capacity_mbps = fabric.port_rate_mbps.sum() / 2
    return demand * (load * capacity_mbps / pair_demands(demand).mbps.sum())
