"""Reader of a controller's log that can stand still while the controller runs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from mininet_scenarios.stage.controller_process import Launched

_PIPE_BYTES: Final = 4096
"""Capacity of the pipe, Linux's minimum."""


class LogReader:
    """Puts a small pipe and a reading process between controllers and the log file."""

    def __init__(self, launch: Callable[[Path, BinaryIO], Launched]) -> None:
        self._launch = launch
        self._readers: list[subprocess.Popen[bytes]] = []

    def launch(self, config: Path, log: BinaryIO) -> Launched:
        """Start a controller; the reader ends with the last process that may write."""
        reader = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=log, start_new_session=True, bufsize=0
        )
        self._readers.append(reader)
        assert reader.stdin is not None  # noqa: S101  (asked for above)
        fcntl.fcntl(reader.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with os.fdopen(os.dup(reader.stdin.fileno()), "wb", buffering=0) as pipe:
            reader.stdin.close()
            return self._launch(config, pipe)

    def stand_still(self) -> None:
        self._send(signal.SIGSTOP)

    def read_on(self) -> None:
        self._send(signal.SIGCONT)

    def close(self) -> None:
        """Wait until all readers have ended, after the controllers."""
        self.read_on()
        for reader in self._readers:
            reader.wait()

    def _send(self, number: signal.Signals) -> None:
        for reader in self._readers:
            if reader.poll() is None:
                reader.send_signal(number)
