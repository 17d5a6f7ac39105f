"""Frames queued in front of a ToR, where none of its counters shows them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hydra.policy import Transition
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed.layout import uplink_interfaces
from tests.waiting import PATIENCE_S

from .live import live, wait_until

pytestmark = [
    pytest.mark.ovs,
    pytest.mark.parametrize(
        ("shipped", "transition"),
        [("demo", Transition.HITLESS), ("single-homed", Transition.DIVERT_FIRST)],
        indirect=["shipped"],
        scope="module",
    ),
]
PPS, PAYLOAD_BYTES = 20, 100
SLOW_KBPS = 16
"""Slower than the stream: a frame leaves every 75 ms, and a queue grows."""
WAIT_MS = 150
"""Less than the time of the frames queued after 0.6 s, and more than a drain without queued frames.
"""


def shaped(interface: str, limits: str) -> None:
    command = f"tc class change dev {interface} parent 5: classid 5:1 htb {limits}"
    subprocess.run(command.split(), check=True, capture_output=True)


@contextmanager
def slow(interface: str) -> Iterator[None]:
    """Limit the rate to :data:`SLOW_KBPS`; at the end, queued frames are sent at once."""
    shown = subprocess.run(
        ["tc", "class", "show", "dev", interface], check=True, capture_output=True, text=True
    ).stdout
    (usual,) = re.findall(r"rate \S+ ceil \S+ burst \S+ cburst \S+", shown)
    rate = f"{SLOW_KBPS}kbit"
    shaped(interface, f"rate {rate} ceil {rate} burst 200 cburst 200 quantum 6000")
    try:
        yield
    finally:
        shaped(interface, f"{usual} quantum 6000")


@pytest.fixture
def network(demo_testbed, tmp_path, transition):
    # Longer than the queue, even if this process waits for a processor while the queue grows.
    policy = {"drain": {"bound_ms": 20_000}, "transition": transition.value}
    with live(demo_testbed, tmp_path, policy) as network:
        yield network


def test_nothing_moves_before_frames_in_front_of_the_tor_have_passed(network):
    """Between two datagrams, the circuit's counters stand still for longer than the drain's
    readings.
    """
    network.change("r1", "r2", "p1")
    dark = network.dark_frames()
    uplink, _ = uplink_interfaces(network.fabric, network.fabric.server_by_name["h11"])
    stream = paced_stream(
        network.stage, "h11", "h21", pps=PPS, payload_bytes=PAYLOAD_BYTES, count=60
    )
    with stream as udp:
        time.sleep(0.25)  # timed: the stream is under way
        with slow(uplink):
            time.sleep(0.6)  # timed: frames wait at the slow uplink
            change = network.begin_change("r1", "r2", "p2")
            begun = ("queued", "making", "shifting", "emptying", "diverting", "draining")
            wait_until(lambda: network.state_of(change) not in begun)
        wait_until(lambda: network.state_of(change) == "done")
        result = udp.finish(PATIENCE_S)
    (drain,) = [
        step for step in network.client.reconfiguration(change).timeline
        if (step.step, step.device) == ("drain", None)
    ]  # fmt: skip
    assert drain.finished_ms - drain.started_ms > WAIT_MS, "it waited for what was in the queue"
    assert network.planes_between("r1", "r2") == ("p2",)
    assert network.dark_frames() == dark
    assert (result.sent, result.duplicates) == (60, 0)
    assert network.lost_but_in_queues(result) == 0
