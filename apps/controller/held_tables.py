"""The tables of meters, tallies and ways that vswitches hold, and their rules."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from apps.controller.meter_tables import (
    MeterTable,
    MeterTables,
    differing,
    rules_of,
    switched_over,
    way_rules,
)
from hydra.forwarding.rules import FlowRule, RuleChange
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, NetworkState, Path
from hydra.sharing.parted_holdings import PartedHoldings
from hydra.sharing.policing import Holdings


class HeldTables:
    """For the conductor's thread; ``_lock`` guards the tables against other threads."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._lock = threading.Lock()
        self._parted = PartedHoldings(fabric)
        self._holdings = Holdings()
        """The whole of :attr:`_parted`, for all threads."""
        self._tables: MeterTables = {}
        self._unmetered: set[DatapathId] = set()
        """Vswitches without metering."""

    def survivors(self, state: NetworkState, lost: Collection[Path]) -> dict[Path, Path]:
        """The surviving path for each lost path of protected traffic, if switches can move the
        traffic: a standby path for a working path, and a working path for a standby path.
        """
        found: dict[Path, Path] = {}
        for lanes in self._holdings.standbys.values():
            (working, _), (standby, _) = lanes
            if (working in lost or standby in lost) and state.vlans.items() >= set(lanes):
                found[working] = standby
                found.setdefault(standby, working)
        return found

    def switch_over(self, lost: Collection[Path]) -> Mapping[DatapathId, Sequence[RuleChange]]:
        """Rule changes that send protected traffic of lost paths on its path on standby. The rates
        stay until the next hold of reservations.
        """
        changes: dict[DatapathId, Sequence[RuleChange]] = {}
        tables = dict(self._tables)
        for datapath in self._steering(lost) & tables.keys():
            table = tables[datapath]
            after = switched_over(table.ways, self._holdings.standbys, lost)
            if after:
                before = {way: table.ways[way] for way in after}
                rules = (way_rules(self._fabric, ways) for ways in (before, after))
                changes[datapath] = differing(*rules)
                tables[datapath] = replace(table, ways={**table.ways, **after})
        self._parted.doubt(lost)
        with self._lock:
            self._tables = tables
        return changes

    def _steering(self, paths: Iterable[Path]) -> set[DatapathId]:
        """Switches that steer traffic into ``paths``."""
        racks = {rack for path in paths for rack in (path.src, path.dst)}
        steering = substrate_of(self._fabric).steering
        return {switch.datapath for rack in racks for switch in steering(rack)}

    def rules_for(self, datapath: DatapathId) -> Iterator[FlowRule]:
        """Rules of a vswitch for reservations."""
        return self._rules(datapath, self._tables)

    def _rules(self, datapath: DatapathId, tables: MeterTables) -> Iterator[FlowRule]:
        table = tables.get(datapath, MeterTable())
        return rules_of(self._fabric, table, metered=datapath not in self._unmetered)
