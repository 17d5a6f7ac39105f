"""Limits on what one tenant may have at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

from hydra.errors import QuotaExceeded
from hydra.reservations.calendar import ROUNDING_MBPS, Booking, at_most_mbps, peak_mbps


@dataclass(frozen=True, slots=True)
class Quota:
    """A tenant's limits; None: no limit but the fabric's."""

    max_reservations: int | None = None
    """The most reservations that are not over, whenever they begin."""
    max_mbps: float | None = None
    """The sum of their bandwidths at any moment."""
    max_priority: int = 0
    """The highest that it may ask for: others of lower priority may have to give way."""


NO_QUOTA: Final = Quota()


@dataclass(frozen=True, slots=True)
class Usage:
    reservations: int
    peak_mbps: float
    """The largest sum of bandwidths at any moment from now on."""


def within_quota_mbps(
    quota: Quota,
    mine: Collection[Booking],
    least_mbps: float,
    start_unix_s: float,
    end_unix_s: float,
) -> float:
    """The highest bandwidth that one more booking may have beside ``mine``; infinite: any.

    Raises QuotaExceeded if not even ``least_mbps`` are within the quota.
    """
    if quota.max_reservations is not None and len(mine) >= quota.max_reservations:
        raise QuotaExceeded(
            f"the quota is {quota.max_reservations} reservations at a time, and {len(mine)} are "
            "not over yet: release one, or ask an operator for a larger quota"
        )
    if quota.max_mbps is None:
        return inf
    left_mbps = max(0.0, quota.max_mbps - peak_mbps(mine, start_unix_s, end_unix_s))
    if least_mbps > left_mbps + ROUNDING_MBPS:
        raise QuotaExceeded(
            f"{least_mbps:g} Mb/s exceed the quota of {quota.max_mbps:g} Mb/s at a time, of which "
            f"{at_most_mbps(left_mbps)} Mb/s are left then: ask for less, for another time, or an "
            "operator for a larger quota"
        )
    return max(least_mbps, left_mbps)
