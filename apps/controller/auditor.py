"""Finds changes made by third parties, and repairs them by courses of the core."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from apps.controller.mover import Mover
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.planning.engine import Planning
from hydra.model import Circuit, NetworkState
from hydra.policy import CurrentPolicy, OnDrift
from hydra.reconfiguration.audit import Audit, Seen
from hydra.reconfiguration.drift import Drift
from hydra.reconfiguration.scheduler import carried_out
from hydra.service import DriftReport, Reconciliation

LOG = logging.getLogger("hydra.auditor")
TRIGGER: Final = "reconcile"


class Auditor:
    """Methods run in the conductor's thread: no reconfiguration is under way meanwhile."""

    def __init__(
        self,
        *,
        policy: CurrentPolicy,
        ledger: Ledger,
        reach: Reach,
        mover: Mover,
        planning: Planning,
        audit: Audit,
    ) -> None:
        self._policy, self._reach, self._mover = policy, reach, mover
        self._planning, self._audit = planning, audit
        self._network = ledger.network
        self._log = ledger.log
        self._reservations = ledger.reservations
        self._reported: tuple[Drift, ...] = ()
        self.found: tuple[Drift, ...] = ()
        """Differences found at the last look, and not mended since."""
        self.sending_foreign: frozenset[str] = frozenset()
        """Servers with frames dropped by the source check between the last two looks."""
        self._refused: dict[str, int] = {}
        """Frames dropped by the source check up to the last look, by server."""
        self._lost: frozenset[Circuit] = frozenset()
        """Broken circuits to be withdrawn; pairs on these circuits are diverted."""

    async def look(self) -> DriftReport:
        """Differences on all devices and switches, read now; changes nothing."""
        return self._report(await self._look(everywhere=True))

    async def _look(self, *, everywhere: bool) -> Seen:
        seen = await carried_out(self._audit.look(everywhere=everywhere))
        self._note_refused(seen.refused)
        return seen

    def _note_refused(self, counts: Mapping[str, int]) -> None:
        """Note the servers with frames dropped since the last look. A renewed rule
        counts from 0. For servers with a silent switch, the last note stays.
        """
        for server, count in counts.items():
            before = self._refused.get(server)
            more = 0 if before is None else count - before if count >= before else count
            self._refused[server] = count
            if more:
                if server not in self.sending_foreign:
                    LOG.warning(
                        "server %s: the vswitch has dropped %d frames with a foreign MAC address "
                        "or a VLAN tag",
                        server,
                        more,
                    )
                self.sending_foreign |= {server}
            else:
                self.sending_foreign -= {server}

    async def audit(self) -> None:
        """Look, then mend or report as the policy says; unchanged findings are not logged again.

        Silent devices are skipped, as an attempt may take a time-out; the upkeep tries such
        devices.
        """
        seen = await self._look(everywhere=False)
        found = self._report(seen)
        if found.items and found.items != self._reported:
            for item in found.items:
                LOG.warning("changed by somebody else: %s", item)
        self._reported = found.items
        if (found.items or self._lost) and self._policy.now.on_drift is OnDrift.MEND:
            self._reported = (await self._mend(seen, everywhere=False)).left.items

    async def audit_rules(self) -> None:
        """As :meth:`audit`, for rules alone: devices and circuits are left to the audit. Called
        while a change planned from the present state waits to begin.
        """
        seen = await carried_out(self._audit.look(everywhere=False))
        of_rules = [item for drift in seen.rules.values() for item in drift.items]
        if of_rules and self._policy.now.on_drift is OnDrift.MEND:
            for item in of_rules:
                LOG.warning("changed by somebody else: %s", item)
            self._lost |= seen.broken
            await carried_out(self._audit.mend_rules(seen))

    async def mend(self) -> Reconciliation:
        """Mend all differences.

        Rules are mended at once. A broken circuit is withdrawn, so that pairs go electrical;
        cross-connects in the way are cleared; then the circuit is set up again, by the same steps
        and through the same gate as any other circuit.
        """
        return await self._mend(await self._look(everywhere=True), everywhere=True)

    async def _mend(self, seen: Seen, *, everywhere: bool) -> Reconciliation:
        found = self._report(seen)
        before = self._network.state
        broken = self._lost = seen.broken | (self._lost & before.topology.circuits)
        if not (found.items or broken):
            return Reconciliation(found, found, ())
        await carried_out(self._audit.mend_rules(seen))
        entries: list[str] = []
        if broken:
            self._log.note_loss(broken)
            reason = "; ".join(str(item) for item in seen.on_devices)
            target = self._planning.without_circuits(before, broken)
            entries += await self._move(target, f"withdrawn: {reason or 'broken before'}")
            self._lost &= self._network.state.topology.circuits
        await carried_out(self._audit.clear_away())
        if broken and entries:
            restored = self._planning.restored(
                self._network.state, before.topology, self._reach.blocked_ports()
            )
            entries += await self._move(restored, "set up again")
            self._reservations.keep_standing()
        left = self._report(await self._look(everywhere=everywhere))
        return Reconciliation(found, left, tuple(entries))

    async def _move(self, target: NetworkState, reason: str) -> list[str]:
        """Go to ``target``; returns the id of the reconfiguration, if any ran."""
        entry = await self._mover.go(target, TRIGGER, reason)
        return [] if entry is None else [entry.id]

    def _report(self, seen: Seen) -> DriftReport:
        self.found = seen.items
        return DriftReport(seen.items, seen.silent)
