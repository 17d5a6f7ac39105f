"""Events: a bounded history of changes in the controller, for any number of readers.

Each reader keeps its own place. One that is slow or gone holds up nobody and misses old events: the
history keeps the latest ones, read or not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from hydra.lifecycle import ReconfigurationState
from hydra.model import Circuit
from hydra.reservations.reservation import Reservation
from hydra.roles import Alarm


class EventKind(Enum):
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
    """Counts from 1 in each run of the controller."""
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

    def __init__(self, run: str, capacity: int = 10_000) -> None:
        self.run = run
        """Tells the numbers of this run from those of others."""
        self._events: deque[Event] = deque(maxlen=capacity)
        self._lock = threading.Lock()
        self._last = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def last(self) -> int:
        """The number of the newest event; 0 before the first."""
        with self._lock:
            return self._last

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
        with self._lock:
            self._last += 1
            self._events.append(
                Event(
                    self._last,
                    kind,
                    unix_s,
                    reservation,
                    circuit,
                    tuple(served),
                    reason,
                    progress,
                    alarm,
                )
            )
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
        """Call ``listener`` after each event, in the thread that published it: it must be quick."""
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
