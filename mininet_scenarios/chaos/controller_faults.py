"""Faults of the controller: process, planner, disk, and foreign connections."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import httpx

from hydra.model import Server
from mininet_scenarios.chaos.fault import CONTROLLER, Fault, Field
from mininet_scenarios.chaos.readers import rest
from mininet_scenarios.emulators.storms import kinds
from mininet_scenarios.emulators.stranger import Stranger
from mininet_scenarios.stage.controller_process import ControllerProcessError

_BLOCK_BYTES: Final = 4096
_NOBODYS: Final = 0xBAD
"""A datapath id used in no fabric."""
_REFUSED_REQUESTS: Final = 100
_PLANNER_S: Final = 15.0
_STAGED_MBPS: Final = 80.0
_STAGED_SHARE: Final = 0.002
"""Share of the electrical network with room for one or two pairs of racks with their datagrams."""
_RESERVED_S: Final = 2.0
_POLL_S: Final = 0.1
_IMPORTS_S: Final = 30.0
"""Longest wait for the end of a process's imports."""


class ControllerFault(Fault):
    def __init__(self, field: Field) -> None:
        super().__init__(field, CONTROLLER)


class ControllerAway(ControllerFault):
    def blinds(self, _source: str, _destination: str) -> bool:
        return True


class ControllerKilled(ControllerAway):
    def strike(self) -> None:
        self.field.process.kill()

    def heal(self) -> None:
        """Start the controller. On a full disk a start is refused; :class:`DiskFull` then starts
        the controller again and again, as systemd would.
        """
        try:
            # Other faults may keep the controller from being ready.
            self.field.process.start(ready=False)
        except ControllerProcessError:
            if not self.field.disk_is_full:
                raise
            self.field.start_waits_for_disk = True


class ControllerKilledInRecovery(ControllerKilled):
    """Killed, started, and killed again before or soon after the controller is ready."""

    def __init__(self, field: Field, lives_s: float) -> None:
        super().__init__(field)
        self._lives_s = lives_s

    def heal(self) -> None:
        process = self.field.process
        starting = threading.Thread(target=self._start)
        starting.start()
        # Before recovery come imports, which take seconds and touch nothing.
        deadline_s = time.monotonic() + _IMPORTS_S
        began = process.log.stat().st_size
        while "OpenFlow on" not in process.log.read_text()[began:]:
            if time.monotonic() > deadline_s or not starting.is_alive():
                break
            time.sleep(0.02)
        time.sleep(self._lives_s)
        process.kill()
        starting.join()
        super().heal()

    def _start(self) -> None:
        with contextlib.suppress(ControllerProcessError):
            self.field.process.start()


class ControllerKilledInStages(ControllerKilled):
    """Killed within or between the stages of a large change, and beside a reservation's."""

    def __init__(self, field: Field, pairs: Sequence[tuple[str, str]], lives_s: float) -> None:
        """``pairs`` of racks: first half of the pairs have circuits, and then the other half, and
        the first pair a reservation; ``lives_s``: time from the request for the change to the end.
        """
        super().__init__(field)
        self._pairs = pairs
        self._lives_s = lives_s

    def strike(self) -> None:
        # Other faults may keep the controller from answering.
        with contextlib.suppress(httpx.TransportError), rest(self.field.process.base_url) as client:
            client.patch("/v1/policy", json={"divert_share": _STAGED_SHARE})
            half = len(self._pairs) // 2
            for pairs, headers in (
                (self._pairs[:half], {"Prefer": "wait=3"}),
                (self._pairs[half:], {}),
            ):
                demand = [{"src": a, "dst": b, "mbps": _STAGED_MBPS} for a, b in pairs]
                client.post("/v1/reconfigurations", json={"demand": demand}, headers=headers)
            time.sleep(self._lives_s / 2)
            src, dst = self._pairs[0]
            wanted = {"src": src, "dst": dst, "bandwidth_mbps": 1.0, "duration_s": _RESERVED_S}
            client.post("/v1/reservations", json=wanted)
        time.sleep(self._lives_s / 2)
        super().strike()


class JournalRolledBack(ControllerKilled):
    """The controller is killed, and goes on with an older copy of the journal."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._journal = Path(field.process.settings.journal).resolve()
        self._copy = field.disk / "copy.db"
        with (
            closing(sqlite3.connect(self._journal)) as source,
            closing(sqlite3.connect(self._copy)) as target,
        ):
            source.backup(target)
        self._copy.chmod(0o600)

    def heal(self) -> None:
        self._remove_beside()
        self._copy.replace(self._journal)
        super().heal()

    def _remove_beside(self) -> None:
        """Remove files of the previous journal, such as the write-ahead log."""
        for stale in self._journal.parent.glob(f"{self._journal.name}-*"):
            stale.unlink()


class JournalCut(JournalRolledBack):
    """The journal's file is cut. The controller has to refuse the file, and is then given the
    copy.
    """

    def __init__(self, field: Field, part: float) -> None:
        """``part`` of the file, 0 to 1, is left."""
        super().__init__(field)
        self._part = part

    def strike(self) -> None:
        super().strike()
        self._remove_beside()
        with self._journal.open("r+b") as file:
            file.truncate(1 + int(self._part * (self._journal.stat().st_size - 1)))

    def heal(self) -> None:
        try:
            self.field.process.start(ready=False)
        except ControllerProcessError:
            super().heal()
        else:
            raise ControllerProcessError("the controller has started on a journal that is cut")


class ControllerStopped(ControllerAway):
    def strike(self) -> None:
        os.killpg(self.field.process.pid, signal.SIGSTOP)

    def heal(self) -> None:
        os.killpg(self.field.process.pid, signal.SIGCONT)


class PlannerKilled(ControllerFault):
    """The planning process dies; the fault is over when the next planning process has made a
    plan.
    """

    def strike(self) -> None:
        for pid in self.field.process.members():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"planner_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def heal(self) -> None:
        deadline_s = time.monotonic() + _PLANNER_S
        with rest(self.field.process.base_url) as client:
            while time.monotonic() < deadline_s:
                with contextlib.suppress(httpx.TransportError):
                    if client.post("/v1/plan", json={"demand": []}).is_success:
                        return
                time.sleep(_POLL_S)


class LogUnread(ControllerFault):
    """The controller's log is not read, and receives more than the pipe holds."""

    def strike(self) -> None:
        self.field.log_reader.stand_still()
        with rest(self.field.process.base_url) as client, contextlib.suppress(httpx.TransportError):
            for _ in range(_REFUSED_REQUESTS):  # a line of more than 100 bytes each
                client.delete("/v1/reservations/nobody-s")

    def heal(self) -> None:
        self.field.log_reader.read_on()


class DiskFull(Fault):
    def __init__(self, field: Field) -> None:
        super().__init__(field, "disk")
        self._filler = field.disk / "filler"

    def strike(self) -> None:
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(_BLOCK_BYTES))

    def heal(self) -> None:
        self._filler.unlink()
        if self.field.start_waits_for_disk:
            self.field.start_waits_for_disk = False
            self.field.process.start(ready=False)


class DiskSlow(Fault):
    """Each write to the journal takes longer."""

    def __init__(self, field: Field, by_s: float) -> None:
        super().__init__(field, "disk")
        self._by_s = by_s

    def strike(self) -> None:
        self.field.preloaded.slow_disk_by(self._by_s)

    def heal(self) -> None:
        self.field.preloaded.slow_disk_by(0.0)


class ClockStepped(Fault):
    """The controller's time of day is set, and set right again."""

    def __init__(self, field: Field, by_s: int) -> None:
        super().__init__(field, "clock")
        self._by_s = by_s

    def strike(self) -> None:
        self.field.preloaded.set_clock_by(self._by_s)

    def heal(self) -> None:
        self.field.preloaded.set_clock_by(0)


class Storm(Fault):
    """One kind of OpenFlow message without pause, from a stranger or with a known datapath id."""

    def __init__(self, field: Field, server: Server, name: str, *, known: bool) -> None:
        super().__init__(field, "OpenFlow port")
        tor = field.fabric.racks[server.rack].tor
        ours = tor.datapath_id if server.vswitch is None else server.vswitch.datapath_id
        self._datapath = (ours or 0) if known else _NOBODYS
        self._name = name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._blow, name="storm", daemon=True)

    def strike(self) -> None:
        self._thread.start()

    def _blow(self) -> None:
        settings = self.field.process.settings
        address = settings.openflow_host, settings.openflow_port
        some = kinds(self._datapath)[self._name] * 100
        while not self._over.wait(_POLL_S):
            # There may be no controller, or the controller closes the connection.
            with contextlib.suppress(OSError):
                switch = Stranger(address, self._datapath)
                try:
                    while switch.is_switch.wait(_POLL_S) and not self._over.is_set():
                        switch.send(some)
                finally:
                    switch.leave()

    def heal(self) -> None:
        self._over.set()


class Strangers(Fault):
    """Connections to the OpenFlow port: with a known datapath id, with garbage, and without a
    byte.
    """

    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field, "OpenFlow port")
        tor = field.fabric.racks[server.rack].tor
        known = tor.datapath_id if server.vswitch is None else server.vswitch.datapath_id
        self._known = known or 0
        self._open: list[Stranger | socket.socket] = []

    def strike(self) -> None:
        address = (
            self.field.process.settings.openflow_host,
            self.field.process.settings.openflow_port,
        )
        with contextlib.suppress(OSError):  # there may be no controller
            self._open.append(Stranger(address, self._known))
            for first in (
                b"",
                b"GET / HTTP/1.1\r\n\r\n",
                bytes(3),
                b"\x04\x00\xff\xff" + bytes(64),
            ):
                connection = socket.create_connection(address, timeout=2)
                self._open.append(connection)
                connection.sendall(first)

    def heal(self) -> None:
        for connection in self._open:
            if isinstance(connection, Stranger):
                connection.leave()
            else:
                connection.close()
