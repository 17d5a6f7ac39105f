"""Backlog of the sockets of a server, and rules for reports (c-Through, section 4.1).

The module belongs to the agent, which must be small: no arrays, and no fabric model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

BYTES_PER_MB: Final = 1_000_000
MOST_ELEPHANTS: Final = 256
"""Limit per report: each elephant needs a rule in the vswitch."""
_DECIMALS: Final = 1
"""Precision of reports: a tenth of the reported changes; more digits would only cost bytes."""


class ConnectionKey(NamedTuple):
    """A TCP connection of the local host."""

    address: bytes
    """Address of the peer, 4 or 16 bytes."""
    src_port: int
    dst_port: int


class Waiting(NamedTuple):
    """Unacknowledged bytes in sockets for a destination."""

    octets: int
    connections: int
    """Number of connections with these bytes."""


class Sending(NamedTuple):
    """Bytes of a connection."""

    waiting: int
    """Written, not acknowledged."""
    sent: int
    """Acknowledged."""


@dataclass(frozen=True, slots=True)
class ReportRule:
    """A backlog is reported above a threshold, and again after a change above a second
    threshold.
    """

    above_mb: float
    change_mb: float

    def worth_reporting(self, backlog_bytes: Mapping[str, int]) -> dict[str, float]:
        """Content of a report, in MB by destination; a backlog up to the threshold counts as 0."""
        waiting = {name: octets / BYTES_PER_MB for name, octets in backlog_bytes.items()}
        return {name: round(mb, _DECIMALS) for name, mb in waiting.items() if mb > self.above_mb}

    def has_changed(self, reported_mb: Mapping[str, float], now_mb: Mapping[str, float]) -> bool:
        """True if the last report is too inaccurate."""
        return any(
            abs(now_mb.get(name, 0.0) - reported_mb.get(name, 0.0)) > self.change_mb
            for name in reported_mb.keys() | now_mb.keys()
        )


@dataclass(slots=True)
class ConnectionWatch:
    """A connection becomes an elephant by its bytes, and remains an elephant until idle for
    ``idle_s`` (hysteresis).
    """

    above_bytes: float
    idle_s: float
    _busy_s: dict[ConnectionKey, float] = field(init=False, default_factory=dict)
    """Time at which each elephant last had data to send."""

    def elephants(
        self, sending: Mapping[ConnectionKey, Sending], now_s: float
    ) -> frozenset[ConnectionKey]:
        """Elephants with data to send, and idle elephants within ``idle_s``."""
        for key, (waiting, sent) in sending.items():
            if key in self._busy_s or waiting + sent >= self.above_bytes:
                self._busy_s[key] = now_s
        for key in [key for key, busy_s in self._busy_s.items() if now_s - busy_s > self.idle_s]:
            del self._busy_s[key]
        return frozenset(self._busy_s)
