"""Questions about reservations, for any thread."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from hydra.errors import AdmissionError, UnknownName
from hydra.reservations.book import NOTICE_S, ReservationBook
from hydra.reservations.calendar import AdmissionLimits
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Pin, Reservation, ReservationRequest


class Bookings:
    """Thread-safe view of the book. ``lock`` is the one that guards all records.

    What is added here is in the book alone, in a :meth:`trial`;
    :class:`~apps.controller.record.reservations.Reservations` makes promises of it.
    """

    def __init__(self, book: ReservationBook, lock: threading.RLock) -> None:
        self._book = book
        self._lock = lock

    # -- trials -----------------------------------------------------------------------------------

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Hold the lock; reservations added in it and not kept are gone at its end, unseen."""
        with self._lock:
            try:
                yield
            finally:
                for reservation_id in reversed(self._book.unsettled()):  # what gave way comes back
                    self._book.remove(reservation_id)

    def check(self, request: ReservationRequest) -> None:
        """Raise UnknownName or AdmissionError for a request that no book admits."""
        with self._lock:
            self._book.check(request)

    def add(
        self,
        request: ReservationRequest,
        limits: AdmissionLimits,
        group: str | None = None,
        notice_s: float = NOTICE_S,
        bundle: str | None = None,
    ) -> Reservation:
        """Enter a reservation, in a :meth:`trial`. Raises what :meth:`ReservationBook.add` raises.

        ``notice_s``: seconds for which reservations that give way keep their circuits.
        """
        with self._lock:
            return self._book.add(
                uuid.uuid4().hex[:12], request, time.time(), limits, group, notice_s, bundle
            )

    def take_back(self, reservations: Sequence[Reservation]) -> None:
        """Undo :meth:`add` of ``reservations``, which are in the order of their entry."""
        with self._lock:
            for one in reversed(reservations):
                self._book.remove(one.id)

    def would_fit(
        self, request: ReservationRequest, limits: AdmissionLimits, notice_s: float
    ) -> bool:
        """True if the book would admit the request within ``limits``; the book stays as it is."""
        with self._lock:
            try:
                tried = self.add(request, limits, notice_s=notice_s)
            except AdmissionError:
                return False
            self._book.remove(tried.id)
            return True

    # -- questions --------------------------------------------------------------------------------

    def all(self) -> Sequence[Reservation]:
        """All reservations that are remembered, oldest first."""
        with self._lock:
            return tuple(self._book)

    def get(self, reservation_id: str) -> Reservation:
        """The reservation with this id. Raises UnknownName."""
        with self._lock:
            return self._book.get(reservation_id)

    def known(self, ids: Iterable[str]) -> Iterator[Reservation]:
        """The reservations among ``ids`` that are remembered: one that was to begin may have ended
        long ago.
        """
        for reservation_id in ids:
            with suppress(UnknownName):
                yield self.get(reservation_id)

    def active(self) -> tuple[Reservation, ...]:
        """Reservations that have, or are getting, circuits."""
        with self._lock:
            return self._book.active()

    def leaving(self) -> tuple[Reservation, ...]:
        """Reservations that were let go or are over, and whose circuits may stand yet."""
        with self._lock:
            return self._book.leaving()

    def pins(self, leaving_out: frozenset[str] = frozenset()) -> tuple[Pin, ...]:
        """Paths that are promised, but to reservations of these ids."""
        with self._lock:
            return self._book.pinned(leaving_out)

    def due(self) -> tuple[str, ...]:
        """Ids of reservations that are to begin now."""
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
        """Parts of a bundle; empty if there is none of this id."""
        with self._lock:
            return self._book.parts(bundle)

    def admitted_before(self, request: ReservationRequest) -> tuple[Reservation, ...]:
        """Reservations that this very request brought about before. Raises KeyReused."""
        if request.retry is None:
            return ()
        with self._lock:
            return self._book.admitted_before(request.owner, request.retry)

    def usage(self, owner: str) -> Usage:
        """Bandwidth and reservations that an owner has now."""
        with self._lock:
            return self._book.usage(owner, time.time())

    def fitting_mbps(
        self, reservations: Iterable[Reservation], limits: AdmissionLimits
    ) -> Mapping[str, float]:
        """Mbps of failed reservations that would fit now, by id; without those that would not."""
        with self._lock:
            now_s = time.time()
            fitting = {r.id: self._book.fitting_mbps(r.id, now_s, limits) for r in reservations}
        return {known: mbps for known, mbps in fitting.items() if mbps is not None}
