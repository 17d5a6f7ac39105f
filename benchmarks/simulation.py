"""Reconfigurations and recoveries on a simulated network with random faults, on all cores.

``python -m benchmarks.simulation [SEEDS] [--first SEED] [--case NAME …] [--processes N]``. Each
seed draws a fabric of any substrate and its state, and plays these cases: three reconfigurations
with lost, late and doubled replies and false device reports, with the shipped upkeep in between; a
reconfiguration in which the controller dies, with two to four recoveries, of which all but two die,
too, and once more with leases, so that writes begun by a former leader take effect under the next
leader; a reconfiguration in which a circuit dies, with two withdrawals, audits, and spilled flows;
a reconfiguration beside which up to two other changes are made, to which the reconfiguration may
give way, and during which the controller may die; a change in stages, with a crash within a stage
and a crash between two stages; four reconfigurations beside which slow switches are brought to the
present state; and a queue of jobs, duties and urgent jobs, without starvation and in the order of
urgency. The invariants of :mod:`tests.unit.reconfiguration.watch` are checked after every event of
every run. A seed that breaks an invariant is printed; to replay the seed see
:mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from rich.progress import Progress

from benchmarks._report import Result, report, run_benchmark
from tests.unit.reconfiguration import (
    test_beside_simulated,
    test_executor_simulated,
    test_meanwhile_simulated,
    test_recovery_simulated,
    test_slow_simulated,
    test_stages_simulated,
    test_turns_simulated,
)
from tests.unit.reconfiguration.watch import Violation

SEEDS = 10_000
SHARE = 50
TARGET_PER_MINUTE = 10_000.0


Played = tuple[list[str], Counter[str]]
"""Broken invariants, each with its seed, and counts of a case's events."""


def _nothing(_course: object) -> Sequence[str]:
    return ()


def played(
    simulate: Callable[[int], object],
    seeds: range,
    seen: Callable[..., Sequence[str]] = _nothing,
) -> Played:
    found, counted = [], Counter[str]()
    gc.disable()  # a fifth of the time of separate tasks
    for seed in seeds:
        try:
            counted.update(seen(simulate(seed)))
        except Violation as violation:
            found.append(f"HYDRA_SIMULATION_SEED={seed}: {violation}")
    gc.enable()
    gc.collect()
    return found, counted


def executor(seeds: range) -> Played:
    return played(test_executor_simulated.simulate, seeds)


def recovery(seeds: range) -> Played:
    return played(test_recovery_simulated.simulate, seeds)


def leases(seeds: range) -> Played:
    return played(test_recovery_simulated.simulate_leases, seeds)


def meanwhile(seeds: range) -> Played:
    return played(test_meanwhile_simulated.simulate, seeds)


def beside(seeds: range) -> Played:
    return played(test_beside_simulated.simulate, seeds, _beside)


def _beside(course: test_beside_simulated.Course) -> Sequence[str]:
    seen = [f"{course.most} changes under way at a time"]
    seen += ["one gave way"] * course.left
    seen += [f"one begun in the {step} of another" for step in course.amid]
    seen += ["the first over before one that began later"] * course.outlived
    seen += ["a death among two or three"] * (course.died_among > 1)
    return seen


def in_stages(seeds: range) -> Played:
    return played(test_stages_simulated.simulate, seeds)


def slow(seeds: range) -> Played:
    return played(test_slow_simulated.simulate, seeds, lambda course: [*course.seen.elements()])


def turns(seeds: range) -> Played:
    return played(test_turns_simulated.simulate, seeds, lambda seen: [*seen.counts.elements()])


CASES: Final = {
    "executor": ("reconfigurations", executor, test_executor_simulated.RECONFIGURATIONS),
    "recovery": ("a crash and two recoveries", recovery, 1),
    "leases": ("a lease that ends, and those that lead next", leases, 1),
    "meanwhile": ("what dies or spills meanwhile, and two withdrawals", meanwhile, 3),
    "beside": ("a change, and others beside it", beside, 1),
    "stages": ("a change in stages, with deaths within and between them", in_stages, 1),
    "turns": ("jobs, duties and changes beside each other, whenever they come", turns, 1),
    "slow": ("changes while slow switches are brought", slow, test_slow_simulated.CHANGES),
}
"""By name: description, function, and the number of reconfigurations of a seed."""


def measured(
    name: str, play: Callable[[range], Played], seeds: range, processes: int | None
) -> tuple[float, Played]:
    """(Seeds a minute, results)."""
    shares = [seeds[first : first + SHARE] for first in range(0, len(seeds), SHARE)]
    found: list[str] = []
    counted = Counter[str]()
    gc.collect()
    gc.freeze()  # long-lived objects
    started_s = time.perf_counter()
    with multiprocessing.Pool(processes) as pool, Progress(transient=True) as progress:
        task = progress.add_task(name, total=len(shares))
        for violations, counts in pool.imap_unordered(play, shares):
            for line in violations:
                print(line, flush=True)
            found += violations
            counted += counts
            progress.advance(task)
    return len(seeds) * 60 / (time.perf_counter() - started_s), (found, counted)


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("seeds", type=int, nargs="?", default=SEEDS, help="seeds of each case")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--processes", type=int, help="by default, one for each core")
    asked = parser.parse_args(arguments)
    logging.disable(logging.ERROR)  # thousands of faults, each logged
    seeds = range(asked.first, asked.first + asked.seeds)
    results = []
    for chosen in asked.case:
        case, play, changes = CASES[chosen]
        per_minute, (found, counted) = measured(case, play, seeds, asked.processes)
        results += [
            Result(case, f"simulated, of {len(seeds) * changes}", "/min", "higher",
                   per_minute * changes, TARGET_PER_MINUTE, "wanted", TARGET_PER_MINUTE),
            Result(case, "invariants broken", "", "lower", float(len(found)), target=0),
        ]  # fmt: skip
        results += [
            Result(case, f"with {what}", "", "higher", number)
            for what, number in sorted(counted.items())
        ]
    return report("simulation", results)


if __name__ == "__main__":
    run_benchmark(main)
