"""A controller killed in the middle of a change: traffic goes on, and the next controller
recovers.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

import pytest

from mininet_scenarios.stage.streams import paced_stream

from .live import PATIENT, live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(50)]

SILENT_S = 80.0
"""Time until a silent switch is given up."""
PHASES = ["queued", "diverting", "draining", "moving", "gating", "activating"]


@pytest.fixture
def network(demo_testbed, tmp_path):
    policy = {"timeouts": {**PATIENT["timeouts"], "vswitch_s": SILENT_S}}
    with live(demo_testbed, tmp_path, policy) as network:
        yield network


@pytest.mark.parametrize(
    "phase",
    [
        *(phase for phase in PHASES if phase != "moving"),
        pytest.param("moving", marks=pytest.mark.core("recovery after SIGKILL")),
    ],
)
def test_killed_in_each_phase(network, phase):
    """The moving pair is cut off in no phase, with a dead controller and with the next
    controller.
    """
    assert network.reserve("r3", "r4")["state"] == "active"
    network.change("r1", "r2", "p1")
    with killed_at_the_end(network):
        change = network.begin_change("r1", "r2", "p2")
        reached = PHASES[PHASES.index(phase) :]
        while (state := network.state_of(change)) not in reached and state != "done":
            time.sleep(0.01)  # the controller answers 100 requests a second for long
    assert network.state_of(change) in ("failed", "done"), "the next one knows of it"
    assert network.planes_between("r3", "r4") != ()
    network.change("r1", "r2", "p1")
    assert network.planes_between("r1", "r2") == ("p1",)
    assert network.everyone_reaches_everyone()


def test_ctrl_c_in_the_middle_of_a_change_waits_for_its_end(network):
    """The controller talks to switches until the work is done, in far less time than a silent
    switch would take.
    """
    network.change("r1", "r2", "p1")
    change = network.begin_change("r1", "r2", "p2")
    while network.state_of(change) == "queued":
        time.sleep(0.01)  # the controller answers 100 requests a second for long
    started_s = time.monotonic()
    os.killpg(network.process.pid, signal.SIGINT)
    wait_until(lambda: not network.process.running)
    assert time.monotonic() - started_s < SILENT_S
    assert network.process.stop() == 0
    network.process.start()
    assert network.planes_between("r1", "r2") == ("p2",)
    assert network.everyone_reaches_everyone()


@contextmanager
def killed_at_the_end(network):
    """A controller killed at the end of the block, and started again.

    No pair is cut off meanwhile; h31 and h41, whose pair stays, lose no datagram; and the next
    controller recovers.
    """
    dark = network.dark_frames()
    with paced_stream(network.stage, "h31", "h41", pps=200, payload_bytes=200) as udp:
        yield
        network.process.kill()
        assert network.everyone_reaches_everyone()
        network.process.start()
        assert network.everyone_reaches_everyone()
        result = udp.stop()
    assert result.duplicates == 0
    assert network.lost_but_in_queues(result) == 0
    assert network.dark_frames() == dark
    wait_until(lambda: consistent(network))


def consistent(network):
    """Each known circuit has two cross-connects (a one-way circuit one), and there are no
    others.
    """
    circuits = network.get("/v1/topology")["circuits"]
    return all(
        network.testbed.ocs(plane.name).counters().cross_connects
        == sum(2 - circuit["one_way"] for circuit in circuits if circuit["plane"] == plane.name)
        for plane in network.fabric.planes
    )
