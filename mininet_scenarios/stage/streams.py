"""Paced UDP between two servers of the stage, and its losses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations, cycle
from pathlib import Path
from typing import Final

from mininet_scenarios.stage.stage import Job, ScenarioError, Stage, wait_for_file
from mininet_scenarios.workloads import paced_udp
from mininet_scenarios.workloads.paced_udp import ReceiveReport, SendReport
from mininet_scenarios.workloads.reports import read_report

_PORTS: Final = cycle(range(5300, 5800))
"""Ports, one for each stream: several may lead to the same server."""
_ENDLESS: Final = 1_000_000
_INTRODUCED_S: Final = 9
_CLOSING_S: Final = 2.0
"""Time for the last datagrams and the sender's closing word to arrive."""


@dataclass(frozen=True, slots=True)
class UdpResult:
    """A paced stream, as both ends saw it."""

    sent: int
    received: int
    lost: int
    duplicates: int
    reordered: int
    max_gap_ms: float
    pps: float
    median_delay_ms: float | None
    """Median of the one-way delay; None if nothing arrived."""
    p99_delay_ms: float | None
    socket_drops: int | None
    """Part of ``lost`` that arrived but found the receiver's socket full."""

    @classmethod
    def of(cls, sent: SendReport, received: ReceiveReport) -> UdpResult:
        return cls(
            sent=sent.sent,
            received=received.received,
            lost=sent.sent - received.received,
            duplicates=received.duplicates,
            reordered=received.reordered,
            max_gap_ms=received.max_gap_ms,
            pps=sent.pps,
            median_delay_ms=received.median_delay_ms,
            p99_delay_ms=received.p99_delay_ms,
            socket_drops=received.socket_drops,
        )


@dataclass(frozen=True, slots=True)
class Stream:
    """A paced stream under way."""

    sender: Job
    receiver: Job
    sent_report: Path
    received_report: Path

    def finish(self, timeout_s: float) -> UdpResult:
        """Wait until all datagrams are sent and accounted for.

        Raises ScenarioError if an end fails, or no closing word arrived.
        """
        self.sender.finish(timeout_s)
        return self._result()

    def stop(self) -> UdpResult:
        """End the stream now."""
        self.sender.stop()
        return self._result()

    def _result(self) -> UdpResult:
        self.receiver.finish(_CLOSING_S)
        received = paced_udp.receive_report_from_json(read_report(self.received_report))
        if not received.complete:
            raise ScenarioError(f"{self.receiver.name} never heard the end of its stream")
        sent = paced_udp.send_report_from_json(read_report(self.sent_report))
        return UdpResult.of(sent, received)


@contextmanager
def paced_stream(
    stage: Stage,
    source: str,
    destination: str,
    *,
    pps: float,
    payload_bytes: int,
    count: int,
    acquainted: bool = False,
) -> Iterator[Stream]:
    """Send ``count`` datagrams from one server to another, the first before the block begins.

    The stream ends with the block at the latest. ``acquainted``: the ends have resolved each other
    already.
    """
    address, port = stage.address(destination), str(next(_PORTS))
    if not acquainted:
        _introduce(stage, source, address)
    listening, sending = stage.file("udp-listening", ""), stage.file("udp-sending", "")
    received, sent = stage.file("udp-received", ".json"), stage.file("udp-sent", ".json")
    receive = ["receive", "--bind", address, "--port", port]
    receive += ["--ready", str(listening), "--report", str(received)]
    send = ["send", "--to", address, "--port", port, "--pps", f"{pps:.3f}"]
    send += ["--payload", str(payload_bytes), "--count", str(count)]
    send += ["--ready", str(sending), "--report", str(sent)]
    with ExitStack() as stack:
        receiver = stack.enter_context(stage.workload(destination, "paced_udp", receive))
        wait_for_file(listening, receiver)
        sender = stack.enter_context(stage.workload(source, "paced_udp", send))
        wait_for_file(sending, sender)
        yield Stream(sender, receiver, sent, received)


@contextmanager
def streams_everywhere(stage: Stage) -> Iterator[list[Stream]]:
    """Small datagrams, 50 a second, between the first servers of every two racks, until the end."""
    firsts = [rack.servers[0].name for rack in stage.fabric.racks]
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                paced_stream(stage, a, b, pps=50.0, payload_bytes=100, count=_ENDLESS)
            )
            for a, b in combinations(firsts, 2)
        ]


def _introduce(stage: Stage, source: str, address: str) -> None:
    """Have both ends resolve each other: a kernel keeps three datagrams while it waits for ARP.

    With ``-w``, ping goes on until the first answer, and ends with it.
    """
    command = ["ping", "-c", "1", "-i", "0.2", "-w", f"{_INTRODUCED_S}", address]
    with stage.job(source, "ping", command) as job:
        job.finish(_INTRODUCED_S + 1.0)
