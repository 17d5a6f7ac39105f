"""The tables of meters, tallies and ways that vswitches hold, and their rules."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping

from apps.controller.meter_tables import (
    MeterTable,
    MeterTables,
    differing,
    rules_of,
    switched_over,
    way_rules,
)
from hydra.forwarding.rules import FlowRule, RuleChange
from hydra.model import DatapathId, Fabric, Path
from hydra.sharing.policing import Holdings


class HeldTables:
    """For the conductor's thread; ``_lock`` guards the tables against other threads."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._lock = threading.Lock()
        self._holdings = Holdings()
        self._tables: MeterTables = {}
        self._unmetered: set[DatapathId] = set()
        """Vswitches without metering."""

    def switch_over(self, lost: Collection[Path]) -> Mapping[DatapathId, tuple[RuleChange, ...]]:
        """Rule changes that send protected traffic of lost paths on its path on standby. The rates
        stay until the next hold of reservations.
        """
        changes: dict[DatapathId, tuple[RuleChange, ...]] = {}
        tables = dict(self._tables)
        for datapath, table in self._tables.items():
            tables[datapath] = after = switched_over(table, self._holdings.standbys, lost)
            if after is not table:
                changes[datapath] = tuple(
                    differing(*(way_rules(self._fabric, tables) for tables in (table, after)))
                )
        with self._lock:
            self._tables = tables
        return changes

    def rules_for(self, datapath: DatapathId) -> Iterator[FlowRule]:
        """Rules of a vswitch for reservations."""
        return self._rules(datapath, self._tables)

    def _rules(self, datapath: DatapathId, tables: MeterTables) -> Iterator[FlowRule]:
        table = tables.get(datapath, MeterTable())
        return rules_of(self._fabric, table, metered=datapath not in self._unmetered)
