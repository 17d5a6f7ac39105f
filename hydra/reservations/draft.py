"""Trial of many plain requests for the same time: the paths alone, without reservations.

A draft books on copies of the calendar's windows, so the calendar stays unchanged. The paths are
those of :meth:`~hydra.reservations.book.ReservationBook.add`, by the same search, for *plain*
requests: shared, between whole racks, without minimum, transfer, protection, priority, or quota,
and each within a single circuit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf

from hydra.errors import AdmissionError
from hydra.model import Fabric, Pair, Path
from hydra.names import rack_of
from hydra.reservations.admission import fastest_circuit_mbps
from hydra.reservations.booking import ROUNDING_MBPS, Booking, Need
from hydra.reservations.calendar import Calendar
from hydra.reservations.constraints import route_of
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.requests import check, times
from hydra.reservations.reservation import ReservationRequest, ServiceClass, rack_pair


def are_plain(fabric: Fabric, requests: Iterable[ReservationRequest]) -> bool:
    """True if all requests are plain. Raises UnknownName."""
    return all(
        request.service is ServiceClass.SHARED
        and not request.priority
        and request.minimum_mbps is None
        and request.transfer is None
        and not request.is_protected
        and (request.owner is None or request.quota is None)
        and request.src in fabric.rack_by_name
        and request.dst in fabric.rack_by_name
        and request.bandwidth_mbps
        <= fastest_circuit_mbps(fabric, rack_of(fabric, request.src), rack_of(fabric, request.dst))
        + ROUNDING_MBPS
        for request in requests
    )


class Draft:
    """Paths of plain requests for the time of the first request, found one after the other."""

    def __init__(
        self, calendar: Calendar, first: ReservationRequest, now: float, limits: AdmissionLimits
    ) -> None:
        """``now`` is in Unix seconds. Raises WrongRequest for a time that has passed."""
        self._fabric = calendar.fabric
        start, end = times(first, now)
        self._start, self._end = start, inf if end is None else end
        self._route = route_of(calendar.fabric, first.constraints)
        around = limits if start <= now else limits.later
        self._windows = [
            calendar.window(start, self._end, gentle).fork() for gentle in around.gentlest_first
        ]

    def take(self, request: ReservationRequest) -> Path | None:
        """Book ``request`` in the draft, and return the path; None if no path fits.

        Raises the errors of :func:`hydra.reservations.requests.check`.
        """
        pair, mbps = rack_pair(*check(self._fabric, request)), request.bandwidth_mbps
        if (path := self._find(pair, Need(mbps, route=self._route))) is not None:
            booking = Booking(
                id="", path=path, mbps=mbps, start_unix_s=self._start, end_unix_s=self._end
            )
            for window in self._windows:
                window.enter(booking)
        return path

    def _find(self, pair: Pair, need: Need) -> Path | None:
        for window in self._windows:
            if (path := window.find(pair, need)) is not None:
                return path
        return None

    def refused(
        self, requests: Sequence[ReservationRequest], most: int, missing: Collection[str]
    ) -> list[int]:
        """Places of requests that do not fit, or that name a ``missing`` rack: the first ``most``
        places. Raises the errors of :meth:`take`, except AdmissionError.
        """
        places: list[int] = []
        for place, request in enumerate(requests):
            if not self._takes(request, missing):
                places.append(place)
                if len(places) == most:
                    break
        return places

    def _takes(self, request: ReservationRequest, missing: Collection[str]) -> bool:
        try:
            if request.src in missing or request.dst in missing:
                check(self._fabric, request)
                return False
            return self.take(request) is not None
        except AdmissionError:
            return False
