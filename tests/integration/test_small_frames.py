"""ToR ports that pass small frames, but no tagged frames of full size."""

from __future__ import annotations

import subprocess

import pytest

from mininet_scenarios.stage.controller_client import ControllerError

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(40)]

FULL = "1472"
"""Bytes of data in a ping packet of 1500 bytes."""


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    policy = {"probe_interval_s": 4.0}
    with live(demo_testbed, tmp_path_factory.mktemp("small"), policy) as network:
        yield network


@pytest.fixture
def narrow():
    """Have a port drop tagged frames of full size until the test ends."""
    narrowed = []

    def narrow(port):
        narrowed.append(port)
        subprocess.run(["ip", "link", "set", "dev", port, "mtu", "1494"], check=True)

    yield narrow
    for port in narrowed:
        subprocess.run(["ip", "link", "set", "dev", port, "mtu", "1500"], check=True)


def full_size_passes(network, source, address):
    """True if a ping of full size comes back without fragments."""
    command = ["ping", "-c", "1", "-W", "5", "-M", "do", "-s", FULL, address]
    return network.testbed.host(source).pexec(command)[2] == 0


def told(network):
    return [port["reason"] for port in network.get("/v1/quarantine")["ports"]]


def test_a_new_path_there_is_not_used(network, narrow):
    """The gate tries the path with frames of the servers' size."""
    narrow("hyt-r1-p1")
    with pytest.raises(ControllerError, match="small frames pass, and none of 1518 bytes"):
        network.change("r1", "r2", "p1")
    assert network.planes_between("r1", "r2") == ()
    assert any("small frames pass, and none of 1518 bytes" in reason for reason in told(network))
    assert full_size_passes(network, "h11", "10.0.2.1")
    network.give_everything_back()


def test_a_path_on_which_that_comes_about_is_left(network, narrow):
    assert network.reserve("r1", "r2")["path"]["hops"][0]["plane"] == "p1"
    narrow("hyt-r1-p1")
    wait_until(lambda: network.planes_between("r1", "r2") == ("p2",), 60)
    assert any("at full frame size" in reason for reason in told(network))
    assert full_size_passes(network, "h11", "10.0.2.1")
    network.give_everything_back()
