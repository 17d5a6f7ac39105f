"""Limits on the simultaneous reservations of a tenant."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

from hydra.errors import QuotaExceeded
from hydra.names import counted
from hydra.reservations.booking import ROUNDING_MBPS, Booking, at_most_mbps, peak_mbps


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a tenant; None: only the fabric limits."""

    max_reservations: int | None = None
    """Number of unfinished reservations, whatever the start."""
    max_mbps: float | None = None
    """Sum of the bandwidths at any moment."""
    max_priority: int = 0
    """Highest priority of a request; lower priorities may have to give way."""


NO_QUOTA: Final = Quota()


@dataclass(frozen=True, slots=True)
class Usage:
    reservations: int
    peak_mbps: float
    """Largest sum of bandwidths at any moment from now on."""


def within_quota_mbps(
    quota: Quota,
    bookings: Collection[Booking],
    least_mbps: float,
    start_unix_s: float,
    end_unix_s: float,
    circuits: int = 1,
) -> float:
    """Highest bandwidth of a further reservation with paths of ``circuits`` beside ``bookings``;
    infinite without a limit. A protected reservation holds its bandwidth on two paths.

    Raises QuotaExceeded if ``least_mbps`` exceeds the quota.
    """
    count = sum(not booking.standby for booking in bookings)
    if quota.max_reservations is not None and count >= quota.max_reservations:
        raise QuotaExceeded(
            f"the quota is {counted(quota.max_reservations, 'reservation')} at a time, unfinished "
            f"are {count}: release a reservation, or ask an operator for a larger quota"
        )
    if quota.max_mbps is None:
        return inf
    taken_mbps = peak_mbps(bookings, start_unix_s, end_unix_s)
    remaining_mbps = max(0.0, quota.max_mbps - taken_mbps) / circuits
    if least_mbps > remaining_mbps + ROUNDING_MBPS:
        twice = f" on {circuits} paths" if circuits > 1 else ""
        raise QuotaExceeded(
            f"{least_mbps:g} Mb/s{twice} exceed the quota of {quota.max_mbps:g} Mb/s at a time; "
            f"{at_most_mbps(remaining_mbps)} Mb/s are left at the requested time: ask for less "
            "bandwidth or a different time, or ask an operator for a larger quota"
        )
    return max(least_mbps, remaining_mbps)
