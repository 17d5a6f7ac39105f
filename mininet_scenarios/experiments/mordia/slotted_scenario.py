"""Two pairs of racks that share a port by slots, and the worth of the port.

Two servers of rack 1 send TCP at full speed to two other racks. One of the rack's two ports is set
aside, so that the controller's schedule gives the other port to both pairs in turn, half of a week
each. Two more runs serve for comparison: both pairs electrical, and one pair on a permanent
circuit. From these, a formula gives the worth of a duty cycle D: D · (one on the circuit, the other
not) + (1 - D) · (both not), with D = (T - n · night) / T (Mordia, SIGCOMM 2013, section 3.4).
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.stage import ScenarioError, Stage, tcp_transfer

PAIRS: Final = (("h11", "h21"), ("h12", "h31"))
LEAD_S: Final = 6.0
"""Time until the demand is seen, and a first slot has begun."""
_ALONE_LEAD_S: Final = 2.0
_PORT: Final = 5201
_SETTLE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Length:
    """Length of a measurement, after the lead."""

    least_s: int = 12
    periods: int = 6
    """Least number of periods of the schedule."""

    def seconds(self, slot_s: float) -> int:
        """Length of a run by slots, lead included."""
        return int(max(self.least_s, self.periods * 2 * slot_s) + LEAD_S)


USUAL: Final = Length()


@dataclass(frozen=True, slots=True)
class Worth:
    """Throughput of both pairs together, in Mb/s."""

    electrical: float
    one_on_circuit: float

    def of(self, duty_cycle: float) -> float:
        return duty_cycle * self.one_on_circuit + (1 - duty_cycle) * self.electrical


@dataclass(frozen=True, slots=True)
class Shared:
    """A run by slots of one length."""

    slot_s: float
    cycle: str
    mbps: float
    """Throughput of both pairs together, after :data:`LEAD_S`."""
    duty_cycle: float
    """Duty cycle measured by the controller."""
    formula: float
    """Duty cycle by the planned nights."""
    retransmits: int
    dark_frames: int


def baselines(stage: Stage, seconds: int = USUAL.least_s) -> Worth:
    """Throughput of both pairs without slots."""
    with stage.controller({"mode": "on-request"}) as controller:
        _set_aside(controller)
        controller.reconfigure([])
        electrical, _ = _both(stage, seconds, _ALONE_LEAD_S)
        controller.reconfigure([PairDemand("r1", "r2", stage.fabric.planes[0].rate_mbps)])
        one_on_circuit, _ = _both(stage, seconds, _ALONE_LEAD_S)
        controller.reconfigure([])
    return Worth(electrical, one_on_circuit)


def shared(
    stage: Stage,
    slot_s: float,
    cycle: CycleName = CycleName.HITLESS,
    length: Length = USUAL,
) -> Shared:
    """Run slots with half of a week for each pair; the policy tolerates slightly different halves.

    Raises ScenarioError if the controller makes no such week.
    """
    policy = {
        "mode": "periodic",
        "sharing": "slotted",
        "poll_interval_s": 0.5,
        "slots": {"slot_s": 0.7 * slot_s, "week_s": 2 * slot_s},
    }
    before = stage.losses()
    with stage.controller(policy, cycle) as controller:
        _set_aside(controller)
        mbps, retransmits = _both(stage, length.seconds(slot_s), LEAD_S)
        schedule = controller.schedule()
    week = schedule["week"]
    if week is None or len(week["slots"]) != len(PAIRS):
        raise ScenarioError(f"slots of {slot_s:g} s: no week of two slots, but {schedule}")
    time.sleep(_SETTLE_S)
    return Shared(
        slot_s,
        cycle.value,
        mbps,
        schedule["measured_duty_cycle"],
        week["duty_cycle"],
        retransmits,
        stage.losses().since(before).dark_frames,
    )


def _both(stage: Stage, seconds: int, lead_s: float) -> tuple[float, int]:
    """(Mb/s of both pairs after ``lead_s``, number of segments retransmitted)."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(tcp_transfer(stage, *pair, _PORT + number, seconds))
            for number, pair in enumerate(PAIRS)
        ]
        ended = [transfer.finish(seconds + 20) for transfer in running]
    mbps = sum(received.average_between(lead_s, seconds - 1) for received, _ in ended)
    return mbps, sum(sent.retransmits or 0 for _, sent in ended)


def _set_aside(controller: ControllerClient) -> None:
    """Leave rack 1 a single optical port."""
    controller.set_aside("r1", "hyt-r1-p2", "two pairs are to share the other one")
