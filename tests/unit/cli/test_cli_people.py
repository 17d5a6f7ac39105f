"""``hydra device tasks`` and ``confirm``, with a controller and without."""

from __future__ import annotations

import json

import pytest
import yaml

from drivers.optical.panel_store import PanelStore
from hydra.model import CrossConnect
from hydra.roles import TaskState
from tests.waiting import PATIENCE_S, once

from . import DEMO


@pytest.fixture
def store(service, tmp_path):
    """The panel p1, with a settled and a pending task."""
    service.panel = PanelStore(str(tmp_path / "p1.db"))
    first = service.panel.ask([], [CrossConnect(1, 18)], 1_600_000_000.0)
    service.panel.settle(first.id, TaskState.DONE, "", 1_600_000_060.0)
    service.panel.ask([CrossConnect(1, 18)], [CrossConnect(9, 30)], 1_700_000_000.0)
    return service.panel


@pytest.fixture
def config(tmp_path):
    document = yaml.safe_load(DEMO.read_text())
    document["planes"][0] |= {
        "driver": "manual",
        "address": "panel: shelf {plane}",
        "options": {"state": f"{tmp_path}/{{name}}.db", "timeout_s": PATIENCE_S},
    }
    document["controller"]["journal"] = str(tmp_path / "journal.db")
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.fixture(params=["controller", "file"])
def device(request, call, run, config):
    if request.param == "controller":
        return lambda *arguments: call("device", *arguments)
    return lambda *arguments: run("device", *arguments, "--config", str(config))


def test_tasks(device, store):
    text = device("tasks", "p1").stdout
    assert "1 (r1 hyt-r1-p1) to 18 (r2 hyt-r2-p1)" in text
    assert "9 to 30" in text
    (task,) = json.loads(device("tasks", "p1", "--json").stdout)
    assert (task["id"], task["state"]) == (2, "pending")


def test_confirm(device, store):
    result = device("confirm", "p1", "2")
    assert (result.exit_code, result.stdout) == (0, "p1: task 2 done\n")
    assert store.cross_connects() == {CrossConnect(9, 30)}
    assert json.loads(device("tasks", "p1", "--json").stdout) == []
    assert len(json.loads(device("tasks", "p1", "--all", "--json").stdout)) == 2
    result = device("confirm", "p1", "2", "--failed", "no")
    assert result.exit_code == 1
    assert "task 2 is done already" in result.stderr


def test_failed(device, store):
    assert device("confirm", "p1", "2", "--failed", "dirty", "--json").exit_code == 0
    task = store.task(2)
    assert (task.state, task.note) == (TaskState.FAILED, "dirty")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("confirm", "p1", "7"), 1), (("confirm", "p9", "1"), 1), (("confirm", "p1", "0"), 2)],
)
def test_slips(device, store, arguments, status):
    assert device(*arguments).exit_code == status


def test_a_device_that_people_do_not_work(run):
    result = run("device", "tasks", "p1", "--config", str(DEMO))
    assert result.exit_code == 1
    assert "driver polatis-scpi works without people" in result.stderr


def test_connect_waits_for_a_person(run, config, tmp_path):
    store = PanelStore(str(tmp_path / "p1.db"))

    def confirm():
        assert run("device", "confirm", "p1", "1", "--config", str(config)).exit_code == 0

    with once(store.tasks, confirm):
        result = run("device", "connect", "p1", "9:25", "--config", str(config))
    assert result.exit_code == 0
    assert store.cross_connects() == {CrossConnect(9, 25)}
