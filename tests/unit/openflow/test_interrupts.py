"""A signal ends the manager in any state of its hub; no other cause ends it silently."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apps.openflow.package import RYU, VARIABLE
from mininet_scenarios.emulators.ports import free_port
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.takes(10)

APPLICATION = """
import threading, time
from apps.openflow import framework
from apps.process import shutdown

shutdown.STOP_S = STOP_S
shutdown.TRACEBACK_S = 1.0

class Application:
    openflow_address = ("127.0.0.1", PORT)
    openflow_tls = events = None
    openflow_connections = 10

    def __init__(self, post):
        self._post = post

    def start(self):
        self._post(self.spin if SPINS else lambda: print("started", flush=True))

    def spin(self):
        print("spinning", flush=True)
        until = time.monotonic() + 0.01
        while time.monotonic() < until:
            pass
        self._post(self.spin)

    def stop(self):
        print("closed", flush=True)
        if not SPINS:
            threading.Event().wait()

class App(framework.OpenFlowApp):
    def compose(self, post):
        return Application(post)
"""
BUSY = APPLICATION.replace("STOP_S = STOP_S", "STOP_S = 80.0").replace("SPINS", "True")
STUCK = APPLICATION.replace("STOP_S = STOP_S", "STOP_S = 1.0").replace("SPINS", "False")

GIVES_UP = """
from apps.openflow import framework
from apps.process import shutdown
from hydra.errors import HydraError

def give_up():
    shutdown.give_up(HydraError("nothing can be done here"))

class Application:
    openflow_address = ("127.0.0.1", PORT)
    openflow_tls = events = None
    openflow_connections = 10

    def start(self):
        if WHERE == "start":
            give_up()

    def stop(self):
        pass

class App(framework.OpenFlowApp):
    def compose(self, post):
        if WHERE == "compose":
            give_up()
        return Application()
"""

DELETING = """
import time
from ryu.base import app_manager
from ryu.lib import hub

class Slow:
    def __del__(self):
        print("deleting", flush=True)
        time.sleep(30)  # the signal ends it, and what it raises is ignored

class Deleting(app_manager.RyuApp):
    def start(self):
        super().start()
        Slow()
        return hub.spawn(self._serve)

    def _serve(self):
        while True:
            hub.sleep(1)

    def close(self):
        print("closed", flush=True)
"""


def written(directory: Path, program: str) -> Path:
    """An app with a free ``PORT`` in place of the placeholder: Ryu takes 0 for its default
    ports.
    """
    app = directory / "app.py"
    app.write_text(f"PORT = {free_port()}\n{program}")
    return app


def ended_by(
    number: signal.Signals, program: str, ready: str, directory: Path
) -> tuple[int, str, str]:
    """Start an app, send a signal after ``ready``; returns exit code, output and errors."""
    app = written(directory, program)
    manager = Path(sys.executable).with_name("ryu-manager")
    process = subprocess.Popen(
        [manager, "--ofp-tcp-listen-port", "0", app],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert ready in process.stdout.readline()
        process.send_signal(number)
        said, complaints = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, said, complaints


def test_with_ryu_a_destructor_does_not_swallow_it(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, RYU)
    code, said, complaints = ended_by(signal.SIGTERM, DELETING, "deleting", tmp_path)
    assert code == 0, complaints
    assert "closed" in said
    assert "KeyboardInterrupt" in complaints, "the interpreter says that it ignores it"


def test_what_never_ends_is_ended(tmp_path, package):
    code, _, complaints = ended_by(signal.SIGTERM, STUCK, "started", tmp_path)
    assert code == 1
    assert "Timeout (0:00:01)!" in complaints


def test_what_never_ends_is_ended_though_nobody_reads_why(tmp_path, package):
    """The traceback waits for a full pipe."""
    app = written(tmp_path, STUCK)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    manager = Path(sys.executable).with_name("ryu-manager")
    process = subprocess.Popen(
        [manager, "--ofp-tcp-listen-port", "0", app],
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
    )
    try:
        assert "started" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGALRM
    finally:
        process.kill()
        process.communicate()
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_busy_hub_does_not_swallow_it(tmp_path, package, number):
    code, said, complaints = ended_by(number, BUSY, "spinning", tmp_path)
    assert code == 0, complaints
    assert "closed" in said
    assert "Traceback" not in complaints


DEAF = """
from ryu.base import app_manager
from ryu.controller import controller, ofp_event

class Listener:
    def __init__(self, *_arguments):
        pass

    def serve_forever(self):
        raise OSError("the listener is gone")

controller.StreamServer = Listener

class Deaf(app_manager.RyuApp):
    def close(self):
        print("closed", flush=True)
"""


def test_the_end_of_ryus_listener_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, RYU)
    app = tmp_path / "deaf.py"
    app.write_text(DEAF)
    manager = Path(sys.executable).with_name("ryu-manager")
    ended = subprocess.run(
        [manager, app], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 1
    assert "closed" in ended.stdout
    assert "has ended by itself" in ended.stderr


UNREAD = """
from apps.openflow import framework, lines

native = lines._lines

class Lines:
    def __init__(self, **limits):
        self._real = native.Lines(**limits)

    def take(self, lines, messages):
        raise MemoryError("no memory for it")

    def __getattr__(self, name):
        return getattr(self._real, name)

class Native:
    def __getattr__(self, name):
        return Lines if name == "Lines" else getattr(native, name)

lines._lines = Native()

class Application:
    openflow_address = ("127.0.0.1", PORT)
    openflow_tls = events = None
    openflow_connections = 10

    def start(self):
        pass

    def stop(self):
        print("closed", flush=True)

class App(framework.OpenFlowApp):
    def compose(self, post):
        return Application()
"""


def test_a_controller_that_reads_no_switch_any_more_ends(tmp_path, package):
    """The C thread would go on answering echoes."""
    app = written(tmp_path, UNREAD)
    manager = Path(sys.executable).with_name("ryu-manager")
    ended = subprocess.run(
        [manager, app], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 1
    assert "closed" in ended.stdout
    assert "no longer read: MemoryError('no memory for it')" in ended.stderr


@pytest.mark.parametrize("where", ["compose", "start"])
def test_what_gives_up_before_the_hub_runs_says_why(where, tmp_path, package):
    """Otherwise the process would end normally, and no supervisor would restart it."""
    app = written(tmp_path, f"WHERE = {where!r}\n{GIVES_UP}")
    manager = Path(sys.executable).with_name("ryu-manager")
    done = subprocess.run(
        [manager, "--ofp-tcp-listen-port", "0", app],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "nothing can be done here" in done.stderr
