"""Preemption: lower-ranked reservations give way to a reservation that does not fit otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hydra.model import Path
from hydra.reservations.admission import Ask, admit, takes
from hydra.reservations.booking import Booking
from hydra.reservations.calendar import Calendar
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import Reservation

Lower = Sequence[tuple[Reservation, Sequence[Booking]]]
"""Candidates for preemption with bookings."""


def lower_ranks(
    calendar: Calendar, reservations: Mapping[str, Reservation], ask: Ask, rank: int
) -> Lower:
    """Reservations below ``rank`` at the time of ``ask``, the lowest and latest last."""
    bookings: dict[str, list[Booking]] = {}
    for booking in calendar.meeting(ask.start_unix_s, ask.end_unix_s):
        if reservations[booking.id].rank < rank:
            bookings.setdefault(booking.id, []).append(booking)
    lower = [(reservations[name], met) for name, met in bookings.items()]
    lower.sort(key=lambda entry: (-entry[0].rank, entry[0].created_unix_s))
    return lower


def make_room(
    calendar: Calendar, ask: Ask, lower: Lower, limits: AdmissionLimits
) -> tuple[Path, list[Reservation]]:
    """Return a path for ``ask``, and the reservations in ``lower`` that must give way for the path.

    Reservations are let back in the order of ``lower`` while the path stays possible. The calendar
    is unchanged at the end. Raises AdmissionError if no path is possible even without all of
    ``lower``.
    """
    for reservation, _ in lower:
        calendar.remove(reservation.id)
    displaced = []
    try:
        path = admit(calendar, ask, limits)
        for reservation, bookings in lower:
            for booking in bookings:
                calendar.add(booking)
            if not takes(calendar, ask, path, limits):
                calendar.remove(reservation.id)
                displaced.append(reservation)
    finally:
        for _, bookings in lower:
            for booking in bookings:
                calendar.add(booking)
    return path, displaced
