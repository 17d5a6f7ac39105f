"""Servers' optical links that are dead in one direction, with carrier at both ends."""

from __future__ import annotations

import subprocess

import pytest

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(40)]

INTERVAL_S = 4.0
"""A busy machine stops its switches for up to 3 s: three probes in a row take longer."""


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    policy = {"probe_interval_s": INTERVAL_S}
    with live(demo_testbed, tmp_path_factory.mktemp("one-way"), policy) as network:
        assert network.reserve("r1", "r2")["state"] == "active"
        yield network


def uplinks(network):
    found = network.get("/v1/conditions")["conditions"]
    return [one["what"] for one in found if one["kind"] == "uplink-dead"]


def servers_reach_each_other(network):
    for other in ("h12", "h21", "h31"):  # rules follow the detection
        wait_until(lambda other=other: network.reaches("h11", other), 60)
        wait_until(lambda other=other: network.reaches(other, "h11"), 60)


def its_neighbour_stays_on_the_circuit(network):
    with network.testbed.frames_at("h12", "optical", expression="vlan and ip") as optical:
        assert network.reaches("h12", "h22")
    assert optical.frames()
    assert network.planes_between("r1", "r2")
    assert not network.get("/v1/quarantine")["ports"]


@pytest.mark.parametrize(
    ("loses", "lost"),
    [("hyo-h11", "outgoing traffic"), ("hys-h11", "incoming traffic")],
)
def test_a_server_goes_electrical_in_both_directions_and_comes_back(network, loses, lost):
    """``loses``: interface that no longer sends."""
    subprocess.run(["tc", "qdisc", "add", "dev", loses, "clsact"], check=True)
    into_nothing = ["action", "mirred", "egress", "redirect", "dev", "lo"]
    every = ["protocol", "all", "u32", "match", "u32", "0", "0", *into_nothing]
    subprocess.run(["tc", "filter", "add", "dev", loses, "egress", *every], check=True)
    try:
        told = f"server h11 ({lost} is lost in spite of carrier) is without"
        wait_until(lambda: any(told in one for one in uplinks(network)), 60)
        servers_reach_each_other(network)
        its_neighbour_stays_on_the_circuit(network)
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", loses, "clsact"], check=True)
    wait_until(lambda: not uplinks(network), 60)
    servers_reach_each_other(network)


@pytest.mark.parametrize("flag", ["no-forward", "no-receive"])
@pytest.mark.parametrize(("bridge", "port"), [("hyv-h11", "hyo-h11"), ("hytor-r1", "hys-h11")])
def test_a_port_that_is_told_to_pass_nothing_in_one_direction(network, bridge, port, flag):
    """Its switch reports the state at once."""
    mod_port = ["ovs-ofctl", "-O", "OpenFlow13", "mod-port", bridge, port]
    subprocess.run([*mod_port, flag], check=True)
    try:
        wait_until(lambda: any("server h11" in one for one in uplinks(network)), 60)
        servers_reach_each_other(network)
        its_neighbour_stays_on_the_circuit(network)
    finally:
        subprocess.run([*mod_port, flag.removeprefix("no-")], check=True)
    wait_until(lambda: not uplinks(network), 60)
    servers_reach_each_other(network)
