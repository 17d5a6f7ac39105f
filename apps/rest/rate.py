"""Rate limit: number of requests of a caller, and time of the next attempt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

BURST_S: Final = 5
"""A caller that was silent for so long may send the requests of so many seconds at once."""
_MOST_KEYS: Final = 10_000
"""Callers remembered at a time: a flood of addresses can't make the controller grow."""


class Limiter:
    """A leaky bucket for each caller, after the generic cell rate algorithm (ITU-T I.371, Annex A).

    The limiter stores only the time at which a caller's bucket will be empty, and forgets empty
    buckets. Available libraries keep each request, start a thread at requests to clear up, and
    never forget an address. For the server's thread only.
    """

    def __init__(self, requests_per_s: float, clock_s: Callable[[], float] = monotonic) -> None:
        self._interval_s = 1 / requests_per_s
        burst = max(1, ceil(requests_per_s * BURST_S))
        self._slack_s = (burst - 1) * self._interval_s
        self._clock_s = clock_s
        self._empty_s: OrderedDict[str, float] = OrderedDict()
        """By caller, the most recently admitted caller last."""

    def __len__(self) -> int:
        """Number of remembered callers."""
        return len(self._empty_s)

    def wait_s(self, key: str) -> int:
        """Seconds until ``key`` may try again; 0 if admitted now, and then the request is
        counted.
        """
        now_s = self._clock_s()
        self._forget(now_s)
        empty_s = max(now_s, self._empty_s.get(key, now_s))
        over_s = empty_s - now_s - self._slack_s
        if over_s > 1e-9:  # ignore rounding errors
            return max(1, ceil(over_s))
        self._empty_s[key] = empty_s + self._interval_s
        self._empty_s.move_to_end(key)
        return 0

    def _forget(self, now_s: float) -> None:
        """Forget callers that were silent long enough, and the most silent callers if there are too
        many.

        At most two per request: forgetting keeps pace with new callers, and no request pays for
        all.
        """
        for _ in range(2):
            if not self._empty_s:
                return
            oldest = next(iter(self._empty_s))
            if self._empty_s[oldest] > now_s and len(self._empty_s) <= _MOST_KEYS:
                return
            del self._empty_s[oldest]
