"""Time as processes have it that a busy machine keeps from its processors.

How soon a network is whole again is held against time in which its processes could run. On a
machine at rest, that is all of the time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LEAST: Final = 0.1
"""Part of the time that counts however busy the machine is: a wait ends."""


def waited_s(pids: Iterable[int], proc: Path = _PROC) -> float:
    """Time in which threads of these processes were ready, and no processor was free (schedstat of
    the kernel: run time, wait on a run queue, turns).
    """
    waited_ns = 0
    for pid in pids:
        for thread in (proc / str(pid) / "task").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


class Deadline:
    """A time-out that counts less while the awaited processes wait for processors."""

    def __init__(
        self,
        after_s: float,
        waited_s: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``waited_s``: time that the processes have waited until now."""
        self._left_s = after_s
        self._waited_s = waited_s
        self._clock = clock
        self._seen = clock(), waited_s()

    def is_over(self) -> bool:
        then_s, before_s = self._seen
        now_s, waited_s = self._seen = self._clock(), self._waited_s()
        passed_s = now_s - then_s
        waited_s = max(0.0, waited_s - before_s)  # processes that ended took theirs with them
        self._left_s -= max(passed_s - waited_s, passed_s * _LEAST)
        return self._left_s < 0
