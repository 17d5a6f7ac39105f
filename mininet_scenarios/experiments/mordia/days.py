"""Mordia's ToRs, which hold frames until their day: throughput by slot, and jitter (section 6).

As in the prototype, ToRs are Linux processes; synchronization frames name the destinations to which
each may send. Times are a thousand times the paper's, rates a thousandth. The optical switch passes
on a frame if all of the frame lies within a day of its sender and its receiver.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREY, VERMILION, legend_below
from mininet_scenarios.reporting.table import Row, ranged
from mininet_scenarios.stage.stage import ScenarioError
from mininet_scenarios.workloads.tor_queues import (
    BURST,
    DAY,
    END,
    EVERYONE,
    HELLO,
    HERE,
    NIGHT,
    SYNC,
    Burst,
    Sync,
)

TIMES: Final = 1000
"""Factor of the paper's times."""
_MBPS: Final = 10_000 / TIMES
NIGHT_US: Final = 11.5
_LARGE: Final = 9000
"""Bytes on the link of the paper's datagrams of 8966 octets (section 6.2)."""
_SMALL: Final = 1500
FULL_SLOTS_US: Final = (61.0, 80.0, 100.0, 135.0, 200.0, 300.0)
SHORT_SLOTS_US: Final = (61.0, 300.0)
_LOSS_US: Final = 135.0
"""Slot of Fig. 9, with a day of 123.5 µs."""
_JITTER_US: Final = 1.0
_LATEST_S: Final = 1.0
"""Time for the last reports of ToRs."""
_ROUNDING_S: Final = 1e-6
_SYNC: Final = (106.0, 6.0)
"""Slot and night in which synchronization frames are timed (section 6.3)."""
_CAPTURED_US: Final = 106.0
_JITTER: Final = (
    "Nine of ten synchronization frames came within {late:.2f} µs of their time, at the paper's "
    "scale: times are a thousand times as long here, the jitter of processes is not."
)


@dataclass(frozen=True, slots=True)
class Week:
    """Frames sent by ToRs in slots of one length, and frames arrived; times are the paper's."""

    slot_us: float
    night_us: float
    sent: int
    passed: int
    share: float
    """Throughput that arrived, as a share of the line rate."""


@dataclass(frozen=True, slots=True)
class Days:
    tors: int
    packets: Week
    """The same ToRs on a packet switch."""
    weeks: tuple[Week, ...]
    captured: Week
    """A ToR that sends all the time, by night, too (section 6.1)."""
    deltas_us: tuple[float, ...]
    """Times between synchronization frames."""


@dataclass(frozen=True, slots=True)
class Form:
    tors: int
    slots_us: tuple[float, ...]
    each_s: float

    @property
    def expected_s(self) -> float:
        return 2.0 + 0.1 * self.tors + self.each_s * (len(self.slots_us) + 3)


FULL: Final = Form(23, FULL_SLOTS_US, 8.0)
SHORT: Final = Form(5, SHORT_SLOTS_US, 1.5)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as the optical switch played it."""

    shift: int
    """ToR i's circuit leads to ToR i + shift."""
    begin_s: float
    end_s: float
    """Of the day."""


def passed(bursts: Sequence[Burst], frame_s: float, slots: Sequence[Slot], tors: int) -> int:
    """Number of frames that lie within a day of their source and destination.

    ``slots`` are in the order of their days.
    """
    days_s = [slot.begin_s for slot in slots]
    return sum(_arrived(burst, frame_s, slots, days_s, tors) for burst in bursts)


def _arrived(
    burst: Burst, frame_s: float, slots: Sequence[Slot], days_s: Sequence[float], tors: int
) -> int:
    begins_s = burst.begin_s + frame_s * np.arange(burst.frames)
    place = np.searchsorted(days_s, begins_s, side="right") - 1
    over_s = np.array([slot.end_s for slot in slots])[place]
    shift = np.array([slot.shift for slot in slots])[place]
    joined = (burst.destination == (burst.source + shift) % tors) | (burst.destination == EVERYONE)
    in_time = begins_s + frame_s <= over_s + _ROUNDING_S
    return int(np.count_nonzero((place >= 0) & joined & in_time))


class Switch:
    """The optical switch's scheduler and the ToRs' links."""

    def __init__(self, tors: int) -> None:
        self.tors = tors
        self._link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._link.bind((HERE, 0))
        self._addresses: dict[int, tuple[str, int]] = {}
        self._bursts: list[Burst] = []

    @property
    def port(self) -> int:
        return int(self._link.getsockname()[1])

    def close(self) -> None:
        self._link.close()

    def meet(self) -> None:
        """Wait for all ToRs. Raises ScenarioError."""
        self._link.settimeout(PATIENCE_S)
        try:
            while len(self._addresses) < self.tors:
                hello, address = self._link.recvfrom(HELLO.size)
                self._addresses[HELLO.unpack(hello)[0]] = address
        except TimeoutError as error:
            met = len(self._addresses)
            raise ScenarioError(f"{met} of {self.tors} ToRs have started") from error

    def send(self, sync: Sync, tor: int) -> None:
        """Send a synchronization frame to a ToR."""
        self._link.sendto(SYNC.pack(*sync), self._addresses[tor])

    def send_all(self, sync: Sync) -> None:
        for tor in range(self.tors):
            self.send(sync, tor)

    def until(self, end_s: float) -> None:
        """Receive the ToRs' frames until ``end_s``."""
        while (left_s := end_s - time.monotonic()) > 0:
            if select.select([self._link], [], [], left_s)[0]:
                self._bursts.append(Burst(*BURST.unpack(self._link.recv(BURST.size))))

    def take(self) -> list[Burst]:
        """All bursts since the last call."""
        bursts, self._bursts = self._bursts, []
        return bursts

    def week(
        self,
        slot_us: float,
        night_us: float,
        seconds: float,
        *,
        always: Sequence[int] | None = None,
    ) -> Week:
        """Play slots for about ``seconds``, with a whole number of rounds of all circuits.

        If ``always`` is given, only these ToRs send, all the time, in any state of the switch.
        """
        slot_s, night_s = slot_us * TIMES / 1e6, night_us * TIMES / 1e6
        rounds = max(1, round(seconds / slot_s / (self.tors - 1)))
        frame_s = (_LARGE if always is None else _SMALL) * 8e-6 / _MBPS
        slots: list[Slot] = []
        edge_s = time.monotonic() + night_s
        for shift in list(range(1, self.tors)) * rounds:
            self.until(edge_s)
            begin_s = time.monotonic()
            for tor in range(self.tors):
                if always is None:
                    to, day_s = (tor + shift) % self.tors, slot_s - night_s
                else:
                    to, day_s = EVERYONE, slot_s if tor in always else 0.0
                self.send(Sync(DAY, to, day_s, frame_s), tor)
            self.until(edge_s + slot_s - night_s)
            slots.append(Slot(shift, begin_s, time.monotonic()))
            self.send_all(Sync(NIGHT))
            edge_s += slot_s
        self.until(edge_s + _LATEST_S)
        bursts = self.take()
        arrived = passed(bursts, frame_s, slots, self.tors)
        sending = self.tors if always is None else max(1, len(always))
        share = arrived * frame_s / (len(slots) * slot_s * sending)
        return Week(slot_us, night_us, sum(burst.frames for burst in bursts), arrived, share)

    def packets(self, seconds: float) -> Week:
        """Have ToRs send all the time, on a switch that passes on every frame."""
        frame_s = _LARGE * 8e-6 / _MBPS
        begin_s = time.monotonic()
        self.send_all(Sync(DAY, EVERYONE, seconds, frame_s))
        self.until(begin_s + seconds + _LATEST_S)
        bursts = self.take()
        sent = sum(burst.frames for burst in bursts)
        arrived = passed(bursts, frame_s, [Slot(0, begin_s, begin_s + seconds)], self.tors)
        return Week(0.0, 0.0, sent, arrived, arrived * frame_s / seconds / self.tors)


@contextmanager
def _tors(number: int) -> Iterator[tuple[Switch, list[subprocess.Popen[str]]]]:
    with ExitStack() as stack:
        switch = Switch(number)
        stack.callback(switch.close)
        running = []
        for tor in range(number):
            command = [sys.executable, "-m", "mininet_scenarios.workloads.tor_queues"]
            command += [str(switch.port), str(tor)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            running.append(process)
        switch.meet()
        yield switch, running


def _measure(setting: Setting, narrator: Narrator) -> Days:
    form = FULL if setting.full else SHORT
    with narrator.phase(f"{form.tors} ToRs and an optical switch", form.expected_s):
        with _tors(form.tors) as (switch, _):
            packets = switch.packets(form.each_s)
            weeks = [switch.week(slot_us, NIGHT_US, form.each_s) for slot_us in form.slots_us]
            captured = switch.week(_CAPTURED_US, NIGHT_US, form.each_s, always=[0])
        with _tors(form.tors) as (switch, running):
            switch.week(*_SYNC, form.each_s, always=[])
            switch.send_all(Sync(END))
            came = [json.loads(process.communicate()[0]) for process in running]
    deltas_us = [float(delta) * 1e6 / TIMES for times in came for delta in np.diff(times)]
    return Days(form.tors, packets, tuple(weeks), captured, tuple(deltas_us))


# --- conclusions ------------------------------------------------------------------------------


def _weeks(found: Sequence[Days], slot_us: float) -> list[tuple[Days, Week]]:
    return [(days, week) for days in found for week in days.weeks if week.slot_us == slot_us]


def _lateness_us(days: Days) -> list[float]:
    """Distance of each time between synchronization frames from the scheduled time."""
    slot_us, night_us = _SYNC
    expected = (night_us, slot_us - night_us)
    return [min(abs(delta - length) for length in expected) for delta in days.deltas_us]


def _conclude(found: Sequence[Days]) -> Findings:
    rows = []
    late_us = [late for days in found for late in _lateness_us(days)]
    why = _JITTER.format(late=float(np.quantile(late_us, 0.9)))
    slots_us = [week.slot_us for week in found[0].weeks]
    for slot_us in (slots_us[0], slots_us[-1]):
        shares = [week.share / days.packets.share for days, week in _weeks(found, slot_us)]
        figure = f"slots of {slot_us:g} µs, datagrams of 8966 octets, over the packet switch"
        ours = ranged(shares, ".0%")
        rows.append(judged(f"mordia/UDP {slot_us:g}", fmean(shares), figure, ours, why))
    captured = [days.captured.share for days in found]
    figure = "frames of 1500 bytes captured, sent all the time"
    rows.append(judged("mordia/capture", fmean(captured), figure, ranged(captured, ".1%"), why))
    for slot_us in slots_us:
        lost = [1 - week.passed / week.sent for _, week in _weeks(found, slot_us)]
        figure, ours = f"frames lost, slots of {slot_us:g} µs", ranged(lost, ".2%")
        if slot_us == _LOSS_US:
            rows.append(judged("mordia/loss", fmean(lost), figure, ours, why))
        else:
            rows.append(Row(figure, "", ours))
    on_time = [fmean(late <= _JITTER_US for late in _lateness_us(days)) for days in found]
    figure = f"synchronization frames within {_JITTER_US:g} µs of the nearer of night and day"
    rows.append(judged("mordia/sync", fmean(on_time), figure, ranged(on_time, ".1%"), why))
    return Findings(tuple(rows), (_table(found),))


def _table(found: Sequence[Days]) -> Table:
    return Table(
        f"{found[0].tors} ToRs, each to each; µs of the paper, {TIMES} times as long here",
        ("slot", "duty cycle", "share of the line rate", "frames sent", "lost"),
        tuple(
            (
                f"{week.slot_us:g}",
                f"{1 - week.night_us / week.slot_us:.1%}",
                f"{fmean(other.share for _, other in _weeks(found, week.slot_us)):.1%}",
                str(sum(other.sent for _, other in _weeks(found, week.slot_us))),
                str(sum(other.sent - other.passed for _, other in _weeks(found, week.slot_us))),
            )
            for week in found[0].weeks
        ),
    )


def _draw(found: Sequence[Days], directory: Path) -> Sequence[Path]:
    """Draw Fig. 10 and 11."""
    figure = Figure(figsize=(10.0, 4.5), dpi=150, layout="constrained")
    throughput, jitter = figure.subplots(1, 2)
    slots_us = [week.slot_us for week in found[0].weeks]
    ideal = [100 * (1 - NIGHT_US / slot_us) for slot_us in slots_us]
    ours = [100 * fmean(week.share for _, week in _weeks(found, slot)) for slot in slots_us]
    packets = 100 * fmean(days.packets.share for days in found)
    throughput.axhline(packets, color=GREY, label="packet switch")
    throughput.plot(slots_us, ideal, ":", color=BLUE, label="duty cycle")
    throughput.plot(slots_us, ours, "o-", color=VERMILION, label="datagrams")
    throughput.set_xlabel("slot [µs of the paper]")
    throughput.set_ylabel("share of the line rate [%]")
    throughput.set_ylim(0, 102)
    jitter.hist([delta for days in found for delta in days.deltas_us], bins=120, color=BLUE)
    jitter.set_yscale("log")
    jitter.set_xlabel("between synchronization frames [µs of the paper]")
    jitter.set_ylabel("number")
    legend_below(figure, throughput)
    written = directory / "days.png"
    figure.savefig(written)
    return [written]


EXPERIMENT: Final = Experiment(
    name="mordia-days",
    title="ToRs that hold frames until their day",
    source="Porter et al., Mordia, SIGCOMM 2013, sections 5.2 and 6, Fig. 9 to 11",
    topology=f"{FULL.tors} ToRs (short: {SHORT.tors}), each a process, on an optical switch of the "
    "same number of ports; line rates of 10 Mb/s, times × 1000",
    workload="datagrams from each to each, and frames sent all the time",
    policy=f"circuits in turn, slots of {FULL_SLOTS_US[0]:g} to {FULL_SLOTS_US[-1]:g} µs, nights "
    f"of {NIGHT_US:g} µs, at the paper's scale",
    measured="frames within their day, and times between synchronization frames",
    needs_data_plane=False,
    expected_s=lambda full: (FULL if full else SHORT).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
