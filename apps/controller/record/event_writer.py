"""Writes waiting events, in a separate thread, unless another write takes the events along."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from apps.controller.record.journal_writer import TRY_AGAIN_S
from hydra.journal import JournalError

_TOGETHER_S: Final = 0.05
"""Events within this time share a write, unless another write comes first: each write costs all
members of the store.
"""
_PATIENCE_S: Final = 0.25
"""Longest wait for another write due soon. A change of a circuit or two is over by then, and makes
only its own two writes.
"""


class EventWriter:
    """Calls ``write`` soon after :meth:`wake`, and again a second after a failure; a little later
    while ``can_wait`` returns True.
    """

    def __init__(self, write: Callable[[], None], can_wait: Callable[[], bool]) -> None:
        self._write = write
        self._can_wait = can_wait
        self._due = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    def stop(self) -> None:
        """Optional, and repeatable."""
        self._ended.set()
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._due.wait()
            self._wait_for_more()
            try:
                self._write()
            except JournalError:
                self._due.set()  # the ledger has said so, or will
                self._ended.wait(TRY_AGAIN_S)

    def _wait_for_more(self) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            self._due.clear()
            self._ended.wait(_TOGETHER_S)
            remaining_s = until_s - time.monotonic()
            if remaining_s <= 0 or self._ended.is_set() or not self._can_wait():
                return
            self._due.wait(remaining_s)
