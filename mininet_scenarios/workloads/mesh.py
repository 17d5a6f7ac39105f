"""A full mesh of TCP connections between numbered ranks, and a barrier across it."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from mininet_scenarios.workloads.reports import StopFlag, WorkloadError

_HELLO: Final = struct.Struct("!4sH")
_MAGIC: Final = b"HyA2"
_TOKEN: Final = b"+"
_RETRY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and port of a listening rank."""

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """``10.0.1.1:5400`` or ``[fd00::1]:5400``. Raises WorkloadError otherwise."""
        address, separator, port = text.strip().rpartition(":")
        address = address.removeprefix("[").removesuffix("]")
        if not separator or not port.isdecimal() or not address:
            raise WorkloadError(f"peer {text!r}: expected address:port")
        return cls(address, int(port))

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.family == socket.AF_INET6 else self.address
        return f"{host}:{self.port}"


def connect_all(
    rank: int,
    peers: Sequence[Endpoint],
    timeout_s: float,
    stop: StopFlag,
    congestion: str | None = None,
) -> dict[int, socket.socket]:
    """Connect ``rank`` to every other rank; returns blocking sockets by rank.

    ``congestion`` names a TCP congestion control of the kernel; None is the system's default.
    Raises WorkloadError if a rank does not turn up within ``timeout_s``, or on ``stop``.
    """
    deadline_s = time.monotonic() + timeout_s
    with ExitStack() as on_error, _listener(peers[rank], len(peers)) as listener:
        connections: dict[int, socket.socket] = {}
        for other in range(rank):
            connections[other] = on_error.enter_context(_dial(peers[other], rank, deadline_s, stop))
        while len(connections) < len(peers) - 1:
            caller, sock = _answer(listener, deadline_s, stop)
            connections[caller] = on_error.enter_context(sock)
        on_error.pop_all()
    for sock in connections.values():
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if congestion is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    return connections


def barrier(connections: Mapping[int, socket.socket], timeout_s: float) -> None:
    """Return once every rank has called :func:`barrier`; sockets are then blocking, without a
    timeout.
    """
    try:
        for sock in connections.values():
            sock.settimeout(timeout_s)
            sock.sendall(_TOKEN)
        for other, sock in connections.items():
            if sock.recv(1) != _TOKEN:
                raise WorkloadError(f"rank {other} left before the barrier")
    except TimeoutError as error:
        raise WorkloadError(f"a rank did not reach the barrier within {timeout_s:.0f} s") from error
    finally:
        for sock in connections.values():
            sock.settimeout(None)


def _listener(endpoint: Endpoint, backlog: int) -> socket.socket:
    listener = socket.socket(endpoint.family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((endpoint.address, endpoint.port))
    listener.listen(backlog)
    return listener


def _remaining(deadline_s: float, stop: StopFlag, peer: str) -> float:
    remaining_s = deadline_s - time.monotonic()
    if remaining_s <= 0 or stop.is_set:
        raise WorkloadError(f"{peer} did not turn up in time")
    return remaining_s


def _dial(endpoint: Endpoint, rank: int, deadline_s: float, stop: StopFlag) -> socket.socket:
    while True:
        remaining_s = _remaining(deadline_s, stop, str(endpoint))
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        try:
            sock.settimeout(min(remaining_s, 2.0))
            sock.connect((endpoint.address, endpoint.port))
            sock.sendall(_HELLO.pack(_MAGIC, rank))
        except OSError:  # not listening yet, or the network is not ready
            sock.close()
            time.sleep(_RETRY_S)
            continue
        sock.settimeout(None)
        return sock


def _answer(
    listener: socket.socket, deadline_s: float, stop: StopFlag
) -> tuple[int, socket.socket]:
    """The next rank that connects and sends a number; connections of strangers are closed."""
    while True:
        listener.settimeout(min(0.2, _remaining(deadline_s, stop, "a higher rank")))
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            continue
        sock.settimeout(2.0)
        try:
            hello = sock.recv(_HELLO.size, socket.MSG_WAITALL)
        except OSError:
            hello = b""
        if len(hello) == _HELLO.size and hello.startswith(_MAGIC):
            sock.settimeout(None)
            return _HELLO.unpack(hello)[1], sock
        sock.close()
