"""Patch panels under the controller: tasks are given without a wait, and continued once done."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from apps.controller.devices import Devices
from apps.controller.patch_panels import PatchPanels
from apps.planning.engine import Planning
from apps.process.configuration import load_configuration
from drivers.optical.panel_store import PanelStore
from hydra.errors import AwaitsPeople, UnknownName
from hydra.lifecycle import ReconfigurationState
from hydra.model import CrossConnect, NetworkState, PlaneId
from hydra.policy import Policy
from hydra.reconfiguration.commands import MoveMirrors, Outcome
from hydra.roles import TaskState
from hydra.service import DeviceStatus
from tests.unit.core.fabrics import circuit_between, path_of, state_of
from tests.unit.reconfiguration.test_executor import Scripted, execution_of

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"
PANEL, OTHER = PlaneId(0), PlaneId(1)
PAIR, ANOTHER = CrossConnect(1, 18), CrossConnect(1, 19)
DONE, FAILED, PENDING = TaskState.DONE, TaskState.FAILED, TaskState.PENDING


@pytest.fixture
def fabric(tmp_path):
    """The demo's fabric, with a patch panel for p1."""
    document = yaml.safe_load(DEMO.read_text())
    (plane,) = document["planes"]
    panel = {"driver": "manual", "address": "panel: shelf 1"}
    panel["options"] = {"state": f"{tmp_path}/{{name}}.db", "timeout_s": 60}
    document["planes"] = [
        plane | panel | {"names": "p1"},
        plane | {"names": "p2", "address": "127.0.0.1:1"},
    ]
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load_configuration(path).fabric


@pytest.fixture
def devices(fabric):
    built = Devices(fabric=fabric, policy=load_configuration(DEMO).policy)
    yield built
    built.close()


@pytest.fixture
def people(fabric, devices):
    return PatchPanels(fabric, devices)


def carry_out(fabric, devices, current, target):
    """A change on a simulated network, except for its requests to the panel."""
    network = Scripted(fabric, current)

    def move(command, true):
        if command.plane != PANEL:
            return true
        try:
            devices.change_mirrors(PANEL, command.move.disconnect, command.move.connect)
        except AwaitsPeople as asked:
            network.mirrors[PANEL] -= command.move.connect
            return Outcome(failure=asked.failure("move"))
        return true

    network.instead["move", MoveMirrors] = move
    execution = execution_of(network, current, target)
    steps = execution.run()
    batch = next(steps)
    try:
        while True:
            batch = steps.send(network.perform(batch, lambda _command: None))
    except StopIteration:
        return execution


# --- the panel ----------------------------------------------------------------------------------


def test_a_change_is_asked_for_and_not_waited_for(devices):
    for _ in range(2):  # a repetition gives the same task
        with pytest.raises(AwaitsPeople, match="p1: task 1 waits for a person"):
            devices.change_mirrors(PANEL, [], [PAIR])
    assert devices.plane_problem(PANEL) is None, "a panel that waits for its person is in order"
    with pytest.raises(AwaitsPeople, match="task 1"):
        devices.change_mirrors(PANEL, [], [CrossConnect(2, 18)])  # its port is in people's hands
    (task,) = devices.tasks(PANEL)
    assert (task.state, task.connect) == (PENDING, (PAIR,))
    assert devices.settle_task(PANEL, task.id, DONE, "").state is DONE
    assert devices.mirrors(PANEL).present == {PAIR}
    devices.change_mirrors(PANEL, [], [PAIR])


def test_what_people_left_plugged_goes_when_its_port_is_needed(devices):
    for wanted in ([PAIR], [ANOTHER]):
        with pytest.raises(AwaitsPeople):
            devices.change_mirrors(PANEL, [], wanted)
        task = devices.tasks(PANEL)[-1]
        devices.settle_task(PANEL, task.id, DONE, "")
    assert (task.disconnect, task.connect) == ((PAIR,), (ANOTHER,))
    assert devices.mirrors(PANEL).present == {ANOTHER}


def test_a_switch_that_needs_nobody_has_no_tasks(devices):
    assert devices.worked_by_people(PANEL)
    assert not devices.worked_by_people(OTHER)
    assert devices.tasks(OTHER) == ()
    with pytest.raises(UnknownName, match="p2 has no tasks"):
        devices.settle_task(OTHER, 1, DONE, "")


# --- what waits, and what does not --------------------------------------------------------------


def test_only_the_panels_own_circuits_wait(fabric, devices, people):
    by_hand, by_mirror = path_of(fabric, 0, 1), circuit_between(fabric, 2, 3, plane=1)
    target = state_of(fabric, NetworkState(), by_hand, path_of(fabric, 2, 3, by_mirror))
    execution = carry_out(fabric, devices, NetworkState(), target)
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.result.topology.circuits == {by_mirror}
    assert set(execution.failures) == people.waiting(execution) == set(by_hand.circuits)
    people.wish(execution, alone=True)
    assert people.awaited(by_hand)
    assert people.ports() == {end for c in by_hand.circuits for end in (c.a, c.b)}
    status = people.described(DeviceStatus("p1", "optical-switch", "manual", True))
    assert status.detail == "task 1 waits for a person (r1 - r2)"
    assert people.described(DeviceStatus("p2", "optical-switch", "x", True)).detail == ""
    assert (people.settled(), people.ready()) == ([], frozenset())


@pytest.mark.parametrize("state", [DONE, FAILED])
def test_what_people_say_is_heard_once_wherever_they_say_it(
    fabric, devices, people, tmp_path, state
):
    wanted = path_of(fabric, 0, 1)
    target = state_of(fabric, NetworkState(), wanted)
    people.wish(carry_out(fabric, devices, NetworkState(), target), alone=True)
    PanelStore(f"{tmp_path}/p1.db").settle(1, state, "at last", 1.0)  # past the controller
    (settled,) = people.settled()
    assert settled.outcome == f"p1: task 1 is {state.value} (at last)"
    assert people.ports_of(settled) == {end for c in wanted.circuits for end in (c.a, c.b)}
    assert not people.awaited(wanted)
    assert people.ports() == frozenset()
    assert (people.ready(), people.ready()) == ({wanted}, frozenset())
    assert people.settled() == []
    if state is DONE:
        again = carry_out(fabric, devices, NetworkState(), target)
        assert (again.state, again.result) == (ReconfigurationState.DONE, target)
        assert people.waiting(again) == frozenset()


@pytest.mark.parametrize("alone", [True, False])
def test_a_later_plan_for_everything_is_all_that_is_wished_for(fabric, devices, people, alone):
    current, first = NetworkState(), path_of(fabric, 0, 1)
    people.wish(carry_out(fabric, devices, current, state_of(fabric, current, first)), alone=True)
    by_mirror = path_of(fabric, 2, 3, circuit_between(fabric, 2, 3, plane=1))
    later = carry_out(fabric, devices, current, state_of(fabric, current, by_mirror))
    people.wish(later, alone=alone)
    devices.settle_task(PANEL, 1, DONE, "")
    assert len(people.settled()) == 1
    assert people.ready() == (frozenset() if alone else {first})


def test_a_restart_finds_what_is_pending(fabric, devices, people):
    wanted = path_of(fabric, 0, 1)
    with pytest.raises(AwaitsPeople):
        devices.change_mirrors(PANEL, [], fabric.cross_connects(*wanted.circuits))
    after = PatchPanels(fabric, devices)
    assert after.settled() == []
    assert after.awaited(wanted)


@pytest.mark.parametrize("most", [1, 2])
def test_a_wish_is_fulfilled_where_it_fits_beside_what_stands(fabric, most):
    planning = Planning(fabric, Policy(paths_per_pair=most))
    standing = path_of(fabric, 0, 1)
    state = state_of(fabric, NetworkState(), standing)
    second = path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, plane=1))  # of the same pair
    free = path_of(fabric, 2, 3, circuit_between(fabric, 2, 3, plane=1))
    taken = path_of(fabric, 0, 2)  # r1's port on p1 is in use
    found = planning.joined(state, {standing, second, free, taken}, ())
    expected = {standing, free, *([second] if most > 1 else [])}
    assert set(found.topology.paths) == expected
    planning.diff(state, found)  # and the journal is sound
    assert planning.joined(state, {free}, {free.circuits[0].a}) == state
    assert planning.joined(state, {standing, taken}, ()) == state
