"""The workers of a controller, as it tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class SessionEnd(StrEnum):
    """What ended a worker's session with a controller: it may have begun another one at once."""

    ENDED = "ended"
    """The worker said that it ends."""
    DISCONNECTED = "disconnected"
    SILENT = "silent"
    """It did not renew its lease in time."""
    TOLD_LOST = "told-lost"
    """What it told was lost on the way."""
    ORDERS_LOST = "orders-lost"
    """What it was sent was lost on the way."""
    ORDERS_LATE = "orders-late"
    """It was ordered something when its lease was over, as after a pause."""
    UNREADABLE = "unreadable"
    """It said what no worker of the controller's release says."""


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker whose lease runs."""

    name: str
    release: str
    since_unix_s: float
    """When it began to serve this controller."""
    switches: int
    """Number of switches that are connected to it."""
    serves: int
    """Number of switches that the controller speaks to by way of it."""
    shards: tuple[int, ...]
    """Shards of the racks that it owns, in order."""
    cpu_s: float
    """Processor time that its process has taken."""


@dataclass(frozen=True, slots=True)
class WorkerKnown:
    """A worker whose lease runs, or has run within a day."""

    name: str
    seen: WorkerSeen | None
    """None: its lease does not run."""
    renewal_age_s: float
    """Time since it last renewed its lease, or since the controller was told of it."""
    ended: Mapping[SessionEnd, int]
    """Number of its sessions that have ended so."""


class Workers(Protocol):
    """Usable from any thread."""

    @property
    def shards(self) -> int:
        """Number of parts that the racks are divided into."""
        ...

    def known(self) -> tuple[WorkerKnown, ...]:
        """By name."""
        ...

    def seen(self) -> tuple[WorkerSeen, ...]:
        """All workers whose lease runs, by name."""
        ...
