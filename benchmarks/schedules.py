"""Schedules of 320 racks, compared with the same algorithms with scipy's matchings.

``python -m benchmarks.schedules``. The switching time is 1 % of the window. The planning times of
the slots are compared; the served shares are of whole plans on one plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from hydra.model import EMPTY_TOPOLOGY
from topology.algorithms import ENTRIES
from topology.assignment import Assignment
from topology.decomposition import (
    WHOLE,
    admissible,
    big_slices,
    longest_first,
    scaled,
    stuffed,
)
from topology.problem import Budget, FabricArrays, Reserved, Timing
from topology.synthetic import synthetic_demand

RACKS = 320
RATE_MBPS = 10_000.0
LOAD = 0.7
SEED = 1
TIMING = Timing(window_s=1.0, switching_s=0.01)
COVERED = 0.9
RUNS = 5
TARGETS_MS = {"longest slot first": 75.0, "Solstice": 5.0, "Eclipse": 250.0}


def demand_of(kind: str) -> NDArray[np.float64]:
    return synthetic_demand(kind, RACKS, SEED, LOAD * RATE_MBPS)


def longest_slots(matrix: NDArray[np.int64]) -> int:
    """Number of slots until 90 % of the matrix are covered."""
    covered = slots = 0
    for length, _ in longest_first(matrix):
        covered, slots = covered + length, slots + 1
        if covered >= COVERED * WHOLE:
            break
    return slots


def solstice(demand: NDArray[np.float64]) -> int:
    """Number of slots until the window is full."""
    seconds = admissible(demand / RATE_MBPS, 1.0)
    used = slots = 0
    for length, _ in big_slices(stuffed(np.rint(seconds * WHOLE).astype(np.int64))):
        used, slots = used + length + TIMING.switching_s * WHOLE, slots + 1
        if used >= WHOLE:
            break
    return slots


def plane() -> FabricArrays:
    return FabricArrays(
        n_racks=RACKS,
        n_planes=1,
        port_rack=np.arange(RACKS, dtype=np.int32),
        port_plane=np.zeros(RACKS, dtype=np.int32),
        port_rate_mbps=np.full(RACKS, RATE_MBPS),
    )


def share(name: str, demand: NDArray[np.float64]) -> float:
    budget = Budget(1, timing=TIMING)
    result = ENTRIES[name].plan(plane(), demand, EMPTY_TOPOLOGY, Reserved(), budget)
    return 100 * result.served_share


# --- the same with scipy --------------------------------------------------------------------


def _scipy_matching(remaining: NDArray[np.int64], level: int) -> NDArray[np.int32]:
    found: NDArray[np.int32] = maximum_bipartite_matching(csr_array(remaining >= level), "column")
    return found


def _scipy_widest(
    remaining: NDArray[np.int64], column_of: NDArray[np.int32], start: int, least: int
) -> tuple[int, int]:
    levels = np.unique(remaining[(remaining >= least) & (remaining <= start)])
    if start == least or not levels.size:
        column_of[:] = _scipy_matching(remaining, start)
        return start, int((column_of >= 0).sum())
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if (_scipy_matching(remaining, levels[middle]) >= 0).all():
            low = middle
        else:
            high = middle - 1
    column_of[:] = _scipy_matching(remaining, levels[low])
    return int(levels[low]), int((column_of >= 0).sum())


def _scipy_assignment(
    weight: NDArray[np.float64], _price: NDArray[np.float64] | None = None
) -> Assignment:
    _, columns = linear_sum_assignment(weight, maximize=True)
    return Assignment(columns.astype(np.int32), np.zeros(len(weight)), np.zeros(len(weight)))


@contextmanager
def scipy_inside() -> Iterator[None]:
    with (
        patch("topology.decomposition._widest", _scipy_widest),
        patch("topology.eclipse.heaviest_assignment", _scipy_assignment),
    ):
        yield


def with_scipy(function: Callable[[], object]) -> object:
    with scipy_inside():
        return function()


def compare(name: str, kind: str, function: Callable[[], object]) -> Result:
    times = median_ms(
        {"ours": lambda _run: function(), "scipy": lambda _run: with_scipy(function)}, RUNS
    )
    # The targets are for the demand of few partners; longest slot first has a target for any
    # demand.
    target = TARGETS_MS[name] if kind == "sparse" or name == "longest slot first" else None
    return Result(
        f"{kind}",
        f"{name}, median of {RUNS}",
        "ms",
        "lower",
        times["ours"],
        times["scipy"],
        "scipy inside",
        target,
    )


def main() -> int:
    results = []
    for kind in ("sparse", "uniform"):
        demand = demand_of(kind)
        matrix = scaled(demand)
        results.append(compare("longest slot first", kind, lambda m=matrix: longest_slots(m)))
        results.append(compare("Solstice", kind, lambda d=demand: solstice(d)))
        results.append(compare("Eclipse", kind, lambda d=demand: share("eclipse", d)))
    for kind in ("sparse", "uniform", "gravity"):
        demand = demand_of(kind)
        baseline = share("round-robin", demand)
        results += [
            Result(
                kind,
                f"demand served by {name}",
                "%",
                "higher",
                share(name, demand),
                baseline,
                "round robin",
            )
            for name in ("tms", "solstice", "eclipse")
        ]
    return report("schedules", results)


if __name__ == "__main__":
    run_benchmark(main)
