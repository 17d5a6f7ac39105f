"""A sender with a reservation beside a greedy sender, on the same circuit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.stage.stage import Stage, Transfer, tcp_transfer
from mininet_scenarios.workloads.iperf3 import ThroughputRun

_HEAD_START_S: Final = 2.0
"""Time for which the greedy sender has the circuit alone, before the contest and after."""
_GREEDY_PORT: Final = 5400
_STEADY_PORT: Final = 5401


@dataclass(frozen=True, slots=True)
class Outcome:
    """Throughput of each sender while both were sending."""

    steady: ThroughputRun
    greedy_mbps: float


@dataclass(frozen=True, slots=True)
class Contest:
    steady: Transfer
    greedy: Transfer

    def finish(self, seconds: float) -> Outcome:
        """Wait for both ends of both. Raises ScenarioError, WorkloadError."""
        steady, _ = self.steady.finish(seconds + PATIENCE_S)
        greedy, _ = self.greedy.finish(PATIENCE_S)
        together = _HEAD_START_S, _HEAD_START_S + seconds
        return Outcome(steady, greedy.average_between(*together))


@contextmanager
def contest(
    stage: Stage,
    seconds: float,
    *,
    steady: tuple[str, str],
    steady_mbps: float,
    greedy: tuple[str, str],
    greedy_streams: int = 1,
) -> Iterator[Contest]:
    """Two TCP transfers, from the first of two servers each to the second.

    One offers ``steady_mbps`` for ``seconds``; the other, already under way, sends at full speed.
    """
    both = seconds + 2 * _HEAD_START_S
    with tcp_transfer(stage, *greedy, _GREEDY_PORT, both, streams=greedy_streams) as rival:
        time.sleep(_HEAD_START_S)  # timed: the rival is under way
        with tcp_transfer(stage, *steady, _STEADY_PORT, seconds, average_mbps=steady_mbps) as own:
            yield Contest(own, rival)
