"""Errors of etcd's members and of proxies, by the possible outcome."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from apps.etcd.gateway import Etcd, EtcdRefused, EtcdUnanswered
from hydra.settings import EtcdSettings
from tests.waiting import PATIENCE_S


def of_3_4(code, words):
    """In the format of etcd 3.4."""
    return json.dumps({"error": words, "message": words, "code": code})


def of_3_5(code, words):
    """In the format of etcd 3.5 and 3.7: without a member ``error``."""
    return json.dumps({"code": code, "message": words, "details": []})


WRITES = [pytest.param(of_3_4, id="3.4"), pytest.param(of_3_5, id="3.5 and 3.7")]


class Member(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.text, self.takes_s = 200, "{}", 0.0


class Handler(BaseHTTPRequestHandler):
    server: Member

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.takes_s)
        body = self.server.text.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has timed out
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def member() -> Iterator[Member]:
    with Member() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def etcd(member):
    address = f"http://127.0.0.1:{member.server_address[1]}"
    one = Etcd(EtcdSettings((address,), "/test/"), try_s=60.0)
    yield one
    one.close()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (504, 4, "etcdserver: request timed out"),
        (504, 4, "context deadline exceeded"),
        (503, 14, "etcdserver: leader changed"),
        (503, 14, "etcdserver: no leader"),
        (408, 1, "context canceled"),
        (499, 1, "context canceled"),
        (500, 2, "raft proposal dropped"),
        (500, 13, "internal"),
        (500, 15, "etcdserver: corrupt cluster"),
    ],
)
def test_what_may_have_been_done_is_not_refused(member, etcd, write, status, code, words):
    member.status, member.text = status, write(code, words)
    with pytest.raises(EtcdUnanswered):
        etcd.ask("/kv/txn", {}, patience_s=0.1)  # timed: the client retries until then


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (429, 8, "etcdserver: mvcc: database space exceeded"),
        (400, 3, "etcdserver: duplicate key given in txn request"),
        (400, 11, "etcdserver: mvcc: required revision has been compacted"),
        (403, 7, "etcdserver: permission denied"),
        (404, 5, "etcdserver: requested lease not found"),
        (412, 9, "etcdserver: authentication is not enabled"),
    ],
)
def test_what_etcd_has_not_done_is_told_in_its_words(member, etcd, write, status, code, words):
    member.status, member.text = status, write(code, words)
    with pytest.raises(EtcdRefused, match=f"refused: {words}"):
        etcd.ask("/kv/txn", {})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("text", ["<html>so it is</html>", "", '{"message": "so it is"}', "[1]"])
def test_the_answer_of_a_proxy_leaves_open_what_was_done(member, etcd, status, text):
    member.status, member.text = status, text
    with pytest.raises(EtcdUnanswered):
        etcd.ask("/kv/txn", {}, patience_s=0.1)  # timed: the client retries until then


def test_a_member_that_takes_longer_than_an_attempt_is_given_longer(member):
    member.takes_s, member.text = 0.5, '{"done": true}'
    address = f"http://127.0.0.1:{member.server_address[1]}"
    with contextlib.closing(Etcd(EtcdSettings((address,), "/test/"), try_s=0.1)) as etcd:
        assert etcd.ask("/kv/txn", {}, patience_s=PATIENCE_S) == {"done": True}
