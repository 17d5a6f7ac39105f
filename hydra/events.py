"""Events: a bounded history of changes in the controller, for any number of readers.

Each reader keeps its own place. One that is slow or gone holds up nobody and misses old events: the
history keeps the latest ones, read or not.

Where controllers share a store, an event is told once it is in there. Whoever leads next goes on
with the numbers, so that a reader which comes to it misses nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from hydra.errors import HydraError
from hydra.journal_format import circuit_record, read_circuit
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReconfigurationState
from hydra.model import Circuit, Fabric
from hydra.reservations.records import read_reservation, reservation_record
from hydra.reservations.reservation import Reservation
from hydra.roles import Alarm, Severity


class EventKind(StrEnum):
    RESERVATION = "reservation"
    """A reservation was admitted, changed its state, or moved to another path."""
    CIRCUIT_UP = "circuit-up"
    CIRCUIT_DOWN = "circuit-down"
    CIRCUIT_MOVING = "circuit-moving"
    """A circuit is about to be taken down on purpose: its traffic goes another way from now on."""
    RECONFIGURATION = "reconfiguration"
    """A reconfiguration was queued, entered its next substep, or ended."""
    SCHEDULE = "schedule"
    """A week of slots begins; when each of its circuits stands is known ahead."""
    ALARM = "alarm"
    """An alarm of a device began, ended, or came and went; or of a switch's second connection."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state that a reconfiguration has reached."""

    id: str
    state: ReconfigurationState


@dataclass(frozen=True, slots=True)
class DeviceAlarm:
    device: str
    alarm: Alarm
    """An alarm that is over has severity CLEARED."""


@dataclass(frozen=True, slots=True)
class Event:
    number: int
    """Counts from 1 in each run of the controller; of those that share a store, from one to the
    next. 0: it is not told yet."""
    kind: EventKind
    unix_s: float
    reservation: Reservation | None = None
    circuit: Circuit | None = None
    served: tuple[Reservation, ...] = ()
    """The reservations that were promised this circuit."""
    reason: str = ""
    progress: Progress | None = None
    alarm: DeviceAlarm | None = None


class EventLog:
    """Thread-safe; keeps the last ``capacity`` events."""

    def __init__(self, run: str, capacity: int = 10_000, *, stored: bool = False) -> None:
        """``stored``: events wait until :meth:`writing` has had them written."""
        self.run = run
        """Tells the numbers of this run from those of others."""
        self.stored = stored
        self._events: deque[Event] = deque(maxlen=capacity)
        self._waiting: deque[Event] = deque(maxlen=capacity)
        self._dropped = 0
        """Events that waited to be written, and had to give way to later ones."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._last = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def last(self) -> int:
        """The number of the newest event that is told; 0 before the first."""
        with self._lock:
            return self._last

    @property
    def waiting(self) -> bool:
        """True if there are events to be written."""
        return bool(self._waiting)

    @property
    def can_wait(self) -> bool:
        """True if all events to be written tell of changes that go on, which write soon."""
        with self._lock:
            waiting = tuple(self._waiting)
        return bool(waiting) and all(
            one.progress is not None and RECONFIGURATION_TRANSITIONS[one.progress.state]
            for one in waiting
        )

    def resume(self, run: str, events: Iterable[Event], last: int) -> None:
        """Go on after the events of a controller that led before, up to number ``last``; before the
        first of one's own.
        """
        with self._lock:
            self.run = run
            for event in events:
                if event.number != self._last + 1:
                    self._events.clear()  # those that stay have no gap
                self._events.append(event)
                self._last = event.number
            if last != self._last:
                self._events.clear()
                self._last = last

    def publish(
        self,
        kind: EventKind,
        unix_s: float,
        *,
        reservation: Reservation | None = None,
        circuit: Circuit | None = None,
        served: Sequence[Reservation] = (),
        reason: str = "",
        progress: Progress | None = None,
        alarm: DeviceAlarm | None = None,
    ) -> None:
        """Tell of an event, or have it wait until it is written."""
        self.put(
            [Event(0, kind, unix_s, reservation, circuit, tuple(served), reason, progress, alarm)]
        )

    def put(self, events: Iterable[Event]) -> None:
        """:meth:`publish` what is there already."""
        with self._lock:
            if self.stored:
                for event in events:
                    self._dropped += len(self._waiting) == self._waiting.maxlen
                    self._waiting.append(event)
            else:
                self._tell(self._numbered(events))
        self._wake()

    @contextmanager
    def writing(self, more: Sequence[Event] = ()) -> Iterator[Sequence[Event]]:
        """Events that a write has to have with it, numbered: those that wait, and ``more``.

        They are told at the end of the block. If that raises, the former go on waiting, and
        ``more`` did not happen. Where too many have waited, the numbers of those that are lost are
        left out, so that readers are told of a gap.
        """
        if not self.stored:
            yield ()
            if more:
                self.put(more)
            return
        with self._writing:
            with self._lock:
                waiting, lost = tuple(self._waiting), self._dropped
                numbered = self._numbered((*waiting, *more), lost)
            yield numbered
            with self._lock:
                given_way = min(self._dropped - lost, len(waiting))  # meanwhile: these are written
                self._dropped -= lost + given_way
                for _ in range(len(waiting) - given_way):
                    self._waiting.popleft()
                self._tell(numbered, lost)
        if numbered:
            self._wake()

    def _numbered(self, events: Iterable[Event], lost: int = 0) -> list[Event]:
        first = self._last + lost + 1
        return [replace(event, number=first + i) for i, event in enumerate(events)]

    def _tell(self, numbered: Sequence[Event], lost: int = 0) -> None:
        if lost:
            self._events.clear()  # those that stay have no gap
        self._events.extend(numbered)
        self._last += lost + len(numbered)

    def _wake(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def after(self, number: int, most: int = 100) -> tuple[list[Event], int]:
        """Up to ``most`` events that follow ``number``, and how many before those are forgotten."""
        with self._lock:
            first = self._last - len(self._events) + 1
            start = max(number + 1, first)
            skip = start - first
            events = [self._events[i] for i in range(skip, min(skip + most, len(self._events)))]
        return events, start - number - 1

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each event, in the thread that published it: it must be quick.

        Where events wait to be written, it is called before and after that.
        """
        with self._lock:
            self._listeners.append(listener)

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """:meth:`listen` until the end of the block."""
        self.listen(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)


def event_record(fabric: Fabric, run: str, event: Event) -> dict[str, Any]:
    """``event`` as nested dicts and lists of names and numbers."""
    one, circuit, progress, told = event.reservation, event.circuit, event.progress, event.alarm
    return {
        "run": run,
        "number": event.number,
        "kind": event.kind.value,
        "unix_s": event.unix_s,
        "reason": event.reason,
        "reservation": None if one is None else reservation_record(fabric, one),
        "circuit": None if circuit is None else circuit_record(fabric, circuit),
        "served": [reservation_record(fabric, each) for each in event.served],
        "progress": None if progress is None else [progress.id, progress.state.value],
        "alarm": None
        if told is None
        else {
            "device": told.device,
            "alarm": {**asdict(told.alarm), "severity": told.alarm.severity.value},
        },
    }


def read_event(fabric: Fabric, record: Mapping[str, Any]) -> Event:
    """The event that :func:`event_record` wrote. Raises HydraError for one of another release."""
    try:
        one, circuit, progress, told = (
            record[key] for key in ("reservation", "circuit", "progress", "alarm")
        )
        alarm = None
        if told is not None:
            severity = Severity(told["alarm"]["severity"])
            complaint = Alarm(**{**told["alarm"], "severity": severity})
            alarm = DeviceAlarm(str(told["device"]), complaint)
        return Event(
            int(record["number"]),
            EventKind(record["kind"]),
            float(record["unix_s"]),
            None if one is None else read_reservation(fabric, one),
            None if circuit is None else read_circuit(fabric, circuit),
            tuple(read_reservation(fabric, each) for each in record["served"]),
            str(record["reason"]),
            None if progress is None else Progress(progress[0], ReconfigurationState(progress[1])),
            alarm,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise HydraError(f"not an event's record ({error!r})") from error
