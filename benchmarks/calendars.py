"""Hold admission against an enumeration of every path at every moment, on random calendars.

``python -m benchmarks.calendars [CALENDARS]``. Each calendar is a small random fabric that random
requests fill. What is admitted must leave nothing promised twice, and for what is refused no path
of any choice of ports may fit. A calendar that breaks either rule is printed with its seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from benchmarks._report import Result, report
from tests.unit.reservations.test_calendar import play

CALENDARS = 100_000


def main(arguments: Sequence[str] = ()) -> int:
    calendars = int(arguments[0]) if arguments else CALENDARS
    admitted = refused = broken = 0
    started = time.perf_counter()
    for seed in range(calendars):
        try:
            outcome = play(seed)
        except AssertionError as error:
            broken += 1
            print(f"seed {seed}: {error}")
            continue
        admitted += outcome[0]
        refused += outcome[1]
    taken_s = time.perf_counter() - started
    case = f"{calendars} calendars, {admitted} admitted"
    told = f"refused, none of which would fit; {taken_s:.0f} s"
    results = [Result(case, "broken rules", "calendars", "lower", broken, refused, told, 0)]
    report("calendars", results)
    return 0 if all(result.meets_target for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
