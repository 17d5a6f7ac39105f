"""Replies of a switch as received by the application, from plain sockets through the framework."""

from __future__ import annotations

import re
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from drivers.codecs.openflow.rules import NO_BUNDLES, TAKEN_OVER
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.emulators.stranger import Stranger
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.takes(15)

DEAF, OTHER, NOBODYS = 75, 76, 79
APP = """
import struct
import threading
from apps.openflow import framework

def barrier(xid):
    return struct.pack("!BBHI", 4, 20, 8, xid)

class Events:
    def knows(self, datapath):
        return datapath != NOBODYS

    def switch_connected(self, datapath, connection, ports):
        print("connected", flush=True)
        if datapath == DEAF:
            self.deaf = connection
        elif datapath == OTHER:
            threading.Timer(4, print, ["4 s later"], {"flush": True}).start()
            for _ in range(64):
                self.deaf.send(barrier(1) + bytes(1 << 20))
            connection.send(barrier(2))

    def port_changed(self, datapath, connection, port, *, deleted):
        print("port changed", flush=True)

    def barrier_replied(self, connection, xid):
        print("barrier", xid, flush=True)

    def role_replied(self, connection, xid, generation):
        print("role", xid, generation, flush=True)

    def role_taken(self, datapath, connection, generation):
        print("role taken", generation, flush=True)

    def error_replied(self, connection, xid, kind, error):
        print("error", xid, kind.name, error, flush=True)

    def __getattr__(self, name):
        return lambda *_args, **_more: None

class Application:
    openflow_address = ("127.0.0.1", PORT)
    openflow_tls = None
    openflow_connections = 10
    events = Events()

    def start(self):
        print("started", flush=True)

    def stop(self):
        pass

class App(framework.OpenFlowApp):
    def compose(self, post):
        return Application()
"""
ERROR, EXPERIMENTER, PORT_STATUS, MULTIPART_REPLY, BARRIER_REPLY, ROLE_REPLY = 1, 4, 12, 19, 21, 25
PORT = struct.pack("!Ixxxx6sxx16sIIIIIIII", 1, bytes(6), b"one", *(0,) * 8)


class Application:
    """A running application, and its lines about received messages."""

    def __init__(self, folder, stack):
        self._address = "127.0.0.1", free_port()
        app = folder / "app.py"
        app.write_text(
            APP.replace("PORT", str(self._address[1]))
            .replace("DEAF", str(DEAF))
            .replace("OTHER", str(OTHER))
            .replace("NOBODYS", str(NOBODYS))
        )
        command = [Path(sys.executable).with_name("ryu-manager"), app]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._process = stack.enter_context(process)
        self._stack = stack
        stack.callback(self._end)
        self.hears("started")

    def _end(self):
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0

    def connect(self, kind, datapath):
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                switch = kind(self._address, datapath)
            except ConnectionRefusedError:
                assert time.monotonic() < end_s
                time.sleep(0.05)
            else:
                self._stack.callback(switch.leave)
                self.hears("connected")
                return switch

    def hears(self, *lines):
        assert [self._process.stdout.readline().rstrip() for _ in lines] == list(lines)


@pytest.fixture
def application(tmp_path, ryu):
    with ExitStack() as stack:
        yield Application(tmp_path, stack)


def error(of_type, code):
    return struct.pack("!HH", of_type, code) + b"what it is about"


def test_each_is_told_as_it_came(application):
    switch = application.connect(Stranger, 77)
    switch.say(ERROR, 5, error(4, 2))
    switch.say(ERROR, 6, error(11, 0))
    switch.say(ERROR, 7, error(1, 10))
    switch.say(ERROR, 8, error(1, 3))
    switch.say(EXPERIMENTER, 8, struct.pack("!IIIHH", 0x4F4E4600, 2300, 1, 5, 0))
    for role, reason in ((3, 1), (2, 0), (3, 0)):  # the last of these comes from another switch
        status = struct.pack("!IIIBxxxQ", 0x4F4E4600, 1911, role, reason, 2**41)
        switch.say(EXPERIMENTER, 0, status)
    switch.say(EXPERIMENTER, 0, status[:-1])
    switch.say(ROLE_REPLY, 9, struct.pack("!I4xQ", 2, 2**40))
    switch.say(BARRIER_REPLY, 10, b"")
    application.hears(
        "error 5 REFUSED refused, OpenFlow error type 4, code 2",
        f"error 6 TAKEN_OVER {TAKEN_OVER}",
        f"error 7 TAKEN_OVER {TAKEN_OVER}",
        f"error 8 NO_BUNDLES {NO_BUNDLES}",
        f"role taken {2**41}",
        f"role 9 {2**40}",
        "barrier 10",
    )
    warnings = re.findall(r"WARNING|a message of type \d+ .*", application.log.read_text())
    assert warnings == ["a message of type 4 is not handled"], "the last role status is cut off"


def test_of_a_stranger_nothing_is_told_but_that_it_came(application):
    stranger = application.connect(Stranger, NOBODYS)
    for xid in range(50):
        stranger.say(PORT_STATUS, xid, struct.pack("!B7x", 2) + PORT)
        stranger.say(BARRIER_REPLY, xid, b"")
    switch = application.connect(Stranger, 77)
    switch.say(BARRIER_REPLY, 3, b"")
    application.hears("barrier 3")


def test_all_is_told_in_the_order_in_which_it_came(application):
    switch = application.connect(Stranger, 77)
    port = struct.pack("!B7x", 2) + PORT
    together = [
        struct.pack("!BBHI", 4, kind, 8 + len(body), 5) + body
        for kind, body in ((PORT_STATUS, port), (ERROR, error(4, 2)), (BARRIER_REPLY, b""))
    ]
    switch.send(b"".join(together))
    application.hears(
        "port changed", "error 5 REFUSED refused, OpenFlow error type 4, code 2", "barrier 5"
    )


class Deaf(Stranger):
    """A switch that reads nothing after the handshake."""

    leaves = threading.Event()

    def say(self, kind, xid, body):
        super().say(kind, xid, body)
        if kind == MULTIPART_REPLY:
            self.leaves.wait()
            raise ConnectionAbortedError  # the switch got bytes that are no OpenFlow

    def leave(self):
        self.leaves.set()
        super().leave()


def test_one_that_reads_nothing_keeps_no_other_waiting(application):
    application.connect(Deaf, DEAF)
    application.connect(Stranger, OTHER)  # both get a message
    application.hears("barrier 2", "4 s later")  # Ryu gives a switch that reads nothing 5 s
