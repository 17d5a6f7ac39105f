"""An emulated SONiC switch, for any protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.certificate import certify
from mininet_scenarios.emulators.faults import FaultKind, Faults
from mininet_scenarios.emulators.relayed import RelayedServer
from mininet_scenarios.emulators.sonic_databases import Databases, Row


class RefusedError(Exception):
    """The switch does not take a request."""


class Agent(Protocol):
    """The agent between the databases and the hardware."""

    operations: frozenset[str]
    """Operations offered over RESTCONF."""

    async def start(self) -> None:
        """Fill the tables, and carry out configuration from now on."""

    def refresh(self) -> None:
        """Bring the state database up to date."""


class SonicServer(RelayedServer):
    """Common parts of the servers of both protocols: databases, a certificate and faults."""

    def __init__(
        self,
        directory: Path,
        databases: Databases,
        agent: Agent,
        faults: Faults,
    ) -> None:
        super().__init__(directory / "door.sock", EMULATORS["sonic-ocs"], faults)
        self.databases = databases
        self.agent = agent
        self.changes = 0
        """Sets of the configuration so far."""
        self._directory = directory
        self._started = False

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        if not self._started:
            await self.agent.start()
            self._started = True
        return await super().listen(host, port)

    @cached_property
    def certificate(self) -> tuple[Path, Path]:
        """Files of the certificate and the key."""
        return certify(self._directory, "emulated SONiC")

    async def end(self) -> None:
        """Wait for the answer delay of a slow device."""
        await asyncio.sleep(self._faults.delay_s)

    def read(self, database: str, table: str) -> dict[str, dict[str, str]]:
        self.agent.refresh()
        return self.databases.rows(database, table)

    def change(self, tables: Mapping[str, tuple[Collection[str], Mapping[str, Row]]]) -> None:
        """Delete and put rows of the configuration, in one transaction for each table.

        Raises RefusedError, and GoneError if the connection broke off on the way.
        """
        faults = self._faults
        if faults.strikes(FaultKind.REFUSE):
            raise RefusedError("the command was not carried out")
        if faults.strikes(FaultKind.SILENT):
            return
        self.changes += 1
        killed = faults.strikes(FaultKind.KILL)
        partial = killed or faults.strikes(FaultKind.PARTIAL)
        merged = faults.strikes(FaultKind.MERGE)
        for table, (delete, put) in tables.items():
            written = dict(list(put.items())[: len(put) // 2]) if partial else put
            self.databases.write("CONFIG_DB", table, () if merged else delete, written)
        if killed or faults.strikes(FaultKind.LOSE_REPLY):
            self.hang_up()
