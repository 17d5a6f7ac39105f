"""Help for commands that may take a while: progress, and an immediate end by Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich import progress
from rich.console import Console

_AFTER_S: Final = 1.0
_EVERY_S: Final = 0.2
_ERASE: Final = "\r\x1b[K"


class Progress:
    """Progress on stderr, for steps of more than a second.

    A terminal gets one line with a count of seconds; a file gets a line for each slow step.
    """

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._since_s = time.monotonic()
        self._shown = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._shown and sys.stderr.isatty():
            self._write(_ERASE)

    def now(self, activity: str) -> None:
        """Begin the next step; ``activity``: its description."""
        self._activity, self._since_s = activity, time.monotonic()

    def _show(self) -> None:
        wait_s = _AFTER_S
        while not self._ended.wait(wait_s):
            wait_s = _EVERY_S
            activity, elapsed_s = self._activity, time.monotonic() - self._since_s
            if sys.stderr.isatty():
                self._shown = activity
                self._write(f"{_ERASE}{activity}: {elapsed_s:.0f} s")
            elif activity != self._shown and elapsed_s >= _AFTER_S:
                self._shown = activity
                self._write(f"{activity} …\n")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def progress_bar() -> progress.Progress:
    """A progress bar on stderr for work of known length; disabled unless stderr is a terminal."""
    console = Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TimeElapsedColumn(),
    )
    return progress.Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def until_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the block normally: the command goes on, and exits with 0."""
    with suppress(KeyboardInterrupt):
        yield


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Leave Ctrl-C to the system in this block: Python itself would wait for a solver to return."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
