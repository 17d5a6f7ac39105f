"""The planning process: real processes and real signals."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apps.offline.study import plain_fabric
from apps.planning import planner as planner_module
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.errors import PlanError, UnknownName
from hydra.model import NetworkState
from hydra.policy import Policy
from hydra.service import PlanRequest
from tests.waiting import HANGS_S, PATIENCE_S, remains, wait_until
from topology import algorithms
from topology.algorithms import ENTRIES, Entry, Product
from topology.direct import direct
from topology.multihop import keep_current, plan_hydra_bfs

pytestmark = pytest.mark.takes(12)

ROOT = Path(__file__).parents[3]
FABRIC = plain_fabric(4, 2, 100.0)
DEMAND = np.zeros((4, 4))
DEMAND[0, 1] = 80.0
POLICY = Policy(planning_budget_ms=300, planning_grace_ms=20_000)
STRICT = replace(POLICY, planning_grace_ms=2_700)
"""Time-out of planners that are given up; more than a busy machine delays an answer."""


def planner_of(pid: int) -> int | None:
    """The planning process of a controller process; None without one."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"planner_process" in stat.with_name("cmdline").read_bytes():
                children.append(int(stat.parent.name))
    return children[0] if len(children) == 1 else None


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@contextmanager
def running(policy=POLICY):
    planner = Planner(FABRIC, policy)
    planner.start()
    try:
        yield planner
    finally:
        planner.close()


@pytest.fixture(scope="module")
def shared():
    with running() as planner:
        yield planner


ANYTHING, NOTHING_STANDS = PlanRequest(), NetworkState()


def propose(planner, urgent=True, request=ANYTHING, current=NOTHING_STANDS):
    return planner.propose(current, request, DEMAND, (), (), urgent=urgent)


BY_PLACE = "tests.unit.topology.contributed:MINE"


def test_only_the_configuration_has_it_import_a_module(shared):
    with pytest.raises(UnknownName, match="where policy"):
        propose(shared, request=PlanRequest(algorithm=BY_PLACE))
    with running(replace(POLICY, algorithm=BY_PLACE)) as planner:
        asked = propose(planner, request=PlanRequest(algorithm=BY_PLACE))
        assert asked == propose(planner)
        assert asked.target == NetworkState()  # the plan keeps the standing circuits


def test_it_plans_what_this_process_would(shared):
    here = Planning(FABRIC, POLICY).propose(NetworkState(), PlanRequest(), DEMAND, (), ())
    there = propose(shared)
    assert there == here
    assert [(path.src, path.dst) for path in there.target.topology.paths] == [(0, 1)]
    again = propose(shared, current=there.target)
    assert again.target == there.target
    assert again.steps(FABRIC, there.target).empty
    steps = there.steps(FABRIC, NetworkState())
    assert steps == Planning(FABRIC, POLICY).diff(NetworkState(), there.target)


def test_it_tells_the_shares_that_this_process_would(shared):
    target = propose(shared).target.topology
    here = Planning(FABRIC, POLICY).shares(target, ANYTHING, DEMAND, ())
    assert shared.shares(target, ANYTHING, DEMAND, ()) == here
    assert here.served_share > 0


def test_it_plans_a_week_while_its_caller_goes_on(shared):
    asked = NetworkState(), PlanRequest(), DEMAND, (), (), POLICY.slots
    week = shared.begin_week(*asked, 0.01)
    too_long = shared.begin_week(*asked, 2 * POLICY.slots.week_s)
    here = Planning(FABRIC, POLICY).week(*asked, 0.01)
    assert week.result(PATIENCE_S).slots == here.slots
    with pytest.raises(PlanError, match="window"):
        too_long.result(PATIENCE_S)


def test_a_planner_that_is_not_to_be_ready_starts_with_the_first_request():
    planner = Planner(FABRIC, POLICY)
    planner.start(ready=False)
    try:
        assert remains(lambda: planner.pid is None)
        asked = NetworkState(), PlanRequest(), DEMAND, (), (), POLICY.slots
        assert planner.begin_week(*asked, 0.01).result(PATIENCE_S).slots
        assert planner.pid is not None
    finally:
        planner.close()


def test_refusals_come_back_as_they_are(shared):
    with pytest.raises(UnknownName, match="'edmunds': choose one of"):
        propose(shared, request=PlanRequest(algorithm="edmunds"))
    with pytest.raises(PlanError, match="must be finite"):
        shared.propose(NetworkState(), PlanRequest(), np.full((4, 4), np.inf), (), (), urgent=True)


def test_a_defect_is_told_as_one_and_the_process_goes_on(shared, caplog):
    propose(shared)
    before = shared.pid
    with pytest.raises(PlanError, match=r"a defect in the planner .*: see the log"):
        propose(shared, request=None)
    assert "Traceback" in caplog.text
    assert propose(shared).target.topology.paths
    assert shared.pid == before


def test_a_request_that_can_not_be_sent_is_refused_and_the_next_one_works(shared):
    with pytest.raises(PlanError, match=r"a defect in the planner .*: see the log"):
        shared.propose(NetworkState(), lambda: None, DEMAND, (), (), urgent=True)
    assert propose(shared).target.topology.paths


def test_a_fabric_that_caches_meanwhile_is_no_trouble():
    """Other threads of a controller read the fabric while the planner starts."""
    fabric = plain_fabric(300, 32, 100.0)
    planner = Planner(fabric, replace(POLICY, planning_grace_ms=20_000))
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            fabric.__dict__.pop("plane_by_name", None)
            assert len(fabric.plane_by_name) == 32

    thread = threading.Thread(target=ask)
    thread.start()
    planner.start()
    try:
        demand = np.zeros((300, 300))
        demand[0, 1] = 50.0
        proposal = planner.propose(NetworkState(), PlanRequest(), demand, (), (), urgent=True)
        assert proposal.target.topology.paths
    finally:
        ended.set()
        thread.join()
        planner.close()


def test_one_that_does_not_answer_is_stopped_and_replaced():
    with running(STRICT) as planner:
        propose(planner)
        stuck = planner.pid
        os.kill(stuck, signal.SIGSTOP)
        asked_s = time.monotonic()
        with pytest.raises(PlanError, match="no plan came within 3 s: the planner was stopped"):
            propose(planner)
        assert 2.9 < time.monotonic() - asked_s < HANGS_S
        assert gone(stuck)
        assert propose(planner).target.topology.paths
        assert planner.pid != stuck


def test_one_that_dies_while_planning_is_told_and_replaced(monkeypatch):
    with running() as planner:
        propose(planner)
        doomed, connection = planner.pid, planner._process._socket
        receive = connection.recv

        def killed_meanwhile():
            os.kill(doomed, signal.SIGKILL)
            return receive()

        os.kill(doomed, signal.SIGSTOP)  # killed before its answer
        monkeypatch.setattr(connection, "recv", killed_meanwhile)
        with pytest.raises(PlanError, match="was ended by SIGKILL while planning: try again"):
            propose(planner)
        assert propose(planner).target.topology.paths


def test_one_that_dies_idle_is_replaced_before_anybody_asks():
    with running() as planner:
        propose(planner)
        first = planner.pid
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: planner.pid != first)
        assert propose(planner).target.topology.paths


def test_one_that_ends_again_and_again_is_started_ever_later(monkeypatch, caplog):
    monkeypatch.setattr(planner_module, "_LOOK_S", 0.05)
    starts = []
    exchange = planner_module._Process.exchange

    def dies_once_set_up(process, message, timeout_s):
        answer = exchange(process, message, timeout_s)
        starts.append(time.monotonic())
        process.kill()
        process._process.wait()
        return answer

    monkeypatch.setattr(planner_module._Process, "exchange", dies_once_set_up)
    with running() as planner:
        wait_until(lambda: len(starts) >= 4)
        with pytest.raises(PlanError, match="planner"):
            propose(planner)  # without waiting for the pause
    told = [line for line in caplog.messages if "ended by itself" in line]
    assert told[:3] == [
        f"the planner has ended by itself: another planner starts in {pause_s:g} s"
        for pause_s in (0.05, 0.1, 0.2)
    ]
    assert all(
        later - earlier >= pause_s
        for earlier, later, pause_s in zip(starts, starts[1:], (0.05, 0.1, 0.2), strict=False)
    )


def refuse(error):
    def refused(*_arguments):
        raise error

    return refused


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (planner_module, "Pipe", OSError(errno.EMFILE, "Too many open files")),
        (planner_module, "_spawn", BlockingIOError(errno.EAGAIN, "no more processes")),
        (threading.Timer, "start", RuntimeError("can't start new thread")),
        (planner_module, "_spawn", MemoryError("none left")),
    ],
)
def test_one_that_can_not_be_started_for_a_while_is_started_later(
    monkeypatch, caplog, owner, name, error
):
    """The controller has no free descriptor, thread or memory for a moment."""
    with running() as planner:
        propose(planner)
        with monkeypatch.context() as short:
            short.setattr(owner, name, refuse(error))
            os.kill(planner.pid, signal.SIGKILL)
            wait_until(
                lambda: "the planner does not start: the process can't be run" in caplog.text
            )
            with pytest.raises(PlanError, match=r"does not start \(it can't be run: .*see the log"):
                propose(planner)
        assert propose(planner).target.topology.paths
        wait_until(lambda: planner.pid is not None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_process_group_is_for_the_controller(shared, number):
    propose(shared)
    before = shared.pid
    os.kill(before, number)
    assert propose(shared).target.topology.paths
    assert shared.pid == before


@pytest.mark.quiet("who is first depends on tenths of a second")
def test_what_is_urgent_goes_first_and_the_others_give_up_in_time():
    with running(replace(POLICY, planning_grace_ms=1200)) as planner:
        propose(planner)
        os.kill(planner.pid, signal.SIGSTOP)
        order, threads = [], []

        def ask(name, urgent):
            try:
                propose(planner, urgent=urgent)
                order.append(name)
            except PlanError as error:
                order.append(f"{name}: {error}")

        for name, urgent in (("first", True), ("dry run", False), ("change", True)):
            threads.append(threading.Thread(target=ask, args=(name, urgent)))
            threads[-1].start()
            time.sleep(0.1)  # timed: the requests come one after the other
        for thread in threads:
            thread.join(PATIENCE_S)
    assert any(words.startswith("first: no plan came within 1.5 s") for words in order)
    assert "change" in order
    dry_run = next(words for words in order if words.startswith("dry run"))
    assert dry_run == "dry run" or "did not get to this within 1.5 s" in dry_run


def test_after_the_end_nothing_is_planned():
    with running() as planner:
        propose(planner)
        pid = planner.pid
    assert gone(pid)
    with pytest.raises(PlanError, match="the controller is ending"):
        propose(planner)


def test_one_that_is_closed_while_it_starts_is_no_trouble(caplog):
    with running() as planner:
        wait_until(lambda: planner.pid is not None)
    assert [record.getMessage() for record in caplog.records] == []


CONTROLLER = """
import sys, time
from apps.planning import planner as planner_module
from apps.offline.study import plain_fabric
from apps.planning.planner import Planner
from hydra.policy import Policy
planner = Planner(plain_fabric(2, 1, 1.0), Policy())
planner.start()
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("wait_s", [0, 1.5], ids=["starting", "idle"])
def test_it_ends_with_a_controller_that_is_killed(wait_s):
    process = subprocess.Popen([sys.executable, "-c", CONTROLLER], cwd=ROOT, stdout=subprocess.PIPE)
    with process.stdout:
        assert process.stdout.readline() == b"started\n"
    wait_until(lambda: planner_of(process.pid))
    pid = planner_of(process.pid)
    time.sleep(wait_s)
    process.kill()
    process.wait()
    wait_until(lambda: gone(pid))


def test_it_loads_only_what_it_needs():
    """Each start of a controller waits for the planner, longer on a busy machine."""
    program = "import sys, apps.planning.planner_process; "
    program += "print({'scipy', 'pydantic', 'fastapi', 'ryu', 'asyncio'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


# --- what the planning itself makes of its time and of algorithms ---------------------------


def with_algorithm(monkeypatch, name, entry):
    monkeypatch.setattr(algorithms, "ENTRIES", {**ENTRIES, name: entry})


def test_the_best_plan_in_time_is_taken(monkeypatch):
    def improve(fabric, demand, current, reserved, budget):
        best = keep_current(fabric, demand, current, reserved, budget)
        while not budget.expired():
            best = plan_hydra_bfs(fabric, demand, current, reserved, budget)
        return best

    with_algorithm(monkeypatch, "improve", Entry(improve, "", ""))
    planning = Planning(FABRIC, POLICY)
    answers = iter([False, True])
    arguments = (NetworkState(), PlanRequest(algorithm="improve"), DEMAND, (), ())
    assert planning.propose(*arguments, expired=lambda: next(answers)).target.topology.paths
    assert not planning.propose(*arguments, expired=lambda: True).target.topology.paths


@pytest.mark.parametrize(("cost_mbps", "joined"), [(0.0, (0, 2)), (30.0, (0, 1))])
def test_a_circuit_in_use_is_given_up_for_more_than_it_costs(cost_mbps, joined):
    """The second rack wants 80 Mb/s, the third 100, and there is one circuit."""
    one_plane = plain_fabric(3, 1, 100.0)
    planning = Planning(one_plane, replace(POLICY, disturbance_mbps=cost_mbps))
    demand = DEMAND[:3, :3].copy()
    standing = planning.for_demand(NetworkState(), PlanRequest(), demand, (), ())
    demand[0, 2] = 100.0
    after = planning.for_demand(standing, PlanRequest(), demand, (), ())
    assert [(path.src, path.dst) for path in after.topology.paths] == [joined]


@pytest.mark.parametrize(("plane", "name"), [(0, "p1"), (7, "7")])
def test_a_forbidden_join_names_the_algorithm_the_racks_and_the_plane(monkeypatch, plane, name):
    @direct
    def stubborn(joins):
        for _ in range(2):
            joins.join(0, 2, plane)

    with_algorithm(monkeypatch, "mine", Entry(stubborn, "", ""))
    with pytest.raises(PlanError, match=f"^algorithm mine joins racks r1 and r3 on plane {name}, "):
        Planning(FABRIC, POLICY).for_demand(
            NetworkState(), PlanRequest(algorithm="mine"), 1 - np.eye(4), (), ()
        )


def test_an_unsound_plan_is_refused(monkeypatch):
    def boast(*arguments):
        return replace(plan_hydra_bfs(*arguments), served_share=0.5)

    with_algorithm(monkeypatch, "boast", Entry(boast, "", ""))
    with pytest.raises(PlanError, match=r"the plan of boast is unsound: 0\.5"):
        Planning(FABRIC, POLICY).for_demand(
            NetworkState(), PlanRequest(algorithm="boast"), DEMAND, (), ()
        )


def test_an_algorithm_that_does_not_suit_is_refused_with_its_reason(monkeypatch):
    schedule = Entry(keep_current, "", "", Product.SCHEDULE)
    with_algorithm(monkeypatch, "slots", schedule)
    planning = Planning(FABRIC, POLICY)
    with pytest.raises(
        PlanError, match="slots can't plan for this fabric: the algorithm plans a schedule"
    ):
        planning.for_demand(NetworkState(), PlanRequest(algorithm="slots"), DEMAND, (), ())
    fussy = Entry(keep_current, "", "", objection=lambda _fabric: "its planes differ")
    with_algorithm(monkeypatch, "fussy", fussy)
    with pytest.raises(PlanError, match="fussy can't plan for this fabric: its planes differ"):
        planning.for_demand(NetworkState(), PlanRequest(algorithm="fussy"), DEMAND, (), ())
