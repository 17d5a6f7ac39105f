"""An emulated SONiC optical circuit switch, whatever protocol asks it; and the door to it.

Clients' bytes go through a relay, so that connections can break off as real ones do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from abc import abstractmethod
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from apps.tools.authority import Use, create_authority, issue
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.ocs import EmulatedOcs
from mininet_scenarios.emulators.sessions import SessionServer
from mininet_scenarios.emulators.sonic_databases import Databases, Row
from mininet_scenarios.emulators.sonic_orchagent import CROSS_CONNECTS, Dialect, Orchagent

LOGIN: Final = ("admin", "YourPaSsWoRd")
CA: Final = "ca.pem"
_CERTIFICATE: Final = "switch"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_DAYS: Final = 7
_CHUNK_BYTES: Final = 1 << 16
_MUTE_POLL_S: Final = 0.05


class RefusedError(Exception):
    """The switch does not take a request."""


class GoneError(Exception):
    """There is no connection any more to answer on."""


class SonicServer(SessionServer):
    """What the servers of both protocols have in common: requests, faults and the relay."""

    def __init__(
        self,
        directory: Path,
        databases: Databases,
        dialect: Dialect,
        ocs: EmulatedOcs,
        serial: str,
    ) -> None:
        super().__init__()
        self.databases = databases
        self.dialect = dialect
        self.orchagent = Orchagent(ocs, databases, dialect, serial)
        self._ocs = ocs
        self._directory = directory
        self._door = directory / "door.sock"
        self._started = False

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        if not self._started:
            now = datetime.now(UTC)
            create_authority(self._directory, "emulated SONiC", _DAYS, now)
            issue(self._directory, _CERTIFICATE, _HOSTS, Use.SERVER, _DAYS - 1, now)
            await self.orchagent.start()
            self._started = True
        await self.serve(self._door)
        return await super().listen(host, port)

    async def die(self) -> None:
        await super().die()
        await self.finish()

    @abstractmethod
    async def serve(self, door: Path) -> None:
        """Serve the protocol on this Unix socket."""

    @abstractmethod
    async def finish(self) -> None:
        """End that; safe to repeat."""

    @property
    def certificate(self) -> tuple[Path, Path]:
        """Files of the certificate and its key."""
        return self._directory / f"{_CERTIFICATE}.pem", self._directory / f"{_CERTIFICATE}.key"

    def admits(self, username: str, password: str) -> bool:
        given, wanted = f"{username}:{password}", ":".join(LOGIN)
        return hmac.compare_digest(given.encode(), wanted.encode())

    # --- requests -------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Meet the faults that strike any request. Raises GoneError."""
        if self._ocs.faults.strikes(FaultKind.IDLE_LOGOUT):
            self._hang_up()
        mute = self._ocs.faults.active(FaultKind.MUTE)
        while self._ocs.faults.active(FaultKind.MUTE):
            await asyncio.sleep(_MUTE_POLL_S)
        if mute:  # whoever asked has given up, or is told so
            raise GoneError

    async def end(self) -> None:
        """Take the time that a slow device takes for its answer."""
        await asyncio.sleep(self._ocs.faults.delay_s)

    def read(self, database: str, table: str) -> dict[str, dict[str, str]]:
        self.orchagent.refresh()
        return self.databases.rows(database, table)

    def change(self, delete: Collection[str], put: Mapping[str, Row]) -> None:
        """Delete and put cross-connects in one transaction of the configuration.

        Raises RefusedError, and GoneError if the connection broke off on the way.
        """
        faults = self._ocs.faults
        if faults.strikes(FaultKind.REFUSE):
            raise RefusedError("the switch refuses")
        if faults.strikes(FaultKind.SILENT):
            return
        killed = faults.strikes(FaultKind.KILL)
        if killed or faults.strikes(FaultKind.PARTIAL):
            put = dict(list(put.items())[: len(put) // 2])
        self.databases.write("CONFIG_DB", CROSS_CONNECTS, delete, put)
        if killed or faults.strikes(FaultKind.LOSE_REPLY):
            self._hang_up()

    def _hang_up(self) -> None:
        """Break off every connection. Raises GoneError."""
        for writer in self._sessions.values():
            writer.transport.abort()
        raise GoneError

    # --- the relay ------------------------------------------------------------------------------

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(self._door))
        ways = [
            asyncio.create_task(_pump(reader, inner_writer)),
            asyncio.create_task(_pump(inner_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
