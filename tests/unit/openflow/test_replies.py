"""Replies of a switch as the application hears them, from plain sockets through the framework."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drivers.codecs.openflow.rules import NO_BUNDLES, TAKEN_OVER
from tests.unit.openflow.stranger import Stranger

APP = """
from apps.openflow import framework

class Events:
    def switch_connected(self, datapath, connection, ports):
        print("connected", flush=True)

    def port_changed(self, datapath, connection, port, *, deleted):
        framework.hub.sleep(1)
        print("port changed", flush=True)

    def barrier_replied(self, connection, xid):
        print("barrier", xid, flush=True)

    def role_replied(self, connection, xid, generation):
        print("role", xid, generation, flush=True)

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
ERROR, EXPERIMENTER, PORT_STATUS, BARRIER_REPLY, ROLE_REPLY = 1, 4, 12, 21, 25
PORT = struct.pack("!Ixxxx6sxx16sIIIIIIII", 1, bytes(6), b"one", *(0,) * 8)


@pytest.fixture
def heard(tmp_path):
    """Has a switch say something; returns the lines in which the application tells of it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1", free.getsockname()[1]
    app = tmp_path / "app.py"
    app.write_text(APP.replace("PORT", str(address[1])))
    command = [Path(sys.executable).with_name("ryu-manager"), app]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "started\n"
            switch = connected(address)
            assert process.stdout.readline() == "connected\n"

            def say(*messages, lines):
                for kind, xid, body in messages:
                    switch._say(kind, xid, body)
                return [process.stdout.readline().rstrip() for _ in range(lines)]

            yield say
            switch.leave()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def connected(address):
    end_s = time.monotonic() + 10
    while True:
        try:
            return Stranger(address, 77)
        except ConnectionRefusedError:
            assert time.monotonic() < end_s
            time.sleep(0.05)


def error(of_type, code):
    return struct.pack("!HH", of_type, code) + b"what it is about"


def test_each_is_told_as_it_came(heard):
    said = [
        (ERROR, 5, error(4, 2)),
        (ERROR, 6, error(11, 0)),
        (ERROR, 7, error(1, 10)),
        (ERROR, 8, error(1, 3)),
        (EXPERIMENTER, 8, struct.pack("!IIIHH", 0x4F4E4600, 2300, 1, 5, 0)),
        (ROLE_REPLY, 9, struct.pack("!I4xQ", 2, 2**40)),
        (BARRIER_REPLY, 10, b""),
    ]
    assert heard(*said, lines=6) == [
        "error 5 REFUSED OpenFlow error type 4, code 2",
        f"error 6 TAKEN_OVER {TAKEN_OVER}",
        f"error 7 TAKEN_OVER {TAKEN_OVER}",
        f"error 8 NO_BUNDLES {NO_BUNDLES}",
        f"role 9 {2**40}",
        "barrier 10",
    ]


def test_a_reply_does_not_wait_for_events_that_came_before(heard):
    changed = PORT_STATUS, 1, struct.pack("!B7x", 2) + PORT
    said = [changed, (ERROR, 5, error(4, 2)), (BARRIER_REPLY, 5, b"")]
    assert heard(*said, lines=3) == [
        "error 5 REFUSED OpenFlow error type 4, code 2",
        "barrier 5",
        "port changed",
    ]
