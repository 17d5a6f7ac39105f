"""When to ask which switch for its counters; no clock and no threads: times are arguments."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_KeyT = TypeVar("_KeyT")


@dataclass(slots=True)
class PollSchedule(Generic[_KeyT]):
    """Asks every switch once an interval, each at a moment of its own.

    The moments divide the interval evenly, so that neither the controller nor the network meets a
    burst. A switch that has not answered is not asked again before it does or its time is up, and
    at most ``window`` switches are being asked at once: what is due then waits for a place. A
    switch that missed its moment is asked at its next one; moments do not shift. Where a switch is
    asked several things, each counts as a switch of its own, but those that ``same`` maps to one
    have their moment together: one message then asks, and one answers.
    """

    switches: Sequence[_KeyT]
    interval_s: float
    timeout_s: float
    window: int
    same: Callable[[_KeyT], Hashable] = lambda switch: switch
    missed: int = 0
    """Moments that passed without a question: the interval is shorter than can be kept."""
    _due: list[tuple[float, int]] = field(init=False)
    _asked_s: dict[_KeyT, float] = field(init=False, default_factory=dict)
    """In the order in which they were asked."""

    def __post_init__(self) -> None:
        if not self.interval_s > 0 or not self.timeout_s > 0 or self.window < 1:
            raise ValueError(
                f"interval {self.interval_s} s, time-out {self.timeout_s} s, window {self.window}: "
                "all must be positive"
            )
        self._due = []

    def start(self, now_s: float) -> None:
        """The first moment is now; every switch's is within one interval."""
        places: dict[Hashable, int] = {}
        place_of = [places.setdefault(self.same(one), len(places)) for one in self.switches]
        self._due = sorted(
            (now_s + self.interval_s * place / len(places), index)
            for index, place in enumerate(place_of)
        )

    def due(self, now_s: float) -> list[_KeyT]:
        """The switches to ask now; they count as asked."""
        asking: list[_KeyT] = []
        while self._due and self._due[0][0] <= now_s and len(self._asked_s) < self.window:
            moment_s, index = self._due[0]
            periods = math.floor((now_s - moment_s) / self.interval_s)
            self.missed += periods
            following_s = moment_s + (periods + 1) * self.interval_s
            heapq.heapreplace(self._due, (following_s, index))
            switch = self.switches[index]
            if switch in self._asked_s:
                self.missed += 1
            else:
                self._asked_s[switch] = now_s
                asking.append(switch)
        return asking

    def settled(self, switch: _KeyT) -> None:
        """True if it answered, or can't be asked."""
        self._asked_s.pop(switch, None)

    def overdue(self, now_s: float) -> list[_KeyT]:
        """The switches whose time to answer is up; they count as settled."""
        late = []
        for switch, asked_s in self._asked_s.items():
            if now_s - asked_s < self.timeout_s:
                break
            late.append(switch)
        for switch in late:
            del self._asked_s[switch]
        return late

    def next_s(self, now_s: float) -> float:
        """How long nothing is to be done but to wait for answers; infinite without switches."""
        waits = []
        if self._due and len(self._asked_s) < self.window:
            waits.append(self._due[0][0] - now_s)
        if self._asked_s:
            waits.append(next(iter(self._asked_s.values())) + self.timeout_s - now_s)
        return max(0.0, min(waits, default=math.inf))
