"""Byte streams to devices: the common interface of TCP, Unix sockets, serial lines and SSH."""

from __future__ import annotations

import time
from typing import Protocol


class ConnectionLostError(Exception):
    """The connection broke, timed out, or carried bytes outside the protocol."""


class Deadline:
    """Time by which an exchange with all its parts has to be over."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._at = time.monotonic() + timeout_s

    def remaining(self) -> float:
        """Seconds left. Raises TimeoutError if there are none."""
        remaining = self._at - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def reason(self, error: OSError) -> str:
        """The error in words for an operator."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        return error.strerror or str(error)


class Stream(Protocol):
    """A byte stream to a device, for one thread at a time; all but :meth:`close` may raise."""

    @property
    def address(self) -> str: ...

    @property
    def connected(self) -> bool: ...

    def connect(self, deadline: Deadline) -> None:
        """Connect, unless connected. Raises DeviceUnavailable."""

    def close(self) -> None:
        """Drop the connection; safe to repeat."""

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of ``data``. Raises ConnectionLostError, and is then closed."""

    def receive(self, deadline: Deadline) -> bytes:
        """Next bytes, at least one. If the connection is lost, closes and raises
        ConnectionLostError.
        """

    def waiting(self) -> bytes:
        """Bytes that have arrived already, perhaps none.

        If the peer has gone, closes and raises ConnectionLostError.
        """
