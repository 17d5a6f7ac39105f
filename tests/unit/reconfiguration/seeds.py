"""Runs a simulation for many seeds.

``HYDRA_SIMULATION_SEED=<seed>`` replays a single seed, and ``HYDRA_SIMULATION_RUNS=<number>`` runs
more seeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar

import pytest

from tests.unit.reconfiguration.watch import Violation

_CHUNKS = 10
_CourseT = TypeVar("_CourseT")


def chunks(usual_runs: int) -> list[range]:
    """The seeds to run, in chunks so that a failure does not hide the other seeds."""
    if one := os.environ.get("HYDRA_SIMULATION_SEED"):
        return [range(int(one), int(one) + 1)]
    runs = int(os.environ.get("HYDRA_SIMULATION_RUNS", str(usual_runs)))
    return [range(chunk, runs, _CHUNKS) for chunk in range(_CHUNKS)]


def remembering(
    most: int,
) -> Callable[[Callable[..., _CourseT]], Callable[..., _CourseT]]:
    """Decorator: a simulation plays its seeds below ``most`` once, also for the test of its
    coverage.

    With further arguments, and by ``__wrapped__``, the seed is played again.
    """

    def decorate(simulate: Callable[..., _CourseT]) -> Callable[..., _CourseT]:
        courses: dict[int, _CourseT] = {}

        @wraps(simulate)
        def play(seed: int, *others: object) -> _CourseT:
            if others or seed >= most:
                return simulate(seed, *others)
            if seed not in courses:
                courses[seed] = simulate(seed)
            return courses[seed]

        return play

    return decorate


def hold(simulate: Callable[[int], object], seeds: Iterable[int]) -> None:
    """Fail with the seed of a broken invariant."""
    for seed in seeds:
        try:
            simulate(seed)
        except Violation as violation:
            pytest.fail(f"HYDRA_SIMULATION_SEED={seed}: {violation}", pytrace=False)
