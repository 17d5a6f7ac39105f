"""The workers of a controller, as reported by the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class SessionEnd(StrEnum):
    """The end of a worker's session with a controller; another session may have begun at once."""

    ENDED = "ended"
    """The worker announced its end."""
    DISCONNECTED = "disconnected"
    SILENT = "silent"
    """The worker did not renew its lease in time."""
    LOSSES_REPORTED = "told-lost"
    """Reports of the worker were lost on the way."""
    ORDERS_LOST = "orders-lost"
    """Commands to the worker were lost on the way."""
    ORDERS_LATE = "orders-late"
    """A command reached the worker after the end of its lease, as after a pause."""
    UNREADABLE = "unreadable"
    """The worker sent a message unknown to the controller's release."""


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker with a running lease."""

    name: str
    release: str
    since_unix_s: float
    """Start of the worker's service for this controller."""
    switches: int
    """Number of switches connected to the worker."""
    serves: int
    """Number of switches used by the controller through the worker."""
    shards: tuple[int, ...]
    """Shards of the racks owned by the worker, in order."""
    cpu_s: float
    """Processor time of the worker's process."""


@dataclass(frozen=True, slots=True)
class WorkerKnown:
    """A worker with a running lease, or a lease within the last day."""

    name: str
    seen: WorkerSeen | None
    """None: the lease does not run."""
    renewal_age_s: float
    """Time since the last renewal of the lease, or since the controller learned of the worker."""
    ended: Mapping[SessionEnd, int]
    """Number of the worker's ended sessions, by cause."""


class Workers(Protocol):
    """Usable from any thread."""

    @property
    def shards(self) -> int:
        """Number of shards of the racks."""
        ...

    def known(self) -> tuple[WorkerKnown, ...]:
        """By name."""
        ...

    def seen(self) -> tuple[WorkerSeen, ...]:
        """All workers with a running lease, by name."""
        ...
