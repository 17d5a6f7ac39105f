"""Equal demands: the numbers of racks and planes, and rounding, do not decide."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from topology_fabrics import arrays, full

from hydra.model import EMPTY_TOPOLOGY
from topology.algorithms import ENTRIES, Product
from topology.problem import Budget, FabricArrays, Reserved

_CASES = 200
_FEWER = {"anytime": 60}
"""Cases of algorithms that take long."""
_HALF_A_POINT = 0.005
_CIRCUITS = [
    name
    for name, entry in ENTRIES.items()
    if entry.product is Product.CIRCUITS and name not in ("static", "edmonds-perfect")
]


def served(name: str, fabric: FabricArrays, demand: NDArray[np.float64]) -> float:
    plan = ENTRIES[name].plan
    return plan(fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(3)).served_share


def instance(seed: int) -> tuple[FabricArrays, NDArray[np.float64]]:
    """Demands with nothing but ties: all-to-all, Boolean, jobs of racks side by side, hot racks."""
    random = np.random.default_rng(seed)
    n, planes = int(random.integers(6, 16)), int(random.integers(2, 6))
    ports = [(r, p, 100.0) for r in range(n) for p in range(planes) if random.random() < 0.9]
    demand = np.zeros((n, n))
    match seed % 4:
        case 0:
            demand[:] = 1.0
        case 1:
            demand[random.random((n, n)) < random.uniform(0.2, 0.9)] = 1.0
        case 2:
            for first in range(0, n, 5):
                demand[first : first + 5, first : first + 5] = 1.0
            demand += 0.25
        case 3:
            demand[: n // 3] = 1.0
    np.fill_diagonal(demand, 0.0)
    demand = np.maximum(demand, demand.T)
    busiest = random.uniform(0.3, 0.9) * 100.0 * planes
    return arrays(n, planes, ports), demand * (busiest / demand.sum(axis=0).max())


@cache
def served_as_drawn(name: str, seed: int) -> float:
    return served(name, *instance(seed))


def renumbered(
    fabric: FabricArrays, demand: NDArray[np.float64], seed: int
) -> tuple[FabricArrays, NDArray[np.float64]]:
    """The same network with other numbers for its racks, planes and ports."""
    random = np.random.default_rng(1000 + seed)
    rack, plane = random.permutation(fabric.n_racks), random.permutation(fabric.n_planes)
    ports = list(
        zip(
            rack[fabric.port_rack].tolist(),
            plane[fabric.port_plane].tolist(),
            fabric.port_rate_mbps.tolist(),
            strict=True,
        )
    )
    moved = np.zeros_like(demand)
    moved[np.ix_(rack, rack)] = demand
    return arrays(fabric.n_racks, fabric.n_planes, sorted(ports)), moved


@pytest.mark.parametrize("name", _CIRCUITS)
def test_other_numbers_for_racks_and_planes_serve_as_much(name: str) -> None:
    change = [
        served(name, *renumbered(*instance(seed), seed)) - served_as_drawn(name, seed)
        for seed in range(_FEWER.get(name, _CASES))
    ]
    assert abs(float(np.mean(change))) <= _HALF_A_POINT


@pytest.mark.parametrize("name", _CIRCUITS)
def test_demands_that_are_nearly_equal_serve_no_more_than_equal_ones(name: str) -> None:
    change = []
    for seed in range(_FEWER.get(name, _CASES)):
        fabric, demand = instance(seed)
        noise = np.random.default_rng(seed).uniform(1.0, 1.0 + 1e-4, demand.shape)
        noisy = demand * np.maximum(noise, noise.T)
        change.append(served(name, fabric, noisy) - served_as_drawn(name, seed))
    assert float(np.mean(change)) <= _HALF_A_POINT


@pytest.mark.parametrize(("racks", "planes", "least"), [(8, 2, 0.857), (32, 4, 0.91), (64, 8, 1)])
@pytest.mark.parametrize("name", ["hydra-bfs", "hydra-bfs+"])
def test_all_to_all_of_one_rate_is_no_islands(
    name: str, racks: int, planes: int, least: float
) -> None:
    demand = np.full((racks, racks), 100.0) - np.diag(np.full(racks, 100.0))
    share = served(name, full(racks, planes, rate_mbps=10_000.0), demand)
    assert share >= least - 0.002
