"""Every rack pair works in every phase, and traffic takes the network that it should."""

from __future__ import annotations

import pytest

from .live import live

pytestmark = pytest.mark.ovs

VLAN_TAG = "81000"  # 802.1Q ethertype, then priority 0 and the VLAN's upper bits


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        yield network


def test_all_pairs_before_and_with_a_circuit(network):
    assert network.everyone_reaches_everyone()
    with network.testbed.frames_at("h11", "optical", expression="vlan") as before:
        assert network.reaches("h11", "h21")
    assert before.frames() == ()
    reservation = network.reserve("r1", "r2")
    assert reservation["state"] == "active"
    with (
        network.testbed.frames_at("h11", "optical", expression="vlan and (ip or ip6)") as tagged,
        network.testbed.frames_at(
            "h11", "electrical", expression="icmp or (icmp6 and ip6[40] >= 128 and ip6[40] <= 129)"
        ) as electrical,
    ):
        assert network.reaches("h11", "h21", count=5)
    assert len(tagged.frames()) >= 20, "five echoes and replies, IPv4 and IPv6"
    vlans = {int.from_bytes(frame.data[14:16], "big") & 0xFFF for frame in tagged.frames()}
    assert vlans == {reservation["path"]["vlan"]}
    assert electrical.frames() == ()
    assert network.everyone_reaches_everyone()
    network.api("DELETE", f"/v1/reservations/{reservation['id']}", headers={"Prefer": "wait=20"})
    assert network.get("/v1/topology")["circuits"] == []
    assert network.everyone_reaches_everyone()


def test_own_rack_traffic_never_touches_the_electrical_network(network):
    expression = "icmp or (icmp6 and ip6[40] >= 128 and ip6[40] <= 129)"
    with (
        network.testbed.frames_at("h11", "electrical", expression=expression) as electrical,
        network.testbed.frames_at("h11", "optical", expression=expression) as optical,
    ):
        assert network.reaches("h11", "h12", count=5)
    assert electrical.frames() == ()
    assert len(optical.frames()) >= 20


def test_two_hops_over_two_planes(network):
    assert network.reserve("r1", "r2", 30)["state"] == "active"
    assert network.reserve("r1", "r3", 30)["state"] == "active"
    relayed = network.reserve("r2", "r3", 30)
    assert relayed["state"] == "active"
    assert network.reaches("h21", "h31", count=5)
    assert network.everyone_reaches_everyone()
