"""Deadlines in time during which processes could run: on a busy machine, deadlines come later.

The chaos harness counts the network's recovery time by these deadlines. On an idle machine, the
deadlines are in wall time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LEAST: Final = 0.1
"""Share of the time that counts on any busy machine, so that a wait ends."""


def waited_s(pids: Iterable[int], proc: Path = _PROC) -> float:
    """Seconds for which threads of the processes waited for a processor, ready to run (the kernel's
    schedstat: time run, time on a run queue, turns).
    """
    waited_ns = 0
    for pid in pids:
        for thread in (proc / str(pid) / "task").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):  # the thread has ended meanwhile
                waited_ns += int((thread / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


class Deadline:
    """A time-out; time for which the awaited processes wait for processors does not count."""

    def __init__(
        self,
        after_s: float,
        waited_s: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``waited_s``: total waiting time of the processes until now."""
        self._left_s = after_s
        self._waited_s = waited_s
        self._clock = clock
        self._seen = clock(), waited_s()

    def is_over(self) -> bool:
        then_s, before_s = self._seen
        now_s, waited_s = self._seen = self._clock(), self._waited_s()
        passed_s = now_s - then_s
        waited_s = max(0.0, waited_s - before_s)  # ended processes no longer count
        self._left_s -= max(passed_s - waited_s, passed_s * _LEAST)
        return self._left_s < 0
