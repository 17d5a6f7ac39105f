"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import (
    agent,
    calendars,
    control_plane,
    cross_connects,
    dashboard,
    demand,
    demand_slots,
    detection,
    fuzz_api,
    fuzz_codecs,
    jobs,
    kills,
    make_before_break,
    makespan,
    matchings,
    meter_changes,
    multihop,
    netconf,
    openflow_packages,
    optimum,
    output_scheduling,
    planner,
    policing,
    prediction,
    probing,
    processor,
    protection,
    reaction,
    reconfigurations,
    recovery,
    reserved,
    rest,
    retag,
    ring,
    rule_encoding,
    schedules,
    sharing,
    simulation,
    slotted,
    source_check,
    stages,
    statistics,
    sweep,
    topology,
    tournament,
    undisturbed,
    whole_tables,
)
from benchmarks._report import RESULTS, play

BENCHMARKS = (
    planner,
    policing,
    multihop,
    optimum,
    matchings,
    schedules,
    makespan,
    stages,
    slotted,
    sharing,
    topology,
    demand,
    demand_slots,
    tournament,
    prediction,
    rule_encoding,
    control_plane,
    make_before_break,
    simulation,
    statistics,
    openflow_packages,
    whole_tables,
    sweep,
    agent,
    output_scheduling,
    reaction,
    retag,
    rest,
    jobs,
    ring,
    undisturbed,
    reserved,
    meter_changes,
    source_check,
    dashboard,
    calendars,
    cross_connects,
    netconf,
    fuzz_api,
    fuzz_codecs,
    kills,
    probing,
    processor,
    detection,
    protection,
    recovery,
    reconfigurations,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    folder = parser.parse_args().results
    for benchmark in BENCHMARKS:
        print(f"\n== {benchmark.__name__}", flush=True)
        play(benchmark.main, (), folder)


if __name__ == "__main__":
    main()
