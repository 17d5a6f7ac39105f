"""The present limits of admission."""

from __future__ import annotations

from dataclasses import replace

from apps.controller.mover import Mover
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from hydra.reservations.limits import AdmissionLimits


class Limits:
    """For any thread."""

    def __init__(
        self,
        *,
        reach: Reach,
        mover: Mover,
        ledger: Ledger,
        max_hops: int,
        paths_per_pair: int,
    ) -> None:
        self._reach, self._mover, self._max_hops = reach, mover, max_hops
        self._paths_per_pair = paths_per_pair
        self._network = ledger.network
        self._last = AdmissionLimits()
        """Limits of the last call: the calendar recognizes its windows by the same limits."""

    def now(self) -> AdmissionLimits:
        """Limits of hops and paths, and the ports and paths out of use at present."""
        return replace(self.anywhere(), standing=self._network.unreserved_paths())

    def anywhere(self) -> AdmissionLimits:
        """:meth:`now` for paths that may displace standing paths."""
        made = AdmissionLimits(
            self._max_hops,
            self._reach.blocked_ports(),
            moving=self._mover.beside.touched.ports,
            paths_per_pair=self._paths_per_pair,
        )
        if made != self._last:
            self._last = made
        return self._last
