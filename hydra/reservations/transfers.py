"""Transfers: megabytes between two racks by a deadline, at a constant rate that the plan chooses.

A transfer is a reservation. Planning chooses start, end and rate of the reservation; calendar,
meters and circuits treat it as any other. All rates that are feasible from a given start are below
the greatest fixed point of "the highest rate that fits until the bytes are there", so the search is
exact for a start. The earliest end is at the first start, or at a start where a booking ends: an
earlier start would else be possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from hydra.errors import AdmissionError, Alternative
from hydra.model import PortId
from hydra.names import rack_of
from hydra.reservations.admission import Ask, admit, fitting_mbps, moment
from hydra.reservations.booking import ROUNDING_MBPS, at_most_mbps
from hydra.reservations.calendar import Calendar
from hydra.reservations.calendar_entries import servers_among
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.requests import times
from hydra.reservations.reservation import (
    Profile,
    Reservation,
    ReservationRequest,
    ServiceClass,
    Transfer,
    rack_pair,
)

_TIMES: Final = 24
"""Number of starts, or of ends, that are tried."""
_RATES: Final = 64
"""Number of rates that are tried for a start, or for an end."""
_SLACK_S: Final = 1e-3
_SLACK: Final = 1e-6
"""Part of a transfer that rounding may lose."""
MBIT: Final = 8.0
"""Mb in a megabyte."""


@dataclass(frozen=True, slots=True)
class Span:
    """A constant rate for a time."""

    start_unix_s: float
    end_unix_s: float
    mbps: float


def planned_request(
    calendar: Calendar,
    request: ReservationRequest,
    most_mbps: float,
    limits: AdmissionLimits,
    now: float,
) -> ReservationRequest:
    """A request for a transfer with the times and the rate of the plan. Raises AdmissionError."""
    assert request.transfer is not None  # noqa: S101
    fabric = calendar.fabric
    start, end = transfer_times(request, now)
    ask = Ask(
        src=request.src,
        dst=request.dst,
        pair=rack_pair(rack_of(fabric, request.src), rack_of(fabric, request.dst)),
        mbps=most_mbps,
        start_unix_s=start,
        end_unix_s=end,
        servers=servers_among(fabric, request.src, request.dst),
        exclusive=request.service is ServiceClass.GUARANTEED,
        names_end=True,
    )
    around = limits if start <= now else limits.later
    span = plan(calendar, ask, request.transfer, around, now)
    return replace(
        request,
        bandwidth_mbps=span.mbps,
        start_unix_s=None if span.start_unix_s <= now else span.start_unix_s,
        end_unix_s=span.end_unix_s,
    )


def transfer_times(request: ReservationRequest, now: float) -> tuple[float, float]:
    """Earliest start and deadline of a transfer. Raises AdmissionError for times that have
    passed.
    """
    assert request.transfer is not None  # noqa: S101
    deadline = request.transfer.deadline_unix_s
    start, _ = times(replace(request, end_unix_s=deadline), now)
    return start, deadline


def needed_mbps(request: ReservationRequest, now: float) -> float:
    """The least rate that carries a transfer from its earliest start until its deadline."""
    assert request.transfer is not None  # noqa: S101
    start, end = transfer_times(request, now)
    return request.transfer.megabytes * MBIT / (end - start)


def plan(
    calendar: Calendar, ask: Ask, transfer: Transfer, limits: AdmissionLimits, now: float
) -> Span:
    """Rate and times of a new transfer, by the transfer's profile.

    ``ask`` has the earliest start, the deadline, and the highest rate allowed. Raises
    AdmissionError with the earliest end that fits.
    """
    megabits = transfer.megabytes * MBIT
    search = _Search(calendar, ask, megabits, limits, now)
    least_mbps = megabits / (ask.end_unix_s - ask.start_unix_s)
    if transfer.profile is Profile.CHEAPEST and least_mbps <= ask.mbps:
        steady = Span(ask.start_unix_s, ask.end_unix_s, least_mbps)
        if search.fits(steady):
            return steady
    if transfer.profile is Profile.LATEST and (latest := search.latest()) is not None:
        return latest
    found = search.earliest()
    if found is None:
        admit(calendar, replace(ask, mbps=least_mbps), limits)  # raises AdmissionError
        raise AdmissionError("the network changed while the transfer was planned: ask again")
    if found.end_unix_s > ask.end_unix_s:
        raise AdmissionError(
            f"{transfer.megabytes:g} MB from {ask.src} to {ask.dst} do not arrive by "
            f"{moment(ask.end_unix_s)}: the earliest end that fits is {moment(found.end_unix_s)}, "
            f"at {at_most_mbps(found.mbps)} Mb/s from {moment(found.start_unix_s)}; ask for that "
            "end, or for fewer megabytes",
            [Alternative(found.mbps, found.start_unix_s, found.end_unix_s)],
        )
    return found


def plan_again(
    calendar: Calendar, reservation: Reservation, ask: Ask, limits: AdmissionLimits, now: float
) -> Reservation:
    """A transfer that lost its path, with another path, rate and end for the megabytes left.

    ``ask`` is for the remaining time, with the highest rate allowed. If the bytes left do not fit
    by the deadline, the transfer keeps what fits until then (:func:`missing_megabytes`). Raises
    AdmissionError if nothing fits.
    """
    transfer = reservation.transfer
    assert transfer is not None  # noqa: S101
    left = remaining_megabytes(reservation, now)
    until = replace(ask, end_unix_s=max(transfer.deadline_unix_s, ask.end_unix_s))
    search = _Search(calendar, until, left * MBIT, limits, now)
    found = search.from_start() if reservation.holds_capacity else search.earliest()
    if found is None or found.end_unix_s > until.end_unix_s:
        mbps = fitting_mbps(calendar, until, limits)
        found = Span(until.start_unix_s, until.end_unix_s, mbps or ask.mbps)
    asked = replace(
        until,
        start_unix_s=found.start_unix_s,
        end_unix_s=found.end_unix_s,
        mbps=found.mbps,
    )
    path = admit(calendar, asked, limits)
    starts = reservation.starts_unix_s if reservation.holds_capacity else found.start_unix_s
    return replace(
        reservation,
        booked=path,
        bandwidth_mbps=found.mbps,
        starts_unix_s=starts,
        expires_unix_s=found.end_unix_s,
        duration_s=found.end_unix_s - starts,
        transfer=replace(transfer, left_megabytes=left, planned_unix_s=found.start_unix_s),
        reason=f"lost its path, and was planned again: {left:g} MB at {found.mbps:g} Mb/s until "
        f"{moment(found.end_unix_s)}",
    )


def remaining_megabytes(reservation: Reservation, now: float) -> float:
    """Megabytes that the promised rate has not carried by ``now``; 0 if this is no transfer."""
    transfer = reservation.transfer
    if transfer is None:
        return 0.0
    since = transfer.planned_unix_s or reservation.starts_unix_s
    left = transfer.megabytes if transfer.left_megabytes is None else transfer.left_megabytes
    return max(0.0, left - max(0.0, now - since) * reservation.bandwidth_mbps / MBIT)


def missing_megabytes(reservation: Reservation) -> float:
    """Megabytes that the reservation will not carry by its end; 0: the transfer is not at risk."""
    transfer = reservation.transfer
    if transfer is None or reservation.expires_unix_s is None:
        return 0.0
    missing = remaining_megabytes(reservation, reservation.expires_unix_s)
    return missing if missing > transfer.megabytes * _SLACK else 0.0


class _Search:
    """Search for spans that carry ``megabits``."""

    def __init__(
        self, calendar: Calendar, ask: Ask, megabits: float, limits: AdmissionLimits, now: float
    ) -> None:
        self._calendar, self._ask, self._megabits = calendar, ask, megabits
        self._limits, self._now = limits, now

    def fits(self, span: Span) -> bool:
        return self._most_mbps(span) >= span.mbps - ROUNDING_MBPS

    def from_start(self, start_unix_s: float | None = None) -> Span | None:
        """The span from a start on (None: the first) with the highest rate; None: no rate fits."""
        start = self._ask.start_unix_s if start_unix_s is None else start_unix_s
        return self._highest(start, None)

    def earliest(self) -> Span | None:
        """The span with the earliest end, also after the deadline; None if none was found."""
        ask, best = self._ask, None
        later = self._calendar.ends_after(ask.start_unix_s, self._ports(), ask.servers, _TIMES)
        for start in (ask.start_unix_s, *later):
            if best is not None and start + self._megabits / ask.mbps >= best.end_unix_s:
                break
            found = self.from_start(start)
            if found and (best is None or found.end_unix_s < best.end_unix_s):
                best = found
        return best

    def latest(self) -> Span | None:
        """The span with the latest start that ends by the deadline; None if none was found."""
        ask, best = self._ask, None
        for end in (ask.end_unix_s, *self._starts()):
            if best is not None and end - self._megabits / ask.mbps <= best.start_unix_s:
                break
            found = self._highest(None, end)
            if found and (best is None or found.start_unix_s > best.start_unix_s):
                best = found
        return best

    def _highest(self, start: float | None, end: float | None) -> Span | None:
        """The span with a start, or else with an end, at the highest rate that fits."""
        mbps = self._ask.mbps
        for _ in range(_RATES):
            length_s = self._megabits / mbps
            if start is not None:
                span = Span(start, start + length_s, mbps)
            else:
                assert end is not None  # noqa: S101
                earliest = self._ask.start_unix_s
                if end - length_s < earliest - _SLACK_S:
                    return None
                span = Span(max(earliest, end - length_s), end, mbps)
            most = self._most_mbps(span)
            if most >= mbps - ROUNDING_MBPS:
                return span
            if most <= ROUNDING_MBPS:
                return None
            mbps = most
        return None

    def _most_mbps(self, span: Span) -> float:
        """The highest rate, up to the span's, that fits during the span."""
        ask = replace(
            self._ask,
            start_unix_s=span.start_unix_s,
            end_unix_s=span.end_unix_s,
            mbps=span.mbps,
        )
        around = self._limits if span.start_unix_s <= self._now else self._limits.later
        return fitting_mbps(self._calendar, ask, around) or 0.0

    def _ports(self) -> Sequence[PortId]:
        fabric = self._calendar.fabric
        return [port.id for rack in self._ask.pair for port in fabric.ports_of(rack)]

    def _starts(self) -> Iterator[float]:
        """Starts of bookings at the racks' ports before the deadline, the latest first."""
        first, last = self._ask.start_unix_s, self._ask.end_unix_s
        met = (
            booking.start_unix_s
            for port in self._ports()
            for circuit in self._calendar.circuits_at(port)
            for booking in self._calendar.circuit_meets(circuit, first, last)
        )
        servers = (
            booking.start_unix_s
            for server in self._ask.servers
            for booking in self._calendar.server_meets(server, first, last)
        )
        return islice(sorted({*met, *servers}, reverse=True), _TIMES)
