import contextlib
import functools
import json
import re
import threading
import time

import pytest

from hydra.events import DeviceAlarm, EventKind
from hydra.lifecycle import ReservationState as State
from hydra.reservations.reservation import ReservationRequest
from hydra.roles import Alarm, Severity
from tests.unit.rest.fake_service import relay_path


@pytest.fixture
def happenings(service):
    """Something happens every 50 ms."""
    stop = threading.Event()
    reservation = service.reserve(ReservationRequest("r1", "r2", 1.0))

    def happen():
        service.settle(reservation.id, State.ACTIVE)
        while not stop.wait(0.05):
            service.tell(service.reservation(reservation.id))
            service.events.publish(
                EventKind.CIRCUIT_MOVING,
                time.time(),
                circuit=relay_path().circuits[0],
                served=[reservation],
                reason="operator",
            )

    thread = threading.Thread(target=happen)
    thread.start()
    yield
    stop.set()
    thread.join()


@contextlib.contextmanager
def once_followed(service, act):
    """``act`` is called in a thread of its own as soon as somebody follows the events."""

    def wait_and_act():
        deadline_s = time.monotonic() + 60
        while not service.events._listeners:
            assert time.monotonic() < deadline_s, "nobody follows the events"
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    yield
    thread.join()


def test_a_line_for_each_event(call, happenings):
    result = call("watch", "--count", "4")
    assert result.exit_code == 0, result.output
    assert "v0 active  r1 =p1= r2, 1.0 Mb/s" in result.stdout
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+  ", result.stdout), "with its zone"
    assert "circuit-moving   r1 =p1= r3 (reservations v0): operator" in result.stdout


def test_a_reconfiguration_is_told_by_its_states(call, service, happenings):
    with once_followed(service, lambda: service.reconfigure(None, "operator")):
        result = call("watch", "--count", "1", "--kind", "reconfiguration")
    assert "reconfiguration  c0 queued" in result.stdout


def test_an_alarm_is_told_in_the_devices_words(call, service):
    alarm = DeviceAlarm("p1", Alarm(Severity.CRITICAL, 3, "LOS", "fibre cut"))
    told = functools.partial(service.events.publish, EventKind.ALARM, time.time(), alarm=alarm)
    with once_followed(service, told):
        result = call("watch", "--count", "1", "--kind", "alarm")
    assert "alarm            p1 at port 3 LOS critical: fibre cut" in result.stdout


def test_json_lines_of_one_kind(call, happenings):
    result = call("watch", "--count", "3", "--kind", "circuit-moving", "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["kind"] for event in events] == ["circuit-moving"] * 3


def test_nobody_to_watch(run):
    result = run("watch", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 3
    assert "no controller answers" in result.stderr
