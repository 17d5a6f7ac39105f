"""Times of several ways to do the same work, measured in alternation."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median


def median_ms(
    ways: Mapping[str, Callable[[int], object]],
    runs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median time of each way in ms; ways alternate, so that all have the same conditions.

    Each way is called with the number of the run. A first round is not counted. For pure
    computation, a ``clock`` of ``time.process_time`` leaves out the time of other processes.
    """
    times_ms: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(runs + 1):
        for name, way in ways.items():
            gc.collect()
            started = clock()
            way(number)
            elapsed_ms = (clock() - started) * 1000
            if number:
                times_ms[name].append(elapsed_ms)
    return {name: median(times) for name, times in times_ms.items()}
