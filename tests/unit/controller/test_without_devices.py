"""A controller of the reference fabric's size before any of its 352 devices answers."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from mininet_scenarios import plain_http
from mininet_scenarios.emulators.ports import free_port
from tests.waiting import wait_until

REFERENCE = Path(__file__).parents[3] / "configs" / "reference.yaml"
START_S = 60
END_S = 5.0


@pytest.fixture
def deaf():
    """A port on all loopback addresses that swallows connections: its queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=0))
        address = ("127.0.0.1", listener.getsockname()[1])
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(address)
        with pytest.raises(TimeoutError):
            socket.create_connection(address, 0.5)  # timed: no connection is accepted
        yield address[1]


@pytest.fixture
def started(deaf, tmp_path):
    """(the process, its log, REST's URL)"""
    document = yaml.safe_load(REFERENCE.read_text())
    racks, planes = document["racks"][0], document["planes"][0]
    racks["tor"]["address"] = f"127.1.{{rack // 256}}.{{rack % 256}}:{deaf}"
    racks["servers"][0]["names"] = "r{rack}-h[1-2]"  # descriptors: what a test may have
    planes["address"] = f"127.2.0.{{plane}}:{deaf}"
    openflow, rest = (f"127.0.0.1:{port}" for port in (free_port(), free_port()))
    document["controller"] = {
        "openflow": openflow,
        "rest": rest,
        "journal": str(tmp_path / "journal.db"),
        "connections": 64,
    }
    document["policy"]["timeouts"] = {"tor_s": 1, "ocs_s": 1}
    config, log = tmp_path / "fabric.yaml", tmp_path / "log"
    config.write_text(yaml.safe_dump(document))
    with log.open("wb") as output:
        command = [sys.executable, "-m", "apps.cli", "run", "--config", str(config)]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield process, log, f"http://{rest}"
        finally:
            process.kill()
            process.wait()


def seconds_to_end(process):
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0
    return time.monotonic() - began_s


@pytest.mark.quiet("how soon it ends")
def test_it_ends_at_once_while_devices_are_being_claimed(started):
    process, log, _ = started
    wait_until(lambda: "no OVSDB session" in log.read_text(), START_S)
    assert seconds_to_end(process) < END_S


@pytest.mark.quiet("how soon it ends")
def test_it_says_once_who_is_missing_answers_briefly_and_ends_at_once(started):
    process, log, url = started
    wait_until(lambda: "REST on" in log.read_text(), START_S)
    wait_until(lambda: "p32: can't connect" in log.read_text(), START_S)
    time.sleep(5)  # timed: a second attempt comes 2 s after the first
    answer = plain_http.get(f"{url}/readyz")
    assert answer.status_code == 503
    assert "315 more ToRs" in answer.text
    assert len(answer.content) < 4096
    named = re.findall(r"WARNING \S+ (?:\w+: \S+, )?(\w+): ", log.read_text())
    assert sorted(named) == sorted(
        [*(f"r{number}" for number in range(1, 321)), *(f"p{number}" for number in range(1, 33))]
    )
    assert seconds_to_end(process) < END_S
