"""A patch panel: tasks, confirmations, and the state after a restart."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from drivers.optical import manual, panel_store
from drivers.optical.panel_store import PanelError, PanelStore, PendingError
from hydra.errors import (
    DeviceError,
    DeviceUnavailable,
    LifecycleError,
    OutcomeUnknown,
    UnknownName,
)
from hydra.model import CrossConnect, Plane, PlaneId
from hydra.roles import TaskState
from tests.waiting import PATIENCE_S, wait_until

REPOSITORY = Path(__file__).parents[3]
FIRST, SECOND, THIRD = CrossConnect(1, 9), CrossConnect(2, 10), CrossConnect(3, 11)
PENDING, DONE, FAILED = TaskState.PENDING, TaskState.DONE, TaskState.FAILED


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "p1.db"


def panel(path, timeout_s=PATIENCE_S):
    options = {"state": str(path).replace("p1", "{name}"), "timeout_s": timeout_s}
    plane = Plane(PlaneId(0), "p1", "manual", "panel: row 3", 8, 0.0, 1.0, None, options)
    assert list(manual.check(plane)) == []
    return manual.build(plane, 1.0)


@contextmanager
def person(path, *answers: tuple[TaskState, str]):
    """Settles one task after the other in the given way, through a separate driver."""

    def work():
        board = panel(path)
        for state, note in answers:
            while not (waiting := [t for t in board.tasks() if t.state is PENDING]):
                time.sleep(0.01)
            board.settle(waiting[0].id, state, note)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_change_is_done_when_somebody_says_so(path):
    driver = panel(path)
    with person(path, (DONE, ""), (DONE, "")):
        driver.change([], [FIRST, SECOND])
        driver.change([FIRST], [CrossConnect(1, 11)])
    assert driver.cross_connects() == {SECOND, CrossConnect(1, 11)}
    first, second = driver.tasks()
    assert (first.disconnect, first.connect) == ((), (FIRST, SECOND))
    assert (second.disconnect, second.connect) == ((FIRST,), (CrossConnect(1, 11),))
    assert second.settled_unix_s >= second.created_unix_s > time.time() - 60


def test_what_could_not_be_done_is_an_error_in_the_persons_words(path):
    driver = panel(path)
    with person(path, (FAILED, "port 9 is dirty")), pytest.raises(DeviceError) as caught:
        driver.change([], [FIRST])
    assert str(caught.value) == "p1: task 1 could not be done: port 9 is dirty"
    assert not isinstance(caught.value, OutcomeUnknown | DeviceUnavailable)
    assert driver.cross_connects() == frozenset()


def test_what_nobody_confirms_is_unknown_and_stays_asked(path):
    driver = panel(path, timeout_s=0.1)  # timed: a person is late
    with pytest.raises(OutcomeUnknown, match=r"task 1 is not confirmed, 0\.1 s have passed"):
        driver.change([], [FIRST])
    with pytest.raises(OutcomeUnknown, match="task 1"):
        driver.change([], [FIRST])  # a repetition: the same task
    with pytest.raises(DeviceError, match="task 1 is about port 9") as caught:
        driver.change([], [CrossConnect(4, 9)])
    assert not isinstance(caught.value, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown, match="task 2"):
        driver.change([], [SECOND])  # other ports
    assert driver.cross_connects() == frozenset()
    driver.settle(1, DONE, "")
    assert driver.cross_connects() == {FIRST}
    driver.change([], [FIRST])
    assert len(driver.tasks()) == 2


def test_a_restart_forgets_nothing(path):
    """Killed during the wait; the next driver waits for the same task."""
    code = (
        "import sys; from tests.unit.drivers.test_manual import *; "
        "print('asking', flush=True); panel(sys.argv[1]).change([], [FIRST])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "asking\n"
        store = PanelStore(str(path))
        wait_until(store.tasks)
        process.kill()
    with person(path, (DONE, "")):
        panel(path).change([], [FIRST])
    assert [task.id for task in store.tasks()] == [1]
    assert store.cross_connects() == {FIRST}


def test_what_is_confirmed_meanwhile_is_not_asked_again(path, monkeypatch):
    """A person confirms between the check of the patches and the request."""
    # timed: a person is late
    driver, store = panel(path, timeout_s=0.1), PanelStore(str(path))
    with pytest.raises(OutcomeUnknown):
        driver.change([], [FIRST])
    ask = PanelStore.ask

    def confirmed_first(*arguments):
        store.settle(1, DONE, "", time.time())
        return ask(*arguments)

    monkeypatch.setattr(PanelStore, "ask", confirmed_first)
    driver.change([], [FIRST])
    assert [task.id for task in store.tasks()] == [1]
    assert store.cross_connects() == {FIRST}


def test_who_only_asks_waits_for_nobody(path):
    driver = panel(path, timeout_s=600)
    assert driver.ask([FIRST], []) is None  # the patch is not plugged
    task = driver.ask([], [FIRST])
    assert (task.id, task.connect, task.state) == (1, (FIRST,), PENDING)
    assert driver.ask([], [FIRST]) == task
    assert driver.ask([], [SECOND, CrossConnect(1, 12)]) == task  # port 1 is in its hands
    driver.settle(1, DONE, "")
    assert driver.ask([], [FIRST]) is None
    assert len(driver.tasks()) == 1


def test_saying_it_twice_and_saying_the_opposite(path):
    store = PanelStore(str(path))
    store.ask([], [FIRST], 1.0)
    assert store.settle(1, DONE, "", 2.0) == store.settle(1, DONE, "", 3.0)
    with pytest.raises(LifecycleError, match="task 1 is done already"):
        store.settle(1, FAILED, "", 4.0)
    with pytest.raises(LifecycleError, match="not as pending"):
        store.settle(1, PENDING, "", 4.0)
    with pytest.raises(UnknownName, match="no task 7"):
        store.settle(7, DONE, "", 4.0)


def test_old_tasks_go_and_pending_ones_stay(path, monkeypatch):
    monkeypatch.setattr(panel_store, "_KEPT_TASKS", 10)
    store = PanelStore(str(path))
    store.ask([], [THIRD], 0.0)
    for number in range(20):
        task = store.ask([], [FIRST], float(number))
        store.settle(task.id, FAILED, "", float(number))
    kept = store.tasks()
    assert kept[0].id == 1
    assert kept[0].state is PENDING
    assert len(kept) == 11


def test_a_pending_task_reserves_its_ports(path):
    store = PanelStore(str(path))
    store.ask([], [FIRST], 0.0)
    with pytest.raises(PendingError, match="port 1"):
        store.ask([], [CrossConnect(1, 12)], 0.0)


def test_files_that_can_not_be_used(path, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    driver = panel(blocked / "p1.db")
    for action in (driver.open, driver.cross_connects, lambda: driver.change([], [FIRST])):
        with pytest.raises(DeviceUnavailable, match=r"can't use the file .*p1\.db"):
            action()
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=9")
    db.close()
    with pytest.raises(PanelError, match="has version 9, this release reads 1"):
        PanelStore(str(path)).tasks()


@pytest.mark.parametrize(
    ("address", "options", "where"),
    [
        ("10.0.0.1:22", {"state": "/x"}, "address"),
        ("panel: ", {"state": "/x"}, "address"),
        ("panel: here", {}, "options.state"),
        ("panel: here", {"state": "relative"}, "options.state"),
        ("panel: here", {"state": "/x", "timeout_s": 0}, "options.timeout_s"),
        ("panel: here", {"state": "/x", "time_out": 5}, "options.time_out"),
    ],
)
def test_what_hydra_check_says(address, options, where):
    plane = Plane(PlaneId(0), "p1", "manual", address, 8, 0.0, 1.0, None, options)
    assert [problem.path for problem in manual.check(plane)] == [where]
    if where != "address":
        with pytest.raises(DeviceError, match="p1: options of the manual driver"):
            manual.build(plane, 1.0)


@pytest.fixture
def confirmed_meanwhile(path, monkeypatch):
    """A panel with a confirmation of an earlier task while a change is being entered."""
    driver = panel(path, timeout_s=0.01)  # timed: a person is late

    def confirm_of(earlier: CrossConnect) -> manual.ManualPanel:
        task, found = driver.ask([], [earlier]), driver._difference

        def difference(*change):
            seen = found(*change)
            driver.settle(task.id, DONE, "")
            return seen

        monkeypatch.setattr(driver, "_difference", difference)
        return driver

    return confirm_of


@pytest.mark.parametrize("ask", ["ask", "change"])
@pytest.mark.parametrize("wanted", [CrossConnect(1, 12), CrossConnect(4, 9)])
def test_a_port_that_is_plugged_while_a_change_is_entered_is_in_use(
    confirmed_meanwhile, ask, wanted
):
    driver = confirmed_meanwhile(FIRST)
    with pytest.raises(DeviceError, match="p1: 1 is connected to 9 by now"):
        getattr(driver, ask)([], [wanted])
    assert [task.state for task in driver.tasks()] == [DONE]


def test_what_is_plugged_while_a_change_is_entered_is_not_asked_for_again(confirmed_meanwhile):
    driver = confirmed_meanwhile(FIRST)
    task = driver.ask([], [FIRST, SECOND])
    assert task.connect == (SECOND,)
    driver.settle(task.id, DONE, "")
    assert driver.cross_connects() == {FIRST, SECOND}
