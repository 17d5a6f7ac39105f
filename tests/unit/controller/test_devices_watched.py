"""Checks of unused optical switches: alarms, and presence."""

from dataclasses import replace
from pathlib import Path

import pytest

from apps.controller import devices as room
from apps.controller.devices import Devices
from apps.process.configuration import load_configuration
from hydra.errors import DeviceError, OutcomeUnknown
from hydra.failures import FailureKind
from hydra.roles import Alarm, Severity
from mininet_scenarios.emulators.faults import FaultKind
from tests.conformance.devices import emulated
from tests.waiting import SHORT_S, wait_until

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"


@pytest.fixture
def watched(request, monkeypatch):
    """(Devices, the switch behind p1); the switch speaks TL1 unless a test chooses otherwise."""
    monkeypatch.setattr(room, "_LOOK_S", 0.05)
    loaded = load_configuration(DEMO)
    with emulated(getattr(request, "param", "polatis-tl1"))() as bench:
        _, other = loaded.fabric.planes
        fabric = replace(loaded.fabric, planes=(bench.plane, other))
        told = []
        policy = replace(loaded.policy, timeouts=replace(loaded.policy.timeouts, ocs_s=SHORT_S))
        devices = Devices(fabric=fabric, policy=policy, report_alarm=told.append)
        devices.told = told
        devices.mirrors(bench.plane.id)
        devices._watchman.start()
        yield devices, bench.admin
        devices.close()


def alarms(devices):
    return devices.statuses()[0].alarms


def test_an_alarm_is_seen_and_told_once_and_its_end_too(watched, caplog):
    caplog.set_level("INFO", "hydra.devices")
    devices, switch = watched
    assert alarms(devices) == ()
    switch.alarm(3, "CR", "LOS", "fibre cut")
    wait_until(lambda: alarms(devices) != ())
    (alarm,) = alarms(devices)
    assert (alarm.severity, alarm.port, alarm.code) == (Severity.CRITICAL, 3, "LOS")
    switch.alarm(3, "CL", "LOS")
    wait_until(lambda: alarms(devices) == ())

    def told():
        return [record.message for record in caplog.records if "alarm" in record.message]

    wait_until(
        lambda: len(told()) == len(devices.told) == 2
    )  # the report comes after the status is updated
    assert [words.split(": ")[1] for words in told()] == [
        "alarm LOS (critical) at port 3",
        "alarm LOS (cleared) at port 3",
    ]
    severities = [(one.device, one.alarm.severity.value) for one in devices.told]
    assert severities == [("p1", "critical"), ("p1", "cleared")]


def test_an_alarm_that_begins_right_after_a_look_is_told_once(watched, monkeypatch):
    devices, _ = watched
    plane, alarm = devices._planes[0], Alarm(Severity.CRITICAL, 3, "LOS", "fibre cut")
    standing, reported = [], []

    def look():
        listed = tuple(standing)
        if not standing:
            standing.append(alarm)
            reported.append(alarm)
        return listed

    def reports():
        told = list(reported)
        reported.clear()
        return told

    with plane.lock:
        monkeypatch.setattr(plane.device, "alarms", look)
        monkeypatch.setattr(plane.device, "reports", reports)
    wait_until(lambda: alarms(devices) and not reported)
    with plane.lock:  # the watchman has reported its findings
        assert [one.alarm for one in devices.told] == [alarm]


def test_what_came_and_went_between_two_looks_is_told(watched):
    devices, switch = watched
    with devices._planes[0].lock:  # in use: the watchman skips the device
        switch.alarm(3, "CR", "LOS", "fibre cut")
        switch.alarm(3, "CL", "LOS")
    wait_until(lambda: len(devices.told) == 2)
    assert [one.alarm.severity for one in devices.told] == [Severity.CRITICAL, Severity.CLEARED]
    assert alarms(devices) == ()


@pytest.mark.parametrize("watched", ["polatis-scpi"], indirect=True)
def test_a_switch_without_alarms_is_missed_too_when_it_dies(watched):
    devices, switch = watched
    assert devices.statuses()[0].connected
    switch.fault(FaultKind.DEAD)
    wait_until(lambda: not devices.statuses()[0].connected)
    problem = devices.plane_problem(0)
    assert (problem.subject, problem.kind) == ("p1", FailureKind.NOT_CONNECTED)


@pytest.mark.parametrize(
    "watched", ["polatis-scpi", "polatis-restconf", "glimmerglass-tl1"], indirect=True
)
def test_a_switch_that_loses_its_power_and_closes_no_session_is_missed(watched, monkeypatch):
    devices, switch = watched
    assert devices.statuses()[0].connected
    switch.fault(FaultKind.MUTE)
    monkeypatch.setattr(room, "_QUIET_S", 0.2)
    wait_until(lambda: not devices.statuses()[0].connected)
    assert devices.plane_problem(0).kind is FailureKind.NOT_CONNECTED


@pytest.mark.parametrize("watched", ["polatis-scpi"], indirect=True)
def test_one_that_refuses_what_it_is_asked_is_there(watched, monkeypatch):
    devices, _ = watched
    asked = []

    def refuse(switch):
        asked.append(switch.name)
        raise DeviceError(switch.name, "it does not tell who it is")

    monkeypatch.setattr(devices._planes[0], "ask", refuse)
    monkeypatch.setattr(room, "_QUIET_S", 0.0)
    wait_until(lambda: len(asked) > 3)
    assert devices.statuses()[0].connected


def defective(*_arguments):
    raise ZeroDivisionError


@pytest.mark.parametrize("watched", ["polatis-scpi"], indirect=True)
def test_what_no_driver_may_raise_is_an_unknown_outcome_of_its_device(watched, caplog):
    devices, _ = watched
    driver = devices._planes[0].device
    with pytest.MonkeyPatch.context() as defect:
        defect.setattr(driver, "cross_connects", defective)
        defect.setattr(driver, "close", defective)
        with pytest.raises(
            OutcomeUnknown, match=r"p1: a defect of the device's driver \(ZeroDivisionError"
        ):
            devices.mirrors(0)
    assert not devices.statuses()[0].connected
    assert "in defective\n    raise ZeroDivisionError" in caplog.text
    devices.mirrors(0)
    assert devices.statuses()[0].connected


@pytest.mark.parametrize("watched", ["polatis-scpi"], indirect=True)
def test_a_defect_that_shows_in_a_look_is_noted(watched, monkeypatch):
    devices, _ = watched
    monkeypatch.setattr(devices._planes[0], "ask", defective)
    monkeypatch.setattr(room, "_QUIET_S", 0.0)
    wait_until(lambda: not devices.statuses()[0].connected)
    assert devices.plane_problem(0).kind is FailureKind.UNKNOWN


def test_a_switch_of_another_size_is_refused_before_it_is_read_and_whenever_it_is_back():
    with emulated("polatis-scpi")() as bench:
        loaded = load_configuration(DEMO)
        _, other = loaded.fabric.planes
        plane = replace(bench.plane, ports=bench.plane.ports - 1)
        devices = Devices(
            fabric=replace(loaded.fabric, planes=(plane, other)), policy=loaded.policy
        )
        for _ in range(2):
            with pytest.raises(DeviceError, match=f"is configured with {plane.ports}: give the"):
                devices.mirrors(plane.id)
            assert "ports on the ingress side" in str(devices.plane_problem(plane.id))
            devices._planes[plane.id].device.close()
        devices.close()
