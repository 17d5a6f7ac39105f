"""How many requests a caller may send, and when it may try again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

BURST_S: Final = 5
"""Whoever was silent for so long may send all that its rate allows for that time at once."""
_MOST_KEYS: Final = 10_000
"""Callers remembered at a time: more addresses than that can't make the controller grow."""


class Limiter:
    """A leaky bucket for each caller, after the generic cell rate algorithm (ITU-T I.371, Annex A).

    All that is kept of a caller is when its bucket will be empty; an empty one is forgotten. That
    is why this is no library's: those at hand keep each request, start a thread at requests to
    clear up, and never forget an address. For one thread, that of the server.
    """

    def __init__(self, requests_per_s: float, clock_s: Callable[[], float] = monotonic) -> None:
        self._interval_s = 1 / requests_per_s
        burst = max(1, ceil(requests_per_s * BURST_S))
        self._slack_s = (burst - 1) * self._interval_s
        self._clock_s = clock_s
        self._empty_s: OrderedDict[str, float] = OrderedDict()
        """By caller, whoever was let in last at the end."""

    def __len__(self) -> int:
        """Callers that are remembered."""
        return len(self._empty_s)

    def wait_s(self, key: str) -> int:
        """Seconds until ``key`` may try again; 0 if it may now, and that has been counted."""
        now_s = self._clock_s()
        self._forget(now_s)
        empty_s = max(now_s, self._empty_s.get(key, now_s))
        over_s = empty_s - now_s - self._slack_s
        if over_s > 1e-9:  # of a rounding error nobody has to wait
            return max(1, ceil(over_s))
        self._empty_s[key] = empty_s + self._interval_s
        self._empty_s.move_to_end(key)
        return 0

    def _forget(self, now_s: float) -> None:
        """Callers that were silent long enough, and the most silent ones where there are too many.

        Two at a request: they go as fast as they can come, and no request pays for all of them.
        """
        for _ in range(2):
            if not self._empty_s:
                return
            oldest = next(iter(self._empty_s))
            if self._empty_s[oldest] > now_s and len(self._empty_s) <= _MOST_KEYS:
                return
            del self._empty_s[oldest]
