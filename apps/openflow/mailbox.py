"""Functions posted by native threads, run in the loop that serves the switches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from apps.openflow.limits import IN_A_ROW

LOG = logging.getLogger("hydra.framework")


class Mailbox:
    """Carries functions from native threads into the loop.

    A single wake-up serves all functions posted before the loop looks: after each wake-up, the
    posting thread would wait for the GIL again. Other work of the loop has its turn after every few
    functions.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = True
        """True if no wake-up is needed: before :meth:`run`, and from a wake-up until the next
        look.
        """

    def post(self, function: Callable[[], None]) -> None:
        self._waiting.append(function)
        if self._woken:
            return
        self._woken = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._look)

    def run(self) -> None:
        """Start to run posted functions, including functions posted earlier; in the loop's
        thread.
        """
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._woken = False  # before looking: later posts wake the loop again
        for _ in range(IN_A_ROW):
            if not self._waiting:
                return
            try:
                self._waiting.popleft()()
            except Exception:  # the poster's error: run the other functions
                LOG.exception("callback failed in the OpenFlow loop")
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._look)
