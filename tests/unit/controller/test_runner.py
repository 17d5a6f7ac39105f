"""Commands whose device or switch does not do them: what the runner hands back, and what counts."""

from __future__ import annotations

import threading
from concurrent.futures import wait
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
    StageRules,
)
from hydra.reconfiguration.plan import MirrorMove
from tests.unit.core.fabrics import small_fabric

FABRIC = small_fabric(racks=2, planes=1, servers=1)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def runner(metrics):
    fleet = Fleet(FABRIC, post=lambda function: function())
    devices = SimpleNamespace()
    built = Runner(FABRIC, CurrentPolicy(Policy()), fleet, devices, None, None, metrics, None, None)
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
        **{type(one): lambda _command: held.wait(5) for one in (Pause(1.0), light, move)},
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
        Pause: lambda _command: held.wait(5), MoveMirrors: lambda _command: None,
    })  # fmt: skip
    move = MoveMirrors(PlaneId(0), MirrorMove(frozenset(), frozenset()))
    runner.perform(Batch("move", (Pause(1.0), move)))
    assert seen == [False]
