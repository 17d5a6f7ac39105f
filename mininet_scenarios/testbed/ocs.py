"""The process of an emulated optical circuit switch."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import mininet_scenarios
from hydra.model import Fabric, Plane
from mininet_scenarios.emulators.admin import AdminClient, OcsCounters
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.testbed.layout import ocs_interface
from mininet_scenarios.testbed.shell import TestbedError, member_environment

ADMIN_OFFSET: Final = 10_000
"""From the port of an emulator to the port of its control socket."""


class _Spawned(Protocol):
    """Used part of :class:`subprocess.Popen`."""

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def _spawn(module: str, arguments: Sequence[str], log: BinaryIO) -> _Spawned:
    """Run a module as a program, with output into ``log``."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=log,
        stderr=log,
        cwd=Path(mininet_scenarios.__file__).parents[1],  # scenarios are in no wheel
        env=member_environment(),
        start_new_session=True,  # Ctrl-C is for the scenario, which then ends the process
    )


class OcsProcess:
    """An emulator process that redirects between the fibres of a plane.

    The process speaks the plane's vendor protocol at :attr:`address` (from the fabric file).
    :attr:`admin`, at :attr:`admin_address`, ten thousand ports higher, takes the experimenter's
    orders, reports counters, and simulates faults.
    """

    def __init__(
        self, fabric: Fabric, plane: Plane, switching_ms: float, debounce_ms: float, log: Path
    ) -> None:
        self.plane = plane
        host, _, port = plane.address.rpartition(":")
        self.address = (host, int(port))
        self.admin_address = (host, int(port) + ADMIN_OFFSET)
        self.admin = AdminClient(*self.admin_address)
        self.log = log
        self._module = EMULATORS[plane.driver].path
        self._command = ["--name", plane.name]
        self._command += ["--listen", f"{host}:{port}"]
        self._command += ["--admin", f"{host}:{self.admin_address[1]}"]
        self._command += ["--ports", f"{plane.ports}", "--switching-ms", f"{switching_ms:g}"]
        self._command += ["--debounce-ms", f"{debounce_ms:g}"]
        counts = log.with_suffix(".counts")
        counts.unlink(missing_ok=True)  # of an earlier build
        self._command += ["--backend", "kernel", "--counts", str(counts)]
        for wired in fabric.ports:
            if wired.plane == plane.id:
                ends = f"{ocs_interface(plane, wired)}:{wired.tor_port}"
                self._command += ["--port", f"{wired.ingress}:{wired.egress}:{ends}"]
        self._process: _Spawned | None = None

    def start(self) -> None:
        """Start the process; :meth:`wait_until_ready` returns once the process serves."""
        with self.log.open("ab") as log:
            self._process = _spawn(self._module, self._command, log)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for address in (self.address, self.admin_address):
            while not _accepts(address):
                if self._process is None or self._process.poll() is not None:
                    raise TestbedError(f"OCS emulator {self.plane.name} ended: {self._log_tail()}")
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"OCS emulator {self.plane.name} does not listen at "
                        f"{address[0]}:{address[1]}: {self._log_tail()}"
                    )
                time.sleep(0.02)

    def counters(self) -> OcsCounters:
        return self.admin.counters()

    def dark_frames(self) -> int:
        """Frames that reached a dark or unconnected port since the build."""
        return self.counters().dark_frames

    def kill(self) -> None:
        """End the process at once: the mirrors stay unchanged, the controller gets no message."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:] if self.log.exists() else []
        return " | ".join(lines) or "the emulator wrote nothing"


def _accepts(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=1.0):  # timed: asked again later
            return True
    except OSError:
        return False
