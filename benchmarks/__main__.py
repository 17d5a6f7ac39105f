"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

from benchmarks import (
    cross_connects,
    fuzz_codecs,
    matchings,
    multihop,
    netconf,
    planner,
    rest,
    retag,
    rule_encoding,
    schedules,
    statistics,
    topology,
)

BENCHMARKS = (
    planner,
    multihop,
    matchings,
    schedules,
    topology,
    rule_encoding,
    statistics,
    retag,
    rest,
    cross_connects,
    netconf,
    fuzz_codecs,
)


def main() -> None:
    for benchmark in BENCHMARKS:
        print(f"\n== {benchmark.__name__}", flush=True)
        benchmark.main()


if __name__ == "__main__":
    main()
