"""Byte streams to devices: what a transport needs of TCP and of serial lines alike."""

from __future__ import annotations

import time
from typing import Protocol


class ConnectionLostError(Exception):
    """The connection broke, timed out, or carried bytes that are not of the protocol."""


class Deadline:
    """When an exchange has to be over, all its parts together."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._at = time.monotonic() + timeout_s

    def remaining(self) -> float:
        """Seconds left; raises TimeoutError when there are none."""
        remaining = self._at - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def reason(self, error: OSError) -> str:
        """What an operator should read of an error."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        return error.strerror or str(error)


class Stream(Protocol):
    """A way to a device. One thread at a time; all but :meth:`close` may raise."""

    @property
    def address(self) -> str: ...

    @property
    def connected(self) -> bool: ...

    def connect(self, deadline: Deadline) -> None:
        """Connect, unless connected. Raises DeviceUnavailable."""

    def close(self) -> None:
        """Drop the connection; safe to repeat."""

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Raises ConnectionLostError, and is then closed."""

    def receive(self, deadline: Deadline) -> bytes:
        """At least one byte. Raises ConnectionLostError, and is then closed."""

    def waiting(self) -> bytes:
        """What has arrived already, perhaps nothing. Raises ConnectionLostError if nobody is there
        any more, and is then closed.
        """
