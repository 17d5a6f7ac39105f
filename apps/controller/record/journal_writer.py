"""Writes the journal: the only writer for state, reservations and log.

A promise is written at once, or refused. An event stands even if the journal can't be written (a
full disk): it joins a queue of late changes. Each write takes along the whole queue, and the
unwritten changes of other rooms (:class:`Rider`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from apps.controller.record.network import NetworkRecord
from apps.controller.record.reconfigurations import KeptReconfigurations
from apps.process.metrics import Metrics
from hydra.decisions.builders import Builders
from hydra.events import Event, EventLog, event_record
from hydra.history import HappeningKind, History
from hydra.journal import Change, Journal, JournalError, Kind, entry
from hydra.model import Fabric

LOG = logging.getLogger("hydra.ledger")
TRY_AGAIN_S: Final = 1.0
_OUTAGE_S: Final = 60.0
"""A failure this many seconds after an earlier failure is another outage, and is logged."""


class Rider(Protocol):
    """A room whose changes are written along with any next write."""

    @property
    def unwritten(self) -> Sequence[Change]: ...

    def written(self, changes: Sequence[Change]) -> None:
        """``changes``, from :attr:`unwritten`, are in the journal now."""
        ...


class JournalWriter:
    """Thread-safe. ``lock`` guards all records."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        journal: Journal,
        network: NetworkRecord,
        builders: Builders,
        reconfigurations: KeptReconfigurations,
        history: History,
        events: EventLog,
        metrics: Metrics,
        lock: threading.RLock,
    ) -> None:
        self._fabric = fabric
        self._journal = journal
        self._network = network
        self._reconfigurations = reconfigurations
        self._riders: tuple[Rider, ...] = (network, builders, reconfigurations, history)
        self._history = history
        self._events = events
        self._metrics = metrics
        self._lock = lock
        self._late: dict[tuple[Kind, str], Change] = {}
        """Changes that have happened and are missing in the journal, by kind and key."""
        self._next_try_s = float("-inf")
        self._failure: tuple[float, JournalError] | None = None

    def write(self, changes: Iterable[Change], news: Sequence[Event] = ()) -> None:
        """Write ``changes``, all or none, with their ``news`` and all late changes.

        Deletions are late if the write fails; other changes and the news are dropped then. Raises
        JournalError.
        """
        with self._lock:
            keyed, appended = _sorted_out(changes)
            self._late |= {key: change for key, change in keyed.items() if change.record is None}
            everything = [*(self._late | keyed).values(), *appended]
            riding = [(rider, rider.unwritten) for rider in self._riders]
            carried = [change for _, some in riding for change in some]
            if not (everything or carried or self._events.waiting):
                self._events.put(news)
                return
            with self._attempt(), self._events.writing(news) as published:
                self._journal.write([*carried, *everything, *self._event_changes(published)])
            for rider, some in riding:
                rider.written(some)
            self._late.clear()

    def write_in_time(self, changes: Iterable[Change], news: Sequence[Event] = ()) -> None:
        """Write past changes: now, or as soon as the journal can be written."""
        with self._lock:
            happened = tuple(changes)
            try:
                self.write(happened, news)
            except JournalError:
                self._late |= _sorted_out(happened)[0]
                self._events.put(news)

    def append(self, changes: Iterable[Change]) -> None:
        """Append ``changes``, with waiting reconfigurations and events. Raises JournalError.

        Runs without the lock, so that other threads go on while a slow disk writes.
        """
        entered = self._reconfigurations.unwritten
        with self._events.writing() as events:
            self._journal.write([*changes, *entered, *self._event_changes(events)])
        self._reconfigurations.written(entered)

    def write_soon(self) -> None:
        """Write waiting changes: now, or as soon as the journal can be written."""
        self.write_in_time(())

    def record(self, what: str, details: Mapping[str, Any]) -> None:
        """Append a step of a change. Raises JournalError, also if late changes can't be written: an
        intent counts from the state in the journal.
        """
        if self.behind:
            self.write([entry(time.time(), what, details)])
        else:
            self.append([entry(time.time(), what, details)])

    def notify_waiting(self) -> None:
        """Write waiting events, unless another write takes them along. Raises JournalError."""
        if self._events.waiting:
            with self._events.writing() as events:
                if events:  # else another write has taken the events along
                    self._journal.write(self._event_changes(events))

    def _event_changes(self, events: Iterable[Event]) -> list[Change]:
        run = self._events.run
        return [
            Change(Kind.EVENT, None, event_record(self._fabric, run, event)) for event in events
        ]

    @property
    def behind(self) -> bool:
        """True if a past change could not be written yet."""
        with self._lock:
            return bool(self._late) or self._network.unsaved

    @property
    def failure(self) -> tuple[float, JournalError] | None:
        """Unix time of an outage's first failure, and the latest error; None without an outage."""
        with self._lock:
            return self._failure

    def catch_up(self) -> None:
        """Write late changes and the history, if another attempt is due."""
        with self._lock:
            failed = self._failure is not None
            if not (failed or self._history.unwritten) or time.monotonic() < self._next_try_s:
                return
            with suppress(JournalError):
                self.write(())
                if failed:
                    self._failure = None
                    self._history.add(
                        time.time(), HappeningKind.JOURNAL, "the journal can be written again"
                    )
                    LOG.info("the journal can be written again, and is up to date")

    def close(self) -> None:
        """Write everything left, if possible, and close the journal."""
        with self._lock, suppress(JournalError):
            while self._history.unwritten or self._events.waiting:
                self.write(())

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        """Context of a write: logs an outage's first failure, and puts off the next attempt."""
        try:
            yield
        except JournalError as error:
            now_s = time.monotonic()
            if now_s >= self._next_try_s + _OUTAGE_S:
                LOG.error("%s; until then nothing is promised, and events wait", error)
            self._next_try_s = now_s + TRY_AGAIN_S
            since_s, known = self._failure or (time.time(), None)
            self._failure = since_s, error
            if type(error) is not type(known):  # so, too, errors on top of a full disk
                self._history.add(time.time(), HappeningKind.JOURNAL, str(error))
            self._metrics.journal_failed()
            raise


def _sorted_out(
    changes: Iterable[Change],
) -> tuple[dict[tuple[Kind, str], Change], list[Change]]:
    """(changes with keys, the last of each key, but a deletion stays even if a record follows;
    changes to append).
    """
    keyed: dict[tuple[Kind, str], Change] = {}
    appended: list[Change] = []
    for change in changes:
        if change.key is None:
            appended.append(change)
            continue
        before = keyed.get((change.kind, change.key))
        if before is None or before.record is not None:
            keyed[change.kind, change.key] = change
    return keyed, appended
