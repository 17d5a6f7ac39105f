"""Server-sent events: contents, resuming, and slow readers."""

import http.client
import json
import logging
import socket
import threading
import time
from contextlib import closing, contextmanager
from itertools import islice

import httpx
import pytest
from httpx_sse import connect_sse

from apps.rest.resources import events as events_route
from hydra.events import EventKind, EventLog
from hydra.lifecycle import ReservationState as State
from hydra.reservations.reservation import ReservationRequest
from mininet_scenarios import plain_http
from tests.waiting import HANGS_S, PATIENCE_S, wait_until

from .fake_service import relay_path


class Follower:
    """Reads events in a separate thread."""

    def __init__(self, client, **kwargs):
        self.events = []
        self._client = client
        self._kwargs = kwargs
        self.open = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.open.wait(PATIENCE_S)

    def _read(self):
        with connect_sse(self._client, "GET", "/v1/events", **self._kwargs) as source:
            assert source.response.status_code == 200
            assert source.response.headers["content-type"].startswith("text/event-stream")
            self.open.set()
            for event in source.iter_sse():
                if event.data:  # httpx-sse also reports comments and ids
                    self.events.append(event)

    def join(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def first(self, count):
        wait_until(lambda: len(self.events) >= count)
        return self.events


@pytest.fixture
def follow(server):
    """Followers of a test's server, which ends with the followers."""

    @contextmanager
    def connected(**kwargs):
        kwargs = {"headers": {"Last-Event-ID": "run-0"}, **kwargs}
        with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
            follower = Follower(client, **kwargs)
            yield follower
            server.stop()
            follower.join()

    return connected


def reserve(service):
    return service.reserve(ReservationRequest("r1", "r2", 1.0))


def act(service, count=1):
    """Reservations in a new state, an event for each."""
    for _ in range(count):
        service.settle(reserve(service).id, State.FAILED, "no light")


def test_a_new_state_is_told_with_the_reservation_as_it_is(service, follow):
    with follow() as follower:
        act(service)
        (event,) = follower.first(1)
    assert (event.event, event.id) == ("reservation", "run-1")
    data = json.loads(event.data)
    assert data["reservation"]["state"] == "failed"
    assert data["reservation"]["reason"] == "no light"
    assert data["circuit"] is None


def test_circuits_name_whom_they_serve(service, follow):
    circuit = relay_path().circuits[0]
    reservation = reserve(service)
    with follow(params={"kind": ["circuit-moving", "circuit-down"]}) as follower:
        service.tell(reservation)
        for kind in (EventKind.CIRCUIT_MOVING, EventKind.CIRCUIT_UP, EventKind.CIRCUIT_DOWN):
            service.events.publish(kind, 1.0, circuit=circuit, served=[reservation], reason="why")
        events = follower.first(2)
    assert [event.event for event in events] == ["circuit-moving", "circuit-down"]
    data = json.loads(events[0].data)
    assert data["reservations"] == ["v0"]
    assert (data["circuit"]["plane"], data["reason"]) == ("p1", "why")


def test_events_of_some_reservations_and_their_circuits(service, follow):
    circuit = relay_path().circuits[0]
    first, second, third = (reserve(service) for _ in range(3))
    with follow(params={"reservation": [first.id, third.id]}) as follower:
        for one in (second, first):
            service.tell(one)
            service.events.publish(EventKind.CIRCUIT_UP, 1.0, circuit=circuit, served=[one])
        service.events.publish(EventKind.SCHEDULE, 1.0)
        service.tell(third)
        events = [json.loads(one.data) for one in follower.first(3)]
    told = [(one["kind"], one["reservation"] and one["reservation"]["id"]) for one in events]
    assert told == [("reservation", "v0"), ("circuit-up", None), ("reservation", "v2")]
    assert events[1]["reservations"] == ["v0"]


def test_events_of_a_bundle_are_those_of_its_parts(service, follow):
    service.divides = True
    other = reserve(service)
    bundle = service.reserve(ReservationRequest("r1", "r3", 150.0))
    circuit = relay_path().circuits[0]
    with follow(params={"reservation": bundle.id}) as follower:
        service.tell(other)
        service.tell(bundle.parts[0])
        service.events.publish(EventKind.CIRCUIT_UP, 1.0, circuit=circuit, served=[other])
        service.events.publish(EventKind.CIRCUIT_UP, 1.0, circuit=circuit, served=bundle.parts[1:])
        events = [json.loads(one.data) for one in follower.first(2)]
    first, second = (one.id for one in bundle.parts)
    assert events[0]["reservation"]["id"] == first
    assert events[1]["reservations"] == [second]


def test_events_of_a_reservation_that_there_is_not_are_refused(service, server):
    """Such events would never come."""
    known = reserve(service).id
    with httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_S) as http:
        refused = http.get("/v1/events", params={"reservation": [known, "nonesuch"]})
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/unknown-name")
    assert "no reservation 'nonesuch': GET /v1/reservations" in refused.json()["detail"]


def test_without_an_id_it_begins_with_the_next_event(service, server):
    act(service, 3)
    with httpx.stream(
        "GET", f"{server.url}/v1/events", trust_env=False, timeout=PATIENCE_S
    ) as answer:
        lines = answer.iter_lines()
        assert list(islice(lines, 3)) == [": after run-3", "id: run-3", ""]
        act(service)
        assert "id: run-4" in islice(lines, 3)


def test_resume_after_the_last_event_that_came(service, follow):
    act(service, 5)
    with follow(headers={"Last-Event-ID": "run-3"}) as follower:
        events = follower.first(2)
    assert [event.id for event in events] == ["run-4", "run-5"]


@pytest.mark.parametrize(
    "stale",
    ["other-3", "run-99", "nonsense", "run-x", pytest.param("run-" + "9" * 5000, id="endless")],
)
def test_an_id_of_another_run_begins_with_a_gap(service, follow, stale):
    act(service, 2)
    with follow(headers={"Last-Event-ID": stale}) as follower:
        events = follower.first(3)
    assert [event.event for event in events] == ["gap", "reservation", "reservation"]
    assert json.loads(events[0].data) == {"missed": None}


def test_where_nothing_is_left_of_what_was_told_that_is_counted_once(service, follow):
    """As after a release whose events this release can't read."""
    service.events.resume("run", [], 50)
    with follow(headers={"Last-Event-ID": "run-40"}) as follower:
        (gap,) = follower.first(1)
        time.sleep(3 * events_route._LOOK_UP_S)
        act(service)
        events = follower.first(2)
    assert (gap.id, gap.event, json.loads(gap.data)) == ("run-50", "gap", {"missed": 10})
    assert [event.id for event in events] == ["run-50", "run-51"]


def test_what_the_history_forgot_is_counted(service, follow):
    act(service, 60)
    with follow(headers={"Last-Event-ID": "run-2"}) as follower:
        events = follower.first(51)
    assert (events[0].event, json.loads(events[0].data)) == ("gap", {"missed": 8})
    assert [event.id for event in events[1:]] == [f"run-{n}" for n in range(11, 61)]


def test_one_that_never_reads_holds_up_nobody(service, server, follow):
    stalled = socket.create_connection(("127.0.0.1", server.port))
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stalled.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    with follow() as follower:
        for round_number in range(20):
            act(service, 40)
            follower.first(40 * (round_number + 1))
        longest_s = 0.0
        for _ in range(50):
            started = time.monotonic()
            act(service)
            longest_s = max(longest_s, time.monotonic() - started)
        assert longest_s < HANGS_S, "it would wait for ever"
    assert len(service.events.after(0)[0]) == 50, "what it has not read is not kept for it"
    stalled.close()


def test_there_is_an_end_to_subscribers(server, follow, monkeypatch):
    monkeypatch.setattr(events_route, "MOST_SUBSCRIBERS", 1)
    with follow():
        answer = plain_http.get(f"{server.url}/v1/events")
        assert (answer.status_code, answer.json()["type"]) == (
            503,
            "/problems/too-many-subscribers",
        )


@pytest.mark.parametrize("path", ["/v1/events", "/v1/agents/h11/circuits"])
def test_head_of_a_stream_ends_and_takes_no_seat(server, caplog, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    with closing(connection):
        for _ in range(events_route.MOST_SUBSCRIBERS + 1):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.read() == b""
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_stopping_server_ends_its_subscribers(server, follow):
    with follow() as follower:
        started = time.monotonic()
        server.stop()
        follower.join()
        assert time.monotonic() - started < HANGS_S


def test_readers_of_the_log_keep_their_own_place(fabric):
    log = EventLog("x", capacity=3)
    assert log.after(0) == ([], 0)
    for number in range(5):
        log.publish(EventKind.CIRCUIT_UP, float(number))
    events, missed = log.after(0)
    assert ([event.number for event in events], missed) == ([3, 4, 5], 2)
    assert [event.number for event in log.after(3)[0]] == [4, 5]
    assert [event.number for event in log.after(2, most=1)[0]] == [3]
    assert log.after(5) == ([], 0)


def published(log, *reasons):
    for reason in reasons:
        log.publish(EventKind.SCHEDULE, 1.0, reason=reason)


def test_events_that_waited_too_long_to_be_written_are_a_gap_for_readers():
    """The store was full: the numbers of dropped events stay unused."""
    log = EventLog("run", capacity=3, stored=True)
    published(log, "a")
    with log.writing():
        pass
    published(log, *"bcdef")
    with log.writing() as events:
        assert [(one.number, one.reason) for one in events] == [(4, "d"), (5, "e"), (6, "f")]
    events, missed = log.after(1)
    assert ([one.reason for one in events], missed) == (["d", "e", "f"], 2)
    next_leader = EventLog("another", capacity=3, stored=True)
    next_leader.resume("run", events, 6)
    assert next_leader.after(1) == (events, 2)


def test_events_that_come_during_a_slow_write_are_written_by_the_next_one():
    log = EventLog("run", capacity=3, stored=True)
    published(log, *"abc")
    with log.writing():
        published(log, "d", "e")
    with log.writing() as events:
        assert [(one.number, one.reason) for one in events] == [(4, "d"), (5, "e")]
    with log.writing():
        published(log, *"fghij")
    with log.writing() as events:
        assert [(one.number, one.reason) for one in events] == [(8, "h"), (9, "i"), (10, "j")]
    assert log.after(5)[1] == 2


def test_what_a_failed_write_was_to_tell_is_told_by_the_next_one_or_counted():
    log = EventLog("run", capacity=3, stored=True)
    published(log, *"abc")
    with pytest.raises(OSError, match="full"), log.writing():
        published(log, "d")
        raise OSError("full")
    with log.writing() as events:
        assert [(one.number, one.reason) for one in events] == [(2, "b"), (3, "c"), (4, "d")]
    assert log.after(0)[1] == 1
