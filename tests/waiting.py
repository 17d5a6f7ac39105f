"""Waiting for what other threads, processes and devices do."""

from __future__ import annotations

import time
from collections.abc import Callable

from mininet_scenarios.patience import PATIENCE_S

__all__ = ["HANGS_S", "PATIENCE_S", "SHORT_S", "remains", "wait_until"]

SHORT_S = 2.0
"""A time-out that a test waits out, on a connection that also has to answer in time."""
HANGS_S = 60.0
"""Nothing takes so long because a machine is busy. Where a test shows that something is not waited
for, that takes PATIENCE_S or more."""


def wait_until(
    condition: Callable[[], object], seconds: float = PATIENCE_S, *, every_s: float = 0.01
) -> None:
    """Wait until ``condition`` holds; fail if it does not within ``seconds``."""
    until_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until_s, f"not within {seconds:g} s: {condition}"
        time.sleep(every_s)


def remains(condition: Callable[[], object], seconds: float = 0.2) -> bool:
    """Whether ``condition`` holds now and for so many seconds: to show that nothing happens.

    A busy machine can hide a defect from this, and never makes a test fail.
    """
    until_s = time.monotonic() + seconds
    while condition():
        if time.monotonic() >= until_s:
            return True
        time.sleep(seconds / 20)
    return False
