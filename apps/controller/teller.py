"""Writes, in a thread of its own, events that wait to be told, where no other write takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from hydra.journal import JournalError

_TOGETHER_S: Final = 0.05
"""Events that come within this time are one write, unless another one takes them along. A change
tells of half a dozen states, and each write costs all members of the store."""
_TRY_AGAIN_S: Final = 1.0


class Teller:
    """Calls ``write`` soon after :meth:`wake`, and again a second after it has failed."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
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
            self._due.clear()
            self._ended.wait(_TOGETHER_S)
            try:
                self._write()
            except JournalError:
                self._due.set()  # the ledger has said so, or will
                self._ended.wait(_TRY_AGAIN_S)
