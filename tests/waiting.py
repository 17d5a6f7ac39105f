"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOKS_EVERY_S = 0.01


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Fail unless ``condition`` comes to hold in so many seconds."""
    until_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until_s, "it did not come to pass in time"
        time.sleep(_LOOKS_EVERY_S)
