"""The controller's knowledge and decisions: state, reservations, history; and their journal."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from apps.controller.ahead import Ahead
from apps.controller.teller import Teller
from apps.process.metrics import Metrics
from apps.process.tracing import NoTraces, Traces
from hydra import __version__
from hydra.decisions.builders import Builder, Builders
from hydra.decisions.decision import Action, Decision
from hydra.decisions.records import decision_record, read_decision
from hydra.errors import AdmissionError, Changed, HydraError, UnknownName
from hydra.events import (
    DeviceAlarm,
    Event,
    EventKind,
    EventLog,
    Progress,
    event_record,
)
from hydra.forwarding.substrate import substrate_of
from hydra.history import Happening, HappeningKind, History
from hydra.journal import KEPT, Change, Journal, JournalCopy, JournalError, Kind, Record, entry
from hydra.journal_format import (
    Unfinished,
    read_unfinished,
    save_state,
    saved_state,
    unfinished_record,
)
from hydra.lifecycle import (
    RESERVATION_TRANSITIONS,
    ReconfigurationState,
    ReservationState,
)
from hydra.model import Circuit, Fabric, NetworkState, Path, RackId, VlanId
from hydra.reconfiguration.executor import Execution, intent
from hydra.reconfiguration.plan import (
    SETTLED,
    Pair,
    Unsettled,
    pair_of,
    paths_by_pair,
    vlans_changed,
)
from hydra.reconfiguration.recovery import interrupted, rested
from hydra.reservations.book import NOTICE_S, ReservationBook
from hydra.reservations.calendar import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Usage
from hydra.reservations.records import out_of_date, reservation_record
from hydra.reservations.reservation import GONE, Pin, Reservation, ReservationRequest
from hydra.service import Reconfiguration

LOG = logging.getLogger("hydra.ledger")
_HISTORY: Final = 200
_BEFORE: Final = "a controller that led before"
"""Trigger of reconfigurations of which events alone tell."""
_KEPT_RESERVATIONS: Final = 1000
_PLACED: Final = "has another path or VLAN"
_FIRST_PLACED: Final = "has its path"
_STAYS: Final = "does not give way any more"
_TRY_AGAIN_S: Final = 1.0
_OUTAGE_S: Final = 60.0
"""A failure this long after an earlier one is another outage, and is logged."""

_NOT_BEGUN: Final = frozenset({ReservationState.HELD, ReservationState.SCHEDULED})
_ENDED_BY_OTHERS: Final = frozenset(
    {ReservationState.RELEASING, ReservationState.CANCELLED, ReservationState.PREEMPTED}
)
"""States that a reservation can get into at any time, whatever the conductor is doing for it."""


class Ledger:
    """Thread-safe; a promise or an intent is in the journal first, or is not made.

    An event that has happened stands even if it can't be written yet (a full disk).
    """

    def __init__(
        self,
        fabric: Fabric,
        journal: Journal,
        metrics: Metrics | None = None,
        traces: Traces | None = None,
        *,
        stored_events: bool = False,
    ) -> None:
        """``stored_events``: others may lead after this one, and go on with its events."""
        self._fabric = fabric
        self._metrics = metrics or Metrics()
        self._traces = traces or NoTraces()
        self._journal = journal
        self._lock = threading.RLock()
        self._state = NetworkState()
        self._book = ReservationBook(fabric)
        self._reconfigurations: OrderedDict[str, Reconfiguration] = OrderedDict()
        self._decisions: deque[Decision] = deque(maxlen=KEPT[Kind.DECISION])
        self._unsettled = SETTLED
        self._under_way: tuple[Execution, ...] = ()
        self._present: tuple[NetworkState, tuple[Execution, ...]] = self._state, ()
        """The two together, for those who must not wait for the lock: a write may take long."""
        self._standing: set[Pair] = set()
        """Pairs whose path an operator or the periodic mode asked for: no release removes it."""
        self._born_s: dict[Circuit, float] = {}
        self._lost: dict[VlanId, tuple[float, set[Path]]] = {}
        """When paths lost which VLAN-ID last, by the monotonic clock, and which paths did."""
        self._late_records: dict[str, Record] = {}
        self._late_deletions: frozenset[str] = frozenset()
        self._late_ends: set[str] = set()
        """Changes in stages that are over, as the journal is yet to be told."""
        self._late_state: str | None = None
        self._next_try_s = float("-inf")
        self._failure: tuple[float, JournalError] | None = None
        self._history = History()
        self._builders = Builders(fabric)
        self.events = EventLog(uuid.uuid4().hex[:8], stored=stored_events)
        self._teller: Teller | None = None
        self._ahead = Ahead(fabric)

    def look_ahead(self, copy: JournalCopy) -> None:
        """Read a copy of the journal, so that :meth:`load` has less to do. For any thread, while
        another controller leads; nobody sees anything of it.
        """
        self._ahead.look(copy)

    def load(self) -> None:
        """Take over the journal's records. Raises HydraError if it can't be used."""
        remembered = saved_state(self._fabric, self._journal)
        with self._lock, self._ahead.lock:
            if remembered is not None:
                entries = self._journal.records(Kind.ENTRY, newest=1)
                last = next(((one["what"], one["details"]) for one in entries), None)
                self._state = rested(self._fabric, remembered, last)
                self._present = self._state, self._under_way
                self._lost = {vlan: (time.monotonic(), set()) for vlan in self._state.resting}
                self._unsettled = interrupted(self._fabric, self._state, last)
            if self.events.stored:
                self._load_events()
            self._load_reservations()
            self._keep_standing()
            self._load_decisions()
            self._load_builders()
            self._ahead.end()
            self.note(HappeningKind.CONTROLLER, f"release {__version__} started")

    def _load_events(self) -> None:
        """Go on with the events of those that led before; tell of changes that ended with them."""
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
        goes_on = {one.id for one in self.unfinished()}
        for told in self._told_of(read):
            known = told
            if not told.is_over and told.id not in goes_on:
                reason = "the controller that carried it out has ended"
                known = replace(told, state=ReconfigurationState.FAILED, reason=reason)
                self._tell_progress(known)
            self._reconfigurations[told.id] = known
        self._teller = Teller(self._tell_waiting, lambda: self.events.can_wait)
        self.events.listen(self._teller.wake)
        self._teller.start()

    def _told_of(self, events: Iterable[Event]) -> Sequence[Reconfiguration]:
        """Reconfigurations of those that led before, as far as events tell; the last ones."""
        entries: dict[str, Reconfiguration] = {}
        for event in events:
            if (progress := event.progress) is None:
                continue
            known = entries.get(progress.id) or Reconfiguration(
                progress.id, progress.state, _BEFORE, self._state.epoch, event.unix_s
            )
            now = replace(known, state=progress.state, reason=event.reason)
            entries[progress.id] = now
        return list(entries.values())[-_HISTORY:]

    def _tell_waiting(self) -> None:
        """Write what waits to be told; not in the lock: it concerns nothing else. Raises
        JournalError.
        """
        if self.events.waiting:
            with self.events.writing() as events:
                if events:  # else another write has taken them along meanwhile
                    self._journal.write(self._event_changes(events))

    def _event_changes(self, events: Iterable[Event]) -> list[Change]:
        run = self.events.run
        return [Change(Kind.EVENT, None, event_record(self._fabric, run, one)) for one in events]

    def _load_reservations(self) -> None:
        """Read reservations; those that change by being read are written before anybody is told."""
        self._load_history()
        records = self._journal.records(Kind.RESERVATION)
        self._book = self._ahead.book.of(records)
        self._resume()
        pairs = zip(records, self._book, strict=True)
        stale = [reservation for record, reservation in pairs if out_of_date(record, reservation)]
        failed = [one for one in stale if one.state is ReservationState.FAILED]
        if stale:
            self._write_records(self._by_id(stale), news=_news(failed))
        for reservation in failed:
            LOG.warning("reservation %s has failed: %s", reservation.id, reservation.reason)
        self._note_of(failed)

    def _load_history(self) -> None:
        lines = []
        for record in self._journal.records(Kind.HISTORY):
            try:
                lines.append(self._ahead.history.of(record))
            except (KeyError, TypeError, ValueError) as error:
                LOG.warning("a line of history of another release is left out: %r", error)
        self._history = History(lines)

    def _load_decisions(self) -> None:
        for record in self._journal.records(Kind.DECISION):
            try:
                self._decisions.appendleft(read_decision(self._fabric, record))
            except (KeyError, TypeError, ValueError) as error:
                LOG.warning("a decision of another release is left out: %r", error)

    def _load_builders(self) -> None:
        try:
            self._builders = Builders(self._fabric, self._journal.records(Kind.BUILDER))
        except (KeyError, TypeError, ValueError) as error:
            LOG.warning("what set up circuits, by another release, is left out: %r", error)
        self._builders.keep(self._state.topology.circuits)

    def _resume(self) -> None:
        """Fail or begin the reservations that the end of the last run cut off."""
        for reservation in self._book:
            if reservation.is_booked and reservation.booked is None:
                reason = "it had no path yet when the controller ended"
                self._book.transition(
                    reservation.id, ReservationState.FAILED, reason, now=time.time()
                )
            elif reservation.state is ReservationState.COMMITTED:
                self._book.begin(reservation.id, time.time())

    def close(self) -> None:
        with self._lock:
            self.note(HappeningKind.CONTROLLER, "stopped")
            with suppress(JournalError):
                while self._history.unwritten or self.events.waiting:
                    self._write([])
        if self._teller is not None:
            self._teller.stop()
        self._journal.close()

    # -- history ----------------------------------------------------------------------------------

    def note(self, kind: HappeningKind, text: str, pairs: Iterable[tuple[str, str]] = ()) -> None:
        """Add a line to the history; it is written with what is written next, or soon."""
        with self._lock:
            self._history.add(time.time(), kind, text, pairs)

    def history(
        self,
        since_unix_s: float,
        before_unix_s: float,
        kinds: Collection[HappeningKind],
        most: int,
    ) -> Sequence[Happening]:
        """As :meth:`hydra.history.History.between`."""
        with self._lock:
            return self._history.between(since_unix_s, before_unix_s, kinds, most)

    def history_of(self, a: RackId, b: RackId, most: int) -> Sequence[Happening]:
        """As :meth:`hydra.history.History.concerning`."""
        with self._lock:
            racks = self._fabric.racks
            return self._history.concerning(racks[a].name, racks[b].name, most)

    def builders(self) -> Mapping[Circuit, Builder]:
        """The reconfigurations that set up the circuits which stand, as far as they are known."""
        with self._lock:
            return self._builders.of

    def _pairs_of(self, circuits: Iterable[Circuit]) -> list[tuple[str, str]]:
        racks = (self._fabric.racks_of(circuit) for circuit in circuits)
        return sorted({(self._fabric.racks[a].name, self._fabric.racks[b].name) for a, b in racks})

    # -- the network's state ----------------------------------------------------------------------

    @property
    def state(self) -> NetworkState:
        with self._lock:
            return self._state

    @property
    def unsettled(self) -> Unsettled:
        """What a change that broke off leaves open; nothing once :meth:`save` was called."""
        with self._lock:
            return self._unsettled

    def unsettle(self, more: Unsettled) -> None:
        """Note that a change broke off, which leaves this open."""
        with self._lock:
            self._unsettled |= more

    @property
    def under_way(self) -> tuple[Execution, ...]:
        """The reconfigurations that move the network now, each beside those before it."""
        return self._under_way

    def begin(self, execution: Execution) -> None:
        """Note that a reconfiguration moves the network from now on."""
        with self._lock:
            self._under_way = (*self._under_way, execution)
            self._present = self._state, self._under_way

    def end(self, execution: Execution) -> None:
        """Note that a reconfiguration is over: the network is in its result, and those that it was
        beside go on from there.
        """
        before = self.state
        with self._lock:
            self._under_way = tuple(one for one in self._under_way if one is not execution)
            self._settle(execution.result, (self._state, execution.wanted))
            for one in self._under_way:
                one.hear_of_change(before, execution.result)

    def settle(self, state: NetworkState) -> None:
        """Note that the network is in ``state`` from now on, and nothing under way."""
        with self._lock:
            self._under_way = ()
            self._settle(state, (self._state,))

    def _settle(self, state: NetworkState, used: Iterable[NetworkState]) -> None:
        """Note the network's state; VLAN-IDs that paths had in those ``used`` rest from now on, and
        are handed out after all others.
        """
        now_s = time.monotonic()
        for one in used:
            if gone := vlans_changed(state, one):
                self._lost |= {vlan: (now_s, paths) for vlan, paths in gone.items()}
                state = replace(state, freed=state.then_freed(gone, ()))
        before = self._state.topology.circuits
        if state.epoch < self._state.epoch:  # it began before others that have ended
            state = replace(state, epoch=self._state.epoch)
        self._state = state
        self._present = state, self._under_way
        circuits = state.topology.circuits
        self._tell(EventKind.CIRCUIT_DOWN, before - circuits)
        self._tell(EventKind.CIRCUIT_UP, circuits - before)
        self._builders.keep(circuits)
        self._born_s = {circuit: self._born_s.get(circuit, now_s) for circuit in circuits}
        self._standing &= set(paths_by_pair(state))

    def rest_s(self, target: NetworkState, vlan_rest_s: float) -> float:
        """Seconds until every VLAN-ID that ``target`` takes has rested for ``vlan_rest_s``.

        One that goes back to the paths that lost it needs no rest, nor does one that a path joins
        where ToRs learn: others use it all the time.
        """
        with self._lock:
            joined = self._state.vlans.values() if substrate_of(self._fabric).retags else ()
            lost_s = [
                self._lost[vlan][0]
                for vlan, paths in vlans_changed(self._state, target).items()
                if vlan in self._lost and vlan not in joined and not paths <= self._lost[vlan][1]
            ]
        return max(0.0, max(lost_s, default=float("-inf")) + vlan_rest_s - time.monotonic())

    def standing(self) -> tuple[NetworkState, Collection[Pair]]:
        """The present state, and the pairs whose paths are being moved. It waits for nobody: what
        dies is found, and agents hear of it, while the journal is written.
        """
        state, under_way = self._present
        return state, frozenset().union(*(one.plan.affected for one in under_way))

    def foretell(self, circuits: Collection[Circuit], reason: str) -> None:
        """Publish that these circuits are about to be taken down."""
        self._tell(EventKind.CIRCUIT_MOVING, circuits, reason)

    def _tell(self, kind: EventKind, circuits: Collection[Circuit], reason: str = "") -> None:
        with self._lock:
            for circuit in sorted(circuits):
                served = self._book.on(circuit)
                self.events.publish(
                    kind, time.time(), circuit=circuit, served=served, reason=reason
                )

    def tell_alarm(self, alarm: DeviceAlarm) -> None:
        """Publish news of a device's alarm."""
        self.events.publish(EventKind.ALARM, time.time(), alarm=alarm)

    def _note_of(self, reservations: Iterable[Reservation], news: str = "") -> None:
        """Note reservations as they are now; ``news``: what is new, if not their state."""
        for reservation in reservations:
            ends = f"{reservation.src} to {reservation.dst}, {reservation.bandwidth_mbps:g} Mb/s"
            told = news or f"is {reservation.state.value}"
            if news == _PLACED and reservation.state is ReservationState.ACTIVATING:
                told = _FIRST_PLACED  # it had none
            why = f": {reservation.reason}" if reservation.reason else ""
            racks = [self._fabric.racks[r].name for r in reservation.pair if r != GONE]
            self.note(
                HappeningKind.RESERVATION,
                f"reservation {reservation.id} ({ends}) {told}{why}",
                [(racks[0], racks[1])] if len(racks) > 1 else (),
            )

    def save(self, what: str) -> None:
        """Write the state to the journal, with the paths that the reservations have in it."""
        with self._lock:
            placed = self._place(self._promised_paths())
            self._note_of(placed, _PLACED)
            self._late_state = what
            try:
                self._write_state(what, placed)
            except JournalError:
                self._late_records |= self._by_id(placed)
                self.events.put(_news(placed))

    def finish(self, reconfiguration_id: str, **changes: Any) -> None:
        """:meth:`update` the record of a reconfiguration that is over, and :meth:`save` the state
        to which it has led. News of it go with that write, or with another one just before it.
        """
        with self._lock:
            self.update(reconfiguration_id, **changes)
            self.save("reconfigured")

    def _write_state(self, what: str, placed: Collection[Reservation] = ()) -> None:
        """Write the state, and reservations that were ``placed`` in it. Raises JournalError."""
        now_s, state = time.time(), self._state
        changes = save_state(self._fabric, state, now_s, what)
        if self._under_way:  # the last entry tells what may be found half done
            more = intent(self._fabric, state, state, self._under_way)
            changes.append(entry(now_s, more.what, more.details))
        self._write_records(self._by_id(placed), news=_news(placed), more=changes)
        self._unsettled, self._late_state = SETTLED, None

    def record(self, what: str, details: Mapping[str, Any]) -> None:
        """Append to the journal, with the events that wait to be told; not in the lock: what can't
        wait goes on meanwhile. Raises JournalError, also if the state is late and can't be written:
        an intent counts from the one that is saved.
        """
        if self._late_state is not None:
            with self._lock:
                if self._late_state is not None:
                    self._write_state(self._late_state)
        with self.events.writing() as events:
            told = self._event_changes(events)
            self._journal.write([entry(time.time(), what, details), *told])

    @property
    def behind(self) -> bool:
        """True if something that has happened could not be written yet."""
        with self._lock:
            late = self._late_records or self._late_deletions or self._late_ends or self._late_state
            return bool(late)

    @property
    def journal_failure(self) -> tuple[float, JournalError] | None:
        """When the journal could not be written first, in Unix seconds, and why it can't now; None:
        it can.
        """
        with self._lock:
            return self._failure

    def catch_up(self) -> None:
        """Write late records, the late state and the history, if another attempt is due."""
        with self._lock:
            failed = self._failure is not None
            if not (failed or self._history.unwritten) or time.monotonic() < self._next_try_s:
                return
            with suppress(JournalError):
                self._write_records({})
                self._write_ends()
                if self._late_state is not None:
                    self._write_state(self._late_state)
                self._write([])
                if failed:
                    self._failure = None
                    self.note(HappeningKind.JOURNAL, "it can be written again")
                    LOG.info("the journal can be written again, and is up to date")

    def _write(self, changes: Iterable[Change], news: Sequence[Event] = ()) -> None:
        """Write changes with the events that tell of them, and what has yet to be written: what
        set circuits up, the history, events. Raises JournalError: there is no news then.
        """
        lines, builders = self._history.unwritten, self._builders.unwritten
        with self._attempt(), self.events.writing(news) as events:
            told = self._event_changes(events)
            self._journal.write([*changes, *builders, *lines, *told])
        self._history.written(len(lines))
        self._builders.written(len(builders))

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        """Context of a write: logs an outage's first failure, and puts off the next attempt."""
        try:
            yield
        except JournalError as error:
            now_s = time.monotonic()
            if now_s >= self._next_try_s + _OUTAGE_S:
                LOG.error("%s; until then nothing is promised, and what happens waits", error)
            self._next_try_s = now_s + _TRY_AGAIN_S
            since_s, known = self._failure or (time.time(), None)
            self._failure = since_s, error
            if type(error) is not type(known):  # so, too, what comes on top of a full disk
                self.note(HappeningKind.JOURNAL, str(error))
            self._metrics.journal_failed()
            raise

    def _write_records(
        self,
        records: Mapping[str, Record],
        deletions: Collection[str] = (),
        news: Sequence[Event] = (),
        more: Sequence[Change] = (),
    ) -> None:
        """Write reservations, with the news of them, all late records, and ``more``. Raises
        JournalError.
        """
        self._late_deletions |= frozenset(deletions)
        everything: dict[str, Record | None] = {**self._late_records, **records}
        for reservation_id in self._late_deletions:
            everything.pop(reservation_id, None)
        if everything or self._late_deletions or more:
            changes = everything | dict.fromkeys(self._late_deletions)
            reserved = [Change(Kind.RESERVATION, key, record) for key, record in changes.items()]
            self._write([*reserved, *more], news)
        elif news:
            self.events.put(news)
        self._late_records, self._late_deletions = {}, frozenset()

    def _write_in_time(
        self,
        records: Mapping[str, Record],
        deletions: Collection[str] = (),
        news: Sequence[Event] = (),
    ) -> None:
        """Write records of what has happened: now, or as soon as the journal can be written."""
        try:
            self._write_records(records, deletions, news)
        except JournalError:
            self._late_records |= records
            self.events.put(news)

    def age_s(self, circuit: Circuit) -> float:
        """Seconds since a circuit came up; many, if it was there before the start."""
        with self._lock:
            return time.monotonic() - self._born_s.get(circuit, 0.0)

    def keep_standing(self, planned: Callable[[Pair], bool] = lambda _pair: False) -> None:
        """Count all present paths without a reservation as asked for in their own right.

        Those of reservations that were let go or are over count only where their pair was
        ``planned`` for.
        """
        with self._lock:
            self._leave_nothing(planned)
            self._keep_standing()
            self._note(self._place(self._promised_paths()))

    def _promised_paths(self) -> list[Path]:
        """Paths of reservations: a change for one pair may give another's path a new VLAN."""
        promised = {reservation.booked for reservation in self._book.active()}
        return [path for path in self._state.vlans if path in promised]

    def _place(self, paths: Iterable[Path]) -> list[Reservation]:
        """Note in the book that these paths stand; the reservations to which that is news."""
        before = {reservation.id: reservation for reservation in self._book.active()}
        return [
            one
            for path in paths
            for one in self._book.place(path, self._state.vlans[path])
            if one != before[one.id]
        ]

    def _keep_standing(self) -> None:
        reserved = {one.pair for one in (*self._book.active(), *self._book.leaving())}
        self._standing = set(paths_by_pair(self._state)) - reserved

    def leaving(self) -> tuple[Reservation, ...]:
        """Reservations that were let go or are over, and whose circuits may stand yet."""
        with self._lock:
            return self._book.leaving()

    def leave_nothing(self, pair: Pair) -> None:
        """Note that the circuits that a pair's reservations left are gone, or somebody else's."""
        with self._lock:
            self._leave_nothing(lambda one: one == pair)

    def _leave_nothing(self, concerned: Callable[[Pair], bool]) -> None:
        if gone := self._left_nothing(concerned):
            self._write_in_time(self._by_id(gone))

    def _left_nothing(self, concerned: Callable[[Pair], bool]) -> tuple[Reservation, ...]:
        """The same of all pairs that are concerned, in the book alone; of those being released,
        their end tells it.
        """
        over = [
            one.id
            for one in self._book.leaving()
            if one.state is not ReservationState.RELEASING and concerned(one.pair)
        ]
        return self._book.leave_nothing(over)

    # -- reconfigurations and decisions -----------------------------------------------------------

    def unfinished(self) -> Sequence[Unfinished]:
        """Changes in stages that were not over when the controller ended. Raises JournalError."""
        records = self._journal.records(Kind.CHANGE)
        return [read_unfinished(self._fabric, record) for record in records]

    def note_unfinished(self, change: Unfinished) -> None:
        """Write how far a change in stages is. Raises JournalError."""
        with self._lock:
            self._late_ends.discard(change.id)
            record = unfinished_record(self._fabric, change)
            self._write([Change(Kind.CHANGE, change.id, record)])

    def note_finished(self, reconfiguration_id: str) -> None:
        """Write that a change in stages is over: now, or as soon as the journal can be written."""
        with self._lock:
            self._late_ends.add(reconfiguration_id)
            with suppress(JournalError):
                self._write_ends()

    def _write_ends(self) -> None:
        if self._late_ends:
            self._write([Change(Kind.CHANGE, one, None) for one in sorted(self._late_ends)])
            self._late_ends.clear()

    def enter(self, trigger: str, reason: str = "", known: str | None = None) -> Reconfiguration:
        """``known``: its id, if it has been entered before a restart."""
        entry = Reconfiguration(
            id=known or uuid.uuid4().hex[:12],
            state=ReconfigurationState.QUEUED,
            trigger=trigger,
            epoch=self.state.epoch,
            created_unix_s=time.time(),
            reason=reason,
        )
        with self._lock:
            self._reconfigurations[entry.id] = entry
            over = [one.id for one in self._reconfigurations.values() if one.is_over]
            for oldest in over[: max(0, len(self._reconfigurations) - _HISTORY)]:
                del self._reconfigurations[oldest]
            self._tell_progress(entry)
        LOG.info(
            "asked for by %s%s",
            trigger,
            f": {reason}" if reason else "",
            extra={"reconfiguration": entry.id, "trigger": trigger},
        )
        return entry

    def update(self, reconfiguration_id: str, **changes: Any) -> None:
        """Change fields of a reconfiguration's record."""
        with self._lock:
            entry = self._reconfigurations.get(reconfiguration_id)
            if entry is None:
                return
            changed = replace(entry, **changes)
            self._reconfigurations[reconfiguration_id] = changed
            if changed.state is not entry.state:
                self._tell_progress(changed)
            if changed.is_over and not entry.is_over:
                self._note_end(changed)
        if changed.is_over and not entry.is_over:
            self._metrics.reconfigured(changed)
            self._traces.reconfigured(changed)

    def _note_end(self, ended: Reconfiguration) -> None:
        by = Builder(ended.id, ended.trigger, ended.created_unix_s)
        self._builders.add(by, ended.connected & self._state.topology.circuits)
        failed = {one.circuit for one in ended.failures}
        words = [str(one.failure) for one in ended.failures]
        words = [one for one in dict.fromkeys(words) if one not in ended.reason]
        self.note(
            HappeningKind.RECONFIGURATION,
            f"{ended.id}, asked for by {ended.trigger}, is {ended.state.value}: "
            f"{len(ended.connected)} circuit{'' if len(ended.connected) == 1 else 's'} up, "
            f"{len(ended.disconnected)} down"
            + "".join(f"; {one}" for one in (*words, ended.reason) if one),
            self._pairs_of(ended.connected | ended.disconnected | failed),
        )

    def note_course(
        self, reconfiguration_id: str, text: str, circuits: Collection[Circuit]
    ) -> None:
        """Tell what becomes of a change that is not over, and touches these circuits."""
        entry = self.reconfiguration(reconfiguration_id)
        told = f"{entry.id}, asked for by {entry.trigger}: {text}"
        LOG.info("%s", text, extra={"reconfiguration": entry.id})
        self.note(HappeningKind.RECONFIGURATION, told, self._pairs_of(circuits))
        self._tell_progress(replace(entry, reason=text))

    def _tell_progress(self, entry: Reconfiguration) -> None:
        self.events.publish(
            EventKind.RECONFIGURATION,
            time.time(),
            reason=entry.reason,
            progress=Progress(entry.id, entry.state),
        )

    def note_loss(self, circuits: Collection[Circuit]) -> None:
        """Count circuits that went by themselves."""
        self._metrics.lost(len(circuits))

    def refuse(self, entry: Reconfiguration, reason: str) -> None:
        """Mark a queued reconfiguration as refused; one that has begun or ended stays as it is."""
        if self.reconfiguration(entry.id).state is not ReconfigurationState.QUEUED:
            return
        LOG.warning("refused: %s", reason, extra={"reconfiguration": entry.id})
        self.update(entry.id, state=ReconfigurationState.REFUSED, reason=reason)

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        with self._lock:
            return tuple(reversed(self._reconfigurations.values()))

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        with self._lock:
            try:
                return self._reconfigurations[reconfiguration_id]
            except KeyError:
                raise UnknownName(f"no reconfiguration {reconfiguration_id!r}") from None

    def decide(self, decision: Decision) -> None:
        """Remember a decision; over a restart, too, if the journal can be written.

        Nothing rests on it: the change that it leads to is journalled apart.
        """
        with self._lock:
            before = self._decisions[0].action if self._decisions else None
            self._decisions.appendleft(decision)
            if decision.action is Action.CHANGE or decision.action is not before:
                said = f"{decision.action.value}: {decision.reason}"
                proposal = decision.proposal
                touched = proposal.connect | proposal.disconnect if proposal else frozenset()
                self.note(HappeningKind.DECISION, said, self._pairs_of(touched))
        try:
            record = decision_record(self._fabric, decision)
            self._journal.write([Change(Kind.DECISION, None, record)])
        except JournalError as error:
            LOG.error("a decision is forgotten at the next start: %s", error)

    def decisions(self) -> Sequence[Decision]:
        with self._lock:
            return tuple(self._decisions)

    # -- reservations -----------------------------------------------------------------------------

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
        """Enter a reservation in the book alone; use it, and :meth:`keep`, in a :meth:`trial`."""
        with self._lock:
            return self._book.add(
                uuid.uuid4().hex[:12], request, time.time(), limits, group, notice_s, bundle
            )

    def take_back(self, reservations: Sequence[Reservation]) -> None:
        """Undo :meth:`add` of these, in this order."""
        with self._lock:
            for one in reversed(reservations):
                self._book.remove(one.id)

    def parts(self, bundle: str) -> tuple[Reservation, ...]:
        """Parts of a bundle; empty if there is none of this id."""
        with self._lock:
            return self._book.parts(bundle)

    def would_fit(
        self, request: ReservationRequest, limits: AdmissionLimits, notice_s: float
    ) -> bool:
        """True if the book would admit it within these limits; the book stays as it is."""
        with self._lock:
            try:
                tried = self.add(request, limits, notice_s=notice_s)
            except AdmissionError:
                return False
            self._book.remove(tried.id)
            return True

    def admitted_before(self, request: ReservationRequest) -> tuple[Reservation, ...]:
        """Reservations that this very request brought about before. Raises KeyReused."""
        if request.retry is None:
            return ()
        with self._lock:
            return self._book.admitted_before(request.owner, request.retry)

    def _check_unchanged(self, seen: Reservation | None) -> None:
        """Raises Changed if the reservation is not as it was ``seen``."""
        if seen is not None and self.reservation(seen.id) != seen:
            raise Changed(f"reservation {seen.id} has changed meanwhile: read it again")

    def keep(self, reservations: Collection[Reservation]) -> None:
        """Write reservations to the journal, and those that gave way to them, all or none.

        From now on they survive a restart. Raises JournalError.
        """
        with self._lock:
            displaced = [one for r in reservations for one in self._book.displaced(r.id)]
            everybody = (*displaced, *reservations)
            self._write_records(self._by_id(everybody), news=_news(everybody))
            for reservation in reservations:
                self._book.settle(reservation.id)
            self._note_of(everybody)
            self._let_stay([one.id for one in displaced if not one.is_booked])

    def _let_stay(self, over: Iterable[str]) -> None:
        """Let those stay that were to give way to reservations that are over."""
        now_s = time.time()
        staying = [
            one for reservation_id in over for one in self._book.let_stay(reservation_id, now_s)
        ]
        if staying:
            self._note_of(staying, _STAYS)
            self._write_in_time(self._by_id(staying), news=_news(staying))

    def _note(self, reservations: Collection[Reservation]) -> None:
        """Write and publish where the reservations' paths are now."""
        self._note_of(reservations, _PLACED)
        self._write_in_time(self._by_id(reservations), news=_news(reservations))

    def change(
        self,
        reservation_id: str,
        state: ReservationState,
        reason: str = "",
        seen: Reservation | None = None,
        *,
        leaves_nothing: bool = False,
    ) -> Reservation:
        """Enter a state, unless the owner, or a reservation of higher rank, has ended it by now.

        ``leaves_nothing``: with it goes what :meth:`leave_nothing` notes of its pair. Raises
        Changed if it is not as it was ``seen``.
        """
        with self._lock:
            self._check_unchanged(seen)
            before = self._book.get(reservation_id)
            if (
                before.state in _ENDED_BY_OTHERS
                and state not in RESERVATION_TRANSITIONS[before.state]
            ):
                return before
            now_s = time.time()
            reservation = self._book.transition(reservation_id, state, reason, now=now_s)
            staying = self._book.let_stay(reservation_id, now_s)
            pair = reservation.pair
            gone = self._left_nothing(lambda one: one == pair) if leaves_nothing else ()
            reservation = self._book.get(reservation_id)
            self._note_of([reservation])
            self._note_of(staying, _STAYS)
            self._write_in_time(
                *self._records(reservation, [*staying, *gone]), _news([reservation, *staying])
            )
            return reservation

    def let_go(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Cancel a reservation for its owner; one that has begun is releasing, one that has failed
        is released.

        Raises UnknownName, Changed, LifecycleError, JournalError.
        """
        with self._lock, self._or_as_it_was(reservation_id):
            self._check_unchanged(seen)
            old = self._book.get(reservation_id)
            state, why = ReservationState.RELEASING, "asked for"
            if old.state in _NOT_BEGUN:
                state = ReservationState.CANCELLED
            elif old.state is ReservationState.FAILED:
                state, why = ReservationState.RELEASED, f"asked for; it had failed: {old.reason}"
            now_s = time.time()
            reservation = self._book.transition(reservation_id, state, why, now=now_s)
            staying = self._book.let_stay(reservation_id, now_s)
            self._write_records(
                *self._records(reservation, staying), _news([reservation, *staying])
            )
            self._note_of([reservation])
            self._note_of(staying, _STAYS)
            return reservation

    @contextmanager
    def _or_as_it_was(self, reservation_id: str) -> Iterator[None]:
        """Put the reservation, and those that are to give way to it, back as they were if the
        journal can't be written.
        """
        before = self._book.get(reservation_id), *self._book.giving_way_to(reservation_id)
        try:
            yield
        except JournalError:
            for one in before:
                self._book.put_back(one)
            raise

    def _records(
        self, reservation: Reservation, others: Iterable[Reservation] = ()
    ) -> tuple[dict[str, Record], tuple[str, ...]]:
        """(records to write for a reservation and others, by id; ids of old ones to delete)."""
        forgotten = self._book.prune(_KEPT_RESERVATIONS)
        known = reservation.id not in forgotten
        return self._by_id([reservation, *others] if known else others), forgotten

    def _by_id(self, reservations: Iterable[Reservation]) -> dict[str, Record]:
        return {one.id: reservation_record(self._fabric, one) for one in reservations}

    def commit(self, reservation_id: str, seen: Reservation | None) -> Reservation:
        """Commit a held reservation. Raises UnknownName, Changed, LifecycleError, JournalError."""
        with self._lock:
            self._check_unchanged(seen)
            with self._or_as_it_was(reservation_id):
                now = time.time()
                committed = self._book.transition(
                    reservation_id, ReservationState.COMMITTED, now=now
                )
                reservation = self._book.begin(reservation_id, now)
                both = (committed, reservation)
                self._write_records(*self._records(reservation), _news(both))
            self._note_of(both)
            return reservation

    def modify(
        self,
        reservation_id: str,
        change: Modification,
        limits: AdmissionLimits,
        seen: Reservation | None,
    ) -> Reservation:
        """Change one. Raises what :meth:`ReservationBook.modify` raises, Changed, JournalError."""
        with self._lock:
            self._check_unchanged(seen)
            old = self._book.get(reservation_id)
            with self._or_as_it_was(reservation_id):
                new = self._book.modify(reservation_id, change, time.time(), limits)
                if new != old:
                    self._write_records(*self._records(new), _news([new]))
                    self._note_of([new])
            return new

    def place(self, path: Path) -> bool:
        """Note with the path's reservations that it stands; False if it does not, or if its pair
        has a path that nobody reserved.
        """
        with self._lock:
            pair = pair_of(path)
            promised = {r.booked for r in self._book.active() if r.pair == pair}
            paths = paths_by_pair(self._state).get(pair, ())
            if path not in paths or not promised.issuperset(paths):
                return False
            self._note(self._place([path]))
            return True

    def reroute(self, pair: Pair, limits: AdmissionLimits, tried: Sequence[str] = ()) -> None:
        """Book the pair's reservations around blocked ports; those that find no path fail.

        Their reason begins with what was ``tried`` before, in words. A tenant reads it: it names
        nobody else's reservations.
        """
        with self._lock:
            changed, refused = self._book.reroute(pair, time.time(), limits)
            self._note(changed)
            for reservation_id, error in refused.items():
                LOG.warning("reservation %s has no other path: %s", reservation_id, error)
                owned = self._book.get(reservation_id).owner is not None
                told = f"no other path: {error.in_public if owned else error}"
                why = "; ".join(dict.fromkeys([*filter(None, tried), told]))
                self.change(reservation_id, ReservationState.FAILED, why)

    def fitting_mbps(
        self, reservations: Iterable[Reservation], limits: AdmissionLimits
    ) -> Mapping[str, float]:
        """Mbps of reservations that have failed which would fit now, by id; absent: none would."""
        with self._lock:
            now_s = time.time()
            fitting = {r.id: self._book.fitting_mbps(r.id, now_s, limits) for r in reservations}
        return {known: mbps for known, mbps in fitting.items() if mbps is not None}

    def usage(self, owner: str) -> Usage:
        with self._lock:
            return self._book.usage(owner, time.time())

    def pins(self, leaving_out: frozenset[str] = frozenset()) -> tuple[Pin, ...]:
        with self._lock:
            return self._book.pinned(leaving_out)

    def active(self) -> tuple[Reservation, ...]:
        """Reservations that have, or are getting, circuits."""
        with self._lock:
            return self._book.active()

    def standing_paths(self) -> tuple[Path, ...]:
        """Paths that stand, of pairs without a reservation."""
        with self._lock:
            reserved = {reservation.pair for reservation in self._book.active()}
            paths = self._state.topology.paths
            return tuple(path for path in paths if pair_of(path) not in reserved)

    def unwanted(self, pair: Pair) -> tuple[Path, ...]:
        """Paths of the pair that stand, and were not asked for: neither in their own right nor by a
        reservation.
        """
        with self._lock:
            promised = {r.booked for r in self._book.active() if r.pair == pair}
            if pair in self._standing and not promised:
                return ()
            paths = paths_by_pair(self._state).get(pair, ())
            return tuple(path for path in paths if path not in promised)

    def due(self) -> tuple[str, ...]:
        with self._lock:
            return self._book.due(time.time())

    def group(self, group: str) -> tuple[Reservation, ...]:
        """Reservations of a group. Raises UnknownName."""
        with self._lock:
            return self._book.members(group)

    def expired(self) -> tuple[str, ...]:
        with self._lock:
            return self._book.expired(time.time())

    def reservations(self) -> Sequence[Reservation]:
        with self._lock:
            return tuple(self._book)

    def reservation(self, reservation_id: str) -> Reservation:
        with self._lock:
            return self._book.get(reservation_id)


def _news(reservations: Iterable[Reservation]) -> list[Event]:
    """Events that tell of reservations as they are now."""
    now_s = time.time()
    return [
        Event(0, EventKind.RESERVATION, now_s, reservation=one, reason=one.reason)
        for one in reservations
    ]
