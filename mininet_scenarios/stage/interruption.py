"""SIGTERM as an exception, so that context managers clean up."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_leaves() -> Iterator[None]:
    """SIGTERM unwinds the block by SystemExit, as Ctrl-C does by KeyboardInterrupt."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
