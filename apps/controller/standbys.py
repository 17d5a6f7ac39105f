"""Protected reservations, for the switch-over to their paths on standby."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from apps.controller.policing import Policing
from apps.controller.record.ledger import Ledger
from hydra.forwarding.rules import RuleChange
from hydra.model import DatapathId, Path
from hydra.reservations.reservation import survivors


class Standbys:
    """For the conductor's thread."""

    def __init__(self, ledger: Ledger, policing: Policing) -> None:
        self._network, self._bookings, self._policing = ledger.network, ledger.bookings, policing

    def survivors(self) -> Mapping[Path, Path]:
        """For each standing path of protected reservations, the path that survives its loss."""
        return survivors(self._bookings.active(), self._network.state)

    def switch_over(self, lost: Collection[Path]) -> Mapping[DatapathId, Sequence[RuleChange]]:
        """Rule changes that send protected traffic of lost paths on its path on standby."""
        return self._policing.switch_over(lost)
