"""Reconfigurations and recoveries on a simulated network that fails at random, on all cores.

``python -m benchmarks.simulation [SEEDS]``. Each seed draws a fabric of any substrate, its state,
and three reconfigurations with lost, late and doubled replies and devices that lie, the shipped
upkeep between them; and one more in which the controller dies, with two to four recoveries, of
which all but two die, too, once more with leases, so that what a former leader had begun comes out
under the next one; one in the middle of which a circuit dies, with two withdrawals, audits, and
flows that spill; one between whose steps, or while it waits, up to two others are made, for which
it may give way, and during which the controller may die; and one in stages, with a death within one
and another between two. After every event of every run the invariants of
:mod:`tests.unit.reconfiguration.watch` are checked. A seed that breaks one is printed; to replay it
see :mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence

from rich.progress import Progress

from benchmarks._report import Result, report
from tests.unit.reconfiguration import (
    test_beside_simulated,
    test_executor_simulated,
    test_meanwhile_simulated,
    test_recovery_simulated,
    test_stages_simulated,
)
from tests.unit.reconfiguration.watch import Violation

SEEDS = 10_000
SHARE = 50
TARGET_PER_MINUTE = 10_000.0


def broken(simulate: Callable[[int], object], seeds: range) -> list[str]:
    """Seeds that broke an invariant, with the invariant."""
    found = []
    for seed in seeds:
        try:
            simulate(seed)
        except Violation as violation:
            found.append(f"HYDRA_SIMULATION_SEED={seed}: {violation}")
    return found


def executor(seeds: range) -> list[str]:
    return broken(test_executor_simulated.simulate, seeds)


def recovery(seeds: range) -> list[str]:
    return broken(test_recovery_simulated.simulate, seeds)


def leases(seeds: range) -> list[str]:
    return broken(test_recovery_simulated.simulate_leases, seeds)


def meanwhile(seeds: range) -> list[str]:
    return broken(test_meanwhile_simulated.simulate, seeds)


def beside(seeds: range) -> list[str]:
    return broken(test_beside_simulated.simulate, seeds)


def in_stages(seeds: range) -> list[str]:
    return broken(test_stages_simulated.simulate, seeds)


def played(name: str, play: Callable[[range], list[str]], seeds: int) -> tuple[float, list[str]]:
    """(seeds a minute, broken invariants)."""
    shares = [range(first, min(first + SHARE, seeds)) for first in range(0, seeds, SHARE)]
    found = []
    started_s = time.perf_counter()
    with multiprocessing.Pool() as pool, Progress(transient=True) as progress:
        task = progress.add_task(name, total=len(shares))
        for share in pool.imap_unordered(play, shares):
            found += share
            progress.advance(task)
    return seeds * 60 / (time.perf_counter() - started_s), found


def main(argv: Sequence[str] = ()) -> int:
    logging.disable(logging.ERROR)  # thousands of faults, each told of
    seeds = int(argv[0]) if argv else SEEDS
    results, violations = [], []
    for case, play, changes in (
        ("reconfigurations", executor, test_executor_simulated.RECONFIGURATIONS),
        ("a crash and two recoveries", recovery, 1),
        ("a lease that ends, and those that lead next", leases, 1),
        ("what dies or spills meanwhile, and two withdrawals", meanwhile, 3),
        ("a change, and others between its steps", beside, 1),
        ("a change in stages, with deaths within and between them", in_stages, 1),
    ):
        per_minute, found = played(case, play, seeds)
        violations += found
        results += [
            Result(case, f"simulated, of {seeds * changes}", "/min", "higher",
                   per_minute * changes, TARGET_PER_MINUTE, "wanted", TARGET_PER_MINUTE),
            Result(case, "invariants broken", "", "lower", float(len(found)), 0.0, "none", 0.0),
        ]  # fmt: skip
    for line in violations:
        print(line)
    report("simulation", results)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
