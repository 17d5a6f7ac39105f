"""Compare admission with an exhaustive referee on random calendars.

``python -m benchmarks.calendars [CALENDARS]``. The referee tries every path at every moment. Each
calendar is a small random fabric with random requests over time: of every service class, as ranges,
held, with priorities, at recurring times, by a tenant with a quota. Some reservations are changed,
released, or moved after ports die. Admitted requests must not lead to double bookings. For a
refused request, no path may fit with any choice of ports, and the offered alternatives must be
available. Preemption must have been necessary. A calendar that breaks a rule is printed with its
seed.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks._report import Result, report, run_benchmark
from tests.unit.reservations.random_books import Play

CALENDARS = 100_000
STEPS = 16
SHARE = 1000


def play(seeds: range) -> tuple[Counter[str], list[str]]:
    """(Counts of events in these calendars, broken rules with seeds)."""
    counts: Counter[str] = Counter()
    broken = []
    for seed in seeds:
        try:
            counts += Play(seed).run(STEPS)
        except AssertionError as error:
            broken.append(f"seed {seed}: {error}")
    return counts, broken


def main(arguments: Sequence[str] = ()) -> int:
    calendars = int(arguments[0]) if arguments else CALENDARS
    shares = [range(first, min(first + SHARE, calendars)) for first in range(0, calendars, SHARE)]
    counts: Counter[str] = Counter()
    broken = 0
    started = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool() as pool:
        for seeds, (some, complaints) in zip(shares, pool.imap(play, shares), strict=True):
            counts += some
            broken += len(complaints)
            print(*complaints, f"{seeds.stop} calendars", sep="\n", flush=True)
    taken_s = time.perf_counter() - started
    outcomes = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    case = f"{calendars} calendars, {counts['admitted']} admitted"
    baseline = f"refused, none of which would fit; {taken_s:.0f} s"
    refused = counts["refused"]
    results = [
        Result(case, "broken rules", "calendars", "lower", broken, refused, baseline, 0, outcomes)
    ]
    return report("calendars", results)


if __name__ == "__main__":
    run_benchmark(main)
