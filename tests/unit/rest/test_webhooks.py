"""Webhooks with receivers that are real HTTP servers."""

import asyncio
import base64
import json
import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from apps.rest.app import create_app
from apps.rest.resources.events import CloudEvent, Event
from apps.rest.server import RestServer
from apps.rest.webhook_addresses import RefusedAddress, WebhookNetworks
from apps.rest.webhook_delivery import Webhooks
from hydra.access import LOCAL
from hydra.errors import HydraError
from hydra.events import EventKind, EventLog
from hydra.journal import Change, Kind
from hydra.reservations.reservation import ReservationRequest
from hydra.webhooks import Webhook, make_secret, pause_s, signed_headers
from mininet_scenarios import plain_http
from tests.journals import SqliteJournal
from tests.waiting import HANGS_S, PATIENCE_S, remains, wait_until

from .fake_service import relay_path

HERE = WebhookNetworks(["127.0.0.0/8"])


class Receiver:
    """An HTTP server with scripted answers, which records accepted and refused events."""

    def __init__(self):
        self.answers = []
        """Statuses of the next answers; then 204."""
        self.accepted, self.refused = [], []
        self.held = threading.Event()
        """While cleared, no request is answered."""
        self.held.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.held.wait(PATIENCE_S)
                status = receiver.answers.pop(0) if receiver.answers else 204
                into = receiver.accepted if status < 300 else receiver.refused
                into.append((dict(self.headers.items()), body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def events(self):
        return [json.loads(body) for _, body in self.accepted]

    def close(self):
        self.held.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver():
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
def journal(tmp_path):
    one = SqliteJournal(str(tmp_path / "journal.db"))
    yield one
    one.close()


@pytest.fixture
def hooks(service, journal, monkeypatch):
    monkeypatch.setattr(
        "apps.rest.webhook_delivery.pause_s", lambda failures, _chance: 0.01 * failures
    )
    running = Webhooks(service.fabric, service.events, journal, HERE)
    running.start()
    yield running
    running.stop()


def happen(service, times=1):
    (circuit, _) = relay_path().circuits
    for _ in range(times):
        service.events.publish(EventKind.CIRCUIT_UP, 1_700_000_000.25, circuit=circuit)


def test_what_is_sent_is_a_cloud_event_that_the_library_verifies(hooks, service, receiver):
    webhook = hooks.add(receiver.url, [], None)
    service.tell(service.reserve(ReservationRequest("r1", "r2", 10.0)))
    wait_until(lambda: receiver.accepted)
    headers, body = receiver.accepted[0]
    assert headers["Content-Type"].startswith("application/cloudevents+json")
    event = Verifier(webhook.secret).verify(body, headers)
    assert event["specversion"] == "1.0"
    assert event["id"] == headers["webhook-id"] == "run-1"
    assert event["source"] == f"urn:hydra:{service.fabric.name}"
    assert event["type"] == "hydra.reservation"
    assert event["subject"] == "v0"
    assert event["time"] == "2023-11-14T22:13:20Z"
    (told,), _ = service.events.after(0)
    assert event["data"] == Event.seen_by(LOCAL, service.fabric, told).model_dump(mode="json")
    assert event["data"]["reservation"]["state"] == "activating"
    CloudEvent.model_validate_json(body)
    with pytest.raises(WebhookVerificationError):
        Verifier(webhook.secret).verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(make_secret(bytes(32))).verify(body, headers)


def test_it_is_tried_again_until_it_is_taken_and_in_order(hooks, service, receiver):
    receiver.answers = [500, 503, 429, 302]
    webhook = hooks.add(receiver.url, [], None)
    happen(service, 5)
    wait_until(lambda: len(receiver.accepted) == 5)
    assert [event["id"] for event in receiver.events()] == [f"run-{n}" for n in range(1, 6)]
    assert {json.loads(body)["id"] for _, body in receiver.refused} == {"run-1"}
    wait_until(lambda: hooks.delivery(webhook.id).waiting == 0)
    state = hooks.delivery(webhook.id)
    assert (state.delivered, state.refused, state.failing_since_unix_s) == (5, 0, None)


def test_one_that_is_not_there_is_told_when_it_is_back(hooks, service, receiver):
    port = receiver.url
    receiver.close()
    webhook = hooks.add(port, [], None)
    happen(service)
    wait_until(lambda: hooks.delivery(webhook.id).problem)
    state = hooks.delivery(webhook.id)
    assert state.failing_since_unix_s is not None
    assert state.waiting == 1
    back = Receiver()
    try:
        hooks.change(webhook.id, back.url, [], None)
        wait_until(lambda: back.accepted)
        assert Verifier(webhook.secret).verify(back.accepted[0][1], back.accepted[0][0])
    finally:
        back.close()


def test_one_that_hangs_holds_up_nobody(hooks, service, receiver):
    slow = Receiver()
    slow.held.clear()
    try:
        hanging = hooks.add(slow.url, [], None)
        hooks.add(receiver.url, [], None)
        started = time.monotonic()
        happen(service, 50)
        assert time.monotonic() - started < HANGS_S, "it would wait for ever"
        wait_until(lambda: len(receiver.accepted) == 50)
        assert hooks.delivery(hanging.id).waiting == 50
        happen(service, 30)  # the history of this log holds 50
        slow.held.set()
        wait_until(lambda: hooks.delivery(hanging.id).waiting == 0)
        kinds = [event["type"] for event in slow.events()]
        assert kinds[0] == "hydra.circuit-up"
        assert kinds.count("hydra.gap") == 1
        (gap,) = (event for event in slow.events() if event["type"] == "hydra.gap")
        assert hooks.delivery(hanging.id).missed == gap["data"]["missed"] == 29
    finally:
        slow.close()


def test_what_is_refused_is_not_sent_again(hooks, service, receiver):
    receiver.answers = [400]
    webhook = hooks.add(receiver.url, [], None)
    happen(service, 2)
    wait_until(lambda: receiver.accepted)
    assert [json.loads(body)["id"] for _, body in receiver.refused] == ["run-1"]
    assert receiver.events()[0]["id"] == "run-2"
    assert hooks.delivery(webhook.id).refused == 1


def test_gone_ends_it_until_it_is_changed(hooks, service, receiver):
    receiver.answers = [410]
    webhook = hooks.add(receiver.url, [], None)
    happen(service)
    wait_until(lambda: "nothing more is sent" in hooks.delivery(webhook.id).problem)
    happen(service)
    assert remains(lambda: not receiver.accepted)
    hooks.change(webhook.id, receiver.url, [], None)
    wait_until(lambda: receiver.accepted)


def test_only_the_kinds_and_the_tenant_that_were_asked_for(hooks, service, receiver):
    hooks.add(receiver.url, [EventKind.RESERVATION], "tina")
    happen(service)
    for owner in ("tom", "tina"):
        service.tell(service.reserve(ReservationRequest("r1", "r2", 1.0, owner=owner)))
    wait_until(lambda: receiver.accepted)
    assert [event["subject"] for event in receiver.events()] == ["v1"]


def test_a_removed_one_is_sent_nothing(hooks, service, receiver):
    webhook = hooks.add(receiver.url, [], None)
    hooks.remove(webhook.id)
    happen(service)
    assert remains(lambda: not receiver.accepted)
    assert hooks.all() == []


def test_a_restart_keeps_them_and_says_that_something_may_be_lost(
    hooks, service, receiver, journal
):
    webhook = hooks.add(receiver.url, [EventKind.CIRCUIT_UP], None)
    gone = hooks.add(receiver.url, [], None)
    hooks.remove(gone.id)
    hooks.stop()
    again = Webhooks(service.fabric, service.events, journal, HERE)
    again.start()
    try:
        wait_until(lambda: receiver.accepted)
        headers, body = receiver.accepted[0]
        event = Verifier(webhook.secret).verify(body, headers)
        assert event["type"] == "hydra.gap"
        assert event["data"] == {"missed": None}
        CloudEvent.model_validate_json(body)
        assert [one.webhook for one in again.all()] == [webhook]
        happen(service)
        wait_until(lambda: len(receiver.accepted) == 2)
    finally:
        again.stop()


# --- the resource ---------------------------------------------------------------------------


@pytest.fixture
def api(service, hooks):
    server = RestServer(create_app(service, hooks=hooks), "127.0.0.1", 0)
    server.start()
    with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client
    server.stop()


def test_create_read_change_delete(api, receiver, service, caplog):
    caplog.set_level(logging.DEBUG)
    made = api.post("/v1/webhooks", json={"url": receiver.url, "kinds": ["circuit-up"]})
    assert made.status_code == 201
    where, secret = made.headers["location"], made.json()["secret"]
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    shown = api.get(where)
    assert "secret" not in shown.json()
    assert shown.json()["kinds"] == ["circuit-up"]
    happen(service)
    wait_until(lambda: api.get(where).json()["delivered"] == 1)
    changed = api.put(where, json={"url": "https://receiver.example:9/x?y=z", "tenant": "tina"})
    assert (changed.json()["kinds"], changed.json()["tenant"]) == ([], "tina")
    assert secret not in api.get("/v1/webhooks").text
    assert api.delete(where).status_code == 200
    assert api.get(where).status_code == 404
    assert api.delete(where).status_code == 404
    assert secret not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a", "http://", "http://u:p@a/", "a", "http://a:0/", "http://a b/", "http://a/\n"),
        *("http://a:99999/", "http://a..b/", "http://.a/", "http://-a/", f"http://{'a' * 64}/"),
    ],
)
def test_addresses_that_are_none(api, url):
    refused = api.post("/v1/webhooks", json={"url": url})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/url"
    assert api.get("/v1/webhooks").json() == {"webhooks": []}


@pytest.mark.parametrize("url", ["http://10.0.0.1:8080/x", "http://169.254.169.254/latest"])
def test_addresses_inside_are_refused_at_once(api, url):
    refused = api.post("/v1/webhooks", json={"url": url})
    assert refused.status_code == 422
    assert "controller.webhook_networks" in refused.json()["detail"]
    assert api.get("/v1/webhooks").json() == {"webhooks": []}


def test_there_are_only_so_many(api, monkeypatch):
    monkeypatch.setattr("apps.rest.webhook_delivery.MOST_WEBHOOKS", 1)
    body = {"url": "http://a.example:9/"}
    assert api.post("/v1/webhooks", json=body).status_code == 201
    assert api.post("/v1/webhooks", json=body).json()["type"] == "/problems/too-many-webhooks"


# --- secrets, records, pauses ---------------------------------------------------------------


@given(
    secret=st.binary(min_size=32, max_size=32),
    body=st.dictionaries(st.text(), st.text()),
    name=st.text("abcdef-0123", min_size=1),
)
def test_every_signature_is_one_that_the_library_accepts(secret, body, name):
    text = json.dumps(body).encode()
    headers = signed_headers(make_secret(secret), name, int(time.time()), text)
    assert Verifier(make_secret(secret)).verify(text, headers) == body


def test_records_and_what_they_do_not_tell():
    one = Webhook("w", "http://a/", "whsec_x", frozenset({EventKind.CIRCUIT_UP}), None, 1.0)
    assert Webhook.from_record(json.loads(json.dumps(one.to_record()))) == one
    assert "whsec" not in repr(one)
    with pytest.raises(HydraError) as caught:
        Webhook.from_record({"secret": "whsec_x"})
    assert "whsec" not in str(caught.value)


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_pauses_grow_to_five_minutes(failures, chance):
    pause = pause_s(failures, chance)
    full = min(300.0, 2.0 ** min(failures - 1, 30))
    assert full / 2 <= pause <= full


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("172.16.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("1.1.1.1", True),
        ("2606:4700::1111", True),
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd01::1", True),
    ],
)
def test_where_webhooks_may_lead(address, allowed):
    reach = WebhookNetworks(["10.1.0.0/16", "fd01::/16"])
    if allowed:
        reach.check("a.example", address)
    else:
        with pytest.raises(RefusedAddress, match=r"webhook_networks"):
            reach.check("a.example", address)


@pytest.mark.parametrize("name", ["localhost", "rebound.example"])
def test_a_name_that_leads_inside_is_refused_at_the_connection(
    service, journal, receiver, monkeypatch, name
):
    """Also an address that was public when the webhook was made."""
    resolve = socket.getaddrinfo

    def resolved(host, *arguments, **more):
        return resolve("127.0.0.1" if host == "rebound.example" else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    hooks = Webhooks(service.fabric, service.events, journal)
    hooks.start()
    try:
        port = receiver.url.rpartition(":")[2]
        webhook = hooks.add(f"http://{name}:{port}", [], None)
        happen(service)
        wait_until(lambda: "webhook_networks" in hooks.delivery(webhook.id).problem)
    finally:
        hooks.stop()
    assert receiver.accepted == []


def test_the_second_address_of_a_name_is_tried_when_the_first_is_silent(
    service, receiver, monkeypatch
):
    """Its connection takes its full time limit."""
    resolve, connect_tcp = socket.getaddrinfo, httpcore.AnyIOBackend.connect_tcp
    given_s = []

    def resolved(host, port, *arguments, **more):
        if host != "batch.example":
            return resolve(host, port, *arguments, **more)
        kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
        return [(*kind, (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    async def connect(self, host, port, timeout=None, *more):
        given_s.append(timeout)
        if host == "127.0.0.2":
            await asyncio.sleep(timeout)
            raise httpcore.ConnectTimeout
        return await connect_tcp(self, host, port, timeout, *more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    hooks = Webhooks(service.fabric, service.events, None, HERE)
    hooks.start()
    try:
        port = receiver.url.rpartition(":")[2]
        webhook = hooks.add(f"http://batch.example:{port}", [], None)
        happen(service)
        wait_until(lambda: receiver.accepted or hooks.delivery(webhook.id).problem)
        assert hooks.delivery(webhook.id).problem == ""
    finally:
        hooks.stop()
    assert given_s[0] < given_s[1]


def test_one_of_an_earlier_release_with_an_impossible_port_goes_on_failing(
    service, journal, receiver, monkeypatch
):
    monkeypatch.setattr("apps.rest.webhook_delivery.pause_s", lambda *_: 0.01)
    old = Webhook("w", "http://127.0.0.1:99999/", make_secret(b"x" * 32), frozenset(), None, 1.0)
    journal.write([Change(Kind.WEBHOOK, old.id, old.to_record())])
    hooks = Webhooks(service.fabric, service.events, journal, HERE)
    hooks.start()
    try:
        wait_until(lambda: hooks.delivery("w").problem)
        hooks.change("w", receiver.url, [], None)
        happen(service)
        wait_until(lambda: receiver.accepted)
    finally:
        hooks.stop()


def test_whoever_leads_next_goes_on_where_the_last_one_was(service, journal, receiver):
    """Stored events that were not posted yet are posted with their ids; no event is missed."""
    first = EventLog("run", stored=True)
    hooks = Webhooks(service.fabric, first, journal, HERE)
    hooks.start()
    try:
        hooks.add(receiver.url, [], None)
        service.events = first
        happen(service)
        with first.writing() as told:
            assert len(told) == 1
        wait_until(lambda: len(receiver.accepted) == 1)
    finally:
        hooks.stop()
    happen(service)
    with first.writing() as untold:
        pass
    second = EventLog("another", stored=True)
    second.resume("run", [*told, *untold], 2)
    hooks = Webhooks(service.fabric, second, journal, HERE)
    hooks.start()
    try:
        wait_until(lambda: len(receiver.accepted) == 2)
        assert [one["id"] for one in receiver.events()] == ["run-1", "run-2"]
        for delivery in hooks.all():
            hooks.remove(delivery.webhook.id)
        assert journal.records(Kind.DELIVERY) == []
    finally:
        hooks.stop()


def test_where_nothing_is_left_of_what_was_told_there_is_a_gap_and_it_goes_on(
    service, journal, receiver
):
    """As after a release whose events this release can't read."""
    webhook = Webhook("w", receiver.url, make_secret(b"x" * 32), frozenset(), None, 1.0)
    place = {"id": "w", "run": "run", "number": 40}
    journal.write(
        [
            Change(Kind.WEBHOOK, "w", webhook.to_record()),
            Change(Kind.DELIVERY, "w", place),
        ]
    )
    log = service.events = EventLog("another", stored=True)
    log.resume("run", [], 50)
    hooks = Webhooks(service.fabric, log, journal, HERE)
    hooks.start()
    try:
        wait_until(lambda: len(receiver.accepted) == 1)
        happen(service)
        with log.writing():
            pass
        wait_until(lambda: len(receiver.accepted) == 2)
    finally:
        hooks.stop()
    assert [one["id"] for one in receiver.events()] == ["run-50-gap", "run-51"]
    assert receiver.events()[0]["data"] == {"missed": 10}
