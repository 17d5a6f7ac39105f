"""News of reservations: history, events, records of the journal; and paths on standby."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from typing import Final

from apps.controller.record.activity import ActivityLog
from apps.controller.record.journal_writer import JournalWriter
from hydra.events import Event, EventKind
from hydra.history import HappeningKind
from hydra.journal import Change, Kind
from hydra.lifecycle import ReservationState
from hydra.model import Fabric
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.records import reservation_record
from hydra.reservations.reservation import GONE, Reservation

_KEPT_RESERVATIONS: Final = 1000
PLACED: Final = "has another path or VLAN"
_FIRST_PLACED: Final = "has its path"
_PROTECTED: Final = "has another path on standby"
_UNPROTECTED: Final = "has no path on standby"


class ReservationNews:
    """Thread-safe. ``lock`` guards all records."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        book: ReservationBook,
        writer: JournalWriter,
        log: ActivityLog,
        lock: threading.RLock,
    ) -> None:
        self._fabric = fabric
        self._book = book
        self._writer = writer
        self._log = log
        self._lock = lock

    # -- paths on standby -------------------------------------------------------------------------

    def protect(self, reservation_id: str, limits: AdmissionLimits) -> Reservation:
        """Book a path on standby for a reservation that lacks one, or whose path on standby has
        blocked ports.
        """
        with self._lock:
            before = self._book.get(reservation_id)
            return self._tell_protection(
                before, self._book.protect(reservation_id, time.time(), limits)
            )

    def unprotect(self, reservation_id: str) -> Reservation:
        """Give up a path on standby that did not come up."""
        with self._lock:
            before = self._book.get(reservation_id)
            return self._tell_protection(before, self._book.unprotect(reservation_id))

    def _tell_protection(self, before: Reservation, now: Reservation) -> Reservation:
        if now != before:
            news = _UNPROTECTED if now.protection is None else _PROTECTED
            self._note([now], news)
            self._writer.write_in_time(self._records([now]), news_of([now]))
        return now

    # -- telling and writing ----------------------------------------------------------------------

    def _note_placed(self, reservations: Collection[Reservation]) -> None:
        """Write and publish where the reservations' paths are now."""
        self._note(reservations, PLACED)
        self._writer.write_in_time(self._records(reservations), news_of(reservations))

    def _note(self, reservations: Iterable[Reservation], news: str = "") -> None:
        """Add the present state to the history; ``news``: the news, if not the state."""
        for reservation in reservations:
            ends = f"{reservation.src} to {reservation.dst}, {reservation.bandwidth_mbps:g} Mb/s"
            happened = news or f"is {reservation.state.value}"
            if news == PLACED and reservation.state is ReservationState.ACTIVATING:
                happened = _FIRST_PLACED  # the first path
            why = f": {reservation.reason}" if reservation.reason else ""
            racks = [self._fabric.racks[r].name for r in reservation.pair if r != GONE]
            self._log.note(
                HappeningKind.RESERVATION,
                f"reservation {reservation.id} ({ends}) {happened}{why}",
                [(racks[0], racks[1])] if len(racks) > 1 else (),
            )

    def _records(self, reservations: Iterable[Reservation]) -> list[Change]:
        return [
            Change(Kind.RESERVATION, reservation.id, reservation_record(self._fabric, reservation))
            for reservation in reservations
        ]

    def _records_and_forgotten(self, reservations: Iterable[Reservation]) -> list[Change]:
        """Records of reservations, and deletions of the oldest finished reservations."""
        forgotten = self._book.prune(_KEPT_RESERVATIONS)
        deletions = [Change(Kind.RESERVATION, gone, None) for gone in forgotten]
        return [*self._records(reservations), *deletions]


def news_of(reservations: Iterable[Reservation]) -> list[Event]:
    """Events with the present state of reservations."""
    now_s = time.time()
    return [
        Event(0, EventKind.RESERVATION, now_s, reservation=reservation, reason=reservation.reason)
        for reservation in reservations
    ]
