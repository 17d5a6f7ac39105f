"""The register with paths on standby: booked anew, given up, and held while overdue."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from hydra.reservations.admission import Ask, fitting_mbps, takes
from hydra.reservations.calendar_entries import ask_of, bookings_of
from hydra.reservations.constraints import planes_of
from hydra.reservations.draft import Draft, are_plain
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.protection import find_standby, is_free_of
from hydra.reservations.register import Register
from hydra.reservations.requests import times
from hydra.reservations.reservation import Reservation, ReservationRequest

_NO_LIMITS: Final = AdmissionLimits()


class Protected(Register):
    """Not thread-safe: the owner holds the lock."""

    def protect(
        self, reservation_id: str, now: float, limits: AdmissionLimits, *, anew: bool = False
    ) -> Reservation:
        """Book a path on standby for a protected reservation that lacks one, or whose path on
        standby has blocked ports; ``anew``: in any case.

        Without room, the reservation is left without a path on standby. Raises UnknownName.
        """
        old = self.get(reservation_id)
        if not (old.is_booked and old.is_protected and old.booked is not None):
            return old
        around = limits if old.holds_capacity else limits.later
        if old.protection is not None and not anew and is_free_of(old.protection, around.blocked):
            return old
        alone = self._put(replace(old, protection=None))
        ask = ask_of(self._fabric, alone, now)
        standby = find_standby(self._calendar, ask, old.booked, around)
        return self._put(replace(alone, protection=standby))

    def unprotect(self, reservation_id: str) -> Reservation:
        """Give up the path on standby. Raises UnknownName."""
        return self._put(replace(self.get(reservation_id), protection=None))

    def _standby_fits(self, reservation: Reservation, ask: Ask) -> bool:
        """True if the path on standby fits, or there is none; ``calendar`` lacks the bookings of
        the reservation.
        """
        path, working = reservation.protection, reservation.booked
        return path is None or (
            working is not None
            and planes_of(path).isdisjoint(planes_of(working))
            and takes(self._calendar, replace(ask, standby=True), path, _NO_LIMITS)
        )

    def fitting_mbps(
        self, reservation_id: str, now: float, limits: AdmissionLimits
    ) -> float | None:
        """Mbps that a failed reservation could have now; None: no bandwidth. Raises UnknownName."""
        ask = ask_of(self._fabric, self.get(reservation_id), now)
        around = limits if ask.start_unix_s <= now else limits.later
        return fitting_mbps(self._calendar, ask, around)

    def draft_refused(
        self,
        requests: Sequence[ReservationRequest],
        now: float,
        limits: AdmissionLimits,
        most: int,
        missing: Collection[str],
    ) -> list[int] | None:
        """Places of the requests that a book would refuse one after the other, up to ``most``, or
        that name a ``missing`` rack; None if the requests need a trial with reservations.

        The requests are for the same time, under the same constraints.
        """
        first = requests[0]
        if not are_plain(self._fabric, requests):
            return None
        self._stretch_overdue(now)
        start, end = times(first, now)
        met = self._calendar.meeting(start, math.inf if end is None else end)
        if any(self._by_id[booking.id].rank < 0 for booking in met):
            return None  # best effort gives way
        return Draft(self._calendar, first, now, limits).refused(requests, most, missing)

    def _stretch_overdue(self, now: float) -> None:
        """Extend the bookings of overdue reservations to ``now``: the circuits stand until
        released.
        """
        for reservation_id in self._timers.reached(now):
            reservation, booking = self._by_id[reservation_id], self._calendar.get(reservation_id)
            if booking is None or not reservation.holds_capacity:
                continue
            if reservation.expires_unix_s is not None and reservation.expires_unix_s <= now:
                for held in bookings_of(self._fabric, reservation):
                    self._calendar.add(replace(held, end_unix_s=math.nextafter(now, math.inf)))
