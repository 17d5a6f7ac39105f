"""Backlog of a server's sockets, and when it is worth a report (c-Through, section 4.1).

Everything here is for the agent, which is to be small: no arrays, and nothing of the fabric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

BYTES_PER_MB: Final = 1_000_000
MOST_ELEPHANTS: Final = 256
"""In one report: as many rules in the server's vswitch."""
_DECIMALS: Final = 1
"""A tenth of the changes that are reported: the rest would be bytes on the wire only."""


class ConnectionKey(NamedTuple):
    """A TCP connection of this host."""

    address: bytes
    """Address of the other end, 4 or 16 bytes."""
    src_port: int
    dst_port: int


class Waiting(NamedTuple):
    """Written to sockets for one destination, and not acknowledged yet."""

    octets: int
    connections: int
    """Connections that these bytes are in."""


class Sending(NamedTuple):
    """Bytes of one connection."""

    waiting: int
    """Written, and not acknowledged yet."""
    sent: int
    """Acknowledged."""


@dataclass(frozen=True, slots=True)
class ReportRule:
    """Backlogs are reported above one threshold, and again when they change by another."""

    above_mb: float
    change_mb: float

    def worth_telling(self, backlog_bytes: Mapping[str, int]) -> dict[str, float]:
        """Report's content, in MB by destination; a backlog not above the threshold counts as 0."""
        waiting = {name: octets / BYTES_PER_MB for name, octets in backlog_bytes.items()}
        return {name: round(mb, _DECIMALS) for name, mb in waiting.items() if mb > self.above_mb}

    def has_changed(self, told_mb: Mapping[str, float], now_mb: Mapping[str, float]) -> bool:
        """Whether what was told last is no longer true enough."""
        return any(
            abs(now_mb.get(name, 0.0) - told_mb.get(name, 0.0)) > self.change_mb
            for name in told_mb.keys() | now_mb.keys()
        )


@dataclass(slots=True)
class ConnectionWatch:
    """A connection is an elephant by its bytes, and one until it has rested: so none flickers."""

    above_bytes: float
    idle_s: float
    _busy_s: dict[ConnectionKey, float] = field(init=False, default_factory=dict)
    """When each elephant last had something to send."""

    def elephants(
        self, sending: Mapping[ConnectionKey, Sending], now_s: float
    ) -> frozenset[ConnectionKey]:
        """Connections that have something to send, and connections that rest."""
        for key, (waiting, sent) in sending.items():
            if key in self._busy_s or waiting + sent >= self.above_bytes:
                self._busy_s[key] = now_s
        for key in [key for key, busy_s in self._busy_s.items() if now_s - busy_s > self.idle_s]:
            del self._busy_s[key]
        return frozenset(self._busy_s)
