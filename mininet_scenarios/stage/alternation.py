"""Changes the topology at given times, back and forth between two planes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from mininet_scenarios.stage.controller_client import (
    ControllerClient,
    PairDemand,
    ReconfigurationRecord,
)
from mininet_scenarios.stage.delays import DelaySplit, split
from mininet_scenarios.stage.stage import ScenarioError


@dataclass(frozen=True, slots=True)
class Change:
    """A reconfiguration during a run."""

    at_s: float
    """Time from the run's start to the request."""
    plane: str
    """Plane of the circuit afterwards."""
    record: ReconfigurationRecord
    delay: DelaySplit


@dataclass(frozen=True, slots=True)
class Alternation:
    """Moves the circuit of one rack pair from plane to plane (Fig. 8(a) of HydRA)."""

    controller: ControllerClient
    demand: PairDemand
    planes: tuple[str, str]
    switching_ms: float
    """Switching time of a plane's mirrors."""

    def perform(self, start_s: float, times_s: Sequence[float]) -> tuple[Change, ...]:
        """Ask for a change at each time after ``start_s``, and wait for the end of the change.

        Only circuits of the pair are touched. Raises ScenarioError if a change takes so long that
        the next change is late, and ControllerError if a change is not carried out in full.
        """
        route = self.controller.path_between(self.demand.a, self.demand.b)
        present = route.planes
        others = [plane for plane in self.planes if (plane,) != present]
        if len(others) != 1:
            raise ScenarioError(f"expected one hop on one of {self.planes}, found {route}")
        changes = []
        for at_s, plane in zip(times_s, cycle((others[0], present[0])), strict=False):
            sleep_until(start_s + at_s)
            changes.append(self._change(at_s, plane))
        return tuple(changes)

    def _change(self, at_s: float, plane: str) -> Change:
        record = self.controller.reconfigure(
            [self.demand], racks=(self.demand.a, self.demand.b), use_planes=(plane,)
        )
        found = self.controller.path_between(self.demand.a, self.demand.b)
        if found.planes != (plane,):
            raise ScenarioError(f"reconfiguration {record.id} ended on {found}, not on {plane}")
        return Change(at_s, plane, record, split(record.timeline, self.switching_ms))


def sleep_until(moment_s: float) -> None:
    """Sleep until ``moment_s`` of ``CLOCK_MONOTONIC``. Raises ScenarioError if the moment is long
    past.
    """
    remaining_s = moment_s - time.monotonic()
    if remaining_s < -1.0:
        raise ScenarioError(f"a change is {-remaining_s:.1f} s late: the last change took too long")
    time.sleep(max(0.0, remaining_s))
