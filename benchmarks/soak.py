"""A controller at work for hours: memory, file descriptors, threads, processor.

``python -m benchmarks.soak [MINUTES]`` (root; by default 30, 480 for a night). The controller of
the demo fabric changes the topology as fast as possible, while reservations, followers of events,
scrapes, reloads and restarts of an optical switch come and go. The figure is from the last quarter
of the run, the baseline from the second quarter. The number of objects in memory is bounded (10,000
events, 200 reconfigurations), so bounded growth is not counted; the list that fills last, of 1,000
reservations, is full before the first sample. Threads are counted before and after the run, without
threads of pools, which grow with the largest number of simultaneous tasks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.soak import Footprint, Soak, SoakResult, lasting, threads, typical

MINUTES = 30.0
SAMPLES = 120
IDLE_S = 20.0
SEED = 1
FLAT = 1.03
"""Limit of memory's growth: Python's allocator gives pages back late and irregularly."""


def print_sample(sample: Footprint) -> None:
    print(
        f"{sample.at_s / 60:6.1f} min  {sample.changes:6d} changes  {sample.resident_mb:7.1f} MB  "
        f"{sample.descriptors} descriptors  {sample.threads} threads",
        flush=True,
    )


def results(run: SoakResult, idle_share: float, many: tuple[int, int]) -> list[Result]:
    case = f"{run.seconds / 60:.0f} min, {run.changes} changes, {run.reservations} reservations"
    early, late = run.early(), run.late()
    quarter = "second quarter"
    memory = typical(early, lambda s: s.resident_mb)
    descriptors = typical(early, lambda s: s.descriptors)
    before, after = many
    busy_share = run.samples[-1].cpu_s / run.seconds
    return [
        Result(case, "resident memory", "MB", "lower", typical(late, lambda s: s.resident_mb),
               memory, quarter, FLAT * memory),
        Result(case, "file descriptors", "", "lower", typical(late, lambda s: s.descriptors),
               descriptors, quarter, descriptors),
        Result(case, "threads, but for those of pools", "", "lower", after, before,
               "before the run", before),
        Result("nothing to do, polled once a second", "processor", "%", "lower",
               100 * idle_share, 100 * busy_share, "under way"),
    ]  # fmt: skip


def main(argv: Sequence[str] = ()) -> int:
    seconds = 60 * (float(argv[0]) if argv else MINUTES)
    with demo_stage() as stage, stage.process({"mode": "on-request"}) as process:
        before_s = process.cpu_s()
        time.sleep(IDLE_S)
        idle_share = (process.cpu_s() - before_s) / IDLE_S
        soak = Soak(stage, process, SEED)
        soak.fill()
        before = sum(lasting(threads(process)).values())
        run = soak.run(seconds, seconds / SAMPLES, print_sample)
        after = sum(lasting(threads(process)).values())
    found = results(run, idle_share, (before, after))
    return report("soak", found)


if __name__ == "__main__":
    run_benchmark(main)
