"""Which plan may be carried out beside the changes under way."""

from __future__ import annotations

import logging

from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.planning.engine import Planning
from hydra.model import Fabric, NetworkState
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.side_by_side import SideBySide
from hydra.reconfiguration.touched import Touched

LOG = logging.getLogger("hydra.mover")


class ChangesBeside:
    """Answers for new changes, from the changes under way. For the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        reach: Reach,
        ledger: Ledger,
    ) -> None:
        self._fabric = fabric
        self._policy = policy
        self._planning = planning
        self._reach = reach
        self._network = ledger.network
        self._bookings = ledger.bookings

    @property
    def under_way(self) -> SideBySide:
        """The changes under way."""
        return SideBySide(self._fabric, self._network.under_way)

    @property
    def touched(self) -> Touched:
        """The parts of the network touched by the changes under way."""
        return self.under_way.touched

    def plan(
        self, target: NetworkState, requester: str, *, takes_over: bool = False
    ) -> Plan | None:
        """The plan to ``target`` beside the changes under way.

        None if there is nothing to do, or if the change of ``requester`` has to wait for its turn;
        the log has the reason. With ``takes_over``, the changes under way may leave parts to the
        new change. Raises PlanError.
        """
        plan = self._planning.diff(self._network.state, target)
        if plan.empty:
            return None
        why_not = self._why_not(plan, takes_over=takes_over)
        if why_not is not None:
            LOG.debug("%s waits for its turn: %s", requester, why_not)
            return None
        return plan

    def _why_not(self, plan: Plan, *, takes_over: bool) -> str | None:
        """The reason why a plan has to wait for its turn, if any."""
        touched = Touched.by(self._fabric, plan)
        if takes_over:
            reserved = {pin.path for pin in self._bookings.pins()}
            meets = not self.under_way.leaves(touched, reserved)
        else:
            meets = touched.meets(self.touched)
        if meets:
            return "changes under way touch the same pairs, ports or VLAN-IDs"
        if unknown := self.under_way.unknown(plan, self._reach.absences.unconfirmed()):
            return f"the state of {', '.join(unknown)} is not known yet"
        if self._network.rest_s(plan.target, self._policy.now.vlan_rest_s):
            return "VLAN-IDs of the change have to rest first"
        return None
