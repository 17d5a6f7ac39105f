"""Rings of one-way circuits on real Open vSwitch: a rack sends to one rack and receives from
another.
"""

from __future__ import annotations

import time

import pytest

from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.stage.controller_client import OneWayDemand
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed import links
from tests.waiting import PATIENCE_S

from .live import live, wait_until
from .test_crash import killed_at_the_end
from .test_dead_direction import INTERVAL_S, kill_direction
from .test_drift import drift
from .test_periodic import PERIODIC, on_circuits_mbps

pytestmark = [
    pytest.mark.takes(60),
    pytest.mark.ovs,
    pytest.mark.parametrize("shipped", ["one-way"], indirect=True, scope="module"),
]
THERE, BACK = ("r1", "r2", "r3"), ("r3", "r2", "r1")


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        yield network


@pytest.fixture
def probed(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, {"probe_interval_s": INTERVAL_S}) as network:
        yield network


def around(racks):
    """The rack to which each rack sends; the last rack sends to the first."""
    return [OneWayDemand(a, b, 80) for a, b in zip(racks, [*racks[1:], racks[0]], strict=True)]


def ring(network, racks, plane="p1"):
    return network.client.reconfigure(around(racks), racks=racks, use_planes=[plane])


def circuits(network):
    """(plane, from, to)"""
    found = network.get("/v1/topology")["circuits"]
    assert all(one["one_way"] and one["b_to_a_mbps"] is None for one in found)
    return sorted((one["plane"], one["a"]["rack"], one["b"]["rack"]) for one in found)


def on(plane, racks):
    return sorted((plane, one.src, one.dst) for one in around(racks))


def test_three_directions_on_circuits_and_three_electrical(network):
    """A plane with a port for each rack; each of three racks has a circuit to the next."""
    ring(network, THERE)
    assert circuits(network) == on("p1", THERE)
    seen, sent = {}, []
    for src, dst in (("h11", "h21"), ("h21", "h31"), ("h31", "h11")):
        for one, other in ((src, dst), (dst, src)):
            with (
                network.testbed.frames_at(
                    one, "circuits", expression="vlan and udp", direction="out"
                ) as optical,
                network.testbed.frames_at(
                    one, "electrical", expression="udp and not vlan", direction="out"
                ) as electrical,
                paced_stream(
                    network.stage, one, other, pps=200, payload_bytes=200, count=200
                ) as udp,
            ):
                sent.append(udp.finish(PATIENCE_S))
            assert network.lost_but_in_queues(*sent) == 0
            seen[one, other] = (len(optical.frames()) > 0, len(electrical.frames()) > 0)
    assert seen == {
        ("h11", "h21"): (True, False),
        ("h21", "h11"): (False, True),
        ("h21", "h31"): (True, False),
        ("h31", "h21"): (False, True),
        ("h31", "h11"): (True, False),
        ("h11", "h31"): (False, True),
    }
    assert network.everyone_reaches_everyone()


def test_a_ring_turns_round_under_load_and_nothing_is_lost(network):
    """A stream on the changing ring, at 64 % of the electrical rate, and a stream beside it."""
    ring(network, THERE, "p1")
    ring(network, ("r1", "r4"), "p2")
    dark = network.dark_frames()
    with (
        paced_stream(network.stage, "h11", "h21", pps=1000, payload_bytes=750) as udp,
        paced_stream(network.stage, "h12", "h41", pps=1000, payload_bytes=750) as beside,
    ):
        for racks in (BACK, THERE) * 3:
            ring(network, racks)
            assert circuits(network) == sorted(on("p1", racks) + on("p2", ("r1", "r4")))
        result, other = udp.stop(), beside.stop()
    assert network.lost_but_in_queues(result, other) == 0
    assert (result.duplicates, other.duplicates) == (0, 0)
    assert network.dark_frames() == dark


def test_part_of_a_ring_changes_while_the_rest_stays(network):
    """r1 to r2 keeps its mirror, and r1 receives light from another rack: the pair is diverted
    meanwhile.
    """
    ring(network, THERE)
    dark = network.dark_frames()
    with paced_stream(network.stage, "h11", "h21", pps=1000, payload_bytes=200) as udp:
        for racks in (("r1", "r2"), THERE) * 2:
            demand = [*around(racks)]
            network.client.reconfigure(demand, racks=THERE, use_planes=["p1"])
        result = udp.stop()
    assert network.lost_but_in_queues(result) == 0
    assert network.dark_frames() == dark


def test_a_fibre_that_dies_is_left_with_its_ring(probed):
    network = probed
    ring(network, THERE)
    kill_direction("p1", 1)
    wait_until(lambda: circuits(network) == on("p2", THERE))
    assert network.everyone_reaches_everyone()
    ports = network.get("/v1/quarantine")["ports"]
    assert {port["port"] for port in ports} == {"hyt-r1-p1", "hyt-r2-p1"}, "not of the third rack"


def test_a_port_without_light_takes_its_ring_along_and_blames_what_lit_it(network):
    ring(network, THERE, "p1")
    ring(network, ("r1", "r4"), "p2")
    standing = on("p2", ("r1", "r4"))
    links.set_up("hyc-p1-2", up=False)  # at the OCS: r2's port has no light
    try:
        rejoined = on("p2", ("r2", "r3"))  # r1's former source has no free port: it serves r4
        wait_until(lambda: circuits(network) == sorted(standing + rejoined))
        assert network.everyone_reaches_everyone()
        ports = {port["port"]: port["reason"] for port in network.get("/v1/quarantine")["ports"]}
        assert ports.keys() == {"hyt-r1-p1", "hyt-r2-p1"}, "not that of r3, which r2 should light"
        assert "carrier lost at r2:hyt-r2-p1" in ports["hyt-r2-p1"]
    finally:
        links.set_up("hyc-p1-2", up=True)


def test_a_ring_that_gets_no_light_stays_electrical(network):
    network.testbed.ocs("p1").admin.fault(FaultKind.NO_LIGHT)
    try:
        body = {"demand": [entry for one in around(THERE) for entry in one.entries()]}
        body |= {"racks": list(THERE), "use_planes": ["p1"]}
        answer = network.api("POST", "/v1/reconfigurations", json=body)
        change = answer.json()["id"]
        wait_until(lambda: network.client.reconfiguration(change).finished)
        assert network.state_of(change) == "partial"
        assert circuits(network) == []
        assert network.everyone_reaches_everyone()
    finally:
        network.testbed.ocs("p1").admin.clear()


def test_killed_while_a_ring_turns(network):
    ring(network, ("r3", "r4"), "p2")
    ring(network, THERE)
    with killed_at_the_end(network):
        change = network.client.request(around(BACK), racks=THERE, use_planes=["p1"])
        while network.state_of(change) not in ("moving", "gating", "activating", "done"):
            time.sleep(0.01)  # the controller answers 100 requests a second for long
    assert drift(network) == []
    ring(network, THERE)
    assert set(on("p1", THERE)) <= set(circuits(network))


def test_counters_bring_a_ring(demo_testbed, tmp_path):
    """Without a request: three streams in a circle, each beyond an electrical uplink's rate."""
    with live(demo_testbed, tmp_path, PERIODIC) as network:
        streams = [("h11", "h21"), ("h21", "h31"), ("h31", "h11")]
        running = [
            paced_stream(network.stage, a, b, pps=930, payload_bytes=1400) for a, b in streams
        ]
        with running[0] as one, running[1] as two, running[2] as three:
            wait_until(lambda: len(circuits(network)) == 3)
            assert {(a, b) for _, a, b in circuits(network)} == {
                ("r1", "r2"),
                ("r2", "r3"),
                ("r3", "r1"),
            }
            wait_until(lambda: on_circuits_mbps(network) > 8)
            results = [udp.stop() for udp in (one, two, three)]
        assert network.lost_but_in_queues(*results) == 0


def test_nothing_can_be_reserved(network):
    body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 40}
    answer = network.api("POST", "/v1/reservations", json=body)
    assert answer.status_code == 409
    assert "this network has one-way circuits" in answer.json()["detail"]
