"""Destinations of lines that stall: no caller waits, and lost lines are counted and reported."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from apps.process.metrics import Metrics
from apps.process.sinks import MOST_HELD_BYTES, Sink, dropped_lines
from apps.process.supervision import notify
from mininet_scenarios.emulators.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
LINE = b"x" * 1023 + b"\n"


class Gate:
    """A destination that takes no lines until opened."""

    def __init__(self):
        self.open = threading.Event()
        self.taken = []

    def write(self, line):
        self.open.wait()
        self.taken.append(line)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def sink(gate):
    sink = Sink("test", gate.write, lambda lines: b"%d dropped\n" % lines)
    yield sink
    gate.open.set()
    sink.stop()


def test_lines_beyond_the_bound_are_dropped_counted_and_told(sink, gate):
    there_is_room = MOST_HELD_BYTES // len(LINE)
    took = [sink.put(LINE) for _ in range(there_is_room + 7)]
    assert took == [True] * there_is_room + [False] * 7
    assert sink.dropped == dropped_lines()["test"] == 7
    shown = Metrics().registry.get_sample_value("hydra_dropped_lines_total", {"sink": "test"})
    assert shown == 7
    gate.open.set()
    assert sink.flush(60)
    assert gate.taken == [LINE, b"7 dropped\n", *[LINE] * (there_is_room - 1)]
    assert sink.put(LINE), "there is room again"


def test_a_flush_waits_no_longer_than_told(sink):
    sink.put(LINE)
    assert not sink.flush(0.01)


def test_what_can_not_be_written_counts_and_others_go_on(gate):
    def write(line):
        if line == b"bad\n":
            raise OSError("no space left")
        gate.write(line)

    gate.open.set()
    sink = Sink("bad", write, lambda lines: b"%d dropped\n" % lines)
    for line in (b"bad\n", b"good\n"):
        sink.put(line)
    assert sink.flush(60)
    sink.stop()
    assert (gate.taken, sink.dropped) == ([b"good\n", b"1 dropped\n"], 1)


def test_a_service_manager_that_reads_nothing_holds_up_nobody(tmp_path):
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
        silent.bind(name)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    filler.sendto(b"x", name)
        assert not notify("READY=1", {"NOTIFY_SOCKET": name})


LOGGER = """
import logging, sys, threading
from apps.process import logs, sinks

logs.set_up("json", "info")
said = 0
while not sinks.dropped_lines()["log"]:
    logging.getLogger("hydra").info("line %s", "x" * 100)
def broken():
    raise RuntimeError("a thread's traceback")
thread = threading.Thread(target=broken)
thread.start()
thread.join()
print("not held up", file=sys.stderr)
print("done", flush=True)
sys.stdin.readline()
"""


def logger(read_end):
    return subprocess.Popen(
        [sys.executable, "-c", LOGGER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=read_end,
        text=True,
    )


def test_a_process_ends_though_nobody_reads_its_log():
    reader, writer = os.pipe()
    try:
        with logger(writer) as process:
            assert process.stdout.readline() == "done\n"
            assert process.communicate("\n", timeout=60) is not None
            assert process.returncode == 0
    finally:
        os.close(reader)
        os.close(writer)


def test_who_reads_the_log_late_learns_how_much_is_missing():
    with logger(subprocess.PIPE) as process:
        assert process.stdout.readline() == "done\n"
        _, text = process.communicate("\n", timeout=60)
    told = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    (missing,) = {line["message"] for line in told if line["logger"] == "hydra.logs"}
    assert "lines of the log were dropped" in missing
    assert int(missing.split()[0]) >= 1


@pytest.mark.takes(8)
def test_a_controller_whose_log_nobody_reads_answers_and_ends(tmp_path):
    """Standard error is a pipe that is full after 64 KiB."""
    rest, openflow = free_port(), free_port()
    document = yaml.safe_load((ROOT / "configs" / "demo.yaml").read_text())
    document["controller"] |= {
        "rest": f"127.0.0.1:{rest}",
        "openflow": f"127.0.0.1:{openflow}",
        "journal": str(tmp_path / "journal.db"),
        "requests_per_s": 10_000,
    }
    config = tmp_path / "fabric.yaml"
    config.write_text(yaml.safe_dump(document))
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("hydra"), "run", "--config", str(config)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
    )

    def asked(method, path):
        client = http.client.HTTPConnection("127.0.0.1", rest, timeout=60)
        with contextlib.closing(client), contextlib.suppress(ConnectionError):
            client.request(method, path)
            return client.getresponse().status
        assert process.poll() is None
        return None

    try:
        wait_until(lambda: asked("GET", "/healthz") == 200)
        for number in range(600):  # an audit line each, of 200 bytes and more
            assert asked("DELETE", f"/v1/reservations/{number}") == 404
        assert asked("GET", "/healthz") == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)
