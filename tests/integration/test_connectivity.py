"""Every rack pair works in every phase, and traffic uses the intended network."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import combinations

import pytest

from .live import live, on_each_substrate

pytestmark = [pytest.mark.takes(30), pytest.mark.ovs, on_each_substrate]

ANY_ECHO = "(icmp or (icmp6 and ip6[40] >= 128 and ip6[40] <= 129))"
ECHO = f"{ANY_ECHO} and not vlan"
TAGGED = "vlan and (ip or ip6)"


@pytest.fixture(scope="module")
def running(demo_testbed, tmp_path_factory):
    with live(demo_testbed, tmp_path_factory.mktemp("live")) as network:
        yield network


@pytest.fixture
def network(running):
    """One controller for the whole module; each test restores its state."""
    yield running
    running.give_everything_back()


@pytest.mark.core(
    "the three substeps on each substrate; a reservation from REST to the first frame"
)
def test_all_pairs_before_and_with_a_circuit(network):
    assert network.everyone_reaches_everyone()
    with network.testbed.frames_at("h11", "circuits", expression="vlan") as before:
        assert network.reaches("h11", "h21")
    assert before.frames() == ()
    reservation = network.reserve("r1", "r2")
    assert reservation["state"] == "active"
    with (
        network.testbed.frames_at("h11", "circuits", expression=TAGGED) as tagged,
        network.testbed.frames_at("h11", "electrical", expression=ECHO) as electrical,
    ):
        assert network.reaches("h11", "h21", count=5)
    assert electrical.frames() == ()
    assert len(tagged.frames()) >= 20, "five echoes and replies, IPv4 and IPv6"
    assert {vlan_of(frame) for frame in tagged.frames()} == {reservation["path"]["vlan"]}
    assert network.everyone_reaches_everyone()
    network.api("DELETE", f"/v1/reservations/{reservation['id']}", headers={"Prefer": "wait=60"})
    assert network.get("/v1/topology")["circuits"] == []
    assert network.everyone_reaches_everyone()


def test_a_dry_run_changes_nothing(network):
    before = network.get("/v1/reconfigurations")["reconfigurations"]
    demand = [{"src": "r1", "dst": "r4", "mbps": 50}]
    answer = network.api("POST", "/v1/plan", json={"demand": demand})
    assert answer.status_code == 200
    assert network.get("/v1/topology")["circuits"] == []
    assert network.get("/v1/reconfigurations")["reconfigurations"] == before


def test_own_rack_traffic_never_touches_the_electrical_network(network):
    either = f"{ANY_ECHO} or (vlan and {ANY_ECHO})"
    with ExitStack() as stack:
        electrical, optical = (
            [
                stack.enter_context(network.testbed.frames_at(name, where, expression=expression))
                for name in ("h11", "h12")
            ]
            for where, expression in (("network", either), ("optical", ECHO))
        )
        assert network.reaches("h11", "h12", count=5)
    assert [capture.frames() for capture in electrical] == [(), ()]
    assert [len(capture.frames()) for capture in optical] == [20, 20]


def test_two_hops_over_two_planes(network):
    """Rack 1 relays in its ToR: its servers receive none of the frames, and no frame goes
    electrical.
    """
    assert network.reserve("r1", "r2", 30)["state"] == "active"
    assert network.reserve("r1", "r3", 30)["state"] == "active"
    relayed = network.reserve("r2", "r3", 30)
    assert relayed["state"] == "active"
    assert [hop["to_rack"] for hop in relayed["path"]["hops"]] == ["r1", "r3"]
    watch = network.testbed.frames_at
    with (
        watch("h21", "electrical", expression=ECHO) as electrical,
        watch("h31", "circuits", expression=TAGGED) as optical,
        watch("h11", "optical", expression=TAGGED) as relay_1,
        watch("h12", "optical", expression=TAGGED) as relay_2,
    ):
        assert network.reaches("h21", "h31", count=5)
    assert electrical.frames() == ()
    assert {vlan_of(frame) for frame in optical.frames()} == {relayed["path"]["vlan"]}
    assert len(optical.frames()) >= 20
    assert relay_1.frames() + relay_2.frames() == ()
    assert network.everyone_reaches_everyone()


def test_every_pair_of_servers_with_and_without_circuits(network):
    pairs = list(combinations([server.name for server in network.fabric.servers], 2))
    assert len(pairs) == 28
    assert [pair for pair in pairs if not network.reaches(*pair, count=1)] == []
    for a, b in (("r1", "r2"), ("r3", "r4"), ("r1", "r3")):
        assert network.reserve(a, b)["state"] == "active"
    assert [pair for pair in pairs if not network.reaches(*pair, count=1)] == []


def vlan_of(frame):
    return int.from_bytes(frame.data[14:16], "big") & 0xFFF
