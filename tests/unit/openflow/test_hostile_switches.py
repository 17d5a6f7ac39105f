"""Connections to the OpenFlow port from programs that are no switches: they end, and the port stays
open.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_scenarios.emulators.ports import free_port
from tests.waiting import PATIENCE_S, remains, wait_until

pytestmark = pytest.mark.takes(40)

APP = """
import resource
from apps.openflow import framework, limits

limits.HANDSHAKE_S = 3.0

class Events:
    def switch_refused(self, datapath, address, why):
        print("refused", datapath, address.rpartition(":")[0], why, flush=True)

    def knows(self, datapath):
        return datapath != 0xBAD

    def __getattr__(self, name):
        return lambda *_args, **_more: print(name, flush=True)

class Application:
    openflow_address = ("127.0.0.1", PORT)
    openflow_tls = None
    openflow_connections = MOST
    events = Events()

    def start(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
        print("started", flush=True)

    def stop(self):
        pass

class App(framework.OpenFlowApp):
    def compose(self, post):
        return Application()
"""
HELLO = struct.pack("!BBHI", 4, 0, 8, 1)
ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST = 2, 3, 5


@contextlib.contextmanager
def framework(folder: Path, most: int, descriptors: int) -> Iterator[tuple[int, subprocess.Popen]]:
    """The framework at work: its port and the process, which is killed if it has not ended."""
    port = free_port()
    text = APP.replace("PORT", str(port)).replace("MOST", str(most))
    app = folder / "app.py"
    app.write_text(text.replace("DESCRIPTORS", str(descriptors)))
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [Path(sys.executable).with_name("ryu-manager"), app],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert "started" in process.stdout.readline()
            yield port, process
        finally:
            process.kill()


@pytest.fixture
def listening(tmp_path, ryu):
    """Starts the framework; returns its port and the process."""
    with contextlib.ExitStack() as processes:
        yield lambda *limits: processes.enter_context(framework(tmp_path, *limits))


@pytest.fixture(scope="module")
def port(tmp_path_factory, ryu):
    """Port of a framework for many connections, one after the other."""
    with framework(tmp_path_factory.mktemp("shared"), 100, 1000) as (port, process):
        yield port
        end(process)


def connect(port: int) -> socket.socket:
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)


def greeted(port: int) -> bool:
    with connect(port) as connection:
        try:
            return connection.recv(8)[1:2] == b"\0"
        except ConnectionResetError:
            return False


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("most", "descriptors"), [(1000, 64), (20, 1000)], ids=["no descriptors left", "a full house"]
)
def test_silent_connections_do_not_end_it(listening, tmp_path, most, descriptors):
    port, process = listening(most, descriptors)
    assert greeted(port)
    with contextlib.ExitStack() as silent:
        for _ in range(200):
            silent.enter_context(connect(port))
        assert remains(lambda: process.poll() is None, 2)
    wait_until(lambda: greeted(port))
    end(process)
    assert len((tmp_path / "log").read_text().splitlines()) < 20


def test_who_does_not_become_a_switch_is_let_go(port):
    """Nothing, half a message, only hello, half of a large message."""
    said = [b"", HELLO[:3], HELLO, struct.pack("!BBHI", 4, 10, 65535, 1) + bytes(1000)]
    with contextlib.ExitStack() as connections:
        waiting = [connections.enter_context(connect(port)) for _ in said]
        for connection, words in zip(waiting, said, strict=True):
            connection.sendall(words)
        for connection in waiting:
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):  # raises TimeoutError after 20 s
                    pass


GARBAGE = {
    "wrong bodies": b"".join(struct.pack("!BBHI", 4, kind, 9, 1) + b"!" for kind in range(256)),
    "another version": struct.pack("!BBHI", 0x49, 0, 8, 1),
    "ports of nobody": b"".join(
        struct.pack("!BBHI", 4, kind, 8 + len(body), 1) + body
        for kind, body in ((19, struct.pack("!HH4x", 13, 0)), (3, b""), (12, bytes(72)))
    ),
    "errors about nothing": struct.pack("!BBHIHH", 4, 1, 12, 1, 1, 1),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_one_line_a_minute(listening, tmp_path, garbage):
    port, process = listening(100, 1000)
    with contextlib.ExitStack() as connections:
        talking = [connections.enter_context(connect(port)) for _ in range(3)]
        for connection in talking:
            with contextlib.suppress(ConnectionError):
                connection.sendall(HELLO)
                connection.sendall(garbage * 20)
        for connection in talking:
            with contextlib.suppress(ConnectionError):
                while connection.recv(4096):
                    connection.sendall(garbage)
    assert greeted(port)
    end(process)
    log = (tmp_path / "log").read_text()
    assert len(log) < 20_000
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("elements", "answered"),
    [
        (b"\0\1\0\0", False),
        (struct.pack("!HH8s4x", 7, 12, b"") + struct.pack("!HHI", 1, 8, 1 << 4), True),
    ],
    ids=["no length", "two, padded"],
)
def test_elements_of_a_greeting(port, elements, answered):
    with connect(port) as connection:
        connection.sendall(struct.pack("!BBHI", 4, 0, 8 + len(elements), 1) + elements)
        kinds = set()
        with contextlib.suppress(ConnectionError), connection.makefile("rb") as messages:
            while FEATURES_REQUEST not in kinds and (header := messages.read(8)):
                kinds.add(header[1])
                messages.read(int.from_bytes(header[2:4]) - 8)
    assert (FEATURES_REQUEST in kinds) == answered


def refused(process: subprocess.Popen) -> str:
    """The next line about a refused switch."""
    for line in process.stdout:
        if line.startswith("refused"):
            return line
    raise AssertionError("none is refused")


def bitmap(*versions: int) -> bytes:
    """The hello of a switch with its versions."""
    listed = struct.pack("!HHI", 1, 8, sum(1 << one for one in versions))
    return struct.pack("!BBHI", max(versions), 0, 16, 1) + listed


def test_a_switch_of_an_earlier_version_is_asked_for_its_name_and_refused(listening):
    port, process = listening(100, 1000)
    for greeting, version in (
        (struct.pack("!BBHI", 1, 0, 8, 1), 1),
        (struct.pack("!BBHI", 3, 0, 8, 1), 3),
        (bitmap(1, 2), 2),
        (bitmap(1, 5, 6), 1),
    ):
        with connect(port) as connection, connection.makefile("rb") as messages:
            connection.sendall(greeting)
            while (header := messages.read(8))[1] != FEATURES_REQUEST:
                messages.read(int.from_bytes(header[2:4]) - 8)
            assert header[0] == version
            reply = struct.pack("!BBHIQIB3xII", version, 6, 32, 0, 0x1234, 0, 1, 0, 0)
            connection.sendall(reply)
            line = refused(process)
            assert line.startswith(f"refused {0x1234} 127.0.0.1 the switch speaks OpenFlow 1.")
            assert "and not 1.3: set 1.3 on the bridge" in line
            assert "protocols=OpenFlow13" in line
            rest = messages.read()
            assert b"\x00\x00\x00\x00the switch speaks OpenFlow 1." in rest, "its log tells, too"
    end(process)


def test_a_switch_that_does_not_get_as_far_as_its_name_is_refused_by_its_address(listening):
    port, process = listening(100, 1000)
    with connect(port) as connection:
        connection.sendall(bitmap(6))
        assert refused(process).startswith(
            "refused None 127.0.0.1 the switch speaks OpenFlow 1.5, and not 1.3"
        )
    with connect(port) as connection:
        connection.sendall(struct.pack("!BBHI", 1, 0, 8, 1))
    assert refused(process).startswith("refused None 127.0.0.1 the switch speaks OpenFlow 1.0, and")
    end(process)


def test_a_later_version_that_lists_ours_is_let_in(port):
    with connect(port) as connection, connection.makefile("rb") as messages:
        connection.sendall(bitmap(1, 4, 6))
        while (header := messages.read(8))[1] != FEATURES_REQUEST:
            messages.read(int.from_bytes(header[2:4]) - 8)
        assert header[0] == 4


@pytest.mark.parametrize("size", [None, 60], ids=["a whole greeting", "a short one"])
def test_tls_on_the_port_without_is_named(listening, size):
    port, process = listening(100, 1000)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="c")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    with connect(port) as connection:
        connection.sendall(outgoing.read()[:size])
        assert refused(process).startswith(
            "refused None 127.0.0.1 the switch speaks TLS, and this port is for OpenFlow without"
        )
    end(process)


ZEROS = [
    struct.pack("!BBHI", version, kind, 72, 1) + bytes([0, part]) + bytes(62)
    for version in (4, 1, 3, 5, 6)
    for kind in range(36)
    for part in (range(16) if kind in (18, 19) else (0,))
]


def test_entries_without_a_length_are_not_read_for_ever(listening):
    port, process = listening(len(ZEROS) + 10, 1000)
    with contextlib.ExitStack() as connections:
        for message in ZEROS:
            connections.enter_context(connect(port)).sendall(HELLO + message)
        assert greeted(port)
    end(process)


PACKET_INS = {
    "cut off before its match": bytes(12),
    "with a match that is longer than it": bytes(18) + b"\xff\xff" + bytes(12),
    "without a frame": bytes(16) + struct.pack("!HH", 1, 4) + bytes(6),
    "with nothing": b"",
}


@pytest.mark.parametrize("body", PACKET_INS.values(), ids=PACKET_INS)
def test_a_packet_that_can_not_be_read_stops_no_answer_behind_it(port, body):
    features = struct.pack("!BBHIQIBBxxII", 4, 6, 32, 2, 7, 0, 254, 0, 0, 0)
    no_ports = struct.pack("!BBHIHH4x", 4, 19, 16, 3, 13, 0)
    packet_in = struct.pack("!BBHI", 4, 10, 8 + len(body), 4) + body
    with connect(port) as connection:
        connection.sendall(HELLO + features + no_ports + packet_in)
        connection.sendall(struct.pack("!BBHI", 4, ECHO_REQUEST, 8, 0xECC0))
        stream = connection.makefile("rb")
        while True:
            _, kind, length, xid = struct.unpack("!BBHI", stream.read(8))
            stream.read(length - 8)
            if (kind, xid) == (ECHO_REPLY, 0xECC0):
                return


def test_ports_are_counted(listening):
    port, process = listening(100, 1000)
    threading.Thread(target=process.stdout.read, daemon=True).start()
    with connect(port) as connection:
        features = struct.pack("!BBHIQIBBxxII", 4, 6, 32, 2, 7, 0, 254, 0, 0, 0)
        connection.sendall(HELLO + features + struct.pack("!BBHIHH4x", 4, 19, 16, 3, 13, 0))
        with contextlib.suppress(ConnectionError):
            for number in range(20_000):
                connection.sendall(struct.pack("!BBHIB7xI60x", 4, 12, 80, 4, 0, number))
        with contextlib.suppress(ConnectionError), connection.makefile("rb") as messages:
            while header := messages.read(8):
                body = messages.read(int.from_bytes(header[2:4]) - 8)
                if header[1] == ECHO_REQUEST:  # its silence is not the cause of the end
                    connection.sendall(header[:1] + bytes([ECHO_REPLY]) + header[2:] + body)
    end(process)


MANY = """
import asyncio
import time
from apps.openflow.listener import Listener
from apps.openflow.package import HOST
from apps.process.admitted_connections import Door

inside, most, done = set(), 0, 0

async def handshake(connection, peer):
    # The controller's part of one takes a few milliseconds of the processor.
    global most, done
    inside.add(peer)
    most = max(most, len(inside))
    for _ in range(3):
        until_s = time.thread_time() + 0.002
        while time.thread_time() < until_s:
            pass
        await asyncio.sleep(0)
    inside.discard(peer)
    listener.settle(peer)
    done += 1

async def all_are_done():
    while done < 400:
        await asyncio.sleep(0.05)

door = Door("OpenFlow", 1000, 1000, "")
listener = Listener(HOST.loop(), door, ("127.0.0.1", 0), handshake, print)
listener.start()
print(listener.server.getsockname()[1], flush=True)
HOST.wait_for(all_are_done())
print(most)
"""


def test_of_many_that_come_at_once_each_is_soon_done(tmp_path, package):
    app = tmp_path / "many.py"
    app.write_text(MANY)
    with contextlib.ExitStack() as opened:
        process = opened.enter_context(
            subprocess.Popen([sys.executable, app], stdout=subprocess.PIPE, text=True)
        )
        opened.callback(process.kill)
        port = int(process.stdout.readline())
        for _ in range(400):
            opened.enter_context(connect(port))
        assert int(process.stdout.readline()) <= 70


EVENTS = """
from apps.openflow import framework

class Application:
    openflow_address = ("127.0.0.1", 0)
    openflow_tls = events = None
    openflow_connections = 1000

class App(framework.OpenFlowApp):
    def compose(self, post):
        return Application()

app = App()
handled = []

def handle(number):
    if number == 0:
        app._send_event(1000, None)
    handled.append(number)

app.get_handlers = lambda _event, _state: [handle]
for number in range(1000):
    app._send_event(number, None)
print(handled == [0, 1000, *range(1, 1000)], len(app._due))
"""


def test_an_event_is_handled_before_the_next_message_is_read(tmp_path, package):
    app = tmp_path / "events.py"
    app.write_text(EVENTS)
    run = subprocess.run(
        [sys.executable, app], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.stdout == "True 0\n", run.stderr
