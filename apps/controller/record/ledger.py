"""The ledger: state, reservations and log, with a single writer of the journal."""

from __future__ import annotations

import logging
import threading
import uuid

from apps.controller.record.activity import ActivityLog
from apps.controller.record.bookings import Bookings
from apps.controller.record.event_writer import EventWriter
from apps.controller.record.journal_writer import JournalWriter
from apps.controller.record.network import NetworkRecord
from apps.controller.record.read_ahead import Ahead
from apps.controller.record.reconfigurations import KeptReconfigurations
from apps.controller.record.reservations import Reservations
from apps.process.metrics import Metrics
from apps.process.tracing import NoTraces, Traces
from hydra import __version__
from hydra.decisions.builders import Builders
from hydra.errors import HydraError
from hydra.events import Event, EventLog
from hydra.history import HappeningKind, History
from hydra.journal import Journal, JournalCopy, Kind
from hydra.journal_format import saved_state
from hydra.model import Fabric
from hydra.reconfiguration.recovery import interrupted, rested
from hydra.reservations.book import ReservationBook
from hydra.reservations.records import out_of_date

LOG = logging.getLogger("hydra.ledger")


class Ledger:
    """The controller's records, with a common lock and a common writer.

    Attributes: ``network`` (state, changes under way), ``bookings`` (questions about reservations),
    ``reservations`` (promises), ``log`` (history, reconfigurations, decisions), ``writer`` (the
    journal).
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        journal: Journal,
        metrics: Metrics | None = None,
        traces: Traces | None = None,
        stored_events: bool = False,
    ) -> None:
        """``stored_events``: another controller may lead afterwards, and continue the events."""
        self._fabric = fabric
        self._journal = journal
        self._lock = lock = threading.RLock()
        metrics = metrics or Metrics()
        events = self.events = EventLog(uuid.uuid4().hex[:8], stored=stored_events)
        book = self._book = ReservationBook(fabric)
        builders = self._builders = Builders(fabric)
        reconfigurations = KeptReconfigurations()
        history = self._history = History()
        network = self.network = NetworkRecord(
            fabric=fabric, book=book, builders=builders, events=events, lock=lock
        )
        writer = self.writer = JournalWriter(
            fabric=fabric,
            journal=journal,
            network=network,
            builders=builders,
            reconfigurations=reconfigurations,
            history=history,
            events=events,
            metrics=metrics,
            lock=lock,
        )
        log = self.log = ActivityLog(
            fabric=fabric,
            journal=journal,
            writer=writer,
            network=network,
            builders=builders,
            reconfigurations=reconfigurations,
            history=history,
            events=events,
            metrics=metrics,
            traces=traces or NoTraces(),
            lock=lock,
        )
        self.bookings = Bookings(book, lock)
        self.reservations = Reservations(
            fabric=fabric, book=book, writer=writer, network=network, log=log, lock=lock
        )
        self._event_writer: EventWriter | None = None
        self._ahead = Ahead(fabric)

    def look_ahead(self, copy: JournalCopy) -> None:
        """Read a copy of the journal, so that :meth:`load` has less to do. For any thread, while
        another controller leads; has no visible effect.
        """
        self._ahead.look(copy)

    def load(self) -> None:
        """Take over the journal's records. Raises HydraError if the journal can't be used."""
        remembered = saved_state(self._fabric, self._journal)
        with self._lock, self._ahead.lock:
            if remembered is not None:
                entries = self._journal.records(Kind.ENTRY, newest=1)
                last = next(((entry["what"], entry["details"]) for entry in entries), None)
                state = rested(self._fabric, remembered, last)
                self.network.load(state, interrupted(self._fabric, state, last))
            if self.events.stored:
                self._load_events()
            self._load_history()
            self._load_reservations()
            self.log.load_reconfigurations()
            self.log.load_decisions()
            self._load_builders()
            self._ahead.end()
            self.log.note(HappeningKind.CONTROLLER, f"release {__version__} started")

    def _load_events(self) -> None:
        """Continue the events of earlier leaders."""
        read: list[Event] = []
        records = self._journal.records(Kind.EVENT)
        for record in records:
            try:
                read.append(self._ahead.events.of(record))
            except HydraError as error:
                LOG.warning("an event of another release is left out: %s", error)
        if records:
            last = records[-1]
            self.events.resume(str(last["run"]), read, int(last["number"]))
        self._event_writer = EventWriter(self.writer.notify_waiting, lambda: self.events.can_wait)
        self.events.listen(self._event_writer.wake)
        self._event_writer.start()

    def _load_history(self) -> None:
        lines = []
        for record in self._journal.records(Kind.HISTORY):
            try:
                lines.append(self._ahead.history.of(record))
            except (KeyError, TypeError, ValueError) as error:
                LOG.warning("a line of history of another release is left out: %r", error)
        self._history.load(lines)

    def _load_reservations(self) -> None:
        records = self._journal.records(Kind.RESERVATION)
        by_id = {record["id"]: record for record in records}
        self._book.take_over(self._ahead.book.of(records))
        self.reservations.resume(
            lambda reservation: out_of_date(by_id[reservation.id], reservation)
        )
        self.network.keep_unreserved()

    def _load_builders(self) -> None:
        try:
            self._builders.load(self._journal.records(Kind.BUILDER))
        except (KeyError, TypeError, ValueError) as error:
            LOG.warning("origin of circuits, by another release, is left out: %r", error)
        self._builders.keep(self.network.state.topology.circuits)

    def close(self) -> None:
        """Write everything left, if possible, and close the journal."""
        self.log.note(HappeningKind.CONTROLLER, "stopped")
        self.writer.close()
        if self._event_writer is not None:
            self._event_writer.stop()
        self._journal.close()
