"""A session with a server played byte by byte; the integration tests have real servers."""

import json
import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from drivers.transports import ovsdb_session
from drivers.transports.ovsdb_session import _TURNS, Call, OvsdbSession, SessionLostError
from tests.waiting import PATIENCE_S, SHORT_S

WATCHED = {"Open_vSwitch": ("next_cfg", "cur_cfg")}
ROOT = "6d3b8e2a-0000-0000-0000-000000000001"
TURNS = _TURNS._initial_value
GONE = "6d3b8e2a-0000-0000-0000-000000000002"


def said(rows, method=None):
    told = {"Open_vSwitch": rows}
    if method is None:
        return {"id": 1, "error": None, "result": told}
    return {"id": None, "method": method, "params": [None, told]}


@contextmanager
def server(tmp_path, *messages):
    """Answers the first request with all of these in a single packet, and sends nothing more."""
    path = tmp_path / "db.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"".join(json.dumps(one).encode() for one in messages))
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"unix:{path}"
        thread.join(PATIENCE_S)


def test_what_changes_right_behind_the_first_answer_is_not_lost(tmp_path):
    first = {ROOT: {"new": {"next_cfg": 7, "cur_cfg": 6}}, GONE: {"new": {"next_cfg": 0}}}
    then = {ROOT: {"new": {"next_cfg": 7, "cur_cfg": 7}}, GONE: {"old": {"next_cfg": 0}}}
    with server(tmp_path, said(first), said(then, "update")) as address:
        session = OvsdbSession(address, WATCHED)
        with Call(PATIENCE_S) as call:
            session.connect(call)
        assert session.rows["Open_vSwitch"] == {ROOT: {"next_cfg": 7, "cur_cfg": 7}}
        session.close()


@pytest.mark.parametrize("answer", [{"result": []}, {"result": {"Bridge": {}}}, {"result": None}])
def test_an_answer_without_sense_ends_the_session(tmp_path, answer):
    with server(tmp_path, {"id": 1, "error": None, **answer}) as address:
        session = OvsdbSession(address, WATCHED)
        with (
            Call(PATIENCE_S) as call,
            pytest.raises(SessionLostError, match="does not speak OVSDB"),
        ):
            session.connect(call)
        session.close()


@pytest.mark.parametrize("results", [[], [{"rows": []}]])
def test_an_answer_with_fewer_results_than_operations_ends_the_session(monkeypatch, results):
    monkeypatch.setattr(OvsdbSession, "begin", lambda _session, _operations: 1)
    answer = {"error": None, "result": results}
    monkeypatch.setattr(OvsdbSession, "_answer", lambda _session, _number, _call: answer)
    with Call(PATIENCE_S) as call, pytest.raises(SessionLostError, match="2 operations have"):
        OvsdbSession("unix:/nowhere", WATCHED).transact([b"{}", b"{}"], call)


@pytest.mark.parametrize("path", ["/nowhere/db.sock", "/" + "x" * 200])
def test_an_address_where_nobody_can_be_is_a_lost_session(path):
    session = OvsdbSession(f"unix:{path}", WATCHED)
    with Call(PATIENCE_S) as call, pytest.raises(SessionLostError):
        session.connect(call)
    session.close()


FOUND = {ROOT: {"new": {"next_cfg": 1, "cur_cfg": 1}}}


@contextmanager
def at_port(answers):
    """Yields a server's port on 127.0.0.1; without ``answers`` it accepts no connection."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(json.dumps(said(FOUND)).encode())
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        if answers:
            thread.start()
        yield listener.getsockname()[1]
        if answers:
            thread.join(PATIENCE_S)


@pytest.fixture
def resolves(monkeypatch):
    """``resolves(address, …)`` has the resolver find these for the name tor1.lab."""
    real = socket.getaddrinfo

    def given(*addresses, before=lambda: None):
        def found(host, *rest, **named):
            if host != "tor1.lab":
                return real(host, *rest, **named)
            before()
            if not addresses:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return [one for address in addresses for one in real(address, *rest, **named)]

        monkeypatch.setattr(socket, "getaddrinfo", found)

    return given


@pytest.mark.parametrize("first", ["::1", "127.0.0.2"])
def test_each_address_of_a_name_is_tried(resolves, first):
    resolves(first, "127.0.0.1")
    with at_port(answers=True) as port:
        session = OvsdbSession(f"tcp:tor1.lab:{port}", WATCHED)
        with Call(PATIENCE_S) as call:
            session.connect(call)
        assert session.rows["Open_vSwitch"] == {ROOT: {"next_cfg": 1, "cur_cfg": 1}}
        session.close()


def test_an_address_that_is_silent_has_its_share_of_the_time(resolves):
    """An address of 192.0.2.0/24, unassigned (RFC 5737): refused at once without a route."""
    resolves("192.0.2.1", "127.0.0.1")
    with at_port(answers=True) as port:
        session = OvsdbSession(f"tcp:tor1.lab:{port}", WATCHED)
        with Call(2 * SHORT_S) as call:  # timed: the call waits for half of the time-out
            session.connect(call)
        session.close()


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [((), "Temporary failure"), (("127.0.0.2", "127.0.0.3"), "Connection refused")],
)
def test_a_name_that_leads_nowhere_is_a_lost_session(resolves, addresses, reason):
    resolves(*addresses)
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        session = OvsdbSession(f"tcp:tor1.lab:{taken.getsockname()[1]}", WATCHED)
        with Call(PATIENCE_S) as call, pytest.raises(SessionLostError, match=reason):
            session.connect(call)
        session.close()


def test_others_have_their_turn_while_a_name_is_looked_up(resolves, monkeypatch):
    """Name resolution counts: a resolver slower than a call may be ends the call."""
    now_s = [0.0]
    monkeypatch.setattr(ovsdb_session, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    looking, answers = threading.Barrier(TURNS + 1), threading.Event()
    lost = []

    def look_up():
        looking.wait(PATIENCE_S)
        assert answers.wait(PATIENCE_S)

    def connect():
        session = OvsdbSession("tcp:tor1.lab:9", WATCHED)
        with (
            Call(PATIENCE_S) as call,
            pytest.raises(SessionLostError, match="no answer in time") as told,
        ):
            session.connect(call)
        lost.append(told)

    resolves("127.0.0.1", before=look_up)
    threads = [threading.Thread(target=connect) for _ in range(TURNS)]
    for thread in threads:
        thread.start()
    looking.wait(PATIENCE_S)
    with Call(PATIENCE_S):
        now_s[0] += 2 * PATIENCE_S
    answers.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(lost) == TURNS
