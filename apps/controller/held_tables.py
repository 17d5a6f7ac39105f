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
        self._tables: MeterTables = {}
        self._vacated: frozenset[Path] = frozenset()
        """Standing paths that protected traffic has left, since the paths were lost."""
        self._unmetered: set[DatapathId] = set()
        """Vswitches without metering."""

    @property
    def _holdings(self) -> Holdings:
        return self._parted.whole

    def survivors(self, state: NetworkState, lost: Collection[Path]) -> dict[Path, Path]:
        """The surviving path for each lost path of protected traffic, if switches can move the
        traffic: a standby path for a working path, and a working path for a standby path.
        """
        gone = self._vacated.union(lost)
        found: dict[Path, Path] = {}
        for lanes in set(self._holdings.standbys.values()):
            (working, _), (standby, _) = lanes
            if state.vlans.items() >= set(lanes):
                found |= {
                    path: other
                    for path, other in ((working, standby), (standby, working))
                    if path in lost and other not in gone
                }
        return found

    def switch_over(self, lost: Collection[Path]) -> Mapping[DatapathId, Sequence[RuleChange]]:
        """Rule changes that send protected traffic of lost paths on its path on standby. The rates
        stay until the next hold of reservations.
        """
        vacated = self._vacated.union(lost)
        before, after = self._tables, self._on_standing(self._tables, vacated)
        changes = {
            datapath: differing(
                way_rules(self._fabric, before[datapath].ways),
                way_rules(self._fabric, table.ways),
            )
            for datapath, table in after.items()
            if table is not before[datapath]
        }
        with self._lock:
            self._tables, self._vacated = after, vacated
        return changes

    def _on_standing(self, tables: MeterTables, vacated: frozenset[Path]) -> MeterTables:
        """``tables`` with protected traffic off the ``vacated`` paths."""
        found = dict(tables)
        for datapath in self._steering(vacated) & tables.keys():
            if moved := switched_over(table := tables[datapath], vacated):
                found[datapath] = replace(table, ways={**table.ways, **moved})
        return found

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
