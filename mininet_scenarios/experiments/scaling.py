"""Scale of the papers' rates: by this machine's forwarding rate, or as asked for.

All rates of an experiment are divided by one number, so that their ratios stay the paper's. Sizes
follow the rates, and so the times are the paper's or, in shorter runs, the same part of the paper's
times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hydra.errors import HydraError
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage import building
from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.stage import Stage, tcp_transfer
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

BUSY_SHARE: Final = 0.4
"""Used share of the machine's forwarding rate, at an experiment's busiest moment. The rest is for
the experiment's programs and the controller, and a reserve: if the machine is the bottleneck, no
link has its rate.
"""

LEAST_CARRIED: Final = 0.85
"""Least share of a circuit's rate that TCP carries alone, unless the machine is the bottleneck."""

CALIBRATION_S: Final = building.BUILD_S + 9.0
"""Rough duration of :func:`forwarded_mbps`."""

_FLOWS: Final = (("h11", "h21"), ("h22", "h12"), ("h31", "h41"), ("h42", "h32"))
"""Flows over two circuits, both ways, so that several links are busy as in an experiment."""
_UNLIMITED: Final = 40.0
"""Multiple of the demo's rates beyond any machine's forwarding rate, so that no link is the
bottleneck.
"""
_FLOW_S: Final = 3.0
_WARM_UP_S: Final = 1.0
_PORT: Final = 5201


@dataclass(frozen=True, slots=True)
class Scale:
    """Divisor of the paper's rates in an experiment."""

    divisor: int
    forwarded_mbps: float | None
    """This machine's forwarding rate in the calibration; None if the divisor was asked for."""

    def mbps(self, paper_mbps: float) -> float:
        """A rate of the paper, scaled."""
        return paper_mbps / self.divisor

    def too_slow(self, carried_mbps: float, paper_mbps: float) -> str:
        """Reason of differences if a link of ``paper_mbps`` carried too little alone; else
        empty.
        """
        rate_mbps = self.mbps(paper_mbps)
        if carried_mbps >= LEAST_CARRIED * rate_mbps:
            return ""
        return (
            f"A link of {rate_mbps:.4g} Mb/s carried {carried_mbps:.4g} Mb/s alone: this "
            f"machine was busy, or is too slow for 1:{self.divisor}. Repeat with nothing else "
            f"running, or with --scale 1:{2 * self.divisor}."
        )

    def row(self, paper_mbps: float, what: str) -> Row:
        """Row of the report: ``what`` has the rate ``paper_mbps`` in the paper."""
        because = (
            "as asked for"
            if self.forwarded_mbps is None
            else f"this machine forwards {self.forwarded_mbps:.0f} Mb/s in all"
        )
        return Row(
            f"scale of all rates: 1:{self.divisor} ({because}); {what} of "
            f"{paper_mbps / 1000:g} Gb/s",
            "",
            f"{self.mbps(paper_mbps):.3g} Mb/s",
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates from which an experiment's scale is derived."""

    asked: int | None = None
    """Divisor asked for."""
    forwarded_mbps: float | None = None
    """The machine's measured forwarding rate."""

    def scale(self, busiest_mbps: float) -> Scale:
        """The scale of an experiment that carries ``busiest_mbps`` in all, at the paper's rates.

        Traffic counts as carried if it reaches servers from other racks. The divisor has two
        digits, so that runs on similar machines compare; the divisor is never below 1. Raises
        HydraError if neither rate nor divisor is known.
        """
        if self.asked is not None:
            return Scale(self.asked, None)
        if not self.forwarded_mbps:
            raise HydraError("the scale is not known: give one (1:100) or calibrate")
        least = busiest_mbps / (BUSY_SHARE * self.forwarded_mbps)
        return Scale(_two_digits_up(least), self.forwarded_mbps)


def _two_digits_up(least: float) -> int:
    whole = max(1, math.ceil(least))
    unit: int = 10 ** max(0, len(str(whole)) - 2)
    return -(-whole // unit) * unit


def forwarded_mbps(work_dir: Path, narrator: Narrator) -> float:
    """The machine's total forwarding rate from rack to rack, with TCP over circuits of any rate.

    Builds the demo's fabric for the measurement. Raises HydraError if the measurement fails.
    """
    with (
        building.stage_of(DEFAULT_CONFIG, _UNLIMITED, work_dir, narrator) as stage,
        narrator.phase(
            "calibrating: rates that this machine forwards", CALIBRATION_S - building.BUILD_S
        ),
    ):
        mbps = sum(_through_circuits(stage))
    narrator.say(f"this machine forwards {mbps:.0f} Mb/s in all")
    return mbps


def _through_circuits(stage: Stage) -> Sequence[float]:
    with stage.controller({"mode": "on-request"}) as controller:
        rate_mbps = stage.fabric.planes[0].rate_mbps
        pairs = [PairDemand("r1", "r2", rate_mbps / 2), PairDemand("r3", "r4", rate_mbps / 2)]
        controller.reconfigure(pairs)
        with ExitStack() as flows:
            transfers = [
                flows.enter_context(tcp_transfer(stage, source, destination, _PORT, _FLOW_S))
                for source, destination in _FLOWS
            ]
            received = [transfer.finish(_FLOW_S + 10)[0] for transfer in transfers]
    return [run.average_between(_WARM_UP_S, _FLOW_S - _WARM_UP_S) for run in received]
