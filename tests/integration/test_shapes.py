"""A shape comes up as a whole, carries traffic, and is released as a whole."""

from __future__ import annotations

import pytest

from .live import live, wait_until

pytestmark = pytest.mark.ovs

RING = {"pattern": "ring", "racks": ["r1", "r2", "r3", "r4"], "bandwidth_mbps": "most"}
WAIT = {"Prefer": "wait=60"}


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    with live(demo_testbed, tmp_path_factory.mktemp("shapes")) as running:
        yield running


@pytest.mark.core("a shape of racks, reserved whole, with pings over its circuits")
def test_pings_take_the_circuits_of_a_ring(network):
    answer = network.api("POST", "/v1/shapes", json=RING, headers=WAIT)
    assert answer.status_code == 201, answer.text
    ring = answer.json()
    assert (ring["state"], ring["reason"], ring["bandwidth_mbps"]) == ("ready", "", 100)
    for one in ring["reservations"]:
        assert len(network.planes_between(one["src"], one["dst"])) == 1
    with (
        network.testbed.frames_at("h11", "circuits", expression="vlan and (ip or ip6)") as tagged,
        network.testbed.frames_at("h11", "electrical", expression="icmp and not vlan") as other,
    ):
        assert network.reaches("h11", "h21")
        assert network.reaches("h11", "h41")
    assert other.frames() == ()
    assert len(tagged.frames()) >= 8, "echoes and replies, IPv4 and IPv6, to both neighbours"
    refused = network.api("POST", "/v1/shapes", json={**RING, "pattern": "all-to-all"})
    assert refused.status_code == 409
    shapes = network.get("/v1/shapes")["shapes"]
    assert [one["id"] for one in shapes if one["state"] != "over"] == [ring["id"]]
    released = network.api("DELETE", f"/v1/shapes/{ring['id']}", headers=WAIT)
    assert (released.status_code, released.json()["state"]) == (200, "over")
    assert network.get("/v1/topology")["circuits"] == []


def test_a_shape_outlives_a_killed_controller(network):
    pairs = {"pattern": "pairs", "racks": ["r1", "r3", "r2", "r4"], "bandwidth_mbps": 60}
    made = network.api("POST", "/v1/shapes", json=pairs, headers=WAIT).json()
    assert made["state"] == "ready"
    network.process.kill()
    network.process.start()
    at = f"/v1/shapes/{made['id']}"
    wait_until(lambda: network.get(at)["state"] == "ready")
    assert network.get(at)["racks"] == pairs["racks"]
    assert network.api("DELETE", at, headers=WAIT).status_code == 200
