"""A standby and a leader, as seen by clients."""

from __future__ import annotations

import pytest

from apps.process.term import Replica, Replicas, Standby, StoreMember
from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, write_tokens
from hydra.access import Role, make_token
from hydra.errors import LifecycleError
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S

from .fake_service import FakeService

A, B = (
    Replica(name, f"machine-{name}", f"http://10.0.0.{number}:8080", "1.0", 1000.0 + number)
    for number, name in enumerate("ab", 1)
)
STORE = (StoreMember("http://10.0.0.1:2379", True, True, "3.4.23", 0.02, 0, ()),)
WORDS = "this controller stands by, and machine-a leads: ask at http://10.0.0.1:8080"


class Term:
    """Replica of a standby, until the test makes it the leader."""

    is_shared = True
    generation = None
    leads = False
    handed_over = False
    known = Standby(WORDS)
    found = Replicas(A, (B,), STORE)

    def over(self):
        return not self.leads

    def standby(self):
        return None if self.leads else self.known

    def replicas(self):
        return self.found

    def hand_over(self):
        if not self.found.standing_by:
            raise LifecycleError("no controller stands by to lead")
        self.handed_over = True
        return self.found.standing_by


@pytest.fixture
def term():
    return Term()


@pytest.fixture
def client(fabric, term):
    app = create_app(FakeService(fabric), term=term)
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client
    server.stop()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/readyz"),
        ("GET", "/v1/topology"),
        ("POST", "/v1/reservations"),
        ("POST", "/v1/handover"),
        ("HEAD", "/v1/reservations"),
    ],
)
def test_a_standby_says_who_leads(client, term, method, path):
    answer = client.request(method, path, json={} if method == "POST" else None)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    if method != "HEAD":
        assert answer.json()["type"] == "/problems/standing-by"
        assert answer.json()["detail"] == WORDS
    assert not term.handed_over


def test_a_standby_answers_what_needs_no_leader(client):
    own = ("/healthz", "/v1/whoami", "/v1/servers", "/problems/standing-by", "/openapi.json", "/")
    for path in own:
        assert client.get(path).status_code == 200
    metrics = client.get("/metrics").text
    assert "hydra_leads 0.0" in metrics
    assert "hydra_ready" not in metrics
    found = client.get("/v1/replicas").json()
    assert found["role"] == "standing-by"
    assert (found["leader"]["name"], found["leader"]["since_unix_s"]) == ("machine-a", 1001.0)
    assert [one["url"] for one in found["standing_by"]] == ["http://10.0.0.2:8080"]
    assert found["store"][0]["version"] == "3.4.23"


def test_as_soon_as_it_leads_it_answers_everything(client, term):
    term.leads = True
    assert client.get("/readyz").json() == {"ready": True, "role": "leading"}
    assert client.get("/v1/topology").status_code == 200
    assert "hydra_leads 1.0" in client.get("/metrics").text
    assert client.get("/v1/replicas").json()["role"] == "leading"
    answer = client.post("/v1/handover", json={})
    assert (answer.status_code, answer.json()) == (202, {"standing_by": ["http://10.0.0.2:8080"]})
    assert term.handed_over


def test_it_is_not_handed_over_to_nobody(client, term):
    term.leads, term.found = True, Replicas(A, (), STORE)
    answer = client.post("/v1/handover", json={})
    assert (answer.status_code, answer.json()["detail"]) == (409, "no controller stands by to lead")


def test_what_etcd_does_not_say_is_told(client, term):
    term.found = Replicas(None, (), (StoreMember("http://10.0.0.1:2379", False),), "no answer")
    found = client.get("/v1/replicas").json()
    assert (found["leader"], found["problem"]) == (None, "no answer")


def test_without_a_store_a_controller_is_alone(fabric):
    server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0)
    server.start()
    with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
        assert client.get("/v1/replicas").json()["role"] == "alone"
        assert client.get("/readyz").json()["role"] == "alone"
        assert client.post("/v1/handover", json={}).status_code == 409
    server.stop()


def test_who_may_not_know_of_others_is_not_told_who_leads(fabric, term, tmp_path):
    token, stored = make_token("vera", Role.VIEWER, "s" * 43, 1.0)
    write_tokens(tmp_path / "tokens.json", [stored])
    app = create_app(FakeService(fabric), TokenFile(tmp_path / "tokens.json"), term=term)
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
        answer = client.get("/readyz")
        assert answer.json()["detail"] == "this controller stands by: ask the leading controller"
        assert client.get("/v1/replicas").status_code == 401
        known = {"Authorization": f"Bearer {token}"}
        assert client.get("/v1/topology", headers=known).json()["detail"] == WORDS
    server.stop()
