"""Finds what was changed behind our back, and puts it right."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from apps.controller.devices import Devices
from apps.controller.ledger import Ledger
from apps.controller.mover import Mover
from apps.controller.upkeep import Upkeep
from apps.openflow.fleet import Fleet
from apps.planning.engine import Planning
from drivers.codecs.openflow.rule_tables import RuleTable, foreign, intended_table, rule_drift
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, NetworkState, RackId
from hydra.policy import CurrentPolicy, OnDrift
from hydra.reconfiguration.drift import Drift, broken_circuits, device_drift
from hydra.reconfiguration.reconcile import Actual, stray_mirrors, wanted_vlans, wrong_vlans
from hydra.service import DriftReport, Reconciliation

LOG = logging.getLogger("hydra.auditor")
TRIGGER: Final = "reconcile"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What devices and vswitches say, and which of them said nothing."""

    actual: Actual
    tables: Mapping[DatapathId, tuple[RuleTable, RuleTable]]
    """(intended, held)"""
    silent: tuple[str, ...]


class Auditor:
    """Its methods run in the conductor's thread: no reconfiguration is under way meanwhile."""

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        fleet: Fleet,
        devices: Devices,
        ledger: Ledger,
        upkeep: Upkeep,
        mover: Mover,
        planning: Planning,
    ) -> None:
        self._fabric = fabric
        self._owned = substrate_of(fabric).owned()
        self._policy = policy
        self._fleet = fleet
        self._devices = devices
        self._ledger = ledger
        self._upkeep = upkeep
        self._mover = mover
        self._planning = planning
        self._reported: tuple[Drift, ...] = ()

    def look(self) -> DriftReport:
        """Read everything; changes nothing."""
        return self._report(self._read())

    def audit(self) -> None:
        """The periodic look: mend or report, as the policy says. What was told is not repeated."""
        found = self.look()
        if found.items and found.items != self._reported:
            for item in found.items:
                LOG.warning("changed behind our back: %s", item)
        self._reported = found.items
        if found.items and self._policy.now.on_drift is OnDrift.MEND:
            self._reported = self.mend().left.items

    def mend(self) -> Reconciliation:
        """Put right what differs.

        Rules at once. A circuit that is not as it should be is withdrawn, so that its pairs go
        electrical; what stands in its place is cleared away; then it is set up again, by the same
        steps and through the same gate as any other.
        """
        seen = self._read()
        found = self._report(seen)
        if not found.items:
            return Reconciliation(found, found, ())
        self._mend_rules(seen)
        before = self._ledger.state
        broken = broken_circuits(self._fabric, before, seen.actual)
        entries: list[str] = []
        if broken:
            drift = device_drift(self._fabric, before, seen.actual, self._upkeep.closed)
            reason = "; ".join(str(item) for item in drift)
            target = self._planning.without_circuits(before, broken)
            entries += self._move(target, f"withdrawn: {reason}")
        self._clear_away()
        if broken and entries:
            entries += self._move(self._restored(before), "set up again")
            self._ledger.keep_standing()
        return Reconciliation(found, self.look(), tuple(entries))

    def _move(self, target: NetworkState, reason: str) -> list[str]:
        """Go to ``target``; the id of the reconfiguration, if one ran."""
        entry = self._mover.go(target, TRIGGER, reason)
        return [] if entry is None else [entry.id]

    def _restored(self, before: NetworkState) -> NetworkState:
        return self._planning.restored(
            self._ledger.state, before.topology, self._upkeep.blocked_ports()
        )

    # -- reading ----------------------------------------------------------------------------------

    def _read(self) -> _Seen:
        read, silent = self._devices.read(self._ports())
        tables, mute = self._read_tables()
        return _Seen(read, tables, (*silent, *mute))

    def _ports(self) -> Mapping[RackId, Collection[str]]:
        return wanted_vlans(self._fabric, self._ledger.state, self._upkeep.closed)

    def _read_tables(
        self,
    ) -> tuple[dict[DatapathId, tuple[RuleTable, RuleTable]], list[str]]:
        """Of the switches that should hold exactly the rules of the present state."""
        ready = [dp for dp in sorted(self._upkeep.ready_switches()) if dp in self._owned]
        held = self._fleet.rule_tables(ready, self._policy.now.timeouts.vswitch_s)
        tables: dict[DatapathId, tuple[RuleTable, RuleTable]] = {}
        for datapath, seen in held.items():
            if seen is not None:
                ports, table = seen
                rules = self._upkeep.rules_for(datapath)
                tables[datapath] = (intended_table(rules, ports), table)
        silent = [name for datapath, name in self._owned.items() if datapath not in tables]
        return tables, silent

    def _report(self, seen: _Seen) -> DriftReport:
        state, closed = self._ledger.state, self._upkeep.closed
        items = list(device_drift(self._fabric, state, seen.actual, closed))
        for datapath, (intended, held) in sorted(seen.tables.items()):
            items += rule_drift(self._owned[datapath], intended, held)
        return DriftReport(tuple(items), seen.silent)

    # -- mending ----------------------------------------------------------------------------------

    def _mend_rules(self, seen: _Seen) -> None:
        wrong = {
            datapath: tuple(foreign(intended, held))
            for datapath, (intended, held) in seen.tables.items()
            if next(rule_drift("", intended, held), None) is not None
        }
        if not wrong:
            return
        self._upkeep.synchronise(wrong)
        strange = {datapath: removal for datapath, removal in wrong.items() if removal}
        errors = self._fleet.apply(strange, self._policy.now.timeouts.vswitch_s)
        for datapath, error in errors.items():
            if error is not None:
                LOG.error("foreign rules stay on switch %#x: %s", datapath, error)

    def _clear_away(self) -> None:
        actual, _ = self._devices.read(self._ports())
        state = self._ledger.state
        for rack, ports in wrong_vlans(self._fabric, state, actual, self._upkeep.closed).items():
            self._upkeep.attempt(partial(self._devices.set_vlans, rack, ports))
        for plane, move in stray_mirrors(self._fabric, state, actual.mirrors).items():
            action = partial(self._devices.change_mirrors, plane, move.disconnect, move.connect)
            self._upkeep.attempt(action)
