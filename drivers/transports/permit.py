"""Time in which this process may send to devices: a leader's, until its lease ends.

Most devices have no lock that would distinguish a leader from an earlier leader. If a leader's
process was stopped in the middle of a command and goes on after its lease, the rest is held back
here: each transport asks before sending. Bytes sent earlier, and waiting in the kernel for a device
that does not acknowledge, are dropped by the kernel when the lease ends.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LEFT: Final[ContextVar[Callable[[], float] | None]] = ContextVar("left_s", default=None)
OVER: Final = "not sent: this controller no longer leads"


class PermitOverError(ConnectionAbortedError):
    """Nothing may be sent any more: the time has passed."""

    def __init__(self) -> None:
        super().__init__(OVER)


@contextmanager
def permitted(remaining_s: Callable[[], float]) -> Iterator[None]:
    """Allow this thread to send to devices only while ``remaining_s`` gives a positive number."""
    token = _LEFT.set(remaining_s)
    try:
        yield
    finally:
        _LEFT.reset(token)


def remaining_s(limit_s: float = math.inf) -> float:
    """Seconds in which this thread may send, at most ``limit_s``. Raises PermitOverError."""
    ask = _LEFT.get()
    left = math.inf if ask is None else ask()
    if left <= 0:
        raise PermitOverError
    return min(left, limit_s)


def about_to_send(connection: socket.socket) -> None:
    """Call before bytes are given to a socket. Raises PermitOverError.

    If a TCP peer acknowledges nothing until the time is over, the kernel drops the connection with
    all queued bytes (TCP_USER_TIMEOUT, RFC 5482), also if this process is stopped or has ended by
    then.
    """
    left = remaining_s()
    if math.isfinite(left):
        with contextlib.suppress(OSError):  # of a Unix socket, or a connection just ended
            connection.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(left * 1000))
            )
