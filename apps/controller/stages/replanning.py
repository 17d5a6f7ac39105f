"""Between stages, plan the rest of a change anew if demand, ports or reservations have changed."""

from __future__ import annotations

from dataclasses import dataclass

from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from hydra.errors import PlanError
from hydra.journal_format import Unfinished
from hydra.model import DemandMatrix, PortId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.plan import Plan
from hydra.reservations.reservation import Pin
from hydra.staged_changes import StagedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """A change planned anew."""

    why: str
    plan: Plan | None
    """None: the change does not pay any more."""
    pins: tuple[Pin, ...]
    blocked: frozenset[PortId]
    wanted_mbps: DemandMatrix | None


class Replanning:
    """For the conductor's thread."""

    def __init__(self, policy: CurrentPolicy, ledger: Ledger, reach: Reach) -> None:
        self._policy = policy
        self._network = ledger.network
        self._bookings = ledger.bookings
        self._log = ledger.log
        self._reach = reach

    def planned_anew(self, change: StagedChange, others_reason: str) -> Replanned | None:
        """The change planned anew; None without a reason to plan anew.

        ``others_reason``: the reason to plan anew nevertheless, since other changes may have
        touched the network. Raises HydraError.
        """
        pins, blocked = self._bookings.pins(), self._reach.blocked_ports()
        policy = self._policy.now
        wanted_mbps, moved = change.wanted_now(
            self._network.state, policy.replan_share, policy.minimum_gain_mbps
        )
        if (pins, blocked) != (change.pins, change.blocked):
            why = "there are other reservations, or ports to plan with"
        elif moved is not None:
            why = f"demand has moved by {moved:.0%} since the plan"
        elif others_reason and change.asker.plan is not None:
            why = others_reason
        else:
            return None
        if change.asker.plan is None:
            raise PlanError(f"{why}, and the planned demand is not known after a restart")
        return Replanned(
            why=why, plan=change.asker.plan(), pins=pins, blocked=blocked, wanted_mbps=wanted_mbps
        )

    def adopt(self, change: StagedChange, replanned: Replanned, plan: Plan) -> None:
        """Let a change continue by the new plan."""
        change.pins, change.blocked, change.wanted_mbps = (
            replanned.pins,
            replanned.blocked,
            replanned.wanted_mbps,
        )
        before, change.goal = change.goal, plan.target.topology
        what = "goes on as planned" if change.goal == before else "is amended"
        text = f"{replanned.why}: {what}"
        self._log.note_course(change.entry.id, text, plan.connect | plan.disconnect)

    def contradiction(self, unfinished: Unfinished) -> str | None:
        """The reason why a change cut off by a restart can't go on to its goal, or None."""
        if not unfinished.whole:
            return "a part of its goal is no longer in the fabric"
        goal, standing = unfinished.goal, self._network.state.topology.circuits
        ends = {end for circuit in goal.circuits - standing for end in circuit.ends}
        if not ends.isdisjoint(self._reach.blocked_ports()):
            return "ports of the change are set aside"
        if any(
            pin.path is not None and pin.path not in goal.paths for pin in self._bookings.pins()
        ):
            return "there are other reservations than it was planned with"
        return None
