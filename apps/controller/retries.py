"""Ever longer waits between attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

_KeyT = TypeVar("_KeyT")


_LONGEST_WAIT_S: Final = 60.0


class Retries:
    """Ever longer waits between attempts at absent devices and switches.

    An attempt at a device that swallows packets takes the whole time-out, and the conductor waits.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, longest_s: float = _LONGEST_WAIT_S
    ) -> None:
        """``longest_s``: the longest wait."""
        self._clock = clock
        self._longest_s = longest_s
        self._waits: dict[object, tuple[float, float]] = {}

    def failing(self, some: Iterable[_KeyT]) -> list[_KeyT]:
        """Items whose last attempt has failed."""
        return [item for item in some if item in self._waits]

    def due(self, some: Iterable[_KeyT]) -> list[_KeyT]:
        """Items due for an attempt."""
        now_s = self._clock()
        return [item for item in some if now_s >= self._waits.get(item, (0.0, 0.0))[0]]

    def forget(self, well: AbstractSet[object]) -> None:
        """Reset items in no need of an attempt: their next wait is short again."""
        for wait in self._waits.keys() & well:
            del self._waits[wait]

    def note(self, tried: Iterable[object], failed: Collection[object]) -> None:
        """Remember how attempts ended."""
        for item in tried:
            if item not in failed:
                self._waits.pop(item, None)
                continue
            wait_s = min(2 * self._waits.get(item, (0.0, 1.0))[1], self._longest_s)
            self._waits[item] = (self._clock() + wait_s, wait_s)
