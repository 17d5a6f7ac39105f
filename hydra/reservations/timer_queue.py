"""Queue of the times at which reservations are due, so that no loop scans all reservations."""

from __future__ import annotations

import heapq
from typing import Final

_MOST_OUTDATED: Final = 1000


class TimerQueue:
    """The next due time of each name. The queue has no clock."""

    def __init__(self) -> None:
        self._moment_of: dict[str, float] = {}
        self._moments: list[tuple[float, str]] = []
        """A heap; entries that differ from ``_moment_of`` are outdated and skipped."""
        self._reached: dict[str, None] = {}

    def note(self, name: str, moment: float | None) -> None:
        """Replace the due time of ``name``; None: no due time."""
        if self._moment_of.get(name) == moment:
            return
        self.drop(name)
        if moment is None:
            return
        self._moment_of[name] = moment
        heapq.heappush(self._moments, (moment, name))
        if len(self._moments) > 2 * len(self._moment_of) + _MOST_OUTDATED:
            self._moments = [(when, due) for due, when in self._moment_of.items()]
            heapq.heapify(self._moments)

    def drop(self, name: str) -> None:
        self._moment_of.pop(name, None)
        self._reached.pop(name, None)

    def reached(self, now: float) -> tuple[str, ...]:
        """Names that are due, earliest first. A name stays due until the next :meth:`note` or
        :meth:`drop`.

        If the clock was set back, some due times may be in the future again.
        """
        while self._moments and self._moments[0][0] <= now:
            moment, name = heapq.heappop(self._moments)
            if self._moment_of.get(name) == moment:
                self._reached[name] = None
        return tuple(self._reached)
