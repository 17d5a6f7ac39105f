"""Paced UDP and TCP between two servers of the stage: losses, and silences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations, cycle
from pathlib import Path
from typing import Final, TypeVar

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.stage.stage import Job, ScenarioError, Stage, wait_for_file
from mininet_scenarios.workloads import paced_tcp
from mininet_scenarios.workloads.paced_udp import ReceiveReport, SendReport
from mininet_scenarios.workloads.reports import read_report, report_as

_PORTS: Final = cycle(range(5300, 5800))
"""Ports, one for each stream: several streams may lead to the same server."""
_TCP_PORTS: Final = cycle(range(5900, 6000))
_ENDLESS: Final = 1_000_000


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
    """Median of the one-way delay; None without any arrival."""
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
class _Pair:
    """A workload's two ends at work."""

    sender: Job
    receiver: Job
    sent_report: Path
    received_report: Path


_PairT = TypeVar("_PairT", bound=_Pair)


class Stream(_Pair):
    """A paced stream under way."""

    __slots__ = ()

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
        self.receiver.finish(PATIENCE_S)
        received = report_as(ReceiveReport, read_report(self.received_report))
        if not received.complete:
            raise ScenarioError(f"{self.receiver.name} never heard the end of its stream")
        sent = report_as(SendReport, read_report(self.sent_report))
        return UdpResult.of(sent, received)


def paced_stream(
    stage: Stage,
    source: str,
    destination: str,
    *,
    pps: float,
    payload_bytes: int,
    count: int = _ENDLESS,
    acquainted: bool = False,
) -> AbstractContextManager[Stream]:
    """Send datagrams from one server to another, the first before the block begins: ``count``, or
    until the stream is stopped.

    The stream ends with the block at the latest. ``acquainted``: the ends have resolved each other
    already.
    """
    pace = ["--pps", f"{pps:.3f}", "--payload", str(payload_bytes), "--count", str(count)]
    ends = stage, source, destination
    return _at_work(Stream, "paced_udp", *ends, next(_PORTS), pace, acquainted=acquainted)


@dataclass(frozen=True, slots=True)
class TcpResult:
    """A paced connection, as both ends saw it."""

    sent_bytes: int
    delivered_bytes: int
    intact: bool
    """True if exactly the sent bytes arrived, in order."""
    longest_silence_ms: float
    """Time without progress, at the receiver."""
    sent_again: int
    """Retransmitted segments."""
    timer_ms: float
    """Time until a segment without acknowledgement is sent again, at the end."""


class Connection(_Pair):
    """A paced connection under way."""

    __slots__ = ()

    def stop(self) -> TcpResult:
        """End the connection now, in order. Raises ScenarioError if an end fails: the connection
        broke before.
        """
        self.sender.stop()
        self.sender.finish(PATIENCE_S)
        self.receiver.finish(PATIENCE_S)
        sent = report_as(paced_tcp.SendReport, read_report(self.sent_report))
        received = report_as(paced_tcp.ReceiveReport, read_report(self.received_report))
        return TcpResult(
            sent.sent_bytes,
            received.received_bytes,
            received.complete
            and (received.received_bytes, received.check_sum) == (sent.sent_bytes, sent.check_sum),
            received.longest_silence_ms,
            sent.sent_again,
            sent.timer_ms,
        )


def paced_connection(
    stage: Stage, source: str, destination: str, *, per_s: float, write_bytes: int
) -> AbstractContextManager[Connection]:
    """Write over TCP from one server to another, the first time before the block begins.

    The connection ends with the block at the latest.
    """
    pace = ["--per-s", f"{per_s:.3f}", "--bytes", str(write_bytes)]
    return _at_work(Connection, "paced_tcp", stage, source, destination, next(_TCP_PORTS), pace)


@contextmanager
def _at_work(
    kind: type[_PairT],
    module: str,
    stage: Stage,
    source: str,
    destination: str,
    port: int,
    pace: Sequence[str],
    *,
    acquainted: bool = False,
) -> Iterator[_PairT]:
    """Run a receiver and a sender of a workload; sending has begun when the block begins."""
    address = stage.address(destination)
    if not acquainted:
        _introduce(stage, source, address)
    received, sent = (stage.file(f"{module}-{end}", ".json") for end in ("received", "sent"))
    with ExitStack() as stack:

        def begun(server: str, report: Path, *options: str) -> Job:
            ready = stage.file(f"{module}-ready", "")
            options = (*options, "--port", str(port), "--ready", str(ready))
            command = [*options, "--report", str(report)]
            job = stack.enter_context(stage.workload(server, module, command))
            wait_for_file(ready, job)
            return job

        receiver = begun(destination, received, "receive", "--bind", address)
        sender = begun(source, sent, "send", "--to", address, *pace)
        yield kind(sender, receiver, sent, received)


@contextmanager
def streams_everywhere(stage: Stage) -> Iterator[list[Stream]]:
    """Small datagrams, 50 a second, between the first servers of every two racks, until the end."""
    firsts = [rack.servers[0].name for rack in stage.fabric.racks]
    with ExitStack() as stack:
        yield [
            stack.enter_context(paced_stream(stage, a, b, pps=50.0, payload_bytes=100))
            for a, b in combinations(firsts, 2)
        ]


def _introduce(stage: Stage, source: str, address: str) -> None:
    """Resolve the addresses of both ends: a kernel queues only three datagrams during ARP."""
    ping = ["ping", "-c", "1", "-i", "0.2", "-w", f"{PATIENCE_S:.0f}", address]
    with stage.job(source, "ping", ping) as job:
        job.finish(2 * PATIENCE_S)
