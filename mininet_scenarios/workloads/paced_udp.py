"""Numbered datagrams at an exact pace, and an account of all losses.

Run inside two hosts::

    python -m mininet_scenarios.workloads.paced_udp receive --bind 10.0.2.1 --report rx.json
    python -m mininet_scenarios.workloads.paced_udp send --to 10.0.2.1 --pps 1500 --payload 600 \
        --count 12000 --report tx.json

The sender keeps to a timetable and never makes up for more than a few late datagrams: a burst would
overflow a queue that is empty under the paced stream, and would be mistaken for loss in the
network. At the end the sender sends the number of datagrams, so that a loss at the tail shows too.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mininet_scenarios.workloads.ends import CommandLine
from mininet_scenarios.workloads.reports import StopFlag, WorkloadError

HEADER: Final = struct.Struct("!4sBxHQd")
"""Magic, kind, stream, the number of the datagram (DATA) or of all datagrams (END), and the time of
sending (``CLOCK_MONOTONIC``, s: both ends are on one machine)."""
MAGIC: Final = b"HyUD"
DATA: Final = 1
END: Final = 2
DEFAULT_PORT: Final = 5300

WIRE_OVERHEAD_V4: Final = 14 + 20 + 8
"""Size of Ethernet, IPv4 and UDP headers; a rate limit on an untagged port counts headers, too."""

_END_REPEATS: Final = 5
_END_INTERVAL_S: Final = 0.02
_RECEIVE_TIMEOUT_S: Final = 0.1
_BUFFER_BYTES: Final = 8 << 20
_SO_MEMINFO: Final = 55  # Linux; not in the socket module
_MEMINFO_WORDS: Final = 9
_MEMINFO_DROPS: Final = 8


@dataclass(frozen=True, slots=True)
class SendReport:
    sent: int
    refused: int
    """Datagrams refused by the sender's own kernel; included in ``sent``."""
    started_s: float
    finished_s: float
    behind: int
    """Number of times that a late sender moved the timetable, without a burst."""

    @property
    def pps(self) -> float:
        """Average rate actually sent."""
        duration_s = self.finished_s - self.started_s
        return self.sent / duration_s if duration_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ReceiveReport:
    received: int
    """Number of different datagrams; duplicates count apart."""
    expected: int
    """Number of sent datagrams by the sender's closing word; otherwise the highest number seen plus
    one.
    """
    complete: bool
    """True if the sender's closing word arrived."""
    duplicates: int
    reordered: int
    foreign: int
    """Number of foreign datagrams on the port."""
    socket_drops: int | None
    """Number lost in the receiver's own socket buffer, not in the network; None if unknown."""
    max_gap_ms: float
    """Longest silence between two datagrams."""
    median_delay_ms: float | None
    """Time from the send call of a datagram to the receipt; None without any datagram."""
    p99_delay_ms: float | None

    @property
    def lost(self) -> int:
        return self.expected - self.received


def pps_for_load(load_mbps: float, payload_bytes: int, overhead_bytes: int) -> float:
    """Datagrams per second whose frames, headers included, make up ``load_mbps``."""
    return load_mbps * 1e6 / 8 / (payload_bytes + overhead_bytes)


@dataclass(slots=True)
class Ledger:
    """Record of received datagrams, and of silences. Time is an argument."""

    received: int = 0
    duplicates: int = 0
    reordered: int = 0
    foreign: int = 0
    total: int | None = None
    last_s: float | None = None
    max_gap_s: float = 0.0
    delays_s: array[float] = field(default_factory=lambda: array("d"))
    """Delay of every received datagram, from the sending."""
    _next: int = 0
    _missing: set[int] = field(default_factory=set)

    def arrived(self, number: int, now_s: float) -> None:
        """Enter datagram ``number``, received at ``now_s``."""
        if number < self._next and number not in self._missing:
            self.duplicates += 1
            return
        self._note_time(now_s)
        self.received += 1
        if number < self._next:
            self._missing.discard(number)
            self.reordered += 1
            return
        if number > self._next:
            self._missing.update(range(self._next, number))
        self._next = number + 1

    def _note_time(self, now_s: float) -> None:
        if self.last_s is not None:
            self.max_gap_s = max(self.max_gap_s, now_s - self.last_s)
        self.last_s = now_s

    def report(self, socket_drops: int | None) -> ReceiveReport:
        delays_ms = sorted(delay_s * 1e3 for delay_s in self.delays_s)
        return ReceiveReport(
            received=self.received,
            expected=self._next if self.total is None else max(self.total, self._next),
            complete=self.total is not None,
            duplicates=self.duplicates,
            reordered=self.reordered,
            foreign=self.foreign,
            socket_drops=socket_drops,
            max_gap_ms=self.max_gap_s * 1e3,
            median_delay_ms=_at(delays_ms, 0.5),
            p99_delay_ms=_at(delays_ms, 0.99),
        )


def _at(ordered: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of the ordered values lie."""
    return ordered[int(share * (len(ordered) - 1))] if ordered else None


def _udp_socket(address: str) -> socket.socket:
    version = ipaddress.ip_address(address).version
    return socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)


@dataclass(frozen=True, slots=True)
class Pace:
    """A stream to send: ``count`` datagrams of ``payload_bytes`` at ``pps``."""

    pps: float
    payload_bytes: int
    count: int
    catch_up: int = 4
    """Most late datagrams that go out back to back."""

    def __post_init__(self) -> None:
        if self.pps <= 0 or self.count < 1 or self.catch_up < 1:
            raise WorkloadError(f"pps, count and catch-up must be positive, got {self}")
        if not HEADER.size <= self.payload_bytes <= 65507:
            raise WorkloadError(f"payload {self.payload_bytes} B is outside {HEADER.size}..65507 B")


def send(
    address: str, port: int, pace: Pace, stream: int, stop: StopFlag, ready: Path | None = None
) -> SendReport:
    """Send the stream to ``address``, then the total; blocks until done or stopped.

    ``ready`` is created once the first datagram is on the way.
    """
    interval_s = 1.0 / pace.pps
    padding = bytes(pace.payload_bytes - HEADER.size)
    sent = refused = behind = 0
    with _udp_socket(address) as sock:
        sock.connect((address, port))
        started_s = due_s = time.monotonic()
        while sent < pace.count and not stop.is_set:
            late_s = time.monotonic() - due_s
            if late_s < 0:
                time.sleep(-late_s)
            elif late_s > pace.catch_up * interval_s:
                behind += 1
                due_s += late_s
            header = HEADER.pack(MAGIC, DATA, stream, sent, time.monotonic())
            refused += not _sent(sock, header + padding)
            if not sent and ready is not None:
                ready.touch()
            sent += 1
            due_s += interval_s
        finished_s = time.monotonic()
        for _ in range(_END_REPEATS):
            time.sleep(_END_INTERVAL_S)  # timed: between closing words
            _sent(sock, HEADER.pack(MAGIC, END, stream, sent, time.monotonic()))
    return SendReport(sent, refused, started_s, finished_s, behind)


def _sent(sock: socket.socket, datagram: bytes) -> bool:
    """Send a datagram; True if the kernel took the datagram. False also for an earlier datagram's
    ICMP error.
    """
    try:
        sock.send(datagram)
    except OSError:
        return False
    return True


def receive(
    address: str, port: int, stream: int, stop: StopFlag, ready: Path | None = None
) -> ReceiveReport:
    """Listen on ``address`` until the sender's closing word or until stopped.

    ``ready`` is created once the socket is bound, so that the sender can be started.
    """
    ledger = Ledger()
    with _udp_socket(address) as sock:
        _enlarge_buffer(sock)
        sock.bind((address, port))
        sock.settimeout(_RECEIVE_TIMEOUT_S)  # timed: checks for a stop
        if ready is not None:
            ready.touch()
        while not stop.is_set and ledger.total is None:
            try:
                datagram = sock.recv(65536)
            except TimeoutError:
                continue
            _enter(ledger, datagram, stream, time.monotonic())
        return ledger.report(_socket_drops(sock))


def _enter(ledger: Ledger, datagram: bytes, stream: int, now_s: float) -> None:
    if len(datagram) < HEADER.size:
        ledger.foreign += 1
        return
    magic, kind, its_stream, number, sent_s = HEADER.unpack_from(datagram)
    if magic != MAGIC or its_stream != stream or kind not in {DATA, END}:
        ledger.foreign += 1
    elif kind == DATA:
        ledger.arrived(number, now_s)
        ledger.delays_s.append(now_s - sent_s)
    else:
        ledger.total = number


def _enlarge_buffer(sock: socket.socket) -> None:
    """Enlarge the buffer as far as the kernel allows: root may exceed the system's limit."""
    force = 33  # SO_RCVBUFFORCE on Linux; not in the socket module
    try:
        sock.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)


def _socket_drops(sock: socket.socket) -> int | None:
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _MEMINFO_WORDS)
    except OSError:
        return None
    words = struct.unpack(f"={len(raw) // 4}I", raw)
    return words[_MEMINFO_DROPS] if len(words) > _MEMINFO_DROPS else None


def main(arguments: list[str] | None = None) -> None:
    line = CommandLine("paced_udp", "Paced, numbered datagrams.", DEFAULT_PORT)
    line.send.add_argument("--pps", type=float, required=True, help="datagrams per second")
    line.send.add_argument("--payload", type=int, default=600, help="UDP payload in bytes")
    line.send.add_argument("--count", type=int, required=True, help="datagrams to send")
    for end in (line.send, line.receive):
        end.add_argument("--stream", type=int, default=0, help="number of this stream")
    line.run(
        arguments,
        send=lambda given, stop: send(
            *(given.to, given.port, Pace(given.pps, given.payload, given.count), given.stream),
            *(stop, given.ready),
        ),
        receive=lambda given, stop: receive(
            given.bind, given.port, given.stream, stop, given.ready
        ),
    )


if __name__ == "__main__":
    main()
