"""Runs a simulation for many seeds. ``HYDRA_SIMULATION_SEED=<seed>`` replays that one alone, and
``HYDRA_SIMULATION_RUNS=<number>`` runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from tests.unit.reconfiguration.watch import Violation

_CHUNKS = 10


def chunks(usual_runs: int) -> list[range]:
    """Which seeds to run, in chunks so that a failure doesn't hide the others."""
    if one := os.environ.get("HYDRA_SIMULATION_SEED"):
        return [range(int(one), int(one) + 1)]
    runs = int(os.environ.get("HYDRA_SIMULATION_RUNS", str(usual_runs)))
    return [range(chunk, runs, _CHUNKS) for chunk in range(_CHUNKS)]


def hold(simulate: Callable[[int], object], seeds: Iterable[int]) -> None:
    """Fail with the seed in which something happened that must never happen."""
    for seed in seeds:
        try:
            simulate(seed)
        except Violation as violation:
            pytest.fail(f"HYDRA_SIMULATION_SEED={seed}: {violation}", pytrace=False)
