"""The log: history for people, decisions, and the course of each reconfiguration."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from apps.controller.record.journal_writer import JournalWriter
from apps.controller.record.network import NetworkRecord
from apps.controller.record.reconfigurations import KeptReconfigurations
from apps.process.metrics import Metrics
from apps.process.tracing import Traces
from hydra.decisions.builders import Builder, Builders
from hydra.decisions.decision import Action, Decision
from hydra.decisions.records import decision_record, read_decision
from hydra.errors import UnknownName
from hydra.events import DeviceAlarm, EventKind, EventLog, Progress
from hydra.history import Happening, HappeningKind, History
from hydra.journal import KEPT, Change, Journal, JournalError, Kind
from hydra.journal_format import Unfinished, read_unfinished, unfinished_record
from hydra.lifecycle import ReconfigurationState
from hydra.model import Circuit, Fabric, RackId
from hydra.names import counted
from hydra.service import Reconfiguration

LOG = logging.getLogger("hydra.ledger")


class ActivityLog:
    """Thread-safe. ``lock`` guards all records."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        journal: Journal,
        writer: JournalWriter,
        network: NetworkRecord,
        builders: Builders,
        reconfigurations: KeptReconfigurations,
        history: History,
        events: EventLog,
        metrics: Metrics,
        traces: Traces,
        lock: threading.RLock,
    ) -> None:
        self._fabric = fabric
        self._journal = journal
        self._writer = writer
        self._network = network
        self._builders = builders
        self._history = history
        self.events = events
        self._metrics = metrics
        self._traces = traces
        self._lock = lock
        self._reconfigurations = reconfigurations
        self._decisions: deque[Decision] = deque(maxlen=KEPT[Kind.DECISION])

    # -- history ----------------------------------------------------------------------------------

    def note(self, kind: HappeningKind, text: str, pairs: Iterable[tuple[str, str]] = ()) -> None:
        """Add a line to the history, written with the next write, or soon."""
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

    def report_alarm(self, alarm: DeviceAlarm) -> None:
        """Publish a change of a device's alarm."""
        self.events.publish(EventKind.ALARM, time.time(), alarm=alarm)

    # -- reconfigurations -------------------------------------------------------------------------

    def enter(self, trigger: str, reason: str = "", known: str | None = None) -> Reconfiguration:
        """Enter a queued reconfiguration; ``known``: the id from before a restart, if any."""
        entry = Reconfiguration(
            id=known or uuid.uuid4().hex[:12],
            state=ReconfigurationState.QUEUED,
            trigger=trigger,
            epoch=self._network.state.epoch,
            created_unix_s=time.time(),
            reason=reason,
        )
        with self._lock:
            self._reconfigurations.put(entry)
            self._report_progress(entry)
        LOG.info(
            "asked for by %s%s",
            trigger,
            f": {reason}" if reason else "",
            extra={"reconfiguration": entry.id, "trigger": trigger},
        )
        return entry

    def update(self, reconfiguration_id: str, **changes: Any) -> None:
        """Change fields of a reconfiguration's record; the end of a reconfiguration is written."""
        if self.amend(reconfiguration_id, changes):
            self._writer.write_soon()

    def amend(self, reconfiguration_id: str, changes: Mapping[str, Any]) -> bool:
        """As :meth:`update`, but an end goes with the next write; True if ``changes`` end it."""
        with self._lock:
            entry = self._reconfigurations.get(reconfiguration_id)
            if entry is None:
                return False
            changed = replace(entry, **changes)
            self._replace(entry, changed)
        ended = changed.is_over and not entry.is_over
        if ended:
            self._metrics.reconfigured(changed)
            self._traces.reconfigured(changed)
        return ended

    def write_entered(self) -> None:
        """Write entered reconfigurations: now, or as soon as the journal can be written."""
        self._writer.write_soon()

    def _replace(self, before: Reconfiguration, now: Reconfiguration) -> None:
        self._reconfigurations.put(now)
        if now.state is not before.state:
            self._report_progress(now)
        if now.is_over and not before.is_over:
            self._note_end(now)

    def refuse(self, entry: Reconfiguration, reason: str) -> None:
        """Mark a queued reconfiguration as refused; leave a started reconfiguration unchanged."""
        if self.reconfiguration(entry.id).state is not ReconfigurationState.QUEUED:
            return
        LOG.warning("refused: %s", reason, extra={"reconfiguration": entry.id})
        self.update(entry.id, state=ReconfigurationState.REFUSED, reason=reason)

    def note_course(
        self, reconfiguration_id: str, text: str, circuits: Collection[Circuit]
    ) -> None:
        """Log a step of each unfinished reconfiguration that touches ``circuits``."""
        entry = self.reconfiguration(reconfiguration_id)
        headline = f"{entry.id}, asked for by {entry.trigger}: {text}"
        LOG.info("%s", text, extra={"reconfiguration": entry.id})
        self.note(HappeningKind.RECONFIGURATION, headline, self._pairs_of(circuits))
        self._report_progress(replace(entry, reason=text))

    def note_loss(self, circuits: Collection[Circuit]) -> None:
        """Count lost circuits."""
        self._metrics.lost(len(circuits))

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        """The remembered reconfigurations, newest first."""
        return self._reconfigurations.newest_first()

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        """The reconfiguration with the given id. Raises UnknownName."""
        if (change := self._reconfigurations.get(reconfiguration_id)) is None:
            raise UnknownName(
                f"no reconfiguration {reconfiguration_id!r}: GET /v1/reconfigurations (`hydra "
                "reconfigurations`) has the ids of the latest"
            )
        return change

    def _note_end(self, ended: Reconfiguration) -> None:
        by = Builder(ended.id, ended.trigger, ended.created_unix_s)
        self._builders.add(by, ended.connected & self._network.state.topology.circuits)
        failed = {failure.circuit for failure in ended.failures}
        words = [str(failure.failure) for failure in ended.failures]
        words = [word for word in dict.fromkeys(words) if word not in ended.reason]
        self.note(
            HappeningKind.RECONFIGURATION,
            f"{ended.id}, asked for by {ended.trigger}, is {ended.state.value}: "
            f"{counted(len(ended.connected), 'circuit')} up, "
            f"{len(ended.disconnected)} down"
            + "".join(f"; {word}" for word in (*words, ended.reason) if word),
            self._pairs_of(ended.connected | ended.disconnected | failed),
        )

    def _pairs_of(self, circuits: Iterable[Circuit]) -> list[tuple[str, str]]:
        racks = (self._fabric.racks_of(circuit) for circuit in circuits)
        return sorted({(self._fabric.racks[a].name, self._fabric.racks[b].name) for a, b in racks})

    def _report_progress(self, entry: Reconfiguration) -> None:
        self.events.publish(
            EventKind.RECONFIGURATION,
            time.time(),
            reason=entry.reason,
            progress=Progress(entry.id, entry.state),
        )

    def load_reconfigurations(self) -> None:
        """Take over reconfigurations; a change cut off by the last controller's end has failed,
        unless it goes on in stages.

        Raises JournalError.
        """
        self._reconfigurations.load(self._journal.records(Kind.RECONFIGURATION))
        goes_on = {unfinished.id for unfinished in self.unfinished()}
        for reconfiguration in self._reconfigurations.newest_first()[::-1]:
            if not reconfiguration.is_over and reconfiguration.id not in goes_on:
                reason = "the controller that carried it out has ended"
                self._replace(
                    reconfiguration,
                    replace(reconfiguration, state=ReconfigurationState.FAILED, reason=reason),
                )

    # -- changes in stages ------------------------------------------------------------------------

    def unfinished(self) -> Sequence[Unfinished]:
        """Changes in stages not over when the controller ended. Raises JournalError."""
        records = self._journal.records(Kind.CHANGE)
        return [read_unfinished(self._fabric, record) for record in records]

    def note_unfinished(self, change: Unfinished) -> None:
        """Write how far a change in stages is. Raises JournalError."""
        record = unfinished_record(self._fabric, change)
        self._writer.write([Change(Kind.CHANGE, change.id, record)])

    def note_finished(self, reconfiguration_id: str) -> None:
        """Write the end of a change in stages: now, or as soon as the journal can be written."""
        self._writer.write_in_time([Change(Kind.CHANGE, reconfiguration_id, None)])

    # -- decisions --------------------------------------------------------------------------------

    def decide(self, decision: Decision) -> None:
        """Remember a decision; over a restart, too, if the journal can be written.

        A failed write is harmless, as the change that follows is journalled apart.
        """
        with self._lock:
            before = self._decisions[0].action if self._decisions else None
            self._decisions.appendleft(decision)
            if decision.action is Action.CHANGE or decision.action is not before:
                summary = f"{decision.action.value}: {decision.reason}"
                proposal = decision.proposal
                touched = proposal.connect | proposal.disconnect if proposal else frozenset()
                self.note(HappeningKind.DECISION, summary, self._pairs_of(touched))
        try:
            record = decision_record(self._fabric, decision)
            self._journal.write([Change(Kind.DECISION, None, record)])
        except JournalError as error:
            LOG.error("a decision is forgotten at the next start: %s", error)

    def decisions(self) -> Sequence[Decision]:
        """The remembered decisions, newest first."""
        with self._lock:
            return tuple(self._decisions)

    def load_decisions(self) -> None:
        """Read the decisions in the journal. Raises JournalError."""
        for record in self._journal.records(Kind.DECISION):
            try:
                self._decisions.appendleft(read_decision(self._fabric, record))
            except (KeyError, TypeError, ValueError) as error:
                LOG.warning("a decision of another release is left out: %r", error)
