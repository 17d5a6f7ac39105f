"""Lines written to places that may stand still: a pipe that nobody reads, a disk that hangs.

A thread of its own writes them, from a queue of bounded size. Whoever hands over a line never
waits.
"""

from __future__ import annotations

import logging.handlers
import os
import select
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final

MOST_HELD_BYTES: Final = 4 << 20
"""Bytes that wait to be written, at most; lines beyond them are dropped."""
_SINKS: Final[dict[str, Sink]] = {}


class Sink(logging.handlers.QueueListener):
    """Queue of lines, and the thread that writes them. Thread-safe, also within a destructor."""

    def __init__(
        self, name: str, write: Callable[[bytes], object], tell_dropped: Callable[[int], bytes]
    ) -> None:
        """Start the thread.

        ``write`` writes one line, and may wait; what raises OSError counts as dropped.
        ``tell_dropped`` makes the line that tells how many lines before it were dropped.
        """
        super().__init__(SimpleQueue())
        self._write = write
        self._tell_dropped = tell_dropped
        self._lock = threading.RLock()
        self._held_bytes = self._dropped = self._told = 0
        _SINKS[name] = self
        self.start()

    @property
    def dropped(self) -> int:
        """Number of lines that were dropped."""
        return self._dropped

    def put(self, line: bytes) -> bool:
        """Have ``line`` written, soon; False if it was dropped. Never waits."""
        with self._lock:
            if self._held_bytes + len(line) > MOST_HELD_BYTES:
                self._dropped += 1
                return False
            self._held_bytes += len(line)
        self.queue.put_nowait(line)
        return True

    def call_when_written(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` in the writing thread, once all lines before it are written."""
        self.queue.put_nowait(callback)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines handed over before are written; False if the time was up before."""
        written = threading.Event()
        self.call_when_written(written.set)
        return written.wait(timeout_s)

    # The name is the library's, and the item what was put.
    def handle(self, record: bytes | Callable[[], object]) -> None:  # type: ignore[override]
        """Write one line, or call one callback; in the writing thread."""
        if callable(record):
            record()
            return
        try:
            self._write(record)
            untold = self._dropped - self._told
            if untold:
                self._write(self._tell_dropped(untold))
                self._told += untold
        except OSError:
            with self._lock:
                self._dropped += 1
        with self._lock:
            self._held_bytes -= len(record)


def dropped_lines() -> Mapping[str, int]:
    """Number of lines that each sink of this process has dropped, by the sink's name."""
    return {name: sink.dropped for name, sink in _SINKS.items()}


def write_whole(descriptor: int, line: bytes) -> None:
    """Write ``line`` to a descriptor, and wait as long as that takes. Raises OSError.

    Without Python's own files: at the end of the process these wait for whoever writes them.
    """
    while line:
        try:
            line = line[os.write(descriptor, line) :]
        except BlockingIOError:  # somebody who shares the descriptor has set it so
            writable = select.poll()
            writable.register(descriptor, select.POLLOUT)
            writable.poll()
