"""The audit: finds changes made by third parties, and repairs rules and devices.

Broken circuits are left to a reconfiguration, which withdraws the circuits and sets them up again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hydra.model import Circuit, DatapathId
from hydra.reconfiguration.commands import ApplyRules, CompareRules, Course, Steps, ask
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.drift import Drift, RuleDrift, broken_circuits, device_drift
from hydra.reconfiguration.failover import Failover
from hydra.reconfiguration.reconcile import Actual
from hydra.reconfiguration.recovery import Recovery
from hydra.reconfiguration.switches import Switches

LOG: Final = logging.getLogger("hydra.audit")
_AT_ONCE: Final = 1024
"""Switches whose intended tables are in memory at a time: about 10 MB where racks are many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Findings from all devices and switches."""

    on_devices: tuple[Drift, ...]
    broken: frozenset[Circuit]
    """Circuits of the present state missing on devices."""
    rules: Mapping[DatapathId, RuleDrift]
    silent: tuple[str, ...]
    """Names of devices and switches without an answer."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Number of frames dropped by the source check, by server; only of switches that answered."""

    @property
    def items(self) -> tuple[Drift, ...]:
        of_rules = (item for _, found in sorted(self.rules.items()) for item in found.items)
        return (*self.on_devices, *of_rules)


class Audit:
    """Courses that run while no reconfiguration is under way."""

    def __init__(
        self, *, switches: Switches, failover: Failover, care: DeviceCare, recovery: Recovery
    ) -> None:
        self._fabric, self._memory, self._switches = switches.fabric, switches.memory, switches
        self._failover, self._care, self._recovery = failover, care, recovery

    def look(self, *, everywhere: bool = False) -> Course[Seen]:
        """Read devices, and the tables of switches that should hold our rules.

        Unless ``everywhere``, devices silent at their last read are skipped.
        """
        known, state = self._switches.known, self._memory.state
        ready = sorted(known.keys() & self._switches.ready())
        rules: dict[DatapathId, RuleDrift] = {}
        for first in range(0, len(ready), _AT_ONCE):
            intended = dict(self._switches.tables(ready[first : first + _AT_ONCE]))
            compared = yield from ask("read", CompareRules(intended), alone=True)
            rules |= compared.value_or({})
        # Devices come last: meanwhile, pairs may be diverted off dead circuits.
        actual, silent = yield from self._care.read(everywhere=everywhere)
        mute = [name for datapath, name in known.items() if datapath not in rules]
        return Seen(
            on_devices=tuple(device_drift(self._fabric, state, actual, *self._care.beside)),
            broken=broken_circuits(self._fabric, state, actual),
            rules=rules,
            silent=tuple(dict.fromkeys((*silent, *mute))),
            refused=dict(self._refused(rules)),
        )

    def _refused(self, rules: Mapping[DatapathId, RuleDrift]) -> Iterator[tuple[str, int]]:
        at_vswitch, at_tor = self._fabric.server_by_datapath, self._fabric.rack_by_tor_datapath
        for datapath, found in rules.items():
            for place, frames in found.refused.items():
                if datapath in at_vswitch:
                    yield at_vswitch[datapath].name, frames
                else:
                    yield at_tor[datapath].servers[place].name, frames

    def mend_rules(self, seen: Seen) -> Steps:
        """Send pairs on broken circuits electrical, until the circuits are withdrawn. Bring
        differing tables to the present state, and remove foreign rules.
        """
        yield from self._failover.divert(seen.broken)
        wrong = {datapath: found for datapath, found in seen.rules.items() if found.items}
        if not wrong:
            return
        yield from self._recovery.bring(wrong)
        strange = {datapath: found.foreign for datapath, found in wrong.items() if found.foreign}
        done = yield from ask("tidy", ApplyRules(strange))
        for datapath, failure in done.value_or({}).items():
            if failure is not None:
                LOG.error("foreign rules stay on switch %#x: %s", datapath, failure)

    def clear_away(self) -> Steps:
        """Give ports the VLANs of the present state, and take down cross-connects of no circuit."""
        actual: Actual
        actual, _ = yield from self._care.read(everywhere=False)
        state = self._memory.state
        yield from self._care.clear_away(state, actual)
