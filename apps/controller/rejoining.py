"""Replaces lost paths of rack pairs without a reservation."""

from __future__ import annotations

import logging
from collections.abc import Collection

from apps.controller.mover import Mover
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.planning.engine import Planning
from hydra.model import Fabric, NetworkState, Path, RackId
from hydra.reconfiguration.plan import directions, pair_named
from hydra.reconfiguration.touched import state_beside
from hydra.reservations.reservation import rack_pair

LOG = logging.getLogger("hydra.reservations")


class Rejoining:
    """For the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        planning: Planning,
        mover: Mover,
        reach: Reach,
        ledger: Ledger,
    ) -> None:
        self._fabric, self._planning, self._mover = fabric, planning, mover
        self._reach = reach
        self._network = ledger.network
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations

    async def rejoin(self, lost: Collection[tuple[RackId, RackId]]) -> None:
        """Give rack pairs, as (from, to), other paths for lost unreserved paths, where there is
        room: all in one move.
        """
        state, blocked = self._network.state, self._reach.blocked_ports()
        missing = set(lost) - directions(state)
        if missing and self._fabric.one_way:
            target = self._planning.ringed(state, missing, blocked)
        elif missing:
            pairs = sorted({(min(ends), max(ends)) for ends in missing})
            target = self._planning.rejoined(state, pairs, self._bookings.pins(), blocked)
        if missing:
            if left := missing - directions(target):
                LOG.warning("stay electrical, since there is no room: %s", self._named(left))
            await self._mover.go(target, "circuit lost", "planned around it")
        self._reservations.keep_standing()

    def rejoined_beside(self, lost: Collection[tuple[RackId, RackId]]) -> NetworkState:
        """The state with other paths for unreserved pairs, as (from, to), without a path.

        New paths avoid everything touched by the changes under way. Raises PlanError.
        """
        state, touched = self._network.state, self._mover.beside.touched
        pins = self._bookings.pins()
        pinned = {rack_pair(pin.src, pin.dst) for pin in pins}
        missing = {rack_pair(*ends) for ends in set(lost) - directions(state)}
        pairs = sorted(missing - touched.pairs - pinned)
        if not pairs:
            return state
        blocked = self._reach.blocked_ports() | touched.ports
        standing = [pin for pin in pins if pin.path in state.vlans]
        return self._planning.rejoined(state_beside(state, touched), pairs, standing, blocked)

    async def join(self, paths: Collection[Path], why: str) -> None:
        """Bring up unreserved paths planned earlier, where they still fit."""
        target = self._planning.joined(self._network.state, paths, self._reach.blocked_ports())
        if await self._mover.go(target, "people", why) is not None:
            self._reservations.keep_standing()

    def _named(self, ends: Collection[tuple[RackId, RackId]]) -> str:
        pairs = sorted({(min(pair), max(pair)) for pair in ends})
        return ", ".join(pair_named(self._fabric, pair) for pair in pairs)
