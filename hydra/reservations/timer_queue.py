"""The moments at which reservations have to be looked at, so that nobody looks at all of them."""

from __future__ import annotations

import heapq
from typing import Final

_MOST_OUTDATED: Final = 1000


class TimerQueue:
    """The next moment at which something is to become of each name. Has no clock of its own."""

    def __init__(self) -> None:
        self._moment_of: dict[str, float] = {}
        self._moments: list[tuple[float, str]] = []
        """A heap; entries that are not in ``_moment_of`` any more are passed over."""
        self._reached: dict[str, None] = {}

    def note(self, name: str, moment: float | None) -> None:
        """Note a moment in place of the name's earlier one; None for no moment."""
        if self._moment_of.get(name) == moment:
            return
        self.drop(name)
        if moment is None:
            return
        self._moment_of[name] = moment
        heapq.heappush(self._moments, (moment, name))
        if len(self._moments) > 2 * len(self._moment_of) + _MOST_OUTDATED:
            self._moments = [(when, one) for one, when in self._moment_of.items()]
            heapq.heapify(self._moments)

    def drop(self, name: str) -> None:
        self._moment_of.pop(name, None)
        self._reached.pop(name, None)

    def reached(self, now: float) -> tuple[str, ...]:
        """Names whose moment has come, the earliest first; they stay until they are noted anew.

        If the clock was set back, the moments of some of them lie ahead again.
        """
        while self._moments and self._moments[0][0] <= now:
            moment, name = heapq.heappop(self._moments)
            if self._moment_of.get(name) == moment:
                self._reached[name] = None
        return tuple(self._reached)
