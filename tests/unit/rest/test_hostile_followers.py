"""Followers of events: revoked tokens, too many seats, and sudden disconnects."""

import logging
import socket
import time

import pytest

from apps.rest import server as rest_server
from apps.rest.app import create_app
from apps.rest.resources import events as events_route
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, write_tokens
from hydra.access import Role, make_token
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S, wait_until

from .test_events import Follower, act


@pytest.fixture
def tokens(tmp_path):
    """Writes the token file: a role for each name."""

    def write(**roles: Role) -> dict[str, str]:
        made = {name: make_token(name, role, name * 9, 0.0) for name, role in roles.items()}
        write_tokens(tmp_path / "tokens.json", [stored for _, stored in made.values()])
        return {name: f"Bearer {token}" for name, (token, _) in made.items()}

    return write


@pytest.fixture
def guarded(service, tokens, tmp_path):
    tokens(olaf=Role.OPERATOR, vera=Role.VIEWER)
    server = RestServer(create_app(service, TokenFile(tmp_path / "tokens.json")), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    "after", [{}, {"vera": Role.TENANT}, {"vera": Role.AGENT}], ids=["revoked", "tenant", "agent"]
)
def test_a_stream_ends_with_the_right_to_it(service, guarded, tokens, after):
    headers = {"Authorization": tokens(olaf=Role.OPERATOR, vera=Role.VIEWER)["vera"]}
    with plain_http.client(base_url=guarded.url, timeout=PATIENCE_S) as client:
        follower = Follower(client, headers={**headers, "Last-Event-ID": "run-0"})
        act(service)
        follower.first(1)
        tokens(olaf=Role.OPERATOR, **after)
        act(service, 10)
        follower.join()
    assert len(follower.events) == 1


def test_a_stream_that_may_go_on_does(service, guarded, tokens):
    headers = {"Authorization": tokens(olaf=Role.OPERATOR, vera=Role.VIEWER)["vera"]}
    with plain_http.client(base_url=guarded.url, timeout=PATIENCE_S) as client:
        follower = Follower(client, headers={**headers, "Last-Event-ID": "run-0"})
        tokens(olaf=Role.OPERATOR, vera=Role.VIEWER, new=Role.TENANT)
        act(service, 3)
        follower.first(3)
        guarded.stop()
        follower.join()


def test_one_caller_does_not_take_all_seats(guarded, tokens, monkeypatch):
    monkeypatch.setattr(events_route, "MOST_PER_CALLER", 2)
    made = tokens(olaf=Role.OPERATOR, vera=Role.VIEWER)
    with plain_http.client(base_url=guarded.url, timeout=PATIENCE_S) as client:
        held = [Follower(client, headers={"Authorization": made["vera"]}) for _ in range(2)]
        refused = client.get("/v1/events", headers={"Authorization": made["vera"]})
        assert (refused.status_code, refused.json()["type"]) == (
            503,
            "/problems/too-many-subscribers",
        )
        assert int(refused.headers["retry-after"]) > 0
        held.append(Follower(client, headers={"Authorization": made["olaf"]}))
        guarded.stop()
        for follower in held:
            follower.join()


@pytest.fixture
def narrow(service, monkeypatch):
    """A server whose kernel buffers little for its connections."""
    listen = rest_server._listen

    def narrowly(*arguments):
        listener = listen(*arguments)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(rest_server, "_listen", narrowly)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


def test_who_leaves_with_unread_events_is_one_line_at_debug(service, narrow, caplog):
    caplog.set_level(logging.DEBUG, "hydra.rest")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", narrow.port))
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in connection.recv(1000)
        for _ in range(150):
            act(service, 20)
            time.sleep(0.02)  # timed: a stream that goes on for three seconds
    act(service, 50)
    wait_until(lambda: "a client left" in caplog.text)
    said = [one for one in caplog.records if "a client left" in one.msg]
    assert [(one.levelno, one.exc_info) for one in said] == [(logging.DEBUG, None)]
    assert all(one.levelno < logging.WARNING for one in caplog.records)
