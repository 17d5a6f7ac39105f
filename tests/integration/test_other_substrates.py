"""Drift, dead fibres, crashes and the periodic mode: a short case each beyond the demo's fabric.

Properties common to all substrates are tested at length on the demo's, in other modules.
"""

from __future__ import annotations

import time

import pytest

from hydra.forwarding.substrate import substrate_of

from .live import live, wait_until
from .test_crash import killed_at_the_end
from .test_dead_direction import INTERVAL_S, kill_direction
from .test_drift import drift, flows, reconcile
from .test_periodic import PERIODIC, hot_pair, on_circuits_mbps

pytestmark = [
    pytest.mark.takes(60),
    pytest.mark.ovs,
    pytest.mark.parametrize(
        "shipped",
        ["single-homed", "openflow-only"],
        indirect=True,
        scope="module",
    ),
]
POLICY = {"audit_interval_s": 0, "probe_interval_s": INTERVAL_S}


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, POLICY) as network:
        yield network


def steering_bridge(network, server):
    """The bridge with the rules for a server's frames, and the bridge's name in reports."""
    vswitch = network.fabric.server_by_name[server].vswitch
    if vswitch is not None:
        return vswitch.bridge, vswitch.bridge
    rack = network.fabric.racks[network.fabric.server_by_name[server].rack]
    return rack.tor.bridge, rack.name


@pytest.fixture
def unwatched(demo_testbed, tmp_path):
    """Probes of a path without rules are lost, but the path is not taken down."""
    with live(demo_testbed, tmp_path, {"audit_interval_s": 0, "probe_interval_s": 0}) as network:
        yield network


def test_rules_are_compared_and_mended(unwatched):
    network = unwatched
    network.reserve("r1", "r2")
    network.reserve("r1", "r3", 30)
    assert len(network.reserve("r2", "r3", 30)["path"]["hops"]) == 2
    bridge, device = steering_bridge(network, "h11")
    expected = [(device, "circuit", "nothing")]
    if substrate_of(network.fabric).retags:
        flows(bridge, "del-flows", "table=5,metadata=2")
    else:
        flows(bridge, "del-flows", "table=5,metadata=2")
        flows(bridge, "del-flows", "table=0,in_port=hyt-r1-p1,vlan_tci=0x1000/0x1000")
        expected = [(device, "tor-relay", "nothing"), (device, "tor-circuit", "nothing")]
    found = [(i["device"], i["subject"].split(", ")[-1], i["actual"]) for i in drift(network)]
    assert found == expected
    done = reconcile(network)
    assert done["left"]["items"] == done["reconfigurations"] == []
    assert network.reaches("h11", "h21")
    assert network.reaches("h21", "h31")


def test_a_tor_whose_rules_are_all_gone_is_mended_unasked(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, {"audit_interval_s": 1}) as network:
        tor = network.fabric.racks[0].tor.bridge
        flows(tor, "del-flows")
        told = "changed by somebody else: r1, table ingress"
        wait_until(lambda: told in network.process.log.read_text())
        wait_until(lambda: drift(network) == [])
        wait_until(lambda: network.reaches("h11", "h12"))
        assert network.reaches("h11", "h21")


def test_a_fibre_dead_in_one_direction_is_left(network):
    assert network.reserve("r1", "r2")["path"]["hops"][0]["plane"] == "p1"
    kill_direction("p1", 1)
    wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
    assert network.reaches("h11", "h21")
    ports = network.get("/v1/quarantine")["ports"]
    assert {port["port"] for port in ports} == {"hyt-r1-p1", "hyt-r2-p1"}


def test_killed_while_a_pair_moves(network):
    assert network.reserve("r3", "r4")["state"] == "active"
    network.change("r1", "r2", "p1")
    with killed_at_the_end(network):
        change = network.begin_change("r1", "r2", "p2")
        while network.state_of(change) not in ("moving", "gating", "activating", "done"):
            time.sleep(0.01)  # the controller answers 100 requests a second for long
    assert network.planes_between("r3", "r4") != ()
    assert drift(network) == []


def test_counters_bring_a_circuit(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, PERIODIC) as network, hot_pair(network) as udp:
        wait_until(lambda: len(network.client.path_between("r1", "r2").planes) == 1)
        wait_until(lambda: on_circuits_mbps(network) > 8)
        assert network.lost_but_in_queues(udp.stop()) == 0
