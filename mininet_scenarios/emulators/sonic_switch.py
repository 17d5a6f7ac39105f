"""An emulated SONiC switch, whatever protocol asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from apps.tools.authority import Use, create_authority, issue
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.ocs import EmulatedOcs
from mininet_scenarios.emulators.relayed import RelayedServer
from mininet_scenarios.emulators.sonic_databases import Databases, Row
from mininet_scenarios.emulators.sonic_orchagent import CROSS_CONNECTS, Dialect, Orchagent

CA: Final = "ca.pem"
_CERTIFICATE: Final = "switch"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_DAYS: Final = 7


class RefusedError(Exception):
    """The switch does not take a request."""


class SonicServer(RelayedServer):
    """What the servers of both protocols have in common: databases, a certificate and faults."""

    def __init__(
        self,
        directory: Path,
        databases: Databases,
        dialect: Dialect,
        ocs: EmulatedOcs,
        serial: str,
    ) -> None:
        super().__init__(directory / "door.sock", EMULATORS["sonic-ocs"], ocs.faults)
        self.databases = databases
        self.dialect = dialect
        self.orchagent = Orchagent(ocs, databases, dialect, serial)
        self._ocs = ocs
        self._directory = directory
        self._started = False

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        if not self._started:
            now = datetime.now(UTC)
            create_authority(self._directory, "emulated SONiC", _DAYS, now)
            issue(self._directory, _CERTIFICATE, _HOSTS, Use.SERVER, _DAYS - 1, now)
            await self.orchagent.start()
            self._started = True
        return await super().listen(host, port)

    @property
    def certificate(self) -> tuple[Path, Path]:
        """Files of the certificate and its key."""
        return self._directory / f"{_CERTIFICATE}.pem", self._directory / f"{_CERTIFICATE}.key"

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
            self.hang_up()
