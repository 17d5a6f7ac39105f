"""Ways to targets in the present network: the pairs of a change that leave the light."""

from __future__ import annotations

import time
from collections.abc import Callable

from apps.controller.reach import Reach
from apps.controller.record.bookings import Bookings
from apps.controller.record.network import NetworkRecord
from apps.planning.engine import Planning
from hydra.model import DemandMatrix, Fabric, PortId
from hydra.policy import CurrentPolicy, Transition
from hydra.reconfiguration.course_choice import Way, Ways
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.moving_aside import Spare
from hydra.reconfiguration.plan import Plan


class PresentWays:
    """Usable from any thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        reach: Reach,
        bookings: Bookings,
        network: NetworkRecord,
        sent_mbps: Callable[[], DemandMatrix | None],
    ) -> None:
        """``sent_mbps``: present traffic from rack to rack; None: not measured."""
        self._fabric = fabric
        self._policy = policy
        self._planning = planning
        self._reach = reach
        self._bookings = bookings
        self._network = network
        self._sent_mbps = sent_mbps

    def until_s(self) -> float:
        """Deadline of a search begun now, by the monotonic clock."""
        return time.monotonic() + self._policy.now.planning_budget_ms / 1000

    def now(self, until_s: float, *, urgent: bool = False) -> Ways:
        """Ways under the present conditions.

        No pair moves aside for an ``urgent`` change, as more courses take more time. Nor does a
        pair move aside beside changes under way: these may want the spare ports, and would have to
        wait for the search.
        """
        policy = self._policy
        return Ways(
            fabric=self._fabric,
            conditions=self._reach.conditions(),
            spare=None if urgent or self._network.under_way else self._spare(until_s),
            # Of slots, the night is to be short.
            in_light=policy.now.transition is Transition.HITLESS and not policy.in_force.slotted,
        )

    def way(self, plan: Plan) -> Way:
        """The courses of a plan at present."""
        return self.now(self.until_s()).way(plan.current, plan.target)

    def _spare(self, until_s: float) -> Spare:
        return Spare(
            detours=self.detours(until_s),
            blocked=self._reach.blocked_ports(),
            sent_mbps=self._sent_mbps(),
            share=self._policy.now.divert_share,
        )

    def detours(self, until_s: float, closed_ports: frozenset[PortId] = frozenset()) -> Detours:
        """Detours that avoid reserved circuits, and circuits at ``closed_ports``."""
        pins = self._bookings.pins()
        closed = {circuit for pin in pins if pin.path is not None for circuit in pin.path.circuits}
        standing = self._network.state.topology.circuits
        closed.update(circuit for circuit in standing if not closed_ports.isdisjoint(circuit.ends))
        return Detours(
            fabric=self._fabric,
            max_hops=self._policy.now.max_hops,
            closed=frozenset(closed),
            toward=self._planning.toward,
            expired=lambda: time.monotonic() > until_s,
        )
