"""The TCP line transport with a peer that misbehaves on purpose."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time

import pytest

from drivers.codecs import scpi
from drivers.transports.lines import LineTransport
from drivers.transports.tcp import TcpStream, parse_endpoint
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from tests.waiting import HANGS_S, PATIENCE_S


class Peer:
    """Answers each line with the next scripted reply; None closes, a list is sent in pieces."""

    def __init__(self, *replies: bytes | list[bytes] | None) -> None:
        self._replies = list(replies)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.received: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._replies:
            connection, _ = self._listener.accept()
            self.connections += 1
            with connection, connection.makefile("rb") as lines:
                while self._replies and (line := lines.readline()):
                    self.received.append(line)
                    reply = self._replies.pop(0)
                    if reply is None:
                        break
                    for piece in reply if isinstance(reply, list) else [reply]:
                        try:
                            connection.sendall(piece)
                        except ConnectionError:
                            break
                        if isinstance(reply, list):
                            time.sleep(0.05)  # timed: the late reply arrives meanwhile
                else:
                    with contextlib.suppress(ConnectionError):
                        lines.readline()  # keep the last reply's connection until the client leaves

    def stop(self) -> None:
        self._thread.join(PATIENCE_S)
        self._listener.close()
        assert not self._thread.is_alive(), "not all scripted replies were used"


def transport(address: str, timeout_s: float = PATIENCE_S) -> LineTransport:
    return LineTransport(
        "p1",
        TcpStream("p1", address),
        decoder=scpi.ReplyDecoder,
        decode_error=scpi.ScpiError,
        timeout_s=timeout_s,
    )


@pytest.fixture
def closed_address():
    with socket.socket() as closed:  # no other process gets the port, and no process listens there
        closed.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{closed.getsockname()[1]}"


def test_a_refused_connection_is_unavailable_and_says_where(closed_address):
    with pytest.raises(
        DeviceUnavailable, match=f"p1: can't connect to {closed_address}: .*refused"
    ):
        transport(closed_address).write(b"x\r\n")


@pytest.fixture
def silent(monkeypatch):
    """``silent(address)`` resolves the name ocs.lab to a silent address, then to this address."""
    real, opened = socket.getaddrinfo, contextlib.ExitStack()

    def first(address: str) -> str:
        port = int(address.rpartition(":")[2])
        crowded = opened.enter_context(socket.socket())
        crowded.bind(("127.0.0.2", port))
        crowded.listen(0)
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))

        def found(host, *rest, **named):
            hosts = ("127.0.0.2", "127.0.0.1") if host == "ocs.lab" else (host,)
            return [one for each in hosts for one in real(each, *rest, **named)]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        return f"ocs.lab:{port}"

    with opened:
        yield first


def test_an_address_that_is_silent_has_its_share_of_the_time(silent):
    peer = Peer(b"1\r")
    line = transport(silent(peer.address), 2.0)
    assert line.query(b"*opc?\r\n") == "1"
    line.close()
    peer.stop()


def test_an_address_of_a_kind_that_this_machine_has_not_is_passed_over(monkeypatch):
    """A name has an IPv6 address, and the kernel was started with ``ipv6.disable=1``."""
    real, peer = socket.socket, Peer(b"1\r")
    port = int(peer.address.rpartition(":")[2])

    def made(family=socket.AF_INET, *rest, **named):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return real(family, *rest, **named)

    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("::1", port, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_asked, **_named: found)
    monkeypatch.setattr(socket, "socket", made)
    line = transport(f"ocs.lab:{port}", 2.0)
    assert line.query(b"*opc?\r\n") == "1"
    line.close()
    peer.stop()


def test_a_name_without_an_address_that_answers_is_unavailable(silent, closed_address):
    with pytest.raises(DeviceUnavailable, match=r"ocs\.lab.*refused"):
        transport(silent(closed_address), 2.0).query(b"*opc?\r\n")


def test_a_reply_in_pieces():
    peer = Peer([b"16,", b"1", b"6\r"])
    line = transport(peer.address)
    assert line.query(b"size?\r\n") == "16,16"
    line.close()
    peer.stop()


def test_the_time_out_covers_the_whole_reply_however_it_drips():
    peer = Peer([b"1"] * 2400)
    started = time.monotonic()
    with pytest.raises(DeviceUnavailable, match=r"no answer within 0\.2 s"):
        transport(peer.address, 0.2).query(b"size?\r\n")
    assert time.monotonic() - started < HANGS_S, "the reply takes 120 s"
    peer.stop()


@pytest.mark.parametrize("reply", [None, b"\x80\r"])
def test_a_lost_or_broken_reply_to_a_write_leaves_the_outcome_unknown(reply):
    peer = Peer(reply, b"1\r")
    line = transport(peer.address)
    with pytest.raises(OutcomeUnknown, match="read the device back"):
        line.write(b"set\r\n")
    assert not line.connected
    assert line.query(b"again\r\n") == "1"  # on a new connection
    assert (peer.connections, peer.received) == (2, [b"set\r\n", b"again\r\n"])
    line.close()
    peer.stop()


def test_a_lost_reply_to_a_query_is_unavailable():
    peer = Peer(None)
    with pytest.raises(DeviceUnavailable, match="closed the connection"):
        transport(peer.address).query(b"get?\r\n")
    peer.stop()


def test_bytes_outside_the_grammar_are_a_protocol_error():
    peer = Peer(b"\xff\r")
    with pytest.raises(ProtocolError, match="0xff"):
        transport(peer.address).query(b"get?\r\n")
    peer.stop()


def test_a_silent_peer_costs_one_time_out():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = transport(f"127.0.0.1:{listener.getsockname()[1]}", 0.2)
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.2 s"):
            line.write(b"set\r\n")
        assert time.monotonic() - started < HANGS_S
        assert not line.connected


def test_a_late_reply_is_not_taken_for_the_next_one():
    peer = Peer(b"1\rlate\r", b"2\r")
    line = transport(peer.address)
    assert line.query(b"a\r\n") == "1"
    time.sleep(0.05)  # timed: the late reply arrives meanwhile
    assert line.query(b"b\r\n") == "2"
    assert peer.connections == 2
    line.close()
    peer.stop()


def test_a_line_feed_after_the_reply_is_no_reason_to_reconnect():
    peer = Peer(b"1\r\n", b"2\r\n")
    line = transport(peer.address)
    assert [line.query(b"a\r\n"), line.query(b"b\r\n")] == ["1", "2"]
    assert peer.connections == 1
    line.close()
    peer.stop()


def test_open_and_close_may_be_repeated():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = transport(f"127.0.0.1:{listener.getsockname()[1]}")
        for _ in range(2):
            line.open()
        assert line.connected
        for _ in range(2):
            line.close()
        assert not line.connected


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [("127.0.0.1:5025", ("127.0.0.1", 5025)), ("[::1]:5025", ("::1", 5025)), ("ocs:1", ("ocs", 1))],
)
def test_endpoints(address, endpoint):
    assert parse_endpoint("p1", address) == endpoint


@pytest.mark.parametrize(
    "address",
    ["", "host", ":5025", "host:", "host:x", "host:0", "host:65536", "10.0.0..7:5025",
     f"{'a' * 64}.lab:5025"],
)  # fmt: skip
def test_bad_endpoints_are_named(address):
    with pytest.raises(DeviceError, match=f"address '{address}'"):
        parse_endpoint("p1", address)
    with pytest.raises(DeviceError, match=f"p1: address '{address}'"):
        transport(address).open()
