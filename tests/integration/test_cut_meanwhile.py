"""Fibres cut while no controller runs: found by carrier, without a probe."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager

import pytest

from .live import live, on_each_substrate, wait_until

pytestmark = [pytest.mark.takes(40), pytest.mark.ovs, on_each_substrate]
POLICY = {"probe_interval_s": 0, "audit_interval_s": 0}


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, POLICY) as network:
        network.change("r1", "r2", "p1")
        assert network.planes_between("r1", "r2") == ("p1",)
        yield network


@contextmanager
def cut_fibre(interface):
    subprocess.run(["ip", "link", "set", "dev", interface, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", "dev", interface, "up"], check=True)


def test_while_the_controller_was_dead(network):
    """The cut is known before the controller is ready, and the pair has another path soon."""
    network.process.kill()
    with cut_fibre("hyc-p1-1"):
        network.process.start()
        assert network.planes_between("r1", "r2") != ("p1",)
        assert network.everyone_reaches_everyone()
        wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
        ports = {port["port"]: port["reason"] for port in network.get("/v1/quarantine")["ports"]}
        assert ports.keys() == {"hyt-r1-p1", "hyt-r2-p1"}
        assert all("carrier lost at r1:hyt-r1-p1" in reason for reason in ports.values())
        assert network.everyone_reaches_everyone()


def test_while_a_tor_was_away(network):
    bridge = network.fabric.racks[0].tor.bridge
    told = subprocess.run(
        ["ovs-vsctl", "get-controller", bridge], check=True, capture_output=True, text=True
    )
    set_controller = ["ovs-vsctl", "set-controller", bridge]
    seen = len(network.process.log.read_text())
    subprocess.run([*set_controller, "tcp:127.0.0.1:1"], check=True)
    try:
        wait_until(lambda: "r1" in network.get("/v1/drift")["silent"])
        with cut_fibre("hyc-p1-1"):
            subprocess.run([*set_controller, *told.stdout.split()], check=True)
            wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
            assert "carrier lost at r1:hyt-r1-p1" in network.process.log.read_text()[seen:]
            assert network.everyone_reaches_everyone()
    finally:
        subprocess.run([*set_controller, *told.stdout.split()], check=True)
