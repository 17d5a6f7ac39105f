"""Events: a bounded history of changes in the controller, for any number of readers.

Each reader keeps a position. The history keeps the latest events, read or not: a slow or absent
reader blocks nothing and misses old events.

If controllers share a store, an event is published after the write to the store. The next leader
continues the numbers, so a reader that moves to the next leader misses nothing.
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
    """A reservation was admitted, changed state, or moved to a different path."""
    CIRCUIT_UP = "circuit-up"
    CIRCUIT_DOWN = "circuit-down"
    CIRCUIT_MOVING = "circuit-moving"
    """A circuit is about to be taken down on purpose: traffic leaves the circuit from now on."""
    RECONFIGURATION = "reconfiguration"
    """A reconfiguration was queued, entered the next substep, or ended."""
    SCHEDULE = "schedule"
    """A week of slots begins; the times of each circuit are known in advance."""
    ALARM = "alarm"
    """An alarm of a device or of a switch's second connection began, ended, or came and went."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The present state of a reconfiguration."""

    id: str
    state: ReconfigurationState


@dataclass(frozen=True, slots=True)
class DeviceAlarm:
    device: str
    alarm: Alarm
    """An ended alarm has severity CLEARED."""


@dataclass(frozen=True, slots=True)
class Event:
    number: int
    """Counts from 1 in each run of the controller; controllers with a shared store continue the
    count. 0: not published.
    """
    kind: EventKind
    unix_s: float
    reservation: Reservation | None = None
    circuit: Circuit | None = None
    served: tuple[Reservation, ...] = ()
    """Reservations that the circuit was promised to."""
    reason: str = ""
    progress: Progress | None = None
    alarm: DeviceAlarm | None = None


class EventLog:
    """The last ``capacity`` events. Thread-safe."""

    def __init__(self, run: str, capacity: int = 10_000, *, stored: bool = False) -> None:
        """``stored``: events wait until :meth:`writing` has stored them."""
        self.run = run
        """Identifies the run that the event numbers belong to."""
        self.stored = stored
        self._events: deque[Event] = deque(maxlen=capacity)
        self._waiting: deque[Event] = deque(maxlen=capacity)
        self._dropped = 0
        """Number of unwritten events displaced by later events."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._last = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def last(self) -> int:
        """Number of the newest published event; 0 before the first."""
        with self._lock:
            return self._last

    @property
    def waiting(self) -> bool:
        """True if events wait for a write."""
        return bool(self._waiting)

    @property
    def can_wait(self) -> bool:
        """True if all waiting events belong to unfinished reconfigurations, which write soon
        anyway.
        """
        with self._lock:
            waiting = tuple(self._waiting)
        return bool(waiting) and all(
            event.progress is not None and RECONFIGURATION_TRANSITIONS[event.progress.state]
            for event in waiting
        )

    def resume(self, run: str, events: Iterable[Event], last: int) -> None:
        """Continue after the events of the former leader, up to number ``last``; call before the
        first own event.
        """
        with self._lock:
            self.run = run
            for event in events:
                if event.number != self._last + 1:
                    self._events.clear()  # keep a gapless tail
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
        """Publish an event, or queue the event for the next write."""
        self.put(
            [Event(0, kind, unix_s, reservation, circuit, tuple(served), reason, progress, alarm)]
        )

    def put(self, events: Iterable[Event]) -> None:
        """:meth:`publish` existing events."""
        with self._lock:
            if self.stored:
                for event in events:
                    self._dropped += len(self._waiting) == self._waiting.maxlen
                    self._waiting.append(event)
            else:
                self._deliver(self._numbered(events))
        self._wake()

    @contextmanager
    def writing(self, more: Sequence[Event] = ()) -> Iterator[Sequence[Event]]:
        """Yield the numbered events for a write: the waiting events, and ``more``.

        The events are published at the end of the block. If the block raises, the waiting events
        stay queued, and ``more`` is dropped. If the queue overflowed, the numbers of lost events
        are skipped, so that readers see a gap.
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
                given_way = min(self._dropped - lost, len(waiting))  # displaced, but written
                self._dropped -= lost + given_way
                for _ in range(len(waiting) - given_way):
                    self._waiting.popleft()
                self._deliver(numbered, lost)
        if numbered:
            self._wake()

    def _numbered(self, events: Iterable[Event], lost: int = 0) -> list[Event]:
        first = self._last + lost + 1
        return [replace(event, number=first + i) for i, event in enumerate(events)]

    def _deliver(self, numbered: Sequence[Event], lost: int = 0) -> None:
        if lost:
            self._events.clear()  # keep a gapless tail
        self._events.extend(numbered)
        self._last += lost + len(numbered)

    def _wake(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def after(self, number: int, most: int = 100) -> tuple[list[Event], int]:
        """Up to ``most`` events after ``number``, and the number of forgotten events before
        them.
        """
        with self._lock:
            first = self._last - len(self._events) + 1
            start = max(number + 1, first)
            skip = start - first
            events = [self._events[i] for i in range(skip, min(skip + most, len(self._events)))]
        return events, start - number - 1

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each event, in the publishing thread: the listener must be quick.

        For stored events, the listener is called when they are queued, and after the write.
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
    reservation, circuit, progress, device_alarm = (
        event.reservation,
        event.circuit,
        event.progress,
        event.alarm,
    )
    return {
        "run": run,
        "number": event.number,
        "kind": event.kind.value,
        "unix_s": event.unix_s,
        "reason": event.reason,
        "reservation": None if reservation is None else reservation_record(fabric, reservation),
        "circuit": None if circuit is None else circuit_record(fabric, circuit),
        "served": [reservation_record(fabric, each) for each in event.served],
        "progress": None if progress is None else [progress.id, progress.state.value],
        "alarm": None
        if device_alarm is None
        else {
            "device": device_alarm.device,
            "alarm": {**asdict(device_alarm.alarm), "severity": device_alarm.alarm.severity.value},
        },
    }


def read_event(fabric: Fabric, record: Mapping[str, Any]) -> Event:
    """Read a record of :func:`event_record`. Raises HydraError for a record of another release."""
    try:
        reservation, circuit, progress, device_alarm = (
            record[key] for key in ("reservation", "circuit", "progress", "alarm")
        )
        alarm = None
        if device_alarm is not None:
            severity = Severity(device_alarm["alarm"]["severity"])
            complaint = Alarm(**{**device_alarm["alarm"], "severity": severity})
            alarm = DeviceAlarm(str(device_alarm["device"]), complaint)
        return Event(
            int(record["number"]),
            EventKind(record["kind"]),
            float(record["unix_s"]),
            None if reservation is None else read_reservation(fabric, reservation),
            None if circuit is None else read_circuit(fabric, circuit),
            tuple(read_reservation(fabric, each) for each in record["served"]),
            str(record["reason"]),
            None if progress is None else Progress(progress[0], ReconfigurationState(progress[1])),
            alarm,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise HydraError(f"not an event's record ({error!r})") from error
