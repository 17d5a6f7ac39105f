"""A session with a server that is played byte by byte; real ones are in the integration tests."""

import json
import socket
import threading
from contextlib import contextmanager

import pytest

from drivers.transports.ovsdb_session import Call, OvsdbSession, SessionLostError

WATCHED = {"Open_vSwitch": ("next_cfg", "cur_cfg")}
ROOT = "6d3b8e2a-0000-0000-0000-000000000001"
GONE = "6d3b8e2a-0000-0000-0000-000000000002"


def said(rows, method=None):
    told = {"Open_vSwitch": rows}
    if method is None:
        return {"id": 1, "error": None, "result": told}
    return {"id": None, "method": method, "params": [None, told]}


@contextmanager
def server(tmp_path, *messages):
    """Answers the first that comes with all of these in one piece, and sends nothing more."""
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
        thread.join(10)


def test_what_changes_right_behind_the_first_answer_is_not_lost(tmp_path):
    first = {ROOT: {"new": {"next_cfg": 7, "cur_cfg": 6}}, GONE: {"new": {"next_cfg": 0}}}
    then = {ROOT: {"new": {"next_cfg": 7, "cur_cfg": 7}}, GONE: {"old": {"next_cfg": 0}}}
    with server(tmp_path, said(first), said(then, "update")) as address:
        session = OvsdbSession(address, WATCHED)
        with Call(10) as call:
            session.connect(call)
        assert session.rows["Open_vSwitch"] == {ROOT: {"next_cfg": 7, "cur_cfg": 7}}
        session.close()


@pytest.mark.parametrize("answer", [{"result": []}, {"result": {"Bridge": {}}}, {"result": None}])
def test_an_answer_without_sense_ends_the_session(tmp_path, answer):
    with server(tmp_path, {"id": 1, "error": None, **answer}) as address:
        session = OvsdbSession(address, WATCHED)
        with Call(10) as call, pytest.raises(SessionLostError, match="does not speak OVSDB"):
            session.connect(call)
        session.close()


@pytest.mark.parametrize("path", ["/nowhere/db.sock", "/" + "x" * 200])
def test_an_address_where_nobody_can_be_is_a_lost_session(path):
    session = OvsdbSession(f"unix:{path}", WATCHED)
    with Call(10) as call, pytest.raises(SessionLostError):
        session.connect(call)
    session.close()
