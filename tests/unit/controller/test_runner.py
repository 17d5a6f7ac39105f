"""Commands that devices or switches do not carry out: the runner's outcomes, and the counters."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller.between_jobs import BetweenJobs
from apps.controller.runner import Runner
from apps.openflow.fleet import Fleet
from apps.process import logs
from apps.process.logs import about
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
    Announce,
    ApplyRules,
    Batch,
    Pause,
    ReadMirrors,
    ReadVlans,
)
from tests.unit.controller.runners import do, performed
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
    built = Runner(
        fabric=FABRIC,
        policy=CurrentPolicy(Policy()),
        fleet=fleet,
        devices=devices,
        writer=None,
        reservations=None,
        announcer=None,
        metrics=metrics,
        mastership=None,
        policing=None,
    )
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
    (outcome,) = performed(runner, Batch("settle", (ReadMirrors(PlaneId(0)),)))
    assert outcome.failure == Failure("settle", "p1", kind, "p1: no")
    assert not outcome.confirmed
    assert counted(metrics, "ReadMirrors", kind) == 1


def test_a_defect_at_one_device_is_that_device_s_alone(runner, metrics, caplog):
    def mirrors(_plane):
        raise ZeroDivisionError

    runner.devices.mirrors = mirrors
    runner.devices.vlans = lambda _rack, _ports: "vlans"
    read = Batch("read", (ReadMirrors(PlaneId(0)), ReadVlans(RackId(0), ())))
    lost, kept = performed(runner, read)
    assert (lost.failure.subject, lost.failure.kind) == ("p1", FailureKind.UNKNOWN)
    assert kept.value == "vlans"
    assert counted(metrics, "ReadMirrors", FailureKind.UNKNOWN) == 1
    assert "Traceback" in caplog.text


def test_each_switch_that_does_not_take_its_rules_counts(runner, metrics):
    switches = [server.vswitch for server in FABRIC.servers]
    changes = {switch.datapath_id: () for switch in switches}
    (outcome,) = performed(runner, Batch("divert", (ApplyRules(changes),)))
    assert outcome.confirmed, "the command itself was carried out"
    assert [failure.subject for failure in outcome.value.values()] == [s.bridge for s in switches]
    assert {failure.kind for failure in outcome.value.values()} == {FailureKind.NOT_CONNECTED}
    assert counted(metrics, "ApplyRules", FailureKind.NOT_CONNECTED) == 2


class Jobs(list):
    """Jobs in turn, done on request."""

    def __init__(self):
        super().__init__()
        self.came = threading.Semaphore(0)

    def put(self, job):
        self.append(job)
        self.came.release()

    def do_next(self):
        assert self.came.acquire(timeout=PATIENCE_S), "no job has come"
        do(self.pop(0)())


def begun(runner, course, jobs):
    """A course that goes on between jobs."""
    one = BetweenJobs(course, runner.submit, jobs.put)
    do(one.begin(0.0), lambda batch: performed(runner, batch))
    return one


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
        (outcome,) = yield LOOK  # no other job comes in between here
        seen.append(outcome.value)
        answers.clear()
        (outcome,) = yield replace(LOOK, beside=True)
        seen.append(outcome.value)

    beside = begun(runner, course(), jobs)
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

    beside = begun(runner, course(), jobs)
    threading.Timer(0.05, answers.set).start()  # timed: it is being dropped by then
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
    beside = begun(runner, iter_of(pause), jobs)
    with pytest.raises(ZeroDivisionError):
        jobs.do_next()
    assert beside.over


def iter_of(*batches):
    yield from batches


def test_a_course_is_told_of_a_defect_in_the_place_of_its_outcomes(runner, monkeypatch):
    """So that the executor of the course can record its end."""

    def fails(_command):
        raise ZeroDivisionError

    def course():
        try:
            yield Batch("drain", (Pause(0.0),), beside=True)
        except ZeroDivisionError:
            seen.append("told")
            raise

    monkeypatch.setattr(runner, "_handlers", {Pause: fails})
    seen, jobs = [], Jobs()
    begun(runner, course(), jobs)
    with pytest.raises(ZeroDivisionError):
        jobs.do_next()
    assert seen == ["told"]


def test_a_course_beside_others_keeps_its_context(runner):
    """Later log lines are about the course's own reconfiguration, in any other job."""
    answers, jobs, seen = held_up(runner), Jobs(), []

    def course():
        with about("mine"):
            yield replace(LOOK, beside=True)
            seen.append(logs._RECONFIGURATION.get())

    begun(runner, course(), jobs)
    answers.set()
    with about("another's"):
        jobs.do_next()
        assert logs._RECONFIGURATION.get() == "another's"
    assert seen == ["mine"]


@pytest.mark.parametrize("sent", [True, False])
def test_announcements_are_waited_for_where_asked(sent):
    asked = []
    runner = Runner(
        fabric=FABRIC,
        policy=CurrentPolicy(Policy()),
        fleet=SimpleNamespace(silent=lambda *barriers: asked.append(barriers)),
        devices=None,
        writer=None,
        reservations=None,
        announcer=SimpleNamespace(announce=lambda servers: [len(servers)]),
        metrics=Metrics(),
        mastership=None,
        policing=None,
    )
    try:
        announce = Announce(((FABRIC.servers[0], ()),), sent)
        assert performed(runner, Batch("relearn", (announce,)))[0].confirmed
    finally:
        runner.close()
    assert asked == ([([1], Policy().timeouts.vswitch_s)] if sent else [])
