"""Room on the electrical network for diverted traffic, and hours for stages without room."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

import numpy as np

from hydra.errors import PlanError
from hydra.forwarding.substrate import substrate_of
from hydra.hours import Hours
from hydra.model import DemandMatrix, Fabric, RackId
from hydra.policy import Beyond, CurrentPolicy
from hydra.reconfiguration.stages import Stage, Traffic

LOG = logging.getLogger("hydra.staging")


def _minute_of_day() -> int:
    now = time.localtime()
    return 60 * now.tm_hour + now.tm_min


class Headroom:
    """Usable from any thread."""

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        minute_of_day: Callable[[], int] = _minute_of_day,
    ) -> None:
        self._fabric = fabric
        self._policy = policy
        self._minute_of_day = minute_of_day
        substrate = substrate_of(fabric)
        self.electrical_mbps = np.array(
            [substrate.electrical_mbps(rack) for rack in fabric.racks], dtype=np.float64
        )
        """Rate between each rack and the electrical network, shape (N,)."""

    def traffic(self, sent_mbps: DemandMatrix) -> Traffic:
        """Present traffic, with the share of the electrical network open to diverted traffic."""
        return Traffic(sent_mbps, self.electrical_mbps, self._policy.now.divert_share)

    @property
    def has_hours(self) -> bool:
        """True in ``policy.beyond_hours``, and wherever no stage waits for hours."""
        now = self._policy.now
        if now.beyond_room is not Beyond.AT_HOURS:
            return True
        return Hours.parse(now.beyond_hours).has(self._minute_of_day())

    def is_too_early(self, ahead: Iterable[Stage]) -> bool:
        """True if a stage diverts more than there is room for, and is to wait for hours."""
        return not self.has_hours and any(stage.beyond for stage in ahead)

    def refuse_beyond(self, ahead: tuple[Stage, ...]) -> None:
        """Raise PlanError if a stage diverts more than there is room for, and may not now."""
        if not any(stage.beyond for stage in ahead):
            return
        policy = self._policy.now
        shortage_text = (
            f"the electrical network has no room for the diverted traffic: {self.shortage(ahead)}"
        )
        if policy.beyond_room is Beyond.REFUSE:
            raise PlanError(
                f"{shortage_text}; wait for less traffic, or set policy.beyond_room to announce"
            )
        if self.is_too_early(ahead):
            raise PlanError(f"{shortage_text}; policy.beyond_hours are {policy.beyond_hours}")

    def warn_of(self, ahead: Iterable[Stage]) -> None:
        """Log the traffic of ``ahead`` diverted beyond the room."""
        beyond = [stage for stage in ahead if stage.beyond]
        if beyond:
            LOG.warning(
                "diverts more than the electrical network has room for: %s", self.shortage(beyond)
            )

    def shortage(self, ahead: Iterable[Stage]) -> str:
        """Racks without room, and by how much."""
        most: dict[RackId, float] = {}
        for stage in ahead:
            for rack, mbps in stage.beyond.items():
                most[rack] = max(most.get(rack, 0.0), mbps)
        racks = self._fabric.racks
        return ", ".join(
            f"{racks[rack].name} by {mbps:.3g} Mb/s" for rack, mbps in sorted(most.items())
        )
