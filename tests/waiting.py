"""Waiting for what other threads, processes and devices do."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from mininet_scenarios.patience import PATIENCE_S, looks

__all__ = ["HANGS_S", "PATIENCE_S", "SHORT_S", "accepts", "once", "remains", "wait_until"]

SHORT_S = 2.0
"""A time-out that a test waits out, on a connection that also has to answer in time."""
HANGS_S = 60.0
"""Nothing takes so long because a machine is busy. Where a test shows that something is not waited
for, that takes PATIENCE_S or more."""


def wait_until(
    condition: Callable[[], object], seconds: float = PATIENCE_S, *, every_s: float = 0.01
) -> None:
    """Wait until ``condition`` holds; fail if it does not within ``seconds``."""
    for _ in looks(every_s, seconds):
        if condition():
            return
    raise AssertionError(f"not within {seconds:g} s: {condition}")


@contextmanager
def once(condition: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """In another thread, call ``act`` as soon as ``condition`` holds, while the block waits for it.

    The end of the block waits for ``act``, and raises what went wrong in the other thread.
    """

    def wait_and_act() -> None:
        wait_until(condition)
        act()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(wait_and_act)
        yield
        acting.result()


def accepts(address: int | Path) -> bool:
    """Whether a server takes connections at a TCP port of this machine, or at a Unix socket.

    That the file of a Unix socket is there shows nothing: a server makes it before it listens.
    """
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with closing(socket.socket(family)) as trial:
        place = str(address) if isinstance(address, Path) else ("127.0.0.1", address)
        return trial.connect_ex(place) == 0


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
