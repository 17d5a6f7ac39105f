"""Agents over HTTP: permitted reports, and malformed reports."""

import json
import secrets
import time
from contextlib import ExitStack

import pytest

from apps.rest.app import create_app
from apps.rest.guard import AuditLog
from apps.rest.resources import agents
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, write_tokens
from hydra.access import Role, make_token
from hydra.demand.agent_protocol import AgentTrouble
from hydra.model import NetworkState, Topology, VlanId
from hydra_hybrid_network_client.errors import Refusal
from hydra_hybrid_network_client.requests import Place
from hydra_hybrid_network_client.synchronous.connection import Connection
from mininet_scenarios import plain_http
from tests.waiting import HANGS_S, PATIENCE_S

from .fake_service import relay_path

NAMES = {"h11": Role.AGENT, "h21": Role.AGENT, "olaf": Role.OPERATOR, "vera": Role.VIEWER}
REPORT = {"backlog_mb": {"r2": 12.5}}


@pytest.fixture
def audit_file(tmp_path):
    return tmp_path / "audit.jsonl"


@pytest.fixture
def tokens(tmp_path):
    made = {
        name: make_token(name, role, secrets.token_urlsafe(), 1.0) for name, role in NAMES.items()
    }
    write_tokens(tmp_path / "tokens.json", [stored for _, stored in made.values()])
    return {name: token for name, (token, _) in made.items()}


@pytest.fixture
def server(service, tmp_path, tokens, audit_file):
    known = TokenFile(tmp_path / "tokens.json")
    running = RestServer(
        create_app(service, known, None, AuditLog(str(audit_file))), "127.0.0.1", 0
    )
    running.start()
    yield running
    running.stop()


@pytest.fixture
def ask(server, tokens):
    """Send a request as a caller: ask(name, method, path, …)."""
    with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:

        def send(name, method, path, **kwargs):
            headers = {"Authorization": f"Bearer {tokens[name]}", **kwargs.pop("headers", {})}
            return client.request(method, path, headers=headers, **kwargs)

        yield send


def test_a_report_is_heard_and_answered(ask, service):
    setup = ask("h11", "GET", "/v1/agents/h11").json()
    assert setup["rack"] == "r1"
    assert setup["prefixes"]["r2"] == ["10.0.2.0/24", "fd00:10:0:2::/64"]
    answer = ask("h11", "PUT", "/v1/agents/h11/backlog", json=REPORT)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"revision": setup["revision"]}
    (one,) = ask("vera", "GET", "/v1/agents").json()["agents"]
    assert (one["server"], one["waiting_mb"], one["stale"]) == ("h11", 12.5, False)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/agents/h21/backlog", REPORT),
        ("PUT", "/v1/agents/h21/backlog", "garbage"),
        ("PUT", "/v1/agents/h12/backlog", REPORT),
        ("PUT", "/v1/agents/r1/backlog", REPORT),
        ("GET", "/v1/agents/h21", None),
        ("GET", "/v1/agents/h21/circuits", None),
    ],
)
def test_an_agent_speaks_for_its_own_server_only(ask, service, caplog, method, path, body):
    answer = ask("h11", method, path, json=body)
    assert answer.status_code == 403
    assert "h11 is not good for" in answer.json()["detail"]
    assert service.agents.troubles() == {AgentTrouble.FOREIGN.value: 1}
    assert service.agents.agents() == []
    assert "h11: agent speaks for another server" in caplog.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/agents"),
        ("GET", "/v1/topology"),
        ("GET", "/v1/reservations"),
        ("GET", "/v1/servers"),
        ("GET", "/metrics"),
        ("POST", "/v1/reservations"),
        ("POST", "/v1/reconfigurations"),
    ],
)
def test_an_agent_may_do_nothing_else(ask, method, path):
    assert ask("h11", method, path).status_code == 403


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"\xff\xfe\x00", 400),
        (b"{", 400),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"backlog_mb": 5}', 422),
        (b'{"backlog_mb": {"r2": "much"}}', 422),
        (b'{"backlog_mb": {"r2": -1}}', 422),
        (b'{"backlog_mb": {"r2": NaN}}', 422),
        (b'{"backlog_mb": {"r2": 1e300}}', 422),
        (b'{"backlog_mb": {"r2": null}}', 422),
        (b'{"backlog_mb": {"": 1}}', 422),
        (b'{"backlog_mb": {}, "more": 1}', 422),
        (b'{"backlog_mb": {}, "connections": {"r2": 0}}', 422),
        (b'{"backlog_mb": {}, "connections": {"r2": 1.5}}', 422),
        (b'{"backlog_mb": {}, "connections": {"r2": 1e99}}', 422),
        (b'{"backlog_mb": {"r2": 1, "r2": 2}}', 400),
    ],
)
def test_garbage_is_counted_and_moves_nothing(ask, service, content, status):
    headers = {"Content-Type": "application/json"}
    answer = ask("h11", "PUT", "/v1/agents/h11/backlog", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert service.agents.troubles() == {AgentTrouble.MALFORMED.value: 1}
    assert service.agents.agents() == []


def test_unknown_racks_and_floods(ask, service):
    path = "/v1/agents/h11/backlog"
    assert ask("h11", "PUT", path, json={"backlog_mb": {"r9": 5}}).status_code == 422
    strange = {"backlog_mb": {}, "connections": {"r9": 5}}
    assert ask("h11", "PUT", path, json=strange).status_code == 422
    assert ask("h11", "PUT", path, json=REPORT).status_code == 200
    refused = ask("h11", "PUT", path, json=REPORT)
    assert refused.status_code == 429
    assert "h11 reports less than" in refused.json()["detail"]
    assert service.agents.troubles() == {
        AgentTrouble.UNKNOWN_RACK.value: 2,
        AgentTrouble.TOO_OFTEN.value: 1,
    }


def test_an_operator_may_stand_in_for_an_agent(ask):
    assert ask("olaf", "PUT", "/v1/agents/h12/backlog", json=REPORT).status_code == 200
    assert ask("olaf", "PUT", "/v1/agents/h99/backlog", json=REPORT).status_code == 404
    assert ask("vera", "PUT", "/v1/agents/h12/backlog", json=REPORT).status_code == 403


def test_reports_do_not_fill_the_audit_log(ask, audit_file):
    ask("h11", "PUT", "/v1/agents/h11/backlog", json=REPORT)
    assert audit_file.read_text() == ""
    ask("h11", "POST", "/v1/reconfigurations", json={})
    (line,) = audit_file.read_text().splitlines()
    assert json.loads(line)["status"] == 403


def join(service):
    """Join r1 and r2 by circuits, like the controller."""
    path = relay_path()
    service.network = NetworkState(
        1, Topology(frozenset(path.circuits), (path,)), {path: VlanId(100)}
    )
    service.agents.circuits_may_have_changed()


def test_circuits_are_told_at_once_and_then_whenever_they_change(
    server, tokens, service, monkeypatch
):
    monkeypatch.setattr(agents, "_LOOK_UP_S", PATIENCE_S)
    with Connection(server.url, tokens["h11"]) as connection:
        told = connection.follow((), Place(), "/v1/agents/h11/circuits")
        assert next(told) == ("circuits", {"optical": []})
        began_s = time.monotonic()
        join(service)
        assert next(told) == ("circuits", {"optical": ["r2"]})
        assert time.monotonic() - began_s < HANGS_S, "pushed, not found by a look now and then"


def test_a_server_follows_its_circuits_a_few_times(server, tokens):
    with ExitStack() as stack:

        def follow(name):
            connection = stack.enter_context(Connection(server.url, tokens[name]))
            return connection.follow((), Place(), f"/v1/agents/{name}/circuits")

        some = [follow("h11") for _ in range(4)]
        assert [next(one)[0] for one in some] == ["circuits"] * 4
        with pytest.raises(Refusal, match="h11 follows its circuits 4 times already"):
            next(follow("h11"))
        assert next(follow("h21"))[0] == "circuits"


def test_circuits_of_a_server_that_there_is_not(ask):
    assert ask("olaf", "GET", "/v1/agents/h99/circuits").status_code == 404


def test_a_server_that_stops_does_not_wait_for_who_follows(server, tokens, caplog):
    with Connection(server.url, tokens["h11"]) as connection:
        told = connection.follow((), Place(), "/v1/agents/h11/circuits")
        next(told)
        server.stop()
        assert next(told, None) is None
    assert caplog.text == "", "uvicorn says so if it has to cancel what does not end"
