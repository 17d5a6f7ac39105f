"""Commands whose device or switch does not do them: what the runner hands back, and what counts."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller.runner import Runner
from apps.openflow.fleet import Fleet
from apps.process.metrics import Metrics
from hydra.errors import (
    AwaitsPeople,
    DeviceError,
    DeviceUnavailable,
    HeldElsewhere,
    OutcomeUnknown,
    ProtocolError,
)
from hydra.failures import Failure, FailureKind
from hydra.model import PlaneId, RackId
from hydra.policy import CurrentPolicy, Policy
from hydra.reconfiguration.commands import (
    ApplyRules,
    AwaitPortsUp,
    Batch,
    MoveMirrors,
    Pause,
    ReadMirrors,
    ReadVlans,
    StageRules,
)
from hydra.reconfiguration.plan import MirrorMove
from tests.unit.core.fabrics import small_fabric
from tests.waiting import PATIENCE_S

FABRIC = small_fabric(racks=2, planes=1, servers=1)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def runner(metrics):
    fleet = Fleet(FABRIC, post=lambda function: function())
    devices = SimpleNamespace()
    nobody = (None,) * 3
    built = Runner(FABRIC, CurrentPolicy(Policy()), fleet, devices, *nobody, metrics, None, None)
    built.devices = devices
    yield built
    built.close()


def counted(metrics, command, kind):
    labels = {"command": command, "kind": kind.value}
    return metrics.registry.get_sample_value("hydra_command_failures_total", labels)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DeviceError, FailureKind.REFUSED),
        (DeviceUnavailable, FailureKind.NOT_CONNECTED),
        (HeldElsewhere, FailureKind.TAKEN_OVER),
        (ProtocolError, FailureKind.MALFORMED),
        (OutcomeUnknown, FailureKind.UNKNOWN),
        (AwaitsPeople, FailureKind.AWAITS_PEOPLE),
    ],
)
def test_what_a_driver_raises_is_a_failure_of_its_kind(runner, metrics, error, kind):
    def mirrors(_plane):
        raise error("p1", "no")

    runner.devices.mirrors = mirrors
    (outcome,) = runner.perform(Batch("settle", (ReadMirrors(PlaneId(0)),)))
    assert outcome.failure == Failure("settle", "p1", kind, "p1: no")
    assert not outcome.confirmed
    assert counted(metrics, "ReadMirrors", kind) == 1


def test_a_defect_at_one_device_is_that_device_s_alone(runner, metrics, caplog):
    def mirrors(_plane):
        raise ZeroDivisionError

    runner.devices.mirrors = mirrors
    runner.devices.vlans = lambda _rack, _ports: "vlans"
    read = Batch("read", (ReadMirrors(PlaneId(0)), ReadVlans(RackId(0), ())))
    lost, kept = runner.perform(read)
    assert (lost.failure.subject, lost.failure.kind) == ("p1", FailureKind.UNKNOWN)
    assert kept.value == "vlans"
    assert counted(metrics, "ReadMirrors", FailureKind.UNKNOWN) == 1
    assert "Traceback" in caplog.text


def test_each_switch_that_does_not_take_its_rules_counts(runner, metrics):
    switches = [server.vswitch for server in FABRIC.servers]
    changes = {switch.datapath_id: () for switch in switches}
    (outcome,) = runner.perform(Batch("divert", (ApplyRules(changes),)))
    assert outcome.confirmed, "the command itself was carried out"
    assert [failure.subject for failure in outcome.value.values()] == [s.bridge for s in switches]
    assert {failure.kind for failure in outcome.value.values()} == {FailureKind.NOT_CONNECTED}
    assert counted(metrics, "ApplyRules", FailureKind.NOT_CONNECTED) == 2


def looked_at_under_way(runner, monkeypatch):
    """(event that ends the first command, what was said of each batch once the others had ended)"""
    held, seen = threading.Event(), []

    def wait_for(futures):
        wait(futures[1:])
        seen.append(runner.only_waits)
        held.set()
        wait(futures)

    monkeypatch.setattr(runner, "_wait_for", wait_for)
    return held, seen


def test_it_only_waits_where_nothing_is_changed(runner, monkeypatch):
    held, seen = looked_at_under_way(runner, monkeypatch)
    light = AwaitPortsUp(RackId(0), ("o1",), 1.0)
    move = MoveMirrors(PlaneId(0), MirrorMove(frozenset(), frozenset()))
    monkeypatch.setattr(runner, "_handlers", {
        **{type(one): lambda _command: held.wait(PATIENCE_S) for one in (Pause(1.0), light, move)},
        StageRules: lambda _command: None,
    })  # fmt: skip
    assert not runner.only_waits
    rules = StageRules({})
    for command in (Pause(1.0), light, move):
        held.clear()
        runner.perform(Batch("drain", (command, rules)))
    assert seen == [True, True, False]
    assert not runner.only_waits


def test_a_device_s_answer_that_nobody_has_looked_at_is_no_waiting(runner, monkeypatch):
    held, seen = looked_at_under_way(runner, monkeypatch)
    monkeypatch.setattr(runner, "_handlers", {
        Pause: lambda _command: held.wait(PATIENCE_S), MoveMirrors: lambda _command: None,
    })  # fmt: skip
    move = MoveMirrors(PlaneId(0), MirrorMove(frozenset(), frozenset()))
    runner.perform(Batch("move", (Pause(1.0), move)))
    assert seen == [False]


@pytest.mark.parametrize("refused", [False, True])
def test_it_only_waits_for_slow_switches_once_all_else_is_confirmed(runner, monkeypatch, refused):
    held, seen = threading.Event(), []
    slow = FABRIC.servers[0].vswitch.datapath_id
    looked = []
    runner._wake = lambda: looked.append(runner.only_waits)

    def apply(changes, _timeout_s, *, only_slow_left, slow, **_named):
        if slow == changes.keys():
            only_slow_left()
        held.wait(PATIENCE_S)
        return dict.fromkeys(changes)

    def move(*_arguments):
        if refused:
            raise DeviceError("p1", "no")

    monkeypatch.setattr(runner._fleet, "apply", apply)
    runner.devices.change_mirrors = move
    mirrors = MoveMirrors(PlaneId(0), MirrorMove(frozenset(), frozenset()))
    for known in (frozenset({slow}), frozenset[int]()):
        held.clear()
        push = ApplyRules({slow: ()}, slow=known)
        monkeypatch.setattr(runner, "_wait_for", waits_for(runner, held, seen))
        runner.perform(Batch("move", (push, mirrors)))
    assert seen == [not refused, False]
    assert len(looked) == 1, "who may be let in is told"
    assert not runner._only_slow


def test_who_answers_once_a_command_is_over_is_not_taken_for_the_next_one_s(runner, monkeypatch):
    """Of two commands one after the other, Python gives both the same ``id``, perhaps."""
    held, seen, told = threading.Event(), [], []

    def apply(changes, _timeout_s, *, only_slow_left, **_named):
        told.append(only_slow_left)
        held.wait(PATIENCE_S)
        return dict.fromkeys(changes)

    monkeypatch.setattr(runner._fleet, "apply", apply)
    monkeypatch.setattr(runner, "_wait_for", waits_for(runner, held, seen))
    push = ApplyRules({}, slow=frozenset({1}))
    for _ in range(2):
        held.clear()
        runner.perform(Batch("move", (push,)))
        told[0]()
    assert seen == [False, False]


def waits_for(runner, held, seen):
    def wait_for(futures):
        wait(futures[1:])
        wait(futures, 0.2)  # the first has told by then what it waits for
        seen.append(runner.only_waits)
        held.set()
        wait(futures)

    return wait_for


def test_when_all_that_is_in_flight_was_done_is_known(runner, monkeypatch):
    seen = []

    def wait_for(futures):
        wait(futures[1:])
        seen.append(runner.over_since_s)
        held.set()
        wait(futures)
        seen.append(runner.over_since_s)

    held = threading.Event()
    monkeypatch.setattr(runner, "_wait_for", wait_for)
    monkeypatch.setattr(
        runner, "_handlers", {Pause: lambda one: held.wait(PATIENCE_S) if one.seconds else None}
    )
    outcomes = runner.perform(Batch("drain", (Pause(1.0), Pause(0.0))))
    assert seen == [None, max(one.finished_s for one in outcomes)]


class Jobs(list):
    """Jobs in turn, done when asked for."""

    def __init__(self):
        super().__init__()
        self.came = threading.Semaphore(0)

    def put(self, job):
        self.append(job)
        self.came.release()

    def do_next(self):
        assert self.came.acquire(timeout=PATIENCE_S), "no job has come"
        self.pop(0)()


LOOK = Batch("settle", (ReadMirrors(PlaneId(0)),))


def held_up(runner):
    """An event for which the plane's answer waits."""
    answers = threading.Event()

    def mirrors(_plane):
        assert answers.wait(PATIENCE_S), "nobody has let it answer"
        return "mirrors"

    runner.devices.mirrors = mirrors
    return answers


def test_a_course_beside_others_goes_on_as_a_job_once_it_is_answered(runner):
    answers, jobs, seen = held_up(runner), Jobs(), []
    answers.set()

    def course():
        (outcome,) = yield LOOK  # nothing comes in between here
        seen.append(outcome.value)
        answers.clear()
        (outcome,) = yield replace(LOOK, beside=True)
        seen.append(outcome.value)

    runner._wait_for = wait
    beside = runner.run_beside(course(), jobs.put)
    assert seen == ["mirrors"]
    assert not jobs
    assert not beside.over, "whoever began it goes on"
    answers.set()
    jobs.do_next()
    assert seen == ["mirrors", "mirrors"]
    assert beside.over


def test_one_that_is_dropped_ends_once_nothing_of_it_is_under_way(runner):
    answers, jobs, seen = held_up(runner), Jobs(), []

    def course():
        try:
            yield replace(LOOK, beside=True)
            seen.append("went on")
        finally:
            seen.append("ended")

    beside = runner.run_beside(course(), jobs.put)
    threading.Timer(0.05, answers.set).start()
    beside.drop()
    assert answers.is_set()
    assert beside.over
    jobs.do_next()
    assert seen == ["ended"]


def test_one_in_which_a_defect_shows_is_over(runner, monkeypatch):
    jobs = Jobs()

    def fails(_command):
        raise ZeroDivisionError

    monkeypatch.setattr(runner, "_handlers", {Pause: fails})
    pause = Batch("drain", (Pause(0.0),), beside=True)
    beside = runner.run_beside(iter_of(pause), jobs.put)
    with pytest.raises(ZeroDivisionError):
        jobs.do_next()
    assert beside.over


def iter_of(*batches):
    yield from batches
