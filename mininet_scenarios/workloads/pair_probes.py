"""Datagrams from one server to all others over IPv4 and IPv6, and an account of received datagrams.

Runs in each server's namespace::

    python -m mininet_scenarios.workloads.pair_probes --server h11 --period-ms 100 \
        --peers '{"h11": ["10.0.1.1", "fd00:10::1:1"], "h21": ["10.0.2.1", "fd00:10::2:1"]}'

A line on standard input asks for a report, a line of JSON on standard output (:class:`Report`). End
of input ends the program. Datagrams bear the time of sending, so that a sender stopped by the
machine for a while is not taken for a silent network.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

HEADER: Final = struct.Struct("!4sHBxId")
"""Magic, the sender's number, IP version, the datagram's number, and the time of sending
(``CLOCK_MONOTONIC``, s: all servers are on one machine)."""
MAGIC: Final = b"HyPP"
PORT: Final = 5299
_PAYLOAD_BYTES: Final = 64
_SETTLED_S: Final = 0.5
"""Age above which a datagram not received counts as missing."""
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class Missing:
    """A run of missing datagrams, either before a received datagram, or until now."""

    count: int
    from_s: float
    """Time of sending of the last datagram received before the run."""
    to_s: float
    """Time of sending of the first datagram received after the run."""


@dataclass(slots=True)
class Flow:
    """Datagrams received from one server over one IP version. Time is an argument."""

    next: int | None = None
    """Number of the next datagram; None: none has come so far."""
    last_sent_s: float = 0.0
    """Time of sending of the newest received datagram."""
    received: int = 0
    longest_delay_s: float = 0.0
    _missing: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    """By number: the first number of the run, and the run's times."""

    def arrived(self, number: int, sent_s: float, now_s: float) -> None:
        self.longest_delay_s = max(self.longest_delay_s, now_s - sent_s)
        if self.next is not None and number < self.next:
            self.received += self._missing.pop(number, None) is not None
            return
        self.received += 1
        if self.next is not None:
            run = (self.next, self.last_sent_s, sent_s)
            self._missing.update(dict.fromkeys(range(self.next, number), run))
        self.next, self.last_sent_s = number + 1, sent_s

    def missing(self, now_s: float) -> tuple[Missing, ...]:
        """Runs too old to be under way still."""
        counts: dict[tuple[int, float, float], int] = {}
        for run in self._missing.values():
            counts[run] = counts.get(run, 0) + 1
        return tuple(
            Missing(count, from_s, to_s)
            for (_, from_s, to_s), count in counts.items()
            if to_s < now_s - _SETTLED_S
        )


@dataclass(frozen=True, slots=True)
class Received:
    """A flow as reported."""

    next: int | None
    last_sent_s: float
    received: int
    longest_delay_s: float
    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Flows by ``PEER/VERSION``; all counts are from the start on."""

    now_s: float
    sent: int
    """Datagrams sent to each peer over each version."""
    received: Mapping[str, Received]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        received = {
            name: Received(**{**flow, "missing": tuple(Missing(**run) for run in flow["missing"])})
            for name, flow in data["received"].items()
        }
        return cls(data["now_s"], data["sent"], received)


class Prober:
    """Sends to all peers at once in each period, and records received datagrams."""

    def __init__(self, server: str, peers: Mapping[str, Sequence[str]], period_s: float) -> None:
        self._names = list(peers)
        self._own = self._names.index(server)
        self._period_s = period_s
        self._flows = {
            (number, version): Flow()
            for number in range(len(self._names))
            for version in _FAMILIES
            if number != self._own
        }
        self._targets: list[tuple[int, tuple[str, int]]] = []
        """IP version and address."""
        for name, addresses in peers.items():
            if name != server:
                self._targets += [
                    (6 if ":" in address else 4, (address, PORT)) for address in addresses
                ]
        self._sockets = {version: _bound(family) for version, family in _FAMILIES.items()}
        self._sent = 0

    def run(self) -> None:
        """Probe until standard input ends."""
        readable = [sys.stdin, *self._sockets.values()]
        due_s = time.monotonic() + self._period_s * self._own / len(self._names)
        while True:
            wait_s = max(0.0, due_s - time.monotonic())
            ready = select.select(readable, [], [], wait_s)[0]
            for source in ready:
                if isinstance(source, socket.socket):
                    self._receive(source)
                elif not sys.stdin.readline():
                    return
                else:
                    print(json.dumps(asdict(self._report())), flush=True)
            if time.monotonic() >= due_s:
                self._send()
                # A late datagram is not followed by others to make up for it.
                due_s = max(due_s + self._period_s, time.monotonic())

    def _send(self) -> None:
        now_s = time.monotonic()
        for version, address in self._targets:
            datagram = HEADER.pack(MAGIC, self._own, version, self._sent, now_s)
            try:
                self._sockets[version].sendto(datagram.ljust(_PAYLOAD_BYTES, b"\0"), address)
            except OSError:
                continue  # no neighbour, no link: counts as sent
        self._sent += 1

    def _receive(self, receiver: socket.socket) -> None:
        while True:
            try:
                datagram = receiver.recv(2048)
            except BlockingIOError:
                return
            except OSError:
                continue  # an earlier datagram's ICMP error
            if len(datagram) != _PAYLOAD_BYTES:
                continue
            magic, source, version, number, sent_s = HEADER.unpack_from(datagram)
            flow = self._flows.get((source, version))
            if magic == MAGIC and flow is not None:
                flow.arrived(number, sent_s, time.monotonic())

    def _report(self) -> Report:
        now_s = time.monotonic()
        received = {
            f"{self._names[source]}/{version}": Received(
                flow.next,
                flow.last_sent_s,
                flow.received,
                flow.longest_delay_s,
                flow.missing(now_s),
            )
            for (source, version), flow in self._flows.items()
        }
        return Report(now_s, self._sent, received)


def _bound(family: socket.AddressFamily) -> socket.socket:
    probe_socket = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        probe_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    probe_socket.setblocking(False)
    probe_socket.bind(("", PORT))
    return probe_socket


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="pair_probes", description=__doc__)
    parser.add_argument("--server", required=True, help="name of this server among the peers")
    parser.add_argument("--peers", required=True, type=json.loads, help="addresses by name, JSON")
    parser.add_argument("--period-ms", type=float, default=100.0)
    options = parser.parse_args(arguments)
    Prober(options.server, options.peers, options.period_ms / 1000).run()


if __name__ == "__main__":
    main()
