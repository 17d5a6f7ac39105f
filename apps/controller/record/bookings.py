"""Questions about reservations, for any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex

from hydra.errors import AdmissionError, UnknownName
from hydra.reservations.availability import Available
from hydra.reservations.book import NOTICE_S, ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Pin, Reservation, ReservationRequest


class Bookings:
    """Thread-safe view of the book. ``lock`` guards all records.

    Reservations added here, in a :meth:`trial`, are in the book alone;
    :class:`~apps.controller.record.reservations.Reservations` turns them into promises.
    """

    def __init__(self, book: ReservationBook, lock: threading.RLock) -> None:
        self._book = book
        self._lock = lock
        self._moment_unix_s = 0.0
        """Time of the present trial; 0: no trial."""

    # -- trials -----------------------------------------------------------------------------------

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Hold the lock; at the end, remove reservations added meanwhile and not kept, unseen.

        All reservations of a trial are added at the same moment.
        """
        with self._lock:
            before, self._moment_unix_s = self._moment_unix_s, time.time()
            try:
                yield
            finally:
                self._moment_unix_s = before
                # A removal brings displaced reservations back.
                for reservation_id in reversed(self._book.unsettled()):
                    self._book.remove(reservation_id)

    def add(
        self,
        request: ReservationRequest,
        limits: AdmissionLimits,
        group: str | None = None,
        notice_s: float = NOTICE_S,
        bundle: str | None = None,
    ) -> Reservation:
        """Enter a reservation, in a :meth:`trial`. Raises the errors of
        :meth:`ReservationBook.add`.

        ``notice_s``: seconds for which displaced reservations keep their circuits.
        """
        with self._lock:
            now = self._moment_unix_s or time.time()
            return self._book.add(token_hex(6), request, now, limits, group, notice_s, bundle)

    def draft_refused(
        self,
        requests: Sequence[ReservationRequest],
        limits: AdmissionLimits,
        most: int,
        missing: Collection[str],
    ) -> list[int] | None:
        """As :meth:`ReservationBook.draft_refused`, at the trial's moment."""
        with self._lock:
            now = self._moment_unix_s or time.time()
            return self._book.draft_refused(requests, now, limits, most, missing)

    def beyond_uplink(self, request: ReservationRequest) -> tuple[str, str] | None:
        """As :meth:`ReservationBook.beyond_uplink`, at the trial's moment."""
        with self._lock:
            return self._book.beyond_uplink(request, self._moment_unix_s or time.time())

    def rooms_mbps(
        self, request: ReservationRequest, limits: AdmissionLimits
    ) -> Sequence[tuple[float, float]]:
        """Free Mbps of each rack during the time of ``request``, by the book of reservations."""
        with self._lock:
            return self._book.rooms_mbps(request, time.time(), limits)

    def take_back(self, reservations: Sequence[Reservation]) -> None:
        """Undo :meth:`add` of ``reservations``, given in the order of entry."""
        with self._lock:
            for reservation in reversed(reservations):
                self._book.remove(reservation.id)

    def would_fit(
        self, request: ReservationRequest, limits: AdmissionLimits, notice_s: float
    ) -> bool:
        """True if the book would admit the request within ``limits``; the book stays unchanged."""
        with self._lock:
            try:
                tried = self.add(request, limits, notice_s=notice_s)
            except AdmissionError:
                return False
            self._book.remove(tried.id)
            return True

    # -- questions --------------------------------------------------------------------------------

    def all(self) -> Sequence[Reservation]:
        """All remembered reservations, oldest first."""
        with self._lock:
            return tuple(self._book)

    def get(self, reservation_id: str) -> Reservation:
        """The reservation with the given id. Raises UnknownName."""
        with self._lock:
            return self._book.get(reservation_id)

    def known(self, ids: Iterable[str]) -> Iterator[Reservation]:
        """The remembered reservations among ``ids``; some may have ended long ago."""
        for reservation_id in ids:
            with suppress(UnknownName):
                yield self.get(reservation_id)

    def active(self) -> tuple[Reservation, ...]:
        """Reservations with circuits, or about to get circuits."""
        with self._lock:
            return self._book.active()

    def leaving(self) -> tuple[Reservation, ...]:
        """Released or finished reservations whose circuits may still stand."""
        with self._lock:
            return self._book.leaving()

    def pins(self, leaving_out: frozenset[str] = frozenset()) -> tuple[Pin, ...]:
        """Promised paths, without reservations ``leaving_out``."""
        with self._lock:
            return self._book.pinned(leaving_out)

    def due(self) -> tuple[str, ...]:
        """Ids of reservations due to begin now."""
        with self._lock:
            return self._book.due(time.time())

    def expired(self) -> tuple[str, ...]:
        """Ids of reservations whose time is up."""
        with self._lock:
            return self._book.expired(time.time())

    def group(self, group: str) -> tuple[Reservation, ...]:
        """Reservations of a group. Raises UnknownName."""
        with self._lock:
            return self._book.members(group)

    def parts(self, bundle: str) -> tuple[Reservation, ...]:
        """Parts of a bundle; empty if no bundle has the id."""
        with self._lock:
            return self._book.parts(bundle)

    def admitted_before(self, request: ReservationRequest) -> tuple[Reservation, ...]:
        """Reservations admitted earlier for the very same request. Raises KeyReused."""
        if request.retry is None:
            return ()
        with self._lock:
            return self._book.admitted_before(request.owner, request.retry)

    def usage(self, owner: str) -> Usage:
        """An owner's present bandwidth and reservations."""
        with self._lock:
            return self._book.usage(owner, time.time())

    def availability(
        self, request: ReservationRequest, limits: AdmissionLimits
    ) -> Sequence[Available]:
        """The bandwidth that fits in each span of the request's time, by the reservations' book."""
        with self._lock:
            return self._book.availability(request, time.time(), limits)

    def fitting_mbps(
        self, reservations: Iterable[Reservation], limits: AdmissionLimits
    ) -> Mapping[str, float]:
        """Mbps of failed reservations that would fit now, by id; absent: no rate would fit."""
        with self._lock:
            now_s = time.time()
            fitting = {r.id: self._book.fitting_mbps(r.id, now_s, limits) for r in reservations}
        return {known: mbps for known, mbps in fitting.items() if mbps is not None}
