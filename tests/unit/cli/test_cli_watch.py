import functools
import json
import re
import threading
import time

import pytest

import apps.cli.watch
from hydra.events import DeviceAlarm, EventKind
from hydra.lifecycle import ReservationState as State
from hydra.reservations.reservation import ReservationRequest
from hydra.roles import Alarm, Severity
from tests import silent_streams
from tests.unit.rest.fake_service import relay_path
from tests.waiting import once


@pytest.fixture
def happenings(service):
    """Publish an event every 50 ms."""
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


def once_followed(service, act):
    """Call ``act`` in a separate thread as soon as a client follows the events."""
    return once(lambda: service.events._listeners, act)


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


def test_a_silent_stream_is_watched_on(run):
    with silent_streams.network() as network, happening(network, 3):
        result = run("watch", "--count", "3", "--url", network.url)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert len(result.stdout.splitlines()) == 3


def happening(network, events):
    """Events with silence between them, once a client follows."""

    def happen():
        network.act()
        for _ in range(events - 1):
            network.be_silent()
            network.act()

    return once(network.followed, happen)


def test_a_week_of_slots_is_told(call, service):
    told = functools.partial(service.events.publish, EventKind.SCHEDULE, time.time(), reason="r")
    with once_followed(service, told):
        result = call("watch", "--count", "1")
    assert result.exit_code == 0, result.output
    assert "schedule         a week of slots begins: r" in result.stdout


REFUSAL = """\
HTTP/1.1 {} Refused\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n\
{{"type": "/problems/{}", "title": "no", "detail": "{}"}}"""
PAGE = (
    "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<p>later</p>"
)
EVENT = json.dumps(
    {"kind": "schedule", "unix_s": 1, "reservation": None, "circuit": None, "reservations": []}
    | {"reconfiguration": None, "alarm": None, "reason": ""}
)


def test_no_passing_trouble_ends_a_watch_that_was_connected(run, monkeypatch):
    """The client's position is known before the first event: events meanwhile are sent later."""
    monkeypatch.setattr(apps.cli.watch, "_RECONNECT_S", 0.0)
    answers = [
        silent_streams.stream(": after run-3", "id: run-3", ""),
        PAGE.encode(),
        PAGE.encode(),
        REFUSAL.format(503, "too-many-subscribers", "full").encode(),
        REFUSAL.format(429, "too-many-requests", "not now").encode(),
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na page",
        silent_streams.stream("event: schedule", "id: run-4", "data: {torn", ""),
        silent_streams.stream("event: schedule", "id: run-5", f"data: {EVENT}", ""),
    ]
    with silent_streams.answering(*answers) as script:
        result = run("watch", "--count", "1", "--url", script.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("a week of slots begins\n")
    assert result.stderr.count("trying again") == 5, "once for each trouble"
    places = [re.search(r"last-event-id: (\S+)", one, re.I) for one in script.requests]
    assert [one and one[1] for one in places] == [None, *["run-3"] * 6, "run-4"]


def test_a_watch_ends_with_its_token(run, monkeypatch):
    monkeypatch.setattr(apps.cli.watch, "_RECONNECT_S", 0.0)
    revoked = REFUSAL.format(401, "unauthenticated", "not known").encode()
    with silent_streams.answering(silent_streams.stream("id: run-3", ""), revoked) as script:
        result = run("watch", "--url", script.url)
    assert (result.exit_code, "not known" in result.stderr) == (1, True)


def test_nobody_to_watch(run):
    result = run("watch", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 3
    assert "no controller answers" in result.stderr
