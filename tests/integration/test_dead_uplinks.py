"""Servers without a link to their ToR take a detour, if there is one."""

from __future__ import annotations

import pytest

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        yield network


def down(network):
    """Servers with a known dead uplink, at the vswitch or at the ToR."""
    devices = network.get("/v1/devices")["devices"]
    return [d["name"] for d in devices if d["detail"].endswith("uplink down")]


def test_an_uplink_that_was_dead_before(network):
    """The rack's circuit comes up without that server, which keeps its electrical path."""
    network.testbed.kill_uplink("h11")
    try:
        wait_until(
            lambda: any(
                device["detail"] == "optical uplink down"
                for device in network.get("/v1/devices")["devices"]
            )
        )
        assert network.reserve("r1", "r2")["state"] == "active"
        assert all(network.reaches("h11", other) for other in ("h12", "h21", "h22", "h41"))
        with network.testbed.frames_at("h12", "optical", expression="vlan and ip") as optical:
            assert network.reaches("h12", "h21")
        assert optical.frames()
    finally:
        network.testbed.restore_uplink("h11")


def test_a_server_whose_optical_uplink_is_dead(network):
    assert network.reserve("r1", "r2")["state"] == "active"
    network.testbed.kill_uplink("h11")
    try:

        def noticed():
            devices = network.get("/v1/devices")["devices"]
            return any(d["detail"] == "optical uplink down" for d in devices)

        wait_until(noticed)
        for other in ("h12", "h21", "h31"):  # rules follow the detection
            wait_until(lambda other=other: network.reaches("h11", other))
            wait_until(lambda other=other: network.reaches(other, "h11"))
        with network.testbed.frames_at("h12", "optical", expression="vlan and ip") as optical:
            assert network.reaches("h12", "h22")
        assert optical.frames(), "its neighbour still uses the circuit"
    finally:
        network.testbed.restore_uplink("h11")
    wait_until(lambda: not noticed())
    wait_until(lambda: network.reaches("h11", "h21"))


@pytest.mark.parametrize(
    "shipped", ["single-homed", "openflow-only"], indirect=True, scope="module"
)
class TestSingleHomed:
    """There is no detour; the rack and its circuits work without that server."""

    def test_its_rack_does_without_it_and_gets_it_back(self, network):
        network.testbed.kill_uplink("h11")
        try:
            plain = network.fabric.server_by_name["h11"].vswitch is None
            wait_until(lambda: down(network) == ["r1" if plain else "hyv-h11"])
            assert network.reserve("r1", "r2")["state"] == "active"
            assert all(network.reaches("h12", other) for other in ("h21", "h31"))
            with network.testbed.frames_at("h12", "circuits", expression="vlan and ip") as optical:
                assert network.reaches("h12", "h22")
            assert optical.frames()
        finally:
            network.testbed.restore_uplink("h11")
        wait_until(lambda: not down(network))
        for other in ("h12", "h21", "h31"):  # rules follow the detection
            wait_until(lambda other=other: network.reaches("h11", other))

    def test_circuits_outlive_the_electrical_network_of_their_racks(self, network):
        """Unicast on a circuit needs nothing else: neighbours are already resolved."""
        assert network.reserve("r1", "r2")["state"] == "active"
        assert network.reaches("h11", "h21")
        network.testbed.cut_electrical("h11")
        try:
            assert network.reaches("h11", "h21")
            assert network.reaches("h11", "h12")
        finally:
            network.testbed.restore_electrical("h11")
        wait_until(lambda: network.reaches("h11", "h31"))
