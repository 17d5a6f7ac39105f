"""The thread that decrypts TLS connections: all bytes, both ways, until either side ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress

import pytest

from apps.openflow.interface import OpenFlowTls
from apps.openflow.tls import TlsThread
from mininet_scenarios.emulators.shared_tls import SharedTls
from tests.waiting import PATIENCE_S, remains, wait_until

from .test_framework import make_authority, switch_context

MANY = bytes(range(256)) * 40_000
"""More bytes than sockets and TLS can buffer."""


class Pair:
    """A switch on TLS, and the plain connection made for it."""

    def __init__(self, thread: TlsThread, trust: ssl.SSLContext) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            outside = socket.create_connection(server.getsockname(), timeout=PATIENCE_S)
            self.inside, _ = server.accept()
        self._plain: Future[socket.socket] = Future()
        self._leave = threading.Event()
        self.over = threading.Thread(target=asyncio.run, args=(self._carry(thread),))
        self.over.start()
        on_tls = trust.wrap_socket(outside, server_hostname="127.0.0.1")
        self.switch = SharedTls(on_tls, PATIENCE_S)
        self.plain = self._plain.result(PATIENCE_S)
        self.plain.settimeout(PATIENCE_S)

    async def _carry(self, thread: TlsThread) -> None:
        with self.inside:
            async with thread.inside(self.inside) as plain:
                self._plain.set_result(plain)
                await asyncio.to_thread(self._leave.wait)

    def end(self) -> None:
        """Leave the connection, which closes the plain one."""
        self._leave.set()

    def close(self) -> None:
        self.end()
        self.switch.close()
        self.over.join(PATIENCE_S)
        assert not self.over.is_alive()


@pytest.fixture(scope="module")
def trusted(tmp_path_factory) -> tuple[TlsThread, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder)
    trust = switch_context(folder)
    names = ("controller.pem", "controller.key", "ca.pem")
    return TlsThread(OpenFlowTls(*(str(folder / name) for name in names))), trust


@pytest.fixture
def pair(trusted) -> Iterator[Pair]:
    made = Pair(*trusted)
    yield made
    made.close()


def stands(sent: list[int]) -> bool:
    count = len(sent)
    return remains(lambda: len(sent) == count, 0.5)


def received(connection: socket.socket | SharedTls, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (some := connection.recv(65536)):
        data += some
    return bytes(data)


def test_all_bytes_come_through_both_ways_at_once(pair):
    said: list[bytes] = []
    threads = [
        threading.Thread(target=pair.plain.sendall, args=(MANY,)),
        threading.Thread(target=pair.switch.sendall, args=(MANY,)),
        threading.Thread(target=lambda: said.append(received(pair.plain, len(MANY)))),
    ]
    for thread in threads:
        thread.start()
    assert received(pair.switch, len(MANY)) == MANY
    for thread in threads:
        thread.join()
    assert said == [MANY]


def test_what_nobody_reads_stays_with_who_sends_it(pair):
    sent = []

    def send() -> None:
        with suppress(OSError):
            while True:
                sent.append(pair.switch.send(MANY[:65536]))

    sending = threading.Thread(target=send)
    sending.start()
    wait_until(lambda: sent)
    while not stands(sent):
        assert sum(sent) < 32 << 20
    pair.switch.shutdown(socket.SHUT_RDWR)
    sending.join()


def test_a_switch_that_leaves_ends_the_plain_connection(pair):
    pair.switch.sendall(b"last")
    pair.switch.close()
    assert received(pair.plain, 100) == b"last"


def test_a_connection_that_is_shut_down_ends_the_plain_one(pair):
    pair.inside.shutdown(socket.SHUT_RDWR)
    assert received(pair.plain, 100) == b""


def test_what_was_sent_before_the_end_reaches_the_switch(pair):
    sending = threading.Thread(target=lambda: (pair.plain.sendall(MANY), pair.end()))
    sending.start()
    assert received(pair.switch, len(MANY) + 1) == MANY, "and then it is told the end"
    sending.join()
