"""The end of the process: at signals, in time, and since nothing can be done any more."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

from hydra.errors import HydraError

STOP_S = 75.0
"""From SIGINT or SIGTERM on: then the process ends anyhow, with the traceback of each thread."""
TRACEBACK_S = 5.0
"""Time for writing the traceback, in case nobody reads it: then the kernel ends the process. The
systemd unit gives the process 90 s in all.
"""
_STDERR: Final = 2
_given_up: list[HydraError] = []


def at_signals(handler: Callable[[int, FrameType | None], None]) -> int:
    """Handle SIGINT and SIGTERM. Returns a descriptor that becomes readable at a signal: the signal
    may reach another thread, and has to wake the thread that runs the handler.
    """
    reader, writer = os.pipe()
    for pipe in (reader, writer):
        os.set_blocking(pipe, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)
    return reader


def end_in_time() -> None:
    """Make the process end by STOP_S and TRACEBACK_S from now, even if threads are stuck."""
    # A thread in C, which needs neither the hub nor the GIL.
    faulthandler.dump_traceback_later(STOP_S, exit=True, file=_STDERR)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, STOP_S + TRACEBACK_S)


def give_up(error: HydraError) -> None:
    """End the process as Ctrl-C does, with ``error`` as the reason; callable from any thread."""
    _given_up.append(error)
    os.kill(os.getpid(), signal.SIGTERM)


def raise_given_up() -> None:
    """Raises the first HydraError given to :func:`give_up`, if any."""
    if _given_up:
        raise _given_up[0]
