"""Messages between a controller and its workers: several frames each, over ZeroMQ.

A worker asks for its lease (``RENEW``) and reports its switches' messages (``TOLD``). A controller
grants the lease (``GRANTED``), asks for reports of all switches from the beginning (``ANNOUNCE``),
and gives orders (``ORDERS``). Reports and orders come in records; a message has all records since
the last message.

Both sides name the version of their protocol, :data:`PROTOCOL`, and their release, in ``RENEW``,
``ANNOUNCE`` and ``GRANTED``. A controller with another version than a worker only answers
``REFUSED``, with the same two names. The names, ``name`` of ``RENEW``, and the kinds of these
messages stay the same in every version.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np

from apps.openflow.interface import SumRequest, Sums
from hydra import __version__

PROTOCOL: Final = 2
"""Increased with every change of the messages between a controller and a worker."""
RENEW, TOLD, BYE = b"renew", b"told", b"bye"
GRANTED, ANNOUNCE, ORDERS, PING, RENEW_NOW = b"granted", b"announce", b"orders", b"ping", b"now"
REFUSED = b"refused"
RENEWALS: Final = 8
"""Renewals in the time of a lease."""
DRIFT: Final = 0.01
"""Bound on how differently the clocks of a controller and a worker may run."""
MARGIN_S: Final = 0.1
HEARTBEAT_MS: Final = 500
"""Time between two signs of life; ZeroMQ thereby finds a peer gone without a word."""


UNASKED: Final = 0
"""Transaction id of a switch's unasked message."""


class ConnectionReports(IntEnum):
    """A worker's reports of a connection."""

    CONNECTED = 1
    DISCONNECTED = 2
    PORT = 3
    BARRIER = 4
    ERROR = 5
    STATISTICS = 6
    ROLE = 7
    RULE_ENDED = 8
    PACKET = 9
    CAUGHT_UP = 10
    SUMS = 11
    REFUSED = 12
    """A connection was refused before the connection got a number."""
    SECOND = 13
    """A switch connected a second time, and the worker ended one of the two connections."""


class Order(IntEnum):
    """Orders to a worker for a connection."""

    SEND = 1
    CLOSE = 2
    USE = 3
    """Use this connection for its switch: frames are wanted."""
    CATCH_UP = 4
    SUM = 5
    """Send a request for statistics, and report sums of the answer."""


class Record(NamedTuple):
    kind: int
    number: int
    """Number of the connection, given by the worker."""
    xid: int = 0
    value: int = 0
    body: bytes = b""


_HEAD: Final = struct.Struct("!Q")
"""Session of the reports, or incarnation of the ordering controller."""
_AGE: Final = struct.Struct("!d")
_COUNT: Final = struct.Struct("!I")
_OCTETS: Final = np.dtype("<u8")
_RECORD: Final = struct.Struct("!BIIQI")


def packed(kind: bytes, head: int, records: Iterable[Record]) -> list[bytes]:
    """A message of records, in three frames."""
    heads, bodies = [_HEAD.pack(head)], []
    for record in records:
        heads.append(
            _RECORD.pack(record.kind, record.number, record.xid, record.value, len(record.body))
        )
        bodies.append(record.body)
    return [kind, b"".join(heads), b"".join(bodies)]


def unpacked(frames: list[bytes]) -> tuple[int, Iterator[Record]]:
    """Head and records of a message. Raises ValueError, also while the records are read."""
    if len(frames) != 3:
        raise ValueError(f"{len(frames)} frames, not 3")
    _, heads, bodies = frames
    if (len(heads) - _HEAD.size) % _RECORD.size or len(heads) < _HEAD.size:
        raise ValueError(f"{len(heads)} bytes of heads")
    (head,) = _HEAD.unpack_from(heads)
    return head, _records(memoryview(heads)[_HEAD.size :], bodies)


def _records(heads: memoryview, bodies: bytes) -> Iterator[Record]:
    at = 0
    for kind, number, xid, value, length in _RECORD.iter_unpack(heads):
        if at + length > len(bodies):
            raise ValueError("a body ends early")
        yield Record(kind, number, xid, value, bodies[at : at + length])
        at += length


def packed_sums(sums: Sums) -> bytes:
    return _AGE.pack(sums.age_s) + sums.octets.astype(_OCTETS).tobytes()


def unpacked_sums(body: bytes) -> Sums:
    """Raises ValueError."""
    if len(body) < _AGE.size:
        raise ValueError(f"sums of {len(body)} bytes")
    octets = np.frombuffer(body, _OCTETS, offset=_AGE.size).astype(np.uint64)
    return Sums(octets, float(_AGE.unpack_from(body)[0]))


def packed_sum_request(request: SumRequest) -> bytes:
    """All but the xid and mask, which have places in a record."""
    return _COUNT.pack(request.subjects) + request


def unpacked_sum_request(record: Record) -> SumRequest:
    """Raises ValueError."""
    if len(record.body) < _COUNT.size:
        raise ValueError(f"a request of {len(record.body)} bytes")
    (count,) = _COUNT.unpack_from(record.body)
    return SumRequest.of(record.body[_COUNT.size :], record.xid, record.value, count)


def text(document: object) -> bytes:
    return json.dumps(document).encode()


class Dialect(NamedTuple):
    """Protocol and release of a controller or a worker."""

    protocol: int
    release: str

    def words(self) -> str:
        return f"release {self.release}, speaks version {self.protocol}"


OWN: Final = Dialect(PROTOCOL, __version__)


def dialect(message: Mapping[str, Any]) -> Dialect:
    """Raises ValueError, TypeError. Releases without a version have version 0."""
    return Dialect(int(message.get("protocol", 0)), str(message.get("release", "unknown")))


def mismatch(worker: str, worker_dialect: Dialect, controller: str, controllers: Dialect) -> str:
    """A sentence about the mismatch of two protocols, and the remedy."""
    if worker_dialect.protocol < controllers.protocol:
        remedy = "upgrade the worker to the controller's release"
    else:
        remedy = "upgrade the controller to the worker's release"
    return (
        f"worker {worker}, {worker_dialect.words()} of the protocol of workers, and {controller}, "
        f"{controllers.words()}: {remedy}"
    )


def boot_s() -> float:
    """Seconds since the machine's start, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_end_s(asked_s: float, lease_s: float) -> float:
    """End of a lease for the asking worker, before the end by any other clock."""
    return asked_s + lease_s * (1 - DRIFT) - MARGIN_S
