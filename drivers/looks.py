"""Repeated looks at a device that may need a while to carry out a command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

_FIRST_PAUSE_S: Final = 0.01


def looks(timeout_s: float, slowest_s: float) -> Iterator[bool]:
    """Ever longer pauses between looks at a device, for at most ``timeout_s``; True: the last."""
    give_up_at = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while time.monotonic() + pause_s < give_up_at:
        yield False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, slowest_s)
    yield True
