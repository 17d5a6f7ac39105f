"""Another path for a reservation that lost its path."""

from __future__ import annotations

from dataclasses import replace

from hydra.errors import AdmissionError
from hydra.reservations.admission import admit_most, fastest_circuit_mbps, takes
from hydra.reservations.calendar import Calendar
from hydra.reservations.calendar_entries import ask_of
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import Reservation
from hydra.reservations.transfers import plan_again


def moved_to_another_path(
    calendar: Calendar, reservation: Reservation, now: float, limits: AdmissionLimits
) -> Reservation:
    """The reservation on a path that fits, on its path on standby if possible; ``calendar`` lacks
    the old bookings.

    A transfer may get another rate. The rate of a tenant's transfer does not rise, as the quota is
    not known here. Raises AdmissionError.
    """
    ask = ask_of(calendar.fabric, reservation, now)
    standby = reservation.protection
    reservation = replace(reservation, protection=None)
    if standby is not None and takes(calendar, ask, standby, limits):
        return replace(reservation, booked=standby)
    least_mbps = min(ask.mbps, reservation.minimum_mbps or ask.mbps)
    try:
        mbps, path = admit_most(calendar, ask, least_mbps, limits)
    except AdmissionError:
        if reservation.transfer is None or reservation.preempted_by is not None:
            raise
        if reservation.owner is None:
            ask = replace(ask, mbps=fastest_circuit_mbps(calendar.fabric, *reservation.pair))
        return plan_again(calendar, reservation, ask, limits, now)
    held_mbps = reservation.bandwidth_mbps if reservation.rank < 0 else mbps
    return replace(reservation, booked=path, bandwidth_mbps=held_mbps)
