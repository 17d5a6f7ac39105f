"""When which reservation has to be looked at, so that nobody has to look at all of them."""

from __future__ import annotations

import heapq
from typing import Final

_MOST_OUTDATED: Final = 1000


class Agenda:
    """One moment each: the next at which something is to become of it. No clock of its own."""

    def __init__(self) -> None:
        self._moment_of: dict[str, float] = {}
        self._moments: list[tuple[float, str]] = []
        """A heap; entries that are not in ``_moment_of`` any more are passed over."""
        self._reached: dict[str, None] = {}

    def note(self, name: str, moment: float | None) -> None:
        """In place of what was noted of it; None: nothing."""
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
        """Those whose moment has come, the earliest first; they stay until they are noted anew.

        Where a clock was set back, some are among them whose moment lies ahead again.
        """
        while self._moments and self._moments[0][0] <= now:
            moment, name = heapq.heappop(self._moments)
            if self._moment_of.get(name) == moment:
                self._reached[name] = None
        return tuple(self._reached)
