"""Ways to targets for a mover built by a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.controller.course_choice import PresentWays
from apps.controller.record.ledger import Ledger
from hydra.model import DemandMatrix, Fabric
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.course_choice import Way, Ways
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.run import all_ready
from tests.unit.core.fabrics import small_fabric


def _nobody_measures() -> None:
    return None


def ways_of(
    fabric: Fabric,
    policy: CurrentPolicy,
    planning: Any,
    reach: Any,
    ledger: Ledger,
    sent_mbps: Callable[[], DemandMatrix | None] = _nobody_measures,
) -> PresentWays:
    return PresentWays(
        fabric=fabric,
        policy=policy,
        planning=planning,
        reach=reach,
        bookings=ledger.bookings,
        network=ledger.network,
        sent_mbps=sent_mbps,
    )


def all_at_once(plan: Plan) -> Way:
    """The way of a plan in HydRA's order."""
    ways = Ways(fabric=small_fabric(), conditions=all_ready(small_fabric()), in_light=False)
    return ways.way(plan.current, plan.target)
