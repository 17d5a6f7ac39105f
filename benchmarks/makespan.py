"""Shortest windows of schedules, relative to a lower bound for all schedules.

``python -m benchmarks.makespan``. The busiest rack's ports need a second of light.
"""

from __future__ import annotations

from time import process_time
from typing import Final

import numpy as np

from benchmarks._demands import RATE_MBPS, full_fabric
from benchmarks._report import Result, report, run_benchmark
from hydra.model import DemandMatrix
from topology.algorithms import ENTRIES, Product
from topology.makespan import least_window_s, shortest_window_s
from topology.problem import Budget, Timing

RACKS: Final = 16
PLANES: Final = 4
NIGHTS_S: Final = (0.01, 0.05)
_TARGETS: Final = {"by-plane": 1.05, "solstice": 1.3}
_LEFT_OUT: Final = "round-robin"
"""Algorithms without demand, whose schedules never carry all traffic."""


def _rings() -> DemandMatrix:
    """A training step: rings of 4 racks, rings of every fourth rack, and pairs of opposite
    racks.
    """
    volume = np.zeros((RACKS, RACKS))
    racks = np.arange(RACKS)
    for first in range(0, RACKS, 4):
        group = racks[first : first + 4]
        volume[group, np.roll(group, -1)] += 1.0
    volume[racks, (racks + 4) % RACKS] += 0.5
    volume[racks, (racks + RACKS // 2) % RACKS] += 0.25
    return volume


def _three_racks() -> DemandMatrix:
    volume = np.zeros((RACKS, RACKS))
    volume[0, 1] = volume[1, 0] = 400.0
    volume[1, 2] = 500.0
    return volume


def _volumes() -> dict[str, DemandMatrix]:
    random = np.random.default_rng(1)
    sparse = random.uniform(1, 10, (RACKS, RACKS)) * (random.random((RACKS, RACKS)) < 0.3)
    dense = random.uniform(0.5, 1.5, (RACKS, RACKS))
    skewed = np.outer(*random.lognormal(0, 1, (2, RACKS)))
    experts = random.uniform(0, 1, (RACKS, RACKS)) ** 3
    made = {
        "rings of a training job": _rings(),
        "three racks": _three_racks(),
        "sparse": sparse,
        "skewed": skewed,
        "experts": experts,
        "dense": dense,
    }
    return {kind: _a_second(volume) for kind, volume in made.items()}


def _a_second(volume: DemandMatrix) -> DemandMatrix:
    """The volume scaled to a second of light for the busiest rack's ports."""
    between = volume * (1 - np.eye(RACKS))
    busiest = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    return between * (PLANES * RATE_MBPS / busiest)


def main() -> int:
    fabric = full_fabric(RACKS, PLANES)
    names = [
        name
        for name, entry in ENTRIES.items()
        if entry.product is Product.SCHEDULE and name != _LEFT_OUT
    ]
    results = []
    for kind, volume in _volumes().items():
        for night_s in NIGHTS_S:
            least_s = least_window_s(fabric, volume, night_s)
            for name in names:
                began = process_time()
                budget = Budget(1, timing=Timing(1e6, night_s))
                window_s = shortest_window_s(ENTRIES[name].plan, fabric, volume, budget)
                target = (
                    _TARGETS.get(name)
                    if kind in {"rings of a training job", "three racks"}
                    else None
                )
                case = f"{kind}, nights of {1000 * night_s:g} ms, {name}"
                ratio = float("nan") if window_s is None else window_s / least_s
                results.append(Result(case, "window / least", "", "lower", ratio, None, "", target))
                spent_s = process_time() - began
                print(f"{case}: {ratio:.3f}, {spent_s:.1f} s for all windows tried", flush=True)
    return report("makespan", results)


if __name__ == "__main__":
    run_benchmark(main)
