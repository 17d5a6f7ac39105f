"""Connections to REST without requests: they end in time, and leave room for others."""

import contextlib
import logging
import resource
import socket
import time

import httpx
import pytest

from apps.process import admitted_connections
from apps.process.admitted_connections import Door, Sparing, reserve_descriptors
from apps.rest import server as rest_server
from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.trust import Tls
from hydra.errors import HydraError
from tests.waiting import PATIENCE_S, wait_until

HEAD = b"POST /v1/reservations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture
def start(service):
    with contextlib.ExitStack() as running:

        def start_it(**settings) -> RestServer:
            server = RestServer(create_app(service), "127.0.0.1", 0, **settings)
            server.start()
            running.callback(server.stop)
            return server

        yield start_it


def connect(server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)


def answers(server) -> bool:
    with httpx.Client(
        base_url=server.url,
        timeout=PATIENCE_S,
        trust_env=False,
        verify=False,  # noqa: S501
    ) as client:
        try:
            return client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False


def ends(connection) -> None:
    """Waits until the other side closes; raises TimeoutError otherwise."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea",
        HEAD + b"Content-Length: 10\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"GET /v1/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "a second half head", "half a body", "half a chunk", "unread"],
)
def test_what_does_not_come_is_not_waited_for(start, monkeypatch, said):
    monkeypatch.setattr(rest_server, "_HEAD_S", 0.5)
    monkeypatch.setattr(rest_server, "_BODY_S", 0.5)
    server = start()
    with connect(server) as connection:
        connection.sendall(said)
        ends(connection)


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("pieces", "statuses"),
    [
        (
            [HEAD + CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"],
            [400],
        ),
        ([HEAD + CHUNKED + b"\r\n", b"-1\r\n"], [400]),
        ([b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + CHUNKED + b"\r\n", b"-1\r\n"], [200]),
    ],
    ids=["two lengths", "no chunk", "no chunk after the answer"],
)
def test_wrong_framing_is_answered_once_and_ends(start, caplog, pieces, statuses):
    server = start()
    said = b""
    with connect(server) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.3)  # timed: pieces that come one by one
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(65536):
                said += more
    assert [int(one[:3]) for one in said.split(b"HTTP/1.1 ")[1:]] == statuses
    assert not [record for record in caplog.records if record.exc_info]


def test_a_request_may_come_slowly(start, monkeypatch):
    monkeypatch.setattr(rest_server, "_HEAD_S", PATIENCE_S)
    server = start()
    with connect(server) as connection:
        for piece in (b"GET /healthz ", b"HTTP/1.1\r\n", b"Host: 127.0.0.1\r\n\r\n"):
            connection.sendall(piece)
            time.sleep(0.3)  # timed: pieces that come one by one
        assert connection.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("encrypted", [False, True])
def test_connections_are_counted_in_all(start, request, encrypted):
    tls = Tls(*request.getfixturevalue("certificate")) if encrypted else None
    server = start(tls=tls, connections=5, connections_per_address=100)
    with contextlib.ExitStack() as silent:
        for _ in range(5):
            silent.enter_context(connect(server))
        assert not answers(server)
    wait_until(lambda: answers(server))


def test_one_address_does_not_take_all():
    door = Door("REST", 4, 2, "controller.connections")
    assert [door.enter("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert door.enter("192.0.2.2")
    door.leave("192.0.2.1")
    assert door.enter("::ffff:192.0.2.1")
    assert door.enter("2001:db8::1")
    assert not door.enter("2001:db8:1::1"), "four are in"
    door.leave("192.0.2.2")
    assert door.enter("2001:db8::2%eth0")
    door.leave("192.0.2.1")
    assert not door.enter("2001:db8::3"), "the third of a network"


def test_the_server_outlives_its_descriptors(start, caplog):
    server = start()
    assert answers(server)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as silent:
        held = [silent.enter_context(connect(server)) for _ in range(5)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(one.fileno() for one in held), hard))
        try:
            waiting = socket.socket(fileno=held.pop().detach())  # its number is within the limit
            silent.enter_context(waiting)
            time.sleep(2.5)  # timed: the client retries meanwhile
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: answers(server))
    assert len(caplog.records) < 10


def test_descriptors_are_reserved_or_refused(monkeypatch):
    limits = [(1024, 4096)]
    monkeypatch.setattr(admitted_connections.resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(
        admitted_connections.resource, "setrlimit", lambda _, pair: limits.append(pair)
    )
    reserve_descriptors(1000, "for nothing")
    assert limits == [(1024, 4096)]
    reserve_descriptors(3000, "for nothing")
    assert limits[-1] == (3000, 4096)
    with pytest.raises(HydraError, match=r"5000 descriptors are needed \(for 9 switches\).*4096"):
        reserve_descriptors(5000, "for 9 switches")


def test_a_cause_is_one_line_a_minute():
    now_s = [0.0]
    sparing = Sparing(clock_s=lambda: now_s[0])

    def passes(message: str) -> bool:
        return sparing.filter(logging.makeLogRecord({"msg": message, "args": (now_s,)}))

    assert [passes("a"), passes("a"), passes("b"), passes("a")] == [True, False, True, False]
    now_s[0] = 61.0
    assert passes("a")


def test_bad_requests_do_not_fill_the_log(start, caplog):
    server = start()
    for _ in range(50):
        with connect(server) as connection:
            connection.sendall(b"garbage\r\n\r\n")
            ends(connection)
    assert len(caplog.records) <= 1
