"""Strangers with a switch's datapath id, and a switch with two ways to its controller."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from apps.openflow.limits import ECHO_S
from mininet_scenarios.emulators.stranger import Stranger
from mininet_scenarios.stage.controller_process import ALL_THERE
from tests.waiting import PATIENCE_S

from .live import Live, live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(20)]
_HANDSHAKE_BYTES = 300
"""Least number of bytes from a bridge before the controller takes it for a switch."""


class Way:
    """A relay to the controller, which may go silent without closing its connections."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._silent = threading.Event()
        self.carried_bytes = 0
        """Bytes to the controller so far."""
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.target = f"tcp:127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._sockets[0].accept()
                far = socket.create_connection(self._address)
                self._sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    carrier = threading.Thread(target=self._carry, args=(one, other, far))
                    self._threads.append(carrier)
                    carrier.start()

    def _carry(self, one: socket.socket, other: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if not self._silent.is_set():
                    other.sendall(data)
                    self.carried_bytes += len(data) if far is other else 0
            if not self._silent.is_set():
                other.shutdown(socket.SHUT_WR)

    def fall_silent(self) -> None:
        """Stop relaying, even the end of a connection."""
        self._silent.set()

    def close(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()


@pytest.fixture
def network(demo_testbed, tmp_path: Path) -> Iterator[Live]:
    with live(demo_testbed, tmp_path) as running:
        yield running


@pytest.fixture
def switch(network: Live):
    return network.fabric.server_by_name["h11"].vswitch


@pytest.fixture
def address(network: Live) -> tuple[str, int]:
    return network.process.settings.openflow_host, network.process.settings.openflow_port


def target_of(bridge: str) -> str:
    asked = ["ovs-vsctl", "get-controller", bridge]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def targets(bridge: str, *wanted: str) -> Iterator[None]:
    before = target_of(bridge)
    subprocess.run(["ovs-vsctl", "set-controller", bridge, *wanted], check=True)
    try:
        yield
    finally:
        subprocess.run(["ovs-vsctl", "set-controller", bridge, before], check=True)


def rules_through_the_controller(network: Live) -> None:
    """Changes that involve h11's vswitch are confirmed, and frames follow the changes."""
    for plane in ("p1", "p2"):
        network.change("r1", "r2", plane)
        assert network.planes_between("r1", "r2") == (plane,)
        assert network.reaches("h11", "h21")
    assert network.get("/v1/drift")["items"] == []


def log_lines(network: Live, about: str) -> list[str]:
    return [line for line in network.process.log.read_text().splitlines() if about in line]


def is_connected(network: Live, bridge: str) -> bool:
    (found,) = [one for one in network.get("/v1/devices")["devices"] if one["name"] == bridge]
    return bool(found["connected"])


def has_seen_all_ends(address: tuple[str, int]) -> bool:
    """True if the controller has closed each connection that the other side has ended."""
    ended = ["ss", "-Htn", "state", "close-wait", f"sport = :{address[1]}"]
    return not subprocess.run(ended, check=True, capture_output=True, text=True).stdout.strip()


def test_strangers_come_and_go_and_the_switch_stays(network, switch, address):
    rules_through_the_controller(network)
    first = Stranger(address, switch.datapath_id)
    assert first.ended.wait(PATIENCE_S), "the real switch answers, so the other one has to go"
    first.leave()
    for _ in range(3):
        Stranger(address, switch.datapath_id).leave()
    rules_through_the_controller(network)
    assert is_connected(network, switch.bridge)
    (line,) = log_lines(network, "refused a second connection")
    assert first.name in line
    assert not log_lines(network, "is used")


@pytest.mark.quiet("asks how soon a switch is back", takes_s=20)
def test_a_switch_whose_old_connection_hangs_is_back_within_seconds(network, switch, address):
    way = Way(address)
    straight = target_of(switch.bridge)
    try:
        with targets(switch.bridge, way.target):
            wait_until(lambda: way.carried_bytes > _HANDSHAKE_BYTES)
            wait_until(lambda: network.api("GET", ALL_THERE).is_success)
            assert not log_lines(network, "is used")
            way.fall_silent()
            with targets(switch.bridge, straight):
                began_s = time.monotonic()
                wait_until(lambda: log_lines(network, "is used"))
                assert time.monotonic() - began_s < ECHO_S + 4.0
                rules_through_the_controller(network)
    finally:
        way.close()


def test_a_switch_with_two_ways_works_and_goes_on_over_the_other_one(network, switch, address):
    way = Way(address)
    try:
        with targets(switch.bridge, target_of(switch.bridge), way.target):
            wait_until(lambda: log_lines(network, "refused a second connection"))
            rules_through_the_controller(network)
        with targets(switch.bridge, way.target):
            wait_until(
                lambda: has_seen_all_ends(address)
            )  # otherwise is_connected means the former connection
            wait_until(lambda: is_connected(network, switch.bridge))
            rules_through_the_controller(network)
        assert not log_lines(network, "is used"), "no connection that answered was given up"
    finally:
        way.close()


def test_an_auxiliary_connection_is_not_another_switch(network, switch, address):
    auxiliary = Stranger(address, switch.datapath_id, auxiliary=1)
    assert auxiliary.ended.wait(PATIENCE_S), "its switch says everything on the main connection"
    auxiliary.leave()
    rules_through_the_controller(network)
    assert not log_lines(network, "second connection")
