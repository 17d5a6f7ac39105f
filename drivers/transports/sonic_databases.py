"""A SONiC switch's databases, whatever protocol leads to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from drivers.codecs.sonic_ocs import Rows, Table


class SonicDatabases(Protocol):
    """The contract of the ways to the databases; methods raise DeviceError and its kinds."""

    def open(self) -> None:
        """Connect and log in; a second call on an open connection does nothing."""

    def close(self) -> None: ...

    def read(self, table: Table) -> Rows:
        """All rows of a table; empty where the switch has none. Connects if need be."""

    def write(self, delete: Collection[str], add: Rows) -> None:
        """Delete cross-connects by their keys, then add others, in one request.

        Returns when the configuration database has them, which says nothing of the mirrors.
        """

    def heard_alarms(self) -> tuple[tuple[str, Rows | None], ...]:
        """Alarms that the switch told of since the last call, in their order.

        Each is an alarm's number, with its row, or None if it has ended. Never waits; empty where
        the protocol does not tell.
        """
