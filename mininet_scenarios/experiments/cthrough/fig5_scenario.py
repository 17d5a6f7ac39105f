"""c-Through (SIGCOMM 2010, section 5.2.1, Fig. 5): TCP while the circuit comes and goes.

A server sends to a server in another rack at full speed. By turns the controller is asked for a
circuit between the two racks, and to give the circuit up; without the circuit, the flow takes the
electrical network, at a tenth of the rate. Arrivals are counted frame by frame at the receiver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage.alternation import sleep_until
from mininet_scenarios.stage.controller_client import (
    ControllerClient,
    PairDemand,
    ReconfigurationRecord,
)
from mininet_scenarios.stage.delays import ACTIVATING
from mininet_scenarios.stage.stage import CONGESTION, ScenarioError, Stage, tcp_transfer
from mininet_scenarios.testbed.capture import Frame

PAIR: Final = ("r1", "r2")
HOSTS: Final = ("h11", "h21")
BIN_S: Final = 0.02
REACHED: Final = 0.9
"""Share of the path's own rate above which TCP counts as using the path."""
_PORT: Final = 5201
_WARM_UP_S: Final = 1.5
_SETUP_S: Final = 3.0
_WINDOW_FRAMES: Final = 20
"""Frames over which a rate is taken, so that a single frame does not count."""
_LEAST_WINDOW_S: Final = 0.01
_STEP_S: Final = 0.001
_AROUND_S: Final = 0.5
"""Time after a change beyond which a lower rate is not caused by the change."""
_FRAME_MBIT: Final = 1514 * 8 / 1e6
_IP_LENGTH: Final = slice(16, 18)
_ETHERNET_BYTES: Final = 14


@dataclass(frozen=True, slots=True)
class Fig5Plan:
    """Number and length of the circuit's presences."""

    half_s: float
    """Time with the circuit; the time without the circuit is as long."""
    circuits: int
    alone_s: float
    """Length of each run over a single network."""

    @property
    def run_s(self) -> float:
        return _WARM_UP_S + 2 * self.half_s * self.circuits + 1.0

    @property
    def expected_s(self) -> float:
        """Wall time of a cycle."""
        return _SETUP_S + self.run_s + 2 * (self.alone_s + _WARM_UP_S + 1)


FULL: Final = Fig5Plan(half_s=3.0, circuits=10, alone_s=8.0)
SHORT: Final = Fig5Plan(half_s=3.0, circuits=2, alone_s=3.0)


@dataclass(frozen=True, slots=True)
class Turn:
    """Effect of a change on TCP; ms from the moment at which the path could be used."""

    at_s: float
    """Moment at which the path could be used, from the first sample."""
    up: bool
    """True if the circuit came, False if the circuit went."""
    reached_ms: float | None
    """Time until TCP used the rate available; None: not before the next change."""
    silent_ms: float
    """The longest pause at the receiver around the change."""


@dataclass(frozen=True, slots=True)
class Fig5Run:
    cycle: str
    mbps: tuple[float, ...]
    """Arrivals in each bin of :data:`BIN_S`, headers included."""
    optical_mbps: float
    """Rate over the circuit alone."""
    electrical_mbps: float
    turns: tuple[Turn, ...]
    retransmits: int
    dark_frames: int

    @property
    def share(self) -> float:
        """Received data as a share of the data received if TCP had used each path at once."""
        first, last = self.turns[0].at_s, self.turns[-1].at_s
        ideal = sum(
            (self.optical_mbps if turn.up else self.electrical_mbps) * (after.at_s - turn.at_s)
            for turn, after in zip(self.turns, self.turns[1:], strict=False)
        )
        inside = self.mbps[round(first / BIN_S) : round(last / BIN_S)]
        return sum(inside) * BIN_S / ideal


def run(stage: Stage, plan: Fig5Plan, cycle: CycleName, narrator: Narrator) -> Fig5Run:
    """Play the plan. Raises ScenarioError and ControllerError for a run that can't be counted."""
    title = f"TCP over a circuit that comes and goes, {cycle.value}"
    with (
        narrator.phase(title, plan.expected_s),
        stage.controller({"mode": "on-request"}, cycle) as controller,
    ):
        controller.reconfigure([])
        electrical_mbps = _alone(stage, plan)
        controller.reconfigure([_demand(stage)])
        optical_mbps = _alone(stage, plan)
        controller.reconfigure([])
        before = stage.losses()
        records, frames, retransmits = _coming_and_going(stage, plan, controller)
        dark_frames = stage.losses().since(before).dark_frames
    start_unix_s = frames[0].time_s
    arrived = Arrivals.of(frames)
    moments = [(_effective_unix_s(record, up) - start_unix_s, up) for record, up in records]
    result = Fig5Run(
        cycle=cycle.value,
        mbps=tuple(arrived.binned_mbps().tolist()),
        optical_mbps=optical_mbps,
        electrical_mbps=electrical_mbps,
        turns=arrived.turns(moments, optical_mbps, electrical_mbps),
        retransmits=retransmits,
        dark_frames=dark_frames,
    )
    narrator.say(
        f"{cycle.value}: {electrical_mbps:.1f} and {optical_mbps:.1f} Mb/s alone, "
        f"{result.share:.1%} of what there was; {retransmits} retransmissions"
    )
    return result


def _demand(stage: Stage) -> PairDemand:
    return PairDemand(*PAIR, 0.8 * stage.fabric.server_rate_mbps)


def _alone(stage: Stage, plan: Fig5Plan) -> float:
    """Mbps received over the present path."""
    with _watched(stage, plan.alone_s + _WARM_UP_S) as watched:
        pass
    seconds = plan.alone_s - 0.5
    return (
        float(Arrivals.of(watched.frames).mbit_within(np.array([_WARM_UP_S]), seconds)[0]) / seconds
    )


@dataclass(slots=True)
class _Watched:
    """A transfer, and after the block the transfer's arrivals."""

    started_s: float = 0.0
    frames: tuple[Frame, ...] = ()
    retransmits: int = 0


@contextmanager
def _watched(stage: Stage, seconds: float) -> Iterator[_Watched]:
    watched = _Watched()
    source, destination = HOSTS
    expression = f"tcp and dst port {_PORT} and src host {stage.address(source)}"
    capture = stage.testbed.frames_at(destination, expression=expression, direction="in")
    with (
        capture,
        tcp_transfer(stage, *HOSTS, _PORT, seconds, congestion=CONGESTION) as transfer,
    ):
        watched.started_s = transfer.client.started_s
        yield watched
        _, sent = transfer.finish(seconds + 20)
        watched.retransmits = sent.retransmits or 0
    watched.frames = capture.frames()
    if not watched.frames:
        raise ScenarioError(f"nothing arrived at {destination}")


def _coming_and_going(
    stage: Stage, plan: Fig5Plan, controller: ControllerClient
) -> tuple[list[tuple[ReconfigurationRecord, bool]], tuple[Frame, ...], int]:
    records = []
    with _watched(stage, plan.run_s) as watched:
        for number in range(2 * plan.circuits):
            sleep_until(watched.started_s + _WARM_UP_S + number * plan.half_s)
            up = number % 2 == 0
            records.append((controller.reconfigure([_demand(stage)] if up else []), up))
    return records, watched.frames, watched.retransmits


def _effective_unix_s(record: ReconfigurationRecord, up: bool) -> float:
    """Time at which the path could be used, or, if the circuit goes, start of the change's first
    step.
    """
    if record.started_unix_s is None or not record.timeline:
        raise ScenarioError(f"reconfiguration {record.id} has no timeline")
    times_ms = (
        [step.finished_ms for step in record.timeline if step.step in ACTIVATING]
        if up
        else [step.started_ms for step in record.timeline]
    )
    if not times_ms:
        raise ScenarioError(f"reconfiguration {record.id} never activated its path")
    return record.started_unix_s + (max(times_ms) if up else min(times_ms)) / 1e3


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Frames at the receiver, in order of arrival."""

    at_s: NDArray[np.float64]
    """Times since the first frame."""
    size_bytes: NDArray[np.int64]
    """Sizes, Ethernet headers included."""

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> Arrivals:
        sizes = [
            int.from_bytes(frame.data[_IP_LENGTH], "big") + _ETHERNET_BYTES for frame in frames
        ]
        at_s = np.array([frame.time_s for frame in frames]) - frames[0].time_s
        return cls(at_s, np.array(sizes))

    def binned_mbps(self) -> NDArray[np.float64]:
        """Mbps received in each bin of :data:`BIN_S`."""
        bins = (self.at_s / BIN_S).astype(np.intp)
        return np.bincount(bins, weights=self.size_bytes) * 8 / 1e6 / BIN_S

    def mbit_within(self, starts_s: NDArray[np.float64], window_s: float) -> NDArray[np.float64]:
        """Mbit received in a window after each start."""
        total = np.concatenate([[0], np.cumsum(self.size_bytes)]) * 8 / 1e6
        first, last = (np.searchsorted(self.at_s, starts_s + late) for late in (0.0, window_s))
        return np.asarray(total[last] - total[first])

    def turns(
        self, moments: Sequence[tuple[float, bool]], optical_mbps: float, electrical_mbps: float
    ) -> tuple[Turn, ...]:
        """Effect of each change, given as ``(seconds, up)``, until the next or the end."""
        ends_s = [at_s for at_s, _ in moments[1:]] + [float(self.at_s[-1])]
        return tuple(
            Turn(
                at_s,
                up,
                self._reached_ms(at_s, end_s, optical_mbps if up else electrical_mbps),
                self._silent_ms(at_s, end_s),
            )
            for (at_s, up), end_s in zip(moments, ends_s, strict=True)
        )

    def _reached_ms(self, at_s: float, end_s: float, mbps: float) -> float | None:
        """Time to the first window with the full rate after a window with less.

        So frames under way from before the change are not counted.
        """
        window_s = max(_LEAST_WINDOW_S, _WINDOW_FRAMES * _FRAME_MBIT / mbps)
        starts_s = np.arange(at_s, end_s - window_s, _STEP_S)
        there = self.mbit_within(starts_s, window_s) >= REACHED * mbps * window_s
        less = np.flatnonzero(~there[: round(_AROUND_S / _STEP_S)])
        if not less.size:
            return 0.0 if there.size else None
        reached = np.flatnonzero(there[less[0] :])
        return float(less[0] + reached[0]) * _STEP_S * 1e3 if reached.size else None

    def _silent_ms(self, at_s: float, end_s: float) -> float:
        around = self.at_s[(self.at_s >= at_s - BIN_S) & (self.at_s <= end_s)]
        return float(np.diff(around).max(initial=0.0)) * 1e3
