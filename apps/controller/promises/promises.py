"""Reservations at work, put together: admitted, placed, begun and ended in time."""

from __future__ import annotations

from collections.abc import Callable

from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.promises.admission import Admission
from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.promises.shapes import Shapes
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.upkeep import Upkeep
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.model import Fabric
from hydra.policy import MOST_PATHS_PER_PAIR, Policy
from hydra.reconfiguration.scheduler import Job


class Promises:
    """Its parts document their threads."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: Policy,
        planning: Planning,
        planner: Planner,
        mover: Mover,
        upkeep: Upkeep,
        reach: Reach,
        panels: PatchPanels,
        ledger: Ledger,
        enqueue: Callable[[Job], None],
    ) -> None:
        """``policy``: the policy at the start; ``enqueue`` queues a job for the conductor."""
        limits = Limits(
            reach=reach,
            mover=mover,
            ledger=ledger,
            max_hops=policy.max_hops,
            paths_per_pair=fabric.paths_per_pair(policy.paths_per_pair) or MOST_PATHS_PER_PAIR,
        )
        self.placement = Placement(
            planning=planning,
            planner=planner,
            mover=mover,
            upkeep=upkeep,
            reach=reach,
            panels=panels,
            ledger=ledger,
            limits=limits,
            enqueue=enqueue,
        )
        self.care = ReservationCare(
            fabric=fabric,
            planning=planning,
            mover=mover,
            upkeep=upkeep,
            reach=reach,
            ledger=ledger,
            placement=self.placement,
            enqueue=enqueue,
        )
        self.admission = Admission(
            fabric=fabric,
            planning=planning,
            planner=planner,
            reach=reach,
            ledger=ledger,
            limits=limits,
            placement=self.placement,
            care=self.care,
            notice_s=policy.preemption_notice_s,
        )
        self.shapes = Shapes(fabric=fabric, admission=self.admission, ledger=ledger, limits=limits)
