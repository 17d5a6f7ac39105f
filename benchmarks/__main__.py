"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

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
    reaction,
    reconfigurations,
    recovery,
    reserved,
    rest,
    retag,
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
