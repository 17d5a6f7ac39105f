"""How long to wait for another program, thread or device before giving up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

PATIENCE_S: Final = 120.0
"""Seconds after which something has failed, however busy the machine is. Who waits goes on as soon
as what is awaited is there, so a long time costs nothing."""
_LATER: Final = 50
"""What happens after 5 s is seen up to 0.1 s later."""


def looks(every_s: float, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Times to look at what is waited for: one now, and others until ``patience_s`` are over,
    ``every_s`` apart at first, then ever further: each costs processor time, often a controller's.
    """
    began_s = time.monotonic()
    yield
    while (waited_s := time.monotonic() - began_s) < patience_s:
        time.sleep(every_s + waited_s / _LATER)
        yield
