"""Switches that forward by flows cached before their rules changed."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mininet_scenarios.stage.streams import paced_stream
from tests.waiting import PATIENCE_S

from .live import live, wait_until

pytestmark = [
    pytest.mark.ovs,
    pytest.mark.takes(25),
    pytest.mark.parametrize("shipped", ["demo", "single-homed"], indirect=True, scope="module"),
]
_PID_FILE = Path("/var/run/openvswitch/ovs-vswitchd.pid")
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_ALL_CHILDREN = 0x4000_0000
STOPPED_S = 0.5
PPS = 20


@contextmanager
def revalidation_stopped() -> Iterator[None]:
    """Stop the threads in which Open vSwitch revalidates its cached flows (ptrace(2)), and no
    others.

    The main thread changes rules, confirms barriers and forwards meanwhile.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    tasks = Path(f"/proc/{int(_PID_FILE.read_text())}/task").iterdir()
    threads = [
        int(task.name) for task in tasks if (task / "comm").read_text().startswith("revalidator")
    ]
    assert threads
    for thread in threads:
        assert libc.ptrace(_SEIZE, thread, 0, 0) == 0, os.strerror(ctypes.get_errno())
        assert libc.ptrace(_INTERRUPT, thread, 0, 0) == 0, os.strerror(ctypes.get_errno())
        os.waitpid(thread, _ALL_CHILDREN)
    try:
        yield
    finally:
        for thread in threads:
            libc.ptrace(_DETACH, thread, 0, 0)


@pytest.fixture
def network(demo_testbed, tmp_path):
    # Longer than the threads are stopped, even if this process waits for a processor meanwhile.
    with live(demo_testbed, tmp_path, {"drain": {"bound_ms": 10_000}}) as network:
        yield network


def test_nothing_moves_before_switches_have_forgotten_the_circuit(network):
    """Datagrams so sparse that the circuits' counters stand still between two datagrams."""
    network.change("r1", "r2", "p1")
    dark = network.dark_frames()
    with paced_stream(network.stage, "h11", "h21", pps=PPS, payload_bytes=100, count=60) as udp:
        time.sleep(5 / PPS)  # timed: five datagrams are under way
        with revalidation_stopped():
            change = network.begin_change("r1", "r2", "p2")
            time.sleep(STOPPED_S)  # timed: no change is allowed meanwhile
            assert network.planes_between("r1", "r2") == ("p1",)
        wait_until(lambda: network.state_of(change) == "done")
        result = udp.finish(PATIENCE_S)
    assert network.planes_between("r1", "r2") == ("p2",)
    assert (result.sent, result.lost, result.duplicates) == (60, 0, 0)
    assert network.dark_frames() == dark
