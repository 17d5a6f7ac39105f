"""While a plan takes seconds, REST and OpenFlow answer at once: a real controller, without devices.

SIGSTOP stops the planner, so that its plan takes as long as the test wants.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest
import yaml

from mininet_scenarios import plain_http
from mininet_scenarios.emulators.ports import free_port
from tests.unit.planning.test_planner import ROOT, gone, planner_of
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.takes(5)

SLOW_S = 2.0
PROMPT_S = 0.5
_OFP = struct.Struct("!BBHI")
HELLO, ECHO_REQUEST, ECHO_REPLY = 0, 2, 3
DEMAND = {"demand": [{"src": "r1", "dst": "r2", "mbps": 80}]}


class Controller:
    """``hydra run`` on a copy of the demo's fabric whose devices do not answer."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """``settings`` are further keys of the section ``controller``."""
        openflow, rest, nobody = (free_port() for _ in range(3))
        document = yaml.safe_load((ROOT / "configs" / "demo.yaml").read_text())
        document["controller"] = {
            "openflow": f"127.0.0.1:{openflow}",
            "rest": f"127.0.0.1:{rest}",
            "journal": str(folder / "journal.db"),
            **settings,
        }
        document["racks"][0]["tor"]["address"] = f"unix:{folder}/none.sock"
        document["planes"][0]["address"] = f"127.0.0.{{plane + 8}}:{nobody}"
        document["policy"]["planning_grace_ms"] = 30_000
        config = folder / "fabric.yaml"
        config.write_text(yaml.safe_dump(document))
        self.openflow = ("127.0.0.1", openflow)
        self.log = folder / "log"
        self.http = plain_http.client(base_url=f"http://127.0.0.1:{rest}", timeout=PATIENCE_S)
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("hydra"), "run", "--config", config],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    def plan(self) -> httpx.Response:
        return self.http.post("/v1/plan", json=DEMAND)

    def answers(self) -> bool:
        with suppress(httpx.TransportError):
            return self.http.get("/healthz").status_code == 200
        return False

    def close(self) -> None:
        self.http.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def controller(tmp_path) -> Iterator[Controller]:
    running = Controller(tmp_path)
    try:
        wait_until(lambda: running.answers() or running.process.poll() is not None)
        assert running.process.poll() is None, running.log.read_text()
        yield running
    finally:
        running.close()


class Switch:
    """A switch that says hello and then sends echo requests, to check the controller."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=PATIENCE_S)
        self._socket.sendall(_OFP.pack(4, HELLO, 8, 1))

    def echo_s(self, xid: int) -> float:
        asked_s = time.monotonic()
        self._socket.sendall(_OFP.pack(4, ECHO_REQUEST, 8, xid))
        while self._receive() != (ECHO_REPLY, xid):
            pass
        return time.monotonic() - asked_s

    def _receive(self) -> tuple[int, int]:
        _, kind, length, xid = _OFP.unpack(self._exactly(8))
        self._exactly(length - 8)
        return kind, xid

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the controller hung up"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


@pytest.mark.quiet("bounds how soon REST and OpenFlow answer")
def test_nobody_waits_for_a_plan(controller):
    assert controller.plan().status_code == 200, controller.log.read_text()
    switch = Switch(controller.openflow)
    switch.echo_s(1)
    planner = planner_of(controller.process.pid)
    os.kill(planner, signal.SIGSTOP)
    plans: list[tuple[float, httpx.Response]] = []

    def plan() -> None:
        asked_s = time.monotonic()
        response = controller.plan()
        plans.append((time.monotonic() - asked_s, response))

    threads = [threading.Thread(target=plan) for _ in range(3)]
    for thread in threads:
        thread.start()
    echoes_s, answers_s = [], []
    end_s = time.monotonic() + SLOW_S  # timed: duration of the plan
    while time.monotonic() < end_s:
        echoes_s.append(switch.echo_s(len(echoes_s) + 2))
        for path in ("/healthz", "/v1/topology", "/v1/demand", "/v1/reservations"):
            asked_s = time.monotonic()
            assert controller.http.get(path).status_code == 200
            answers_s.append(time.monotonic() - asked_s)
        time.sleep(0.02)
    assert not plans
    os.kill(planner, signal.SIGCONT)
    for thread in threads:
        thread.join()
    switch.close()
    assert [response.status_code for _, response in plans] == [200] * 3
    assert min(took_s for took_s, _ in plans) >= SLOW_S
    assert len(echoes_s) > 10
    assert max(echoes_s) < PROMPT_S
    assert max(answers_s) < PROMPT_S


def test_a_planner_that_is_killed_is_replaced_and_ends_with_the_controller(controller):
    assert controller.plan().status_code == 200
    first = planner_of(controller.process.pid)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: planner_of(controller.process.pid) not in (None, first))
    assert controller.plan().status_code == 200
    second = planner_of(controller.process.pid)
    # As Ctrl-C in a terminal: to all processes of the group.
    os.killpg(controller.process.pid, signal.SIGINT)
    assert controller.process.wait(PATIENCE_S) == 0
    assert gone(second)
    log = controller.log.read_text()
    assert "the planner has ended by itself: another planner starts in 0.5 s" in log
    assert "Traceback" not in log
