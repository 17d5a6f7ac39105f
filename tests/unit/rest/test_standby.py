"""A standby answers reads from the store, and forwards other requests to the leader."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.controller.standby_service import StoredView
from apps.process.term import Standby
from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, write_tokens
from apps.rest.trust import Tls, trust_in
from apps.tools.authority import create_authority
from hydra.access import Role, make_token
from hydra.faults.quarantine import quarantine_record
from hydra.history import Happening, HappeningKind
from hydra.journal import JournalError, Kind
from hydra.journal_format import state_record
from hydra.lifecycle import ReservationState
from hydra.reservations.records import reservation_record
from hydra_hybrid_network_client import HydraClient, Refused
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S

from .fake_service import CREATED_UNIX_S, FakeService
from .test_replicas import WORDS, A, Term

BODY = {"src": "r1", "dst": "r2", "bandwidth_mbps": 5}


class Copy:
    def __init__(self, as_of_unix_s, kinds):
        self.as_of_unix_s = as_of_unix_s
        self._kinds = kinds

    def records(self, kind):
        return self._kinds.get(kind, {})


class Copies:
    """View of a store that answers until the test stops it."""

    last = None
    answers = True

    def __init__(self):
        self.kinds = {}

    def look(self):
        if not self.answers:
            raise JournalError("etcd did not answer")
        self.last = Copy(time.time(), self.kinds)
        return self.last

    def put(self, kind, *records):
        self.kinds = {**self.kinds, kind: dict(enumerate(json.loads(json.dumps(records))))}


def reserved(leader, service):
    made = leader.post("/v1/reservations", json=BODY).raise_for_status()
    return service.reservation(made.json()["id"])


@contextmanager
def serving(app):
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    try:
        with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture
def service(fabric):
    return FakeService(fabric)


@pytest.fixture
def leader(service):
    with serving(create_app(service)) as client:
        yield client


@pytest.fixture
def term(leader):
    term = Term()
    term.known = Standby(WORDS, replace(A, url=str(leader.base_url).rstrip("/")))
    return term


@pytest.fixture
def copies():
    return Copies()


@pytest.fixture
def standby(fabric, term, copies):
    app = create_app(FakeService(fabric), term=term, view=StoredView(fabric, copies))
    with serving(app) as client:
        yield client


def test_what_needs_the_leader_is_carried_there(standby, leader, service):
    made = standby.post(
        "/v1/reservations", json=BODY, headers={"Idempotency-Key": "k", "Prefer": "wait=0"}
    )
    assert made.status_code == 201
    assert made.headers["Via"] == "1.1 hydra"
    assert made.headers["Preference-Applied"] == "wait=0"
    there = leader.get(made.headers["Location"])
    assert (there.json(), there.headers["ETag"]) == (made.json(), made.headers["ETag"])
    again = leader.post("/v1/reservations", json=BODY, headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == made.json()["id"]
    assert standby.get("/v1/devices").json() == leader.get("/v1/devices").json()
    wrong = standby.post("/v1/reservations", json={**BODY, "dst": "r9"})
    assert (wrong.status_code, wrong.json()["type"]) == (404, "/problems/unknown-name")
    assert standby.get("/v1/nothing?a=b").status_code == 404
    page = standby.post("/v1/reservations", json=BODY, headers={"Origin": "http://elsewhere"})
    assert page.status_code == 403
    assert len(service.reservations()) == 1


def test_a_load_balancer_can_choose_the_leader_or_any(standby, term, service):
    assert standby.get("/readyz").json()["type"] == "/problems/standing-by"
    assert standby.get("/readyz?standby=true").json() == {"ready": True, "role": "alone"}
    service.unready = ["it starts"]
    assert standby.get("/readyz?standby=true").json()["missing"] == ["it starts"]
    term.known = Standby(WORDS)
    assert standby.get("/readyz?standby=true").status_code == 503


def test_events_are_carried_as_they_come_and_end_when_another_one_leads(
    standby, term, service, leader
):
    with standby.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": after run-0"
        service.tell(reserved(leader, service))
        data = next(line for line in lines if line.startswith("data: "))
        assert json.loads(data.removeprefix("data: "))["reservation"]["src"] == "r1"
        term.known = Standby(WORDS, replace(term.known.leader, id="another"))
        assert [line for line in lines if line and not line.startswith(":")] == ["id: run-1"]


def test_reads_come_from_the_store_and_say_how_old_they_are(
    fabric, standby, service, copies, leader
):
    kept = reserved(leader, service)
    record = reservation_record(fabric, replace(kept, group="g", state=ReservationState.ACTIVE))
    past = Happening(CREATED_UNIX_S, HappeningKind.POLICY, "it was so", ())
    copies.put(Kind.RESERVATION, record, {"of": "another release"})
    copies.put(Kind.HISTORY, past.to_record())
    copies.put(Kind.STATE, {"fabric": fabric.name, "state": state_record(fabric, service.network)})
    port = quarantine_record(fabric, service.quarantined[1].entry)
    copies.put(Kind.QUARANTINE, {"ports": [port]})
    asked_unix_s = time.time()
    answer = standby.get(f"/v1/reservations/{kept.id}")
    assert answer.json()["state"] == "active"
    as_of_unix_s = float(answer.headers["HydRA-As-Of"])
    assert asked_unix_s - 0.001 <= as_of_unix_s <= time.time()
    assert 0 <= int(answer.headers["Age"]) <= time.time() - as_of_unix_s + 1
    assert [one["id"] for one in standby.get("/v1/reservations").json()["reservations"]] == [
        kept.id
    ]
    assert standby.get("/v1/groups/g").json()["reservations"][0]["id"] == kept.id
    assert standby.get("/v1/groups/h").status_code == 404
    assert standby.get("/v1/shapes").json() == {"shapes": []}
    assert "no shape" in standby.get("/v1/shapes/g").json()["detail"]
    assert standby.get("/v1/reservations/nothing").status_code == 404
    assert standby.get("/v1/history").json()["happenings"][0]["text"] == "it was so"
    assert standby.get("/v1/topology").json()["fabric"] == fabric.name
    assert standby.get("/v1/quarantine").json()["ports"][0]["reason"] == "no light"
    assert standby.get("/v1/decisions").json()["decisions"] == []
    fresh = standby.get(f"/v1/reservations/{kept.id}", headers={"Cache-Control": "no-cache"})
    assert fresh.json() == leader.get(f"/v1/reservations/{kept.id}").json()
    assert "Age" not in fresh.headers
    awaited = standby.get(f"/v1/reservations/{kept.id}?wait={fresh.json()['state']}")
    assert awaited.json() == fresh.json(), "the store does not know what happens next"
    assert "Age" not in awaited.headers


def test_without_a_store_old_reads_are_told_and_nothing_is_promised(
    fabric, standby, term, copies, service, leader
):
    kept = replace(reserved(leader, service), state=ReservationState.ACTIVE)
    term.known = Standby(WORDS, None, (1000.0, "etcd did not answer"))
    copies.answers = False
    assert standby.get("/v1/reservations").json()["type"] == "/problems/store-unavailable"
    copies.answers = True
    copies.put(Kind.RESERVATION, reservation_record(fabric, kept))
    copies.look()
    copies.answers = False
    copies.last.as_of_unix_s -= 30
    old = standby.get(f"/v1/reservations/{kept.id}")
    assert (old.status_code, int(old.headers["Age"]) >= 30) == (200, True)
    for refused in (standby.post("/v1/reservations", json=BODY), standby.get("/readyz")):
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json()["type"] == "/problems/store-unavailable"
    (wrong,) = standby.get("/v1/conditions").json()["conditions"]
    assert (wrong["kind"], wrong["since_unix_s"]) == ("store-unavailable", 1000.0)
    assert "etcd did not answer" in wrong["what"]
    assert wrong["reservations"] == [kept.id]


def test_a_leader_that_is_gone_was_asked_nothing_and_a_silent_one_perhaps(standby, term):
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        there = replace(A, url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        term.known = Standby(WORDS, there)
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(standby.post("/v1/reservations", json=BODY))
        )
        asking.start()
        connection, _ = silent.accept()
        assert connection.recv(65536).startswith(b"POST /v1/reservations HTTP/1.1\r\n")
        term.known = Standby(WORDS, replace(there, id="another"))
        asking.join()
        assert (answers[0].status_code, answers[0].json()["type"]) == (
            502,
            "/problems/leader-unanswered",
        )
        connection.close()
    gone = standby.post("/v1/reservations", json=BODY)
    assert (gone.status_code, gone.json()["type"]) == (503, "/problems/standing-by")
    assert "does not answer" in gone.json()["detail"]


def test_what_was_carried_once_is_not_carried_again(standby, term):
    term.known = Standby(WORDS, replace(A, url=str(standby.base_url).rstrip("/")))
    answer = standby.get("/v1/devices")
    assert (answer.status_code, answer.json()["detail"]) == (503, WORDS)


def test_one_that_has_led_and_was_started_again_knows_less_than_who_lost_the_store(
    fabric, standby, term
):
    lost = "this controller stands by, and does not know the leader: etcd did not answer"
    with serving(create_app(FakeService(fabric), term=Term())) as started:
        there = replace(A, url=str(started.base_url).rstrip("/"))
        term.known = Standby(lost, there, (1000.0, "etcd did not answer"))
        refused = standby.get("/readyz?standby=true")
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/store-unavailable")
    assert refused.json()["detail"] == f"{lost}; but {there.url} stands by, too"


def test_tokens_are_carried_and_strangers_are_not(fabric, service, term, tmp_path):
    token, stored = make_token("olga", Role.OPERATOR, "s" * 43, 1.0)
    write_tokens(tmp_path / "tokens.json", [stored])
    tokens = TokenFile(tmp_path / "tokens.json")
    with serving(create_app(service, tokens)) as there:
        term.known = Standby(WORDS, replace(A, url=str(there.base_url).rstrip("/")))
        with serving(create_app(FakeService(fabric), tokens, term=term)) as here:
            assert here.get("/v1/devices").status_code == 401
            known = {"Authorization": f"Bearer {token}"}
            assert here.get("/v1/devices", headers=known).status_code == 200


def test_the_leader_is_known_by_the_authority_as_its_file_is_by_then(
    fabric, service, term, certificate, tmp_path
):
    trusted = tmp_path / "ca.pem"
    trusted.write_text(create_authority(tmp_path / "lab", "lab", 1, datetime.now(UTC)).read_text())
    leader = RestServer(create_app(service), "127.0.0.1", 0, Tls(*certificate))
    leader.start()
    try:
        term.known = Standby(WORDS, replace(A, url=leader.url))
        app = create_app(FakeService(fabric), term=term, trust=trust_in(str(trusted)))
        with serving(app) as here:
            refused = here.get("/v1/devices")
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/standing-by")
            trusted.write_text(Path(certificate[0]).read_text())
            assert here.get("/v1/devices").status_code == 200
    finally:
        leader.stop()


def test_a_client_with_several_urls_goes_on_to_one_that_takes_the_request(
    standby, leader, service, term
):
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    term.known = Standby(WORDS)
    urls = ",".join((nobody, str(standby.base_url), str(leader.base_url)))
    with HydraClient(urls) as client:
        made = client.reserve("r1", "r2", 5)
        assert [one.id for one in service.reservations()] == [made.id]
        service.tell(service.reservation(made.id))
        with closing(client.events(last_id="run-0")) as events:
            assert next(events)[0] == "run-1"
        with pytest.raises(Refused):
            client.reserve("r1", "r9", 5)
