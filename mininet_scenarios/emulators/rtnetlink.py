"""Many changes to the kernel's interfaces in one system call (rtnetlink(7), RFC 3549).

pyroute2 takes 0.3 ms to encode and send one request; a plane of sixteen mirrors makes 64 changes in
a move of 25 ms. So requests are encoded once, and sent together.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from pyroute2 import IPBatch

from mininet_scenarios.patience import PATIENCE_S

_HEADER: Final = struct.Struct("=IHHII")
_ACKNOWLEDGEMENT: Final = struct.Struct("=i")
_NLMSG_ERROR: Final = 2
_NLM_F_ACK: Final = 0x04
_RECEIVE_BYTES: Final = 1 << 16
_AT_ONCE: Final = 256
"""Number of acknowledgements that fit into the smallest socket buffer allowed by Linux."""


class RequestRefused(Exception):
    """The kernel did not make a change; :attr:`errno` says why."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


def request(encode: Callable[[Any], object]) -> bytes:
    """The request that ``encode`` makes with a pyroute2 ``IPRoute``; nothing is sent."""
    with IPBatch() as batch:
        encode(batch)
        encoded = bytes(batch.batch)
    (length, *_) = _HEADER.unpack_from(encoded)
    if length != len(encoded):
        raise ValueError("encode one request at a time")
    return encoded


class KernelRequests:
    """A connection to the kernel; requests take effect in order. One thread at a time."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.settimeout(PATIENCE_S)
        self._socket.bind((0, 0))
        self._sent = 0

    def close(self) -> None:
        self._socket.close()

    def make(self, requests: Sequence[bytes], unless: Collection[int] = ()) -> None:
        """Make the requests; returns once all have been tried.

        Raises RequestRefused for the first failure with a reason outside ``unless`` (errno).
        """
        for start in range(0, len(requests), _AT_ONCE):
            self._make(requests[start : start + _AT_ONCE], unless)

    def _make(self, requests: Sequence[bytes], unless: Collection[int]) -> None:
        first = self._sent + 1
        self._sent += len(requests)
        self._socket.send(
            b"".join(
                _HEADER.pack(len(body), kind, flags | _NLM_F_ACK, number, 0) + body[_HEADER.size :]
                for number, body in enumerate(requests, start=first)
                for _, kind, flags, _, _ in (_HEADER.unpack_from(body),)
            )
        )
        failures = self._answers(set(range(first, self._sent + 1)))
        for number in sorted(failures):
            if failures[number] not in unless:
                raise RequestRefused(failures[number])

    def _answers(self, waiting: set[int]) -> dict[int, int]:
        """The errno of each failed request, by request number."""
        failures: dict[int, int] = {}
        while waiting:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError:
                raise RequestRefused(errno.ETIMEDOUT) from None
            offset = 0
            while offset < len(data):
                length, kind, _, number, _ = _HEADER.unpack_from(data, offset)
                if kind == _NLMSG_ERROR and number in waiting:
                    waiting.remove(number)
                    (negative,) = _ACKNOWLEDGEMENT.unpack_from(data, offset + _HEADER.size)
                    if negative:
                        failures[number] = -negative
                offset += (length + 3) & ~3
        return failures
