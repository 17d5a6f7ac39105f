"""Throughput of TCP or UDP in intervals of a tenth of a second, measured by iperf3.

Throughput is the receiving end's (the sender counts data that entered its socket buffer),
retransmissions are the sending end's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mininet_scenarios.workloads.reports import WorkloadError

INTERVAL_S: Final = 0.1
BLOCK_BYTES: Final = 16_384
"""Block size small enough not to show as steps in an interval at 100 Mb/s."""
_MEGA: Final = 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """Average throughput over ``[start_s, end_s)``, seconds from the start of the transfer."""

    start_s: float
    end_s: float
    mbps: float


@dataclass(frozen=True, slots=True)
class ThroughputRun:
    """An iperf3 run, all streams added up."""

    samples: tuple[Sample, ...]
    average_mbps: float
    retransmits: int | None
    """Number of retransmissions; None at the receiving end, where the number is unknown."""
    seconds: float

    def average_between(self, start_s: float, end_s: float) -> float:
        """Mbps between two times of the run. Raises WorkloadError if nothing was measured."""
        weighted = covered_s = 0.0
        for sample in self.samples:
            overlap_s = min(end_s, sample.end_s) - max(start_s, sample.start_s)
            if overlap_s > 0:
                weighted += sample.mbps * overlap_s
                covered_s += overlap_s
        if covered_s == 0:
            raise WorkloadError(f"no throughput samples between {start_s} s and {end_s} s")
        return weighted / covered_s

    def slowest_between(self, start_s: float, end_s: float) -> float:
        """Mbps of the slowest sample that lies wholly between two times of the run.

        Raises WorkloadError if no sample does.
        """
        inside = [s.mbps for s in self.samples if start_s <= s.start_s and s.end_s <= end_s]
        if not inside:
            raise WorkloadError(f"no throughput samples between {start_s} s and {end_s} s")
        return min(inside)

    def means_mbps(self, parts: int) -> list[float]:
        """Throughput in each of so many equal parts of the run."""
        start_s, step_s = self.samples[0].start_s, self.seconds / parts
        starts_s = [start_s + step_s * part for part in range(parts)]
        return [self.average_between(one_s, one_s + step_s) for one_s in starts_s]


def server_command(address: str, port: int) -> list[str]:
    """A server for one run: prints JSON and ends."""
    return [
        *("iperf3", "--server", "--one-off", "--json", "--interval", str(INTERVAL_S)),
        *("--bind", address, "--port", str(port)),
    ]


def client_command(
    address: str,
    port: int,
    seconds: float,
    *,
    streams: int = 1,
    rate_mbps: float | None = None,
    average_mbps: float | None = None,
    congestion: str | None = None,
    datagram_bytes: int | None = None,
) -> list[str]:
    """A client that sends to ``address`` for ``seconds`` (iperf3 takes whole seconds).

    ``rate_mbps`` limits each stream at any time; ``average_mbps`` is the mean over time, making up
    for times without sending; None sends at full speed. ``congestion`` names a TCP congestion
    control of the kernel; None is the system's default. ``datagram_bytes`` sends UDP, with the
    given payload in each datagram.
    """
    command = [
        *("iperf3", "--client", address, "--port", str(port), "--json"),
        *("--interval", str(INTERVAL_S), "--time", str(max(1, round(seconds)))),
        *("--parallel", str(streams), "--length", str(datagram_bytes or BLOCK_BYTES)),
        *("--connect-timeout", "5000"),
    ]
    if datagram_bytes is not None:
        command.append("--udp")
    if rate_mbps is not None:
        # Not --bitrate, which makes up for times without sending.
        command += ["--fq-rate", f"{round(rate_mbps * 1e6)}"]
    if average_mbps is not None:
        command += ["--bitrate", f"{round(average_mbps * 1e6)}"]
    if congestion is not None:
        command += ["--congestion", congestion]
    return command


def parse(text: str) -> ThroughputRun:
    """Read the output of ``iperf3 --json``, at either end.

    Raises WorkloadError with iperf3's message if iperf3 failed, and for text that is not iperf3's.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise WorkloadError(f"iperf3 printed no JSON: {text[:200]!r}") from error
    samples = tuple(_samples(document))
    if not samples:
        reason = document.get("error", "no intervals in its output")
        raise WorkloadError(f"iperf3 measured nothing: {reason}")
    seconds = samples[-1].end_s - samples[0].start_s
    bits = sum(sample.mbps * (sample.end_s - sample.start_s) for sample in samples)
    return ThroughputRun(samples, bits / seconds, _retransmits(document), seconds)


def _samples(document: Mapping[str, Any]) -> Sequence[Sample]:
    sums = [interval["sum"] for interval in document.get("intervals", ())]
    return [
        Sample(float(s["start"]), float(s["end"]), float(s["bits_per_second"]) / _MEGA)
        for s in sums
        if not s.get("omitted", False) and s["end"] > s["start"]
    ]


def _retransmits(document: Mapping[str, Any]) -> int | None:
    counts = [
        interval["sum"]["retransmits"]
        for interval in document.get("intervals", ())
        if "retransmits" in interval["sum"]
    ]
    return sum(counts) if counts else None
