"""How long to wait for another program, thread or device before giving up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

PATIENCE_S: Final = 120.0
"""Seconds after which an awaited event counts as failed, on any busy machine. Waits end as soon as
the event occurs, so a long time costs nothing.
"""
_LATER: Final = 50
"""An event after 5 s is seen up to 0.1 s later."""


def looks(every_s: float, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Times to check for an awaited event: one now, and more until ``patience_s`` are over,
    ``every_s`` apart at first, then ever further: each check costs processor time, often a
    controller's.
    """
    began_s = time.monotonic()
    yield
    while (waited_s := time.monotonic() - began_s) < patience_s:
        time.sleep(every_s + waited_s / _LATER)
        yield
