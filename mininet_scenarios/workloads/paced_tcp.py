"""Small writes at an exact pace over one TCP connection, and the longest time without progress.

Run inside two hosts::

    python -m mininet_scenarios.workloads.paced_tcp receive --bind 10.0.2.1 --report rx.json
    python -m mininet_scenarios.workloads.paced_tcp send --to 10.0.2.1 --per-s 50 --bytes 200 \
        --report tx.json

Both ends compute a check sum of all bytes in order, so that missing, doubled or changed bytes show.
"""

from __future__ import annotations

import ipaddress
import itertools
import socket
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.workloads.ends import CommandLine
from mininet_scenarios.workloads.reports import StopFlag, WorkloadError

DEFAULT_PORT: Final = 5900
LEAST_TIMER_S: Final = 0.2
"""Linux' least time until a segment without acknowledgement is sent again (TCP_RTO_MIN)."""
_NUMBER: Final = struct.Struct("!Q")
_TIMER_US: Final = struct.Struct("=I")
_TIMER_AT: Final = 8
_SENT_AGAIN_AT: Final = 100
"""Places of tcpi_rto and tcpi_total_retrans in Linux' struct tcp_info."""
_INFO_BYTES: Final = 104
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class SendReport:
    sent_bytes: int
    check_sum: int
    """CRC-32 of all bytes."""
    sent_again: int
    """Retransmitted segments."""
    timer_ms: float
    """Time until a segment without acknowledgement is sent again, at the end."""


@dataclass(frozen=True, slots=True)
class ReceiveReport:
    received_bytes: int
    check_sum: int
    longest_silence_ms: float
    """Between two readings."""
    complete: bool
    """True if the sender has ended the connection in order."""


def longest_silence_s(path_silence_s: float, interval_s: float) -> float:
    """Longest time without progress of a connection whose path carries nothing for a time.

    A lost segment is sent again after the timer's time, and each time after twice as long: attempt
    k after timer × (2**k - 1). The first attempt after the silence comes before twice the silence
    and once the timer. The write before the silence may be an interval old.
    """
    return 2 * path_silence_s + LEAST_TIMER_S + interval_s


def send(
    address: str, port: int, per_s: float, write_bytes: int, stop: StopFlag, ready: Path | None
) -> SendReport:
    """Write to ``address`` until stopped. ``ready`` is created once the first write is made.

    Raises WorkloadError if the connection breaks, or is not made.
    """
    if per_s <= 0 or write_bytes < _NUMBER.size:
        raise WorkloadError(
            f"{per_s:g} writes a second of {write_bytes} B can't be made: at least one of "
            f"{_NUMBER.size} B is"
        )
    padding, check_sum = bytes(write_bytes - _NUMBER.size), 0
    try:
        with socket.create_connection((address, port), PATIENCE_S) as sock:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            due_s = time.monotonic()
            for number in itertools.count():
                written = _NUMBER.pack(number) + padding
                sock.sendall(written)
                check_sum = zlib.crc32(written, check_sum)
                if ready is not None and not number:
                    ready.touch()
                due_s = max(due_s + 1 / per_s, time.monotonic() - 1 / per_s)
                time.sleep(max(0.0, due_s - time.monotonic()))
                if stop.is_set:
                    break
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):  # until the other end has read all
                pass
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError as error:
        raise WorkloadError(f"the connection to {address} port {port} broke: {error}") from error
    (timer_us,) = _TIMER_US.unpack_from(info, _TIMER_AT)
    (sent_again,) = _TIMER_US.unpack_from(info, _SENT_AGAIN_AT)
    return SendReport((number + 1) * write_bytes, check_sum, sent_again, timer_us / 1e3)


def receive(address: str, port: int, stop: StopFlag, ready: Path | None) -> ReceiveReport:
    """Read one connection to ``address`` until the connection ends, or until stopped.

    ``ready`` is created once the socket listens.
    """
    received = check_sum = 0
    silence_s, complete = 0.0, False
    with socket.create_server((address, port), family=_family(address)) as server:
        server.settimeout(_LOOK_S)  # timed: checks for a stop
        if ready is not None:
            ready.touch()
        connection = _accepted(server, stop)
        if connection is None:
            return ReceiveReport(0, 0, 0.0, complete=False)
        with connection:
            connection.settimeout(_LOOK_S)  # timed: checks for a stop
            arrived_s = time.monotonic()
            while not stop.is_set and not complete:
                try:
                    read = connection.recv(65536)
                except TimeoutError:
                    continue
                except OSError:  # the connection broke
                    break
                now_s = time.monotonic()
                complete = not read
                if received and read:
                    silence_s = max(silence_s, now_s - arrived_s)
                received, arrived_s = received + len(read), now_s
                check_sum = zlib.crc32(read, check_sum)
    return ReceiveReport(received, check_sum, silence_s * 1e3, complete)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def _accepted(server: socket.socket, stop: StopFlag) -> socket.socket | None:
    while not stop.is_set:
        try:
            return server.accept()[0]
        except TimeoutError:
            continue
    return None


def main(arguments: list[str] | None = None) -> None:
    line = CommandLine("paced_tcp", "Paced writes over TCP.", DEFAULT_PORT)
    line.send.add_argument("--per-s", type=float, required=True, help="writes per second")
    line.send.add_argument("--bytes", type=int, default=200, help="bytes of a write")
    line.run(
        arguments,
        send=lambda given, stop: send(
            given.to, given.port, given.per_s, given.bytes, stop, given.ready
        ),
        receive=lambda given, stop: receive(given.bind, given.port, stop, given.ready),
    )


if __name__ == "__main__":
    main()
