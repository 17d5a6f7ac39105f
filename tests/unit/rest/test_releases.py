"""Two releases that share a store: standbys, and forwarded requests."""

from __future__ import annotations

import queue
import threading
import uuid
from contextlib import ExitStack, closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from apps.controller import standby_service
from apps.controller.standby_service import StoredView
from apps.etcd.gateway import Etcd, put
from apps.journal.copy import Copying
from apps.journal.etcd import EtcdJournal
from apps.process.term import Standby
from apps.rest.app import create_app
from hydra.history import Happening, HappeningKind
from hydra.journal import Change, JournalOfAnotherFormat, Kind
from tests.waiting import PATIENCE_S

from .fake_service import CREATED_UNIX_S, FakeService
from .test_replicas import WORDS, A, Term
from .test_standby import serving

NEW = b'{"novelty" : [1, 2.50],\n "id":"x", "id2": null}'
JSON = {"Content-Type": "application/json"}
PROBLEM = b'{"type": "/problems/novelty", "status": 422}'


class Later(BaseHTTPRequestHandler):
    """A leader of a release with more routes, methods, fields and problems than this release."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        asked = (self.command, self.path, self.rfile.read(length), self.headers.get("If-Match"))
        self.server.asked.append(asked)
        refused = self.path.startswith("/v1/reservations")
        body = PROBLEM if refused else NEW
        self.send_response(422 if refused else 207)
        self.send_header("Content-Type", "application/vnd.novelty+json")
        self.send_header("HydRA-Novelty", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815 (http.server's names)

    def log_message(self, *_args):
        pass


@pytest.fixture
def later():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Later)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with closing(server.socket):
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def standby(fabric, later):
    term = Term()
    url = f"http://127.0.0.1:{later.server_port}"
    term.known = Standby(WORDS, replace(A, url=url, release="99.0"))
    with serving(create_app(FakeService(fabric), term=term)) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/novelty?a=%20b&c", b""),
        ("POST", "/v2/novelty/x%2Fy", NEW),
        ("PATCH", "/v1/devices", NEW),
        ("PUT", "/v1/devices/p1", b"no JSON"),
        ("DELETE", "/v1/novelty/x", b""),
        ("GET", "/v1/devices?novelty=1", b""),
    ],
)
def test_what_only_the_leader_s_release_knows_is_passed_on_as_it_is(
    standby, later, method, path, body
):
    headers = {"If-Match": "x", **(JSON if body else {})}
    answer = standby.request(method, path, content=body or None, headers=headers)
    assert later.asked == [(method, path, body, "x")]
    assert (answer.status_code, answer.content) == (207, NEW)
    assert answer.headers["Content-Type"] == "application/vnd.novelty+json"
    assert answer.headers["HydRA-Novelty"] == "1"


def test_fields_and_refusals_that_a_standby_does_not_know_are_the_leader_s(standby, later):
    """A standby of an earlier release would refuse the field, and does not know the problem."""
    asked = b'{"src": "r1", "dst": "r2", "bandwidth_mbps": 5, "novelty": {"a": 1}}'
    answer = standby.post("/v1/reservations", content=asked, headers=JSON)
    assert [body for _, _, body, _ in later.asked] == [asked]
    assert (answer.status_code, answer.content) == (422, PROBLEM)


def written_by_another(settings, written):
    """The format's number, and a write, as one transaction of a release with another format."""
    journal = f"{settings.prefix}journal/"
    with closing(Etcd(settings)) as etcd:
        etcd.transaction([], [put(f"{journal}format", written), put(f"{journal}owner", "x 1")])


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/")


@pytest.fixture
def begin(fabric, settings, monkeypatch):
    """Begin as a standby; returns (the view of the store, the calls for the view)."""
    monkeypatch.setattr(standby_service, "_EVERY_S", 0.01)
    with ExitStack() as stack:

        def begun():
            called = queue.SimpleQueue()
            copies = stack.enter_context(closing(Copying(settings)))
            view = StoredView(fabric, copies)
            view.start(lambda: called.put("it stands by"), called.put)
            stack.callback(view.stop)
            return view, called

        yield begun


def test_releases_with_one_format_stand_by_for_each_other_and_others_refuse(begin, settings):
    with closing(EtcdJournal(settings)) as journal:
        past = Happening(CREATED_UNIX_S, HappeningKind.POLICY, "it was so", ()).to_record()
        other = {**past, "kind": "of another release"}
        journal.write([Change(Kind.HISTORY, None, one) for one in (past, other)])
    view, called = begin()
    assert called.get(timeout=PATIENCE_S) == "it stands by"
    seen = view.now().history(0.0, CREATED_UNIX_S + 1, list(HappeningKind), 10)
    assert [one.text for one in seen] == ["it was so"]
    written_by_another(settings, "2")
    assert isinstance(called.get(timeout=PATIENCE_S), JournalOfAnotherFormat)
    _, late = begin()
    assert isinstance(late.get(timeout=PATIENCE_S), JournalOfAnotherFormat)
    assert (called.empty(), late.empty()) == (True, True)
