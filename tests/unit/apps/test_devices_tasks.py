"""Patch panels in the controller's hands: tasks are seen and settled while a change waits."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import yaml

from apps.configuration import load_configuration
from apps.devices import Devices
from hydra.errors import OutcomeUnknown, UnknownName
from hydra.model import CrossConnect, PlaneId
from hydra.roles import TaskState

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"
PANEL, OTHER = PlaneId(0), PlaneId(1)
PAIR = CrossConnect(1, 18)


@pytest.fixture
def devices(tmp_path):
    """The demo's, with a patch panel for p1."""
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
    loaded = load_configuration(path)
    built = Devices(loaded.fabric, loaded.policy)
    yield built
    built.close()


@pytest.fixture
def change(devices):
    """A change of the panel under way in a thread, and what came of it."""
    outcome: list[Exception | None] = []

    def work():
        try:
            devices.change_mirrors(PANEL, [], [PAIR])
        except OutcomeUnknown as error:
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 10
    while not devices.tasks(PANEL):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    def end():
        thread.join(10)
        assert not thread.is_alive()
        return outcome[0]

    return end


def test_a_task_is_seen_and_settled_while_the_change_waits(devices, change):
    (task,) = devices.tasks(PANEL)
    assert (task.state, task.connect) == (TaskState.PENDING, (PAIR,))
    assert devices.settle_task(PANEL, task.id, TaskState.DONE, "").state is TaskState.DONE
    assert change() is None
    assert devices.cross_connects(PANEL) == {PAIR}


def test_stopping_ends_the_wait_and_keeps_the_task(devices, change):
    devices.stop_waiting()
    assert "the controller stops" in str(change())
    assert [task.state for task in devices.tasks(PANEL)] == [TaskState.PENDING]


def test_a_switch_that_needs_nobody_has_no_tasks(devices):
    assert devices.tasks(OTHER) == ()
    with pytest.raises(UnknownName, match="p2 has no tasks"):
        devices.settle_task(OTHER, 1, TaskState.DONE, "")
