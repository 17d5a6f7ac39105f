"""Slotted sharing: throughput and duty cycle against the length of a slot, beside the formula.

``python -m benchmarks.slotted`` (root). Two servers of a rack send TCP at full speed to two other
racks, over one port: 20 Mb/s on a circuit, 2 Mb/s electrically, a fifth of the demo's rates, which
a busy machine forwards, too. The baselines are measured in the same run: both pairs electrically,
and one of them on a circuit that stays. From these the formula says what a duty cycle D is worth:
D · (one on the circuit, the other not) + (1 - D) · (both not), with D = (T - n · night) / T
(Mordia, SIGCOMM 2013, section 3.4).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import httpx

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report
from mininet_scenarios.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage import Stage, tcp_transfer

SLOTS_S: Final = (0.5, 1.0, 2.0, 4.0)
OPTICAL_MBPS: Final = 20
PAIRS: Final = (("h11", "h21"), ("h12", "h31"))
PORT: Final = 5201
PERIODS: Final = 6
LEAST_S: Final = 12
LEAD_S: Final = 6.0
"""Until the demand is seen, and a first slot has begun."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Mb/s of both pairs together."""

    electrical: float
    one_on_circuit: float

    def of(self, duty_cycle: float) -> float:
        return duty_cycle * self.one_on_circuit + (1 - duty_cycle) * self.electrical


@dataclass(frozen=True, slots=True)
class Shared:
    mbps: float
    duty_cycle: float
    formula: float
    retransmits: int
    dark_frames: int


def both(stage: Stage, seconds: int, lead_s: float) -> tuple[float, int]:
    """Mb/s of both pairs after ``lead_s``, and segments retransmitted."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(tcp_transfer(stage, *pair, PORT + number, seconds))
            for number, pair in enumerate(PAIRS)
        ]
        ended = [transfer.finish(seconds + 20) for transfer in running]
    mbps = sum(received.average_between(lead_s, seconds - 1) for received, _ in ended)
    return mbps, sum(sent.retransmits or 0 for _, sent in ended)


def baselines(stage: Stage) -> Worth:
    with stage.process({"mode": "on-request"}) as process, ControllerClient(process.base_url) as to:
        set_aside(process.base_url)
        to.reconfigure([])
        electrical, _ = both(stage, LEAST_S, 2.0)
        to.reconfigure([PairDemand("r1", "r2", OPTICAL_MBPS)])
        one_on_circuit, _ = both(stage, LEAST_S, 2.0)
        to.reconfigure([])
    return Worth(electrical, one_on_circuit)


def set_aside(url: str) -> None:
    """Leave rack 1 a single optical port."""
    body = {"reason": "two pairs are to share the other one"}
    httpx.put(f"{url}/v1/quarantine/r1/hyt-r1-p2", json=body, trust_env=False).raise_for_status()


def shared(stage: Stage, slot_s: float) -> Shared:
    """Half of a week for each pair; the policy leaves room for halves that are not quite."""
    policy = {
        "mode": "periodic",
        "sharing": "slotted",
        "poll_interval_s": 0.5,
        "slots": {"slot_s": 0.7 * slot_s, "week_s": 2 * slot_s},
    }
    seconds = int(max(LEAST_S, PERIODS * 2 * slot_s) + LEAD_S)
    before = stage.losses()
    with stage.process(policy) as process:
        set_aside(process.base_url)
        mbps, retransmits = both(stage, seconds, LEAD_S)
        schedule: Mapping[str, Any] = httpx.get(
            f"{process.base_url}/v1/schedule", trust_env=False
        ).json()
    week = schedule["week"]
    if week is None or len(week["slots"]) != len(PAIRS):
        raise SystemExit(f"slots of {slot_s:g} s: no week of two slots, but {schedule}")
    time.sleep(1.0)
    return Shared(
        mbps,
        schedule["measured_duty_cycle"],
        week["duty_cycle"],
        retransmits,
        stage.losses().since(before).dark_frames,
    )


def rows(slot_s: float, worth: Worth, run: Shared) -> list[Result]:
    case = f"slots of {slot_s:g} s"
    expected = worth.of(run.duty_cycle)
    return [
        Result(case, "duty cycle", "", "higher", run.duty_cycle, run.formula, "formula"),
        Result(case, "both pairs", "Mb/s", "higher", run.mbps, expected, "formula"),
        Result(case, "both pairs", "Mb/s", "higher", run.mbps, worth.electrical, "electrical",
               worth.electrical),
        Result(case, "segments retransmitted", "", "lower", run.retransmits, 0, "none"),
        Result(case, "frames at dark ports", "", "lower", run.dark_frames, 0, "none", 0),
    ]  # fmt: skip


def main(argv: Sequence[str] = ()) -> int:
    lengths_s = [float(one) for one in argv] or list(SLOTS_S)
    with demo_stage(OPTICAL_MBPS) as stage:
        worth = baselines(stage)
        results = [
            row for length in lengths_s for row in rows(length, worth, shared(stage, length))
        ]
    report("slotted", results)
    return 0 if all(result.meets_target for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
