"""Bookings, what bookings need of circuits, and sums of bandwidths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from typing import Final

from hydra.model import Path
from hydra.reservations.constraints import ANY_ROUTE, Route

ROUNDING_MBPS: Final = 1e-6
"""Slack for comparisons of bandwidth sums, so that 0.1 + 0.2 fits into 0.3."""


@dataclass(frozen=True, slots=True)
class Booking:
    """A bandwidth on a path, in both directions, from ``start_unix_s`` until ``end_unix_s``."""

    id: str
    """Id of the reservation."""
    path: Path
    mbps: float
    start_unix_s: float
    end_unix_s: float
    """Infinite: until removed."""
    servers: frozenset[str] = frozenset()
    """Servers whose uplink carries the booking; empty if the request named whole racks."""
    exclusive: bool = False
    """True if no other booking may share a circuit."""
    standby: bool = False
    """True for the second path of a protected reservation."""

    @property
    def key(self) -> str:
        return booking_key(self.id, self.standby)

    def overlaps(self, start_unix_s: float, end_unix_s: float) -> bool:
        return self.start_unix_s < end_unix_s and start_unix_s < self.end_unix_s


@dataclass(frozen=True, slots=True)
class Need:
    """Requirements of a booking on circuits."""

    mbps: float
    exclusive: bool = False
    servers: frozenset[str] = frozenset()
    """As in :class:`Booking`."""
    route: Route = ANY_ROUTE
    standby: bool = False
    """As in :class:`Booking`."""


def at_most_mbps(mbps: float) -> str:
    """Format a bandwidth limit of ``mbps``, rounded down."""
    digits = Context(prec=6, rounding=ROUND_FLOOR)
    return f"{float(digits.create_decimal(round(mbps, 6))):g}"


def peak_mbps(bookings: Iterable[Booking], start_unix_s: float, end_unix_s: float) -> float:
    """Largest sum of bandwidths at any moment of [start, end)."""
    changes: list[tuple[float, float]] = []
    for booking in bookings:
        if booking.overlaps(start_unix_s, end_unix_s):
            changes.append((max(booking.start_unix_s, start_unix_s), booking.mbps))
            changes.append((booking.end_unix_s, -booking.mbps))
    level = peak = 0.0
    for _, change in sorted(changes):  # at the same moment, ends come before beginnings
        level += change
        peak = max(peak, level)
    return peak


def booking_key(booking_id: str, standby: bool = False) -> str:
    return f"{booking_id}/standby" if standby else booking_id
