"""Waiting for other threads, processes and devices."""

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
"""A time-out that a test waits for in full, on a connection that also has to answer in time."""
HANGS_S = 60.0
"""Load of the machine delays nothing this long. To show that a call does not wait for something,
that something takes PATIENCE_S or more.
"""


def wait_until(
    condition: Callable[[], object], seconds: float = PATIENCE_S, *, every_s: float = 0.01
) -> None:
    """Wait until ``condition`` holds; fail after ``seconds``."""
    for _ in looks(every_s, seconds):
        if condition():
            return
    raise AssertionError(f"not within {seconds:g} s: {condition}")


@contextmanager
def once(condition: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """In another thread, call ``act`` as soon as ``condition`` holds, while the block waits for the
    effect.

    The end of the block waits for ``act``, and raises its error.
    """

    def wait_and_act() -> None:
        wait_until(condition)
        act()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(wait_and_act)
        yield
        acting.result()


def accepts(address: int | Path) -> bool:
    """True if a server accepts connections at a TCP port of this machine, or at a Unix socket.

    The file of a Unix socket is no proof: a server makes the file before it listens.
    """
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with closing(socket.socket(family)) as trial:
        place = str(address) if isinstance(address, Path) else ("127.0.0.1", address)
        return trial.connect_ex(place) == 0


def remains(condition: Callable[[], object], seconds: float = 0.2) -> bool:
    """True if ``condition`` holds now and for ``seconds``: to show that nothing happens.

    A busy machine can hide a defect from this check, and never makes a test fail.
    """
    until_s = time.monotonic() + seconds
    while condition():
        if time.monotonic() >= until_s:
            return True
        time.sleep(seconds / 20)
    return False
