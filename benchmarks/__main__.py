"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

from benchmarks import (
    matchings,
    planner,
    retag,
    rule_encoding,
    schedules,
    statistics,
    topology,
)


def main() -> None:
    for benchmark in (
        planner,
        topology,
        matchings,
        schedules,
        rule_encoding,
        statistics,
        retag,
    ):
        print(f"\n== {benchmark.__name__}", flush=True)
        benchmark.main()


if __name__ == "__main__":
    main()
