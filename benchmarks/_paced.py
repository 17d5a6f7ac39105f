"""Many paced streams of UDP at once, between sockets in servers' network namespaces.

A single process serves all streams, instead of two processes for each: ``python -m
benchmarks._paced ORDERS REPORT``. Every datagram is numbered; a datagram missing at the receiver is
lost. The sender keeps to a timetable and sends at most a few late datagrams at once, so that there
are no bursts.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

HEADERS_BYTES: Final = 14 + 20 + 8
"""Size of Ethernet, IPv4 and UDP headers, included in the links' rates."""
_CLONE_NEWNET: Final = 0x40000000
_NUMBER: Final = struct.Struct("!I")
_BUFFER_BYTES: Final = 4 << 20
_LATE_S: Final = 0.02
"""If the sender is later than this, the timetable is moved."""
_AHEAD: Final = 10
"""Niceness, as of vswitchd: a sender that waits for the processor can't keep its pace."""
_LAST_S: Final = 2.0
"""Time for the last datagrams to arrive."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a stream: processes in the namespaces, and addresses."""

    src_pid: int
    src: str
    dst_pid: int
    dst: str


@dataclass(frozen=True, slots=True)
class Counted:
    sent: int
    received: int
    longest_silence_s: float
    """Time between two datagrams of any streams."""

    @property
    def lost(self) -> int:
        return self.sent - self.received


@contextmanager
def _inside(pid: int) -> Iterator[None]:
    """In this block, this thread makes sockets in the network of the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    here, other = Path("/proc/self/ns/net"), Path(f"/proc/{pid}/ns/net")
    with here.open() as home, other.open() as there:
        _enter(libc, there.fileno())
        try:
            yield
        finally:
            _enter(libc, home.fileno())


def _enter(libc: ctypes.CDLL, namespace: int) -> None:
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "can't enter a network namespace")


class Streams:
    def __init__(self, ends: Sequence[Ends], first_port: int) -> None:
        self._senders: list[socket.socket] = []
        self._receivers: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        for port, end in enumerate(ends, first_port):
            with _inside(end.dst_pid):
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            receiver.bind((end.dst, port))
            receiver.setblocking(False)
            with _inside(end.src_pid):
                sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.connect((end.dst, port))
            self._senders.append(sender)
            self._receivers[receiver.fileno()] = receiver
            self._poll.register(receiver, select.EPOLLIN)
        self._seen: dict[int, set[int]] = {number: set() for number in self._receivers}
        self._silence_s = 0.0

    def run(self, pps: float, payload_bytes: int, over: threading.Event) -> Counted:
        """Send until all datagrams are sent; ``pps`` is the rate of each stream."""
        ended = threading.Event()
        receiving = threading.Thread(target=self._receive, args=(ended,))
        receiving.start()
        number, due_s = 0, time.monotonic()
        gap_s = 1 / (pps * len(self._senders))
        padding = bytes(payload_bytes - _NUMBER.size)
        while not over.is_set():
            datagram = _NUMBER.pack(number) + padding
            for sender in self._senders:
                wait_s = due_s - time.monotonic()
                if wait_s > 0:
                    time.sleep(wait_s)
                elif wait_s < -_LATE_S:
                    due_s = time.monotonic()
                due_s += gap_s
                sender.send(datagram)
            number += 1
        time.sleep(_LAST_S)
        ended.set()
        receiving.join()
        received = sum(map(len, self._seen.values()))
        return Counted(number * len(self._senders), received, self._silence_s)

    def _receive(self, ended: threading.Event) -> None:
        last_s: dict[int, float] = {}
        while not ended.is_set():
            for number, _ in self._poll.poll(0.1):
                datagram = self._receivers[number].recv(2048)
                now_s = time.monotonic()
                self._silence_s = max(self._silence_s, now_s - last_s.get(number, now_s))
                last_s[number] = now_s
                self._seen[number].add(_NUMBER.unpack_from(datagram)[0])


def main(orders: str, report: str) -> None:
    os.nice(-_AHEAD)
    asked = json.loads(Path(orders).read_text())
    streams = Streams([Ends(**fields) for fields in asked["ends"]], asked["first_port"])
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    Path(f"{report}.ready").touch()
    counted = streams.run(asked["pps"], asked["payload_bytes"], over)
    written = Path(f"{report}.part")
    written.write_text(json.dumps(asdict(counted)))
    written.replace(report)


if __name__ == "__main__":
    main(*sys.argv[1:])
