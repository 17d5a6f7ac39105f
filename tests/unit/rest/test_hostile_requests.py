"""A short form of ``python -m benchmarks.fuzz_api --hostile``, without a network."""

from __future__ import annotations

import pytest

from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, write_tokens
from benchmarks._hostile import assault, operations
from hydra.access import Role, make_token
from mininet_scenarios import plain_http

NAMES = {Role.VIEWER: "vera", Role.TENANT: "tina", Role.AGENT: "h11"}


@pytest.fixture
def made(service, tmp_path):
    """A server with tokens."""
    tokens = {role: make_token(name, role, f"secret-{name}", 1.0) for role, name in NAMES.items()}
    write_tokens(tmp_path / "tokens.json", [stored for _, stored in tokens.values()])
    server = RestServer(create_app(service, TokenFile(tmp_path / "tokens.json")), "127.0.0.1", 0)
    server.start()
    yield server, {role: token for role, (token, _) in tokens.items()}
    server.stop()


def test_nothing_escapes(made, caplog):
    server, tokens = made
    document = plain_http.get(f"{server.url}/openapi.json").json()
    outcome = assault(server.port, operations(document), tokens, 500, 1)
    assert outcome.escapes == []
    assert outcome.unanswered_probes == 0
    assert outcome.requests.total() == 500
    assert {200, 400, 401, 403, 413, 422} <= set(outcome.statuses)
    assert "Traceback" not in caplog.text
