"""Slotted sharing: throughput and duty cycle by the length of a slot, compared with the formula.

``python -m benchmarks.slotted`` (root): ``mininet_scenarios.experiments.mordia.slotted_scenario``,
at 20 Mb/s on a circuit and 2 Mb/s electrically, a fifth of the demo's rates, which even a busy
machine can forward. The baselines are measured in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.experiments.mordia.slotted_scenario import Shared, Worth, baselines, shared

SLOTS_S: Final = (0.5, 1.0, 2.0, 4.0)
OPTICAL_MBPS: Final = 20


def rows(slot_s: float, worth: Worth, run: Shared) -> list[Result]:
    case = f"slots of {slot_s:g} s"
    expected = worth.of(run.duty_cycle)
    return [
        Result(case, "duty cycle", "", "higher", run.duty_cycle, run.formula, "formula"),
        Result(case, "both pairs", "Mb/s", "higher", run.mbps, expected, "formula"),
        Result(case, "both pairs", "Mb/s", "higher", run.mbps, worth.electrical, "electrical",
               worth.electrical),
        Result(case, "segments retransmitted", "", "lower", run.retransmits),
        Result(case, "frames at dark ports", "", "lower", run.dark_frames, target=0),
    ]  # fmt: skip


def main(argv: Sequence[str] = ()) -> int:
    lengths_s = [float(text) for text in argv] or list(SLOTS_S)
    with demo_stage(OPTICAL_MBPS) as stage:
        worth = baselines(stage)
        results = [
            row for length in lengths_s for row in rows(length, worth, shared(stage, length))
        ]
    return report("slotted", results)


if __name__ == "__main__":
    run_benchmark(main)
