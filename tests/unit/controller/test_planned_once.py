"""A caller gets a plan; its job carries out the same plan, or another one after a change of the
network.
"""

import numpy as np
import pytest

from apps.planning.engine import Planning
from hydra.errors import PlanError
from hydra.lifecycle import ReconfigurationState
from hydra.model import RackId
from hydra.reconfiguration.plan import pair_of
from hydra.service import CircuitShares, PlanRequest
from tests.unit.controller.runners import awaited
from tests.unit.controller.test_policy_in_force import (
    EMPTY,
    FABRIC,
    OTHERWISE,
    POLICY,
    RACKS,
    Stage,
)


class Asked:
    """The planner's answers, in this process."""

    def __init__(self):
        self._planning = Planning(FABRIC, POLICY)
        self.states, self.requests = [], []

    def propose(self, current, request, demand, pins, blocked, *, urgent):
        self.states.append(current)
        self.requests.append(request)
        return self._planning.propose(current, request, demand, pins, blocked)

    def shares(self, target, request, demand, pins):
        return self._planning.shares(target, request, demand, pins)


@pytest.fixture
def asked():
    return Asked()


@pytest.fixture
def stage(asked):
    stage = Stage()
    rooms = stage.controller.rooms
    rooms.loop._planner = asked
    rooms.devices.plane_problem = rooms.devices.tor_problem = lambda _device: None
    return stage


def wanted():
    demand = np.zeros((RACKS, RACKS))
    demand[0, 1] = 90.0
    return PlanRequest(demand)


def carried_out(stage, meanwhile=lambda: None):
    """The requested reconfiguration, after its job; ``meanwhile`` runs before the job."""
    conductor = stage.controller.rooms.conductor
    told = stage.controller.desk.reconfigure(wanted(), "test")
    meanwhile()
    conductor.start()
    try:
        conductor.ask(awaited(lambda: None))
    finally:
        conductor.stop()
    (entry,) = [
        one for one in stage.controller.rooms.ledger.log.reconfigurations() if one.id == told.id
    ]
    return entry


def ports_used(stage):
    circuits = stage.controller.rooms.ledger.network.state.topology.circuits
    return {end for circuit in circuits for end in circuit.ends}


def test_what_was_told_is_carried_out_without_another_plan(stage, asked):
    entry = carried_out(stage)
    assert entry.state is ReconfigurationState.DONE
    assert [
        pair_of(path) for path in stage.controller.rooms.ledger.network.state.topology.paths
    ] == [(0, 1)]
    assert asked.states == [EMPTY]


def test_a_dry_run_tells_shares_on_circuits_beside_the_bound(stage):
    told = stage.controller.desk.plan(wanted()).on_circuits
    assert told == CircuitShares(served_share=1.0, served_share_bound=1.0)


def test_a_planner_without_time_for_shares_refuses_no_dry_run(stage, asked, monkeypatch, caplog):
    def late(*_arguments):
        raise PlanError("the planner is busy")

    monkeypatch.setattr(asked, "shares", late)
    assert stage.controller.desk.plan(wanted()).on_circuits is None
    assert "no bound beside the plan: the planner is busy" in caplog.text


def test_a_state_that_is_another_by_then_is_planned_from(stage, asked):
    entry = carried_out(stage, lambda: stage.move(OTHERWISE))
    assert entry.state is ReconfigurationState.DONE
    assert asked.states == [EMPTY, OTHERWISE]


def test_a_port_that_was_quarantined_meanwhile_is_not_used(stage, asked):
    lost = {port.id for port in FABRIC.ports_of(RackId(0))[:1]}
    carried_out(stage, lambda: stage.controller.rooms.quarantine.put(lost, "no light"))
    assert asked.states == [EMPTY, EMPTY]
    assert ports_used(stage)
    assert ports_used(stage).isdisjoint(lost)


def test_a_job_for_another_demand_is_planned_for(stage, asked):
    other = np.zeros((RACKS, RACKS))
    other[2, 3] = 90.0
    carried_out(stage, lambda: stage.controller.desk.plan(PlanRequest(other)))
    assert asked.states == [EMPTY, EMPTY, EMPTY]
    assert [
        pair_of(path) for path in stage.controller.rooms.ledger.network.state.topology.paths
    ] == [(0, 1)]
