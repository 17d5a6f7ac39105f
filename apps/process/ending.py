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
"""For writing the traceback, which nobody may read: then the kernel ends the process. The unit of
systemd gives it 90 in all."""
_STDERR: Final = 2
_given_up: list[HydraError] = []


def at_signals(handler: Callable[[int, FrameType | None], None]) -> int:
    """Have SIGINT and SIGTERM handled. Returns a descriptor that can be read once one came: another
    thread may get it, and this one, which runs the handler, has to wake.
    """
    reader, writer = os.pipe()
    for pipe in (reader, writer):
        os.set_blocking(pipe, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)
    return reader


def end_in_time() -> None:
    """Have the process end by STOP_S and TRACEBACK_S from now, whatever its threads wait for."""
    # A thread of C: it needs neither the hub nor the interpreter's lock.
    faulthandler.dump_traceback_later(STOP_S, exit=True, file=_STDERR)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, STOP_S + TRACEBACK_S)


def give_up(error: HydraError) -> None:
    """End the process as Ctrl-C does, and have it say why; callable from any thread."""
    _given_up.append(error)
    os.kill(os.getpid(), signal.SIGTERM)


def raise_what_was_given_up() -> None:
    """Raises the HydraError that was given to :func:`give_up` first, if any."""
    if _given_up:
        raise _given_up[0]
