"""Availability: the bandwidth that two racks or servers could reserve, over a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from hydra.reservations.admission import Ask, fitting_mbps
from hydra.reservations.calendar import Calendar
from hydra.reservations.limits import AdmissionLimits

_SPANS: Final = 96
"""Largest number of spans in an answer."""


@dataclass(frozen=True, slots=True)
class Available:
    """A bandwidth that fits throughout [start, end)."""

    start_unix_s: float
    end_unix_s: float
    mbps: float


def availability(
    calendar: Calendar, ask: Ask, limits: AdmissionLimits, now: float
) -> list[Available]:
    """The bandwidth, up to ``ask.mbps``, that fits in each span of the time of ``ask``.

    Spans begin and end with bookings at the ports of both racks and at the servers; if there are
    too many, a span covers several. Each bandwidth fits throughout its span; across spans of the
    same bandwidth, the path may differ.
    """
    found: list[Available] = []
    moments = sorted({ask.start_unix_s, ask.end_unix_s, *_changes(calendar, ask)})
    step = -(-(len(moments) - 1) // _SPANS)
    for start, end in pairwise([*moments[:-1:step], moments[-1]]):
        around = limits if start <= now else limits.later
        span = replace(ask, start_unix_s=start, end_unix_s=end)
        found.append(Available(start, end, fitting_mbps(calendar, span, around) or 0.0))
    return found


def _changes(calendar: Calendar, ask: Ask) -> Iterable[float]:
    """Starts and ends, inside the time of ``ask``, of bookings at its racks and servers."""
    first, last = ask.start_unix_s, ask.end_unix_s
    ports = [port.id for rack in ask.pair for port in calendar.fabric.ports_of(rack)]
    circuits = {circuit for port in ports for circuit in calendar.circuits_at(port)}
    met = [
        booking for circuit in circuits for booking in calendar.circuit_meets(circuit, first, last)
    ]
    met += [
        booking for server in ask.servers for booking in calendar.server_meets(server, first, last)
    ]
    for booking in met:
        yield from (
            moment for moment in (booking.start_unix_s, booking.end_unix_s) if first < moment < last
        )
