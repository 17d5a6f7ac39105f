"""The limits within which a reservation is admitted now."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from apps.controller.mover import Mover
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from hydra.reservations.calendar import AdmissionLimits


@dataclass(eq=False, repr=False)
class Limits:
    """For any thread."""

    _reach: Reach
    _mover: Mover
    ledger: InitVar[Ledger]
    _max_hops: int
    _paths_per_pair: int

    def __post_init__(self, ledger: Ledger) -> None:
        self._reservations = ledger.reservations

    def now(self) -> AdmissionLimits:
        """Limits of hops and paths, and what no path may use at present."""
        return AdmissionLimits(
            self._max_hops,
            self._reach.blocked_ports(),
            self._reservations.unreserved_paths(),
            self._mover.touched.ports,
            paths_per_pair=self._paths_per_pair,
        )
