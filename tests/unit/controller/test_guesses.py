"""The part of a guess that plans count on, from counters to the planner."""

import numpy as np
import pytest

from hydra.demand.counters import Sent
from hydra.model import RackId
from hydra.service import PlanRequest
from tests.unit.controller.test_planned_once import FABRIC, RACKS, asked, stage

__all__ = ["asked", "stage"]


@pytest.fixture
def loop(stage, monkeypatch):
    """A server fills its uplink; the first server of the third rack fills half of its uplink."""
    monitor = stage.controller.rooms.monitor
    source, to = np.array([0, 4]), np.array([1, 3])
    mbps = np.array([1.0, 0.5]) * FABRIC.electrical_rate_mbps
    monkeypatch.setattr(monitor.poller, "sent", lambda: Sent(source, to, mbps, mbps, mbps))
    monkeypatch.setattr(monitor.poller, "freshness", lambda: (0.1, (), True))
    return stage.controller.rooms.loop


def test_a_plan_for_the_measured_demand_prefers_by_what_is_expected(loop, asked, stage):
    told = loop.plan(PlanRequest())
    seen = stage.controller.desk.demand()
    (request,) = asked.requests
    assert request.weights == pytest.approx(seen.expected_mbps)
    assert request.weights[0, 1] < seen.estimated_mbps[0, 1] / 2
    assert told.demand_mbps == pytest.approx(seen.estimated_mbps.sum())


def test_an_explanation_says_what_plans_count_on(loop, stage):
    seen = stage.controller.desk.demand()
    found = stage.controller.desk.explain(RackId(0), RackId(1))
    assert found.demand[0].expected_mbps == pytest.approx(seen.expected_mbps[0, 1])
    assert any(f"(plans count on {seen.expected_mbps[0, 1]:.1f})" in one for one in found.lines)
    measured = stage.controller.desk.explain(RackId(2), RackId(3)).demand[0]
    assert measured.expected_mbps == measured.estimated_mbps > 0


def test_a_plan_for_a_given_demand_is_for_that(loop, asked):
    demand = np.zeros((RACKS, RACKS))
    demand[0, 1] = 90.0
    loop.plan(PlanRequest(demand))
    assert asked.requests[0].weights is None
