"""Polling schedule of switch counters; no clock and no threads: times are arguments."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_KeyT = TypeVar("_KeyT")


@dataclass(slots=True)
class PollSchedule(Generic[_KeyT]):
    """Polls every switch once per interval, each at a separate moment.

    The moments divide the interval evenly, to avoid bursts at the controller and in the network. A
    switch with an outstanding request gets no further request before the reply or the time-out, and
    at most ``window`` requests are outstanding: other due switches wait. A switch that missed its
    moment is polled at its next moment; moments do not shift. A switch with several requests counts
    as several entries; entries with the same value of ``same`` have the same moment, so that a
    single message has all requests, and a single message has all replies.
    """

    switches: Sequence[_KeyT]
    interval_s: float
    timeout_s: float
    window: int
    same: Callable[[_KeyT], Hashable] = lambda switch: switch
    missed: int = 0
    """Number of moments without a request: the interval is too short."""
    _due: list[tuple[float, int]] = field(init=False)
    _asked_s: dict[_KeyT, float] = field(init=False, default_factory=dict)
    """In the order of the requests."""

    def __post_init__(self) -> None:
        if not self.interval_s > 0 or not self.timeout_s > 0 or self.window < 1:
            raise ValueError(
                f"interval {self.interval_s} s, time-out {self.timeout_s} s, window {self.window}: "
                "all must be positive"
            )
        self._due = []

    def start(self, now_s: float) -> None:
        """Begin to poll: the first switch is due now, and each switch within an interval."""
        places: dict[Hashable, int] = {}
        place_of = [places.setdefault(self.same(switch), len(places)) for switch in self.switches]
        self._due = sorted(
            (now_s + self.interval_s * place / len(places), index)
            for index, place in enumerate(place_of)
        )

    def due(self, now_s: float) -> list[_KeyT]:
        """Return the switches to ask now; they count as asked."""
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
        """Note that a switch has answered, or cannot be asked."""
        self._asked_s.pop(switch, None)

    def overdue(self, now_s: float) -> list[_KeyT]:
        """Return the switches past the time-out; they count as settled."""
        late = []
        for switch, asked_s in self._asked_s.items():
            if now_s - asked_s < self.timeout_s:
                break
            late.append(switch)
        for switch in late:
            del self._asked_s[switch]
        return late

    def next_s(self, now_s: float) -> float:
        """Time until the next action other than receiving answers; infinite without switches."""
        waits = []
        if self._due and len(self._asked_s) < self.window:
            waits.append(self._due[0][0] - now_s)
        if self._asked_s:
            waits.append(next(iter(self._asked_s.values())) + self.timeout_s - now_s)
        return max(0.0, min(waits, default=math.inf))
