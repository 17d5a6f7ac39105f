"""The workers of a controller, as it tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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


class Workers(Protocol):
    """Usable from any thread."""

    def seen(self) -> tuple[WorkerSeen, ...]:
        """All workers whose lease runs, by name."""
        ...
