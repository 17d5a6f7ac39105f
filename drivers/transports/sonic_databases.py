"""A SONiC switch's databases, independent of the protocol."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from drivers.codecs.sonic_ocs import Rows, Table


class SonicDatabases(Protocol):
    """The contract of a protocol's access to the databases; methods raise DeviceError."""

    def open(self) -> None:
        """Connect and log in; a second call on an open connection does nothing."""

    def close(self) -> None: ...

    def read(self, table: Table) -> Rows:
        """All rows of a table; empty where the switch has none. Connects if need be."""

    def write(self, delete: Collection[str], add: Rows) -> None:
        """Delete cross-connects by their keys, then add cross-connects, in one request.

        Returns when the configuration database has the change, which says nothing of the mirrors.
        """

    def received_alarms(self) -> tuple[tuple[str, Rows | None], ...]:
        """Alarms that the switch reported since the last call, in order.

        Each is an alarm's number, with its row, or None if the alarm has ended. Never waits; empty
        if the protocol reports nothing.
        """
