"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

from benchmarks import (
    agent,
    calendars,
    cross_connects,
    dashboard,
    detection,
    fuzz_codecs,
    matchings,
    multihop,
    netconf,
    output_scheduling,
    planner,
    probing,
    processor,
    reaction,
    reconfigurations,
    recovery,
    reserved,
    rest,
    retag,
    rule_encoding,
    schedules,
    slotted,
    statistics,
    sweep,
    topology,
)

BENCHMARKS = (
    planner,
    multihop,
    matchings,
    schedules,
    slotted,
    topology,
    rule_encoding,
    statistics,
    sweep,
    agent,
    output_scheduling,
    reaction,
    retag,
    rest,
    reserved,
    dashboard,
    calendars,
    cross_connects,
    netconf,
    fuzz_codecs,
    probing,
    processor,
    detection,
    recovery,
)


def main() -> None:
    for benchmark in BENCHMARKS:
        print(f"\n== {benchmark.__name__}", flush=True)
        benchmark.main()
    print(f"\n== {reconfigurations.__name__}", flush=True)
    reconfigurations.main(())


if __name__ == "__main__":
    main()
