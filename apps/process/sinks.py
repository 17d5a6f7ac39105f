"""Lines written to places that may stand still: an unread pipe, a hanging disk.

A separate thread writes the lines, from a queue of bounded size. The caller never waits.
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
"""Largest number of bytes waiting to be written; lines beyond are dropped."""
_SINKS: Final[dict[str, Sink]] = {}


class Sink(logging.handlers.QueueListener):
    """Queue of lines, and the writing thread. Thread-safe, also within a destructor."""

    def __init__(
        self, name: str, write: Callable[[bytes], object], dropped_line: Callable[[int], bytes]
    ) -> None:
        """Start the thread.

        ``write`` writes a line, and may wait; a line with an OSError counts as dropped.
        ``dropped_line`` makes the line with the number of earlier dropped lines.
        """
        super().__init__(SimpleQueue())
        self._write = write
        self._dropped_line = dropped_line
        self._lock = threading.RLock()
        self._held_bytes = self._dropped = self._reported = 0
        _SINKS[name] = self
        self.start()

    @property
    def dropped(self) -> int:
        """Number of dropped lines."""
        return self._dropped

    def put(self, line: bytes) -> bool:
        """Write ``line`` soon, in another thread; False if dropped. Never waits."""
        with self._lock:
            if self._held_bytes + len(line) > MOST_HELD_BYTES:
                self._dropped += 1
                return False
            self._held_bytes += len(line)
        self.queue.put_nowait(line)
        return True

    def call_when_written(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` in the writing thread, once all earlier lines are written."""
        self.queue.put_nowait(callback)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines handed over before are written; False if the time was up before."""
        written = threading.Event()
        self.call_when_written(written.set)
        return written.wait(timeout_s)

    # The name is the library's; the item comes from `put` or `call_when_written`.
    def handle(self, record: bytes | Callable[[], object]) -> None:  # type: ignore[override]
        """Write a line, or call a callback; in the writing thread."""
        if callable(record):
            record()
            return
        try:
            self._write(record)
            unreported = self._dropped - self._reported
            if unreported:
                self._write(self._dropped_line(unreported))
                self._reported += unreported
        except OSError:
            with self._lock:
                self._dropped += 1
        with self._lock:
            self._held_bytes -= len(record)


def dropped_lines() -> Mapping[str, int]:
    """Number of lines dropped by each sink of this process, by the sink's name."""
    return {name: sink.dropped for name, sink in _SINKS.items()}


def write_whole(descriptor: int, line: bytes) -> None:
    """Write ``line`` to a descriptor, and wait as long as needed. Raises OSError.

    Without Python's own files, which at the end of the process wait for their writers.
    """
    while line:
        try:
            line = line[os.write(descriptor, line) :]
        except BlockingIOError:  # another user of the descriptor has set it non-blocking
            writable = select.poll()
            writable.register(descriptor, select.POLLOUT)
            writable.poll()
