"""Preemption: reservations that give way to one that does not fit beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hydra.model import Path
from hydra.reservations.admission import Ask, admit, takes
from hydra.reservations.calendar import AdmissionLimits, Booking, Calendar
from hydra.reservations.reservation import Reservation

Lower = Sequence[tuple[Reservation, Booking]]
"""Reservations that may have to give way, with what is booked for them."""


def lower_ranks(
    calendar: Calendar, reservations: Mapping[str, Reservation], ask: Ask, rank: int
) -> Lower:
    """Reservations of lower rank at the time of ``ask``, the lowest and latest last."""
    lower = [
        (reservation, booking)
        for booking in calendar.meeting(ask.start_unix_s, ask.end_unix_s)
        if (reservation := reservations[booking.id]).rank < rank
    ]
    lower.sort(key=lambda one: (-one[0].rank, one[0].created_unix_s))
    return lower


def make_room(
    calendar: Calendar, ask: Ask, lower: Lower, limits: AdmissionLimits
) -> tuple[Path, list[Reservation]]:
    """The path that ``ask`` has if some of ``lower`` give way, and as few of them as it takes.

    Those that come first in ``lower`` are let back in first. The calendar is as before. Raises
    AdmissionError if that would not do.
    """
    for _, booking in lower:
        calendar.remove(booking.id)
    displaced = []
    try:
        path = admit(calendar, ask, limits)
        for reservation, booking in lower:
            calendar.add(booking)
            if not takes(calendar, ask, path, limits):
                calendar.remove(booking.id)
                displaced.append(reservation)
    finally:
        for _, booking in lower:
            calendar.add(booking)
    return path, displaced
