"""Functions of native threads, carried out in the loop that serves the switches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from apps.openflow.seam import IN_A_ROW

LOG = logging.getLogger("hydra.framework")


class Mailbox:
    """Carries functions from native threads into the loop.

    It is woken once for all that are posted before it looks: each wake-up would have who posts wait
    for the interpreter's lock again. Others have their turn after every few functions.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = True
        """Until :meth:`run`, nobody has to be woken; then from a wake-up until the next look."""

    def post(self, function: Callable[[], None]) -> None:
        self._waiting.append(function)
        if self._woken:
            return
        self._woken = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there any more
            self._loop.call_soon_threadsafe(self._look)

    def run(self) -> None:
        """Carry out what is posted from now on, and what waits; in the loop's thread."""
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._woken = False  # before it looks: what is posted from here on wakes it again
        for _ in range(IN_A_ROW):
            if not self._waiting:
                return
            try:
                self._waiting.popleft()()
            except Exception:  # of whoever posted it: others' are carried out
                LOG.exception("what was posted has failed")
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._look)
