"""Records read ahead: a standby reads the journal, to be ready for leadership.

Each record is read once, and the book of reservations follows the records. A new leader therefore
only has to read records changed since the last look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from hydra.errors import HydraError
from hydra.events import Event, read_event
from hydra.history import Happening
from hydra.journal import JournalCopy, Kind, Record
from hydra.model import Fabric
from hydra.reservations.book import ReservationBook
from hydra.reservations.records import out_of_date, read_reservation
from hydra.reservations.reservation import Reservation

LOG = logging.getLogger("hydra.ledger")
_UNREADABLE: Final = (HydraError, KeyError, TypeError, ValueError)
_T = TypeVar("_T")


class ReadOnce(Generic[_T]):
    """Parsed records; each record is read once, as long as it is the same object."""

    def __init__(self, read: Callable[[Record], _T]) -> None:
        self._read = read
        self._known: dict[int, tuple[Record, _T]] = {}
        """By :func:`id`; the record is kept, so that no other record gets its id."""

    def see(self, records: Iterable[Record]) -> None:
        """Read the new records, and forget records not listed."""
        known, self._known = self._known, {}
        for record in records:
            before = known.get(id(record))
            try:
                self._known[id(record)] = before or (record, self._read(record))
            except _UNREADABLE as error:
                LOG.debug("a record is not read ahead: %r", error)

    def of(self, record: Record) -> _T:
        """The parsed record. Raises the errors of reading."""
        known = self._known.get(id(record))
        return self._read(record) if known is None else known[1]


class ReadBook:
    """The book of reservations, kept up to date with changed records."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._book = ReservationBook(fabric)
        self._known: dict[str, tuple[Record, Reservation]] | None = {}
        """By id; None: an error has left the book changed in part."""

    def of(self, records: Sequence[Record]) -> ReservationBook:
        """The book of the given reservations, in order; the caller's until the next call.

        Raises HydraError if a record can't be read, or occurs twice.
        """
        outdated, self._known = self._known, None
        if outdated is None:
            self._book, outdated = ReservationBook(self._fabric), {}
        self._known = self._changed(outdated, records)
        return self._book

    def _changed(
        self, outdated: dict[str, tuple[Record, Reservation]], records: Sequence[Record]
    ) -> dict[str, tuple[Record, Reservation]]:
        """Bring the book from ``outdated`` to ``records``; returns the known records."""
        now_s = time.time()
        known: dict[str, tuple[Record, Reservation]] = {}
        for record in records:
            before = outdated.pop(record.get("id", ""), None)
            if before is None or before[0] is not record or out_of_date(*before):
                reservation = read_reservation(self._fabric, record, now_s)
                if before is None:
                    self._book.enter(reservation)
                else:
                    self._book.put_back(reservation)
                before = record, reservation
            known[before[1].id] = before
        for name in outdated:
            self._book.remove(name)
        if any(reservation.id != name for reservation, name in zip(self._book, known, strict=True)):
            # A removed reservation has come back: a write was undone.
            self._book = ReservationBook(
                self._fabric, (reservation for _, reservation in known.values())
            )
        return known


class Ahead:
    """:meth:`look` is thread-safe; all other use needs :attr:`lock`."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self.lock = threading.Lock()
        self.events: ReadOnce[Event] = ReadOnce(lambda record: read_event(fabric, record))
        self.history: ReadOnce[Happening] = ReadOnce(Happening.from_record)
        self.book = ReadBook(fabric)
        self._seen: dict[Kind, Mapping[int, Record]] = {}
        self._is_over = False

    def look(self, copy: JournalCopy) -> None:
        """Read changes since the last copy; nothing after :meth:`end`."""
        looks: Mapping[Kind, Callable[[Sequence[Record]], object]] = {
            Kind.EVENT: self.events.see,
            Kind.HISTORY: self.history.see,
            Kind.RESERVATION: self.book.of,
        }
        with self.lock:
            for kind, look in looks.items():
                records = copy.records(kind)
                if self._is_over or records is self._seen.get(kind):
                    continue
                try:
                    look(tuple(records.values()))
                except _UNREADABLE as error:
                    LOG.debug("records of kind %s are not read ahead: %r", kind, error)
                self._seen[kind] = records

    def end(self) -> None:
        """Forget everything: the records are in use from now on. For a caller with :attr:`lock`."""
        self._is_over = True
        for read_once in (self.events, self.history):
            read_once.see(())
        self.book = ReadBook(self._fabric)
        self._seen.clear()
