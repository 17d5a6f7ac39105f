"""Circuits listed by a request, instead of planned, go through the three substeps as usual."""

from __future__ import annotations

import pytest

from hydra.policy import Rotation, Transition
from mininet_scenarios.stage.controller_client import ControllerError, ListedSlot
from mininet_scenarios.stage.streams import paced_stream

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(15)]
SECONDS = 120
"""Time limit: more than a busy machine needs until the awaited result."""
ORDER = ["divert", "drain", "move", "carrier", "announce", "probe", "activate"]


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, {"transition": Transition.DIVERT_FIRST.value}) as network:
        yield network


def standing(network):
    return {
        (one["plane"], one["a"]["rack"], one["b"]["rack"])
        for one in network.get("/v1/topology")["circuits"]
    }


def test_listed_circuits_carry_traffic_and_a_mistake_changes_nothing(network):
    network.client.apply({"p1": [("r1", "r2"), ("r3", "r4")]})
    assert standing(network) == {("p1", "r1", "r2"), ("p1", "r3", "r4")}
    with paced_stream(network.stage, "h11", "h31", pps=200, payload_bytes=750) as udp:
        record = network.client.apply(
            {"p1": [("r1", "r2")], "p2": [("r2", "r3")]}, paths=[["r1", "r2", "r3"]]
        )
        udp.stop()
    assert standing(network) == {("p1", "r1", "r2"), ("p2", "r2", "r3")}
    names = [step.step for step in record.timeline if step.device is None]
    assert [name for name in names if name in ORDER] == ORDER
    route = network.client.path_between("r1", "r3")
    assert (route.planes, route.relays) == (("p1", "p2"), ("r2",))
    with network.testbed.frames_at("h11", "optical", expression="vlan and icmp") as optical:
        assert network.reaches("h11", "h31")
    assert optical.frames()
    with pytest.raises(ControllerError, match="no plane 'p9' in fabric demo"):
        network.client.apply({"p9": [("r1", "r2")]})
    assert standing(network) == {("p1", "r1", "r2"), ("p2", "r2", "r3")}


def test_a_schedule_repeats_without_demand_until_it_is_ended(network):
    first, second = {"p1": [("r1", "r2")]}, {"p1": [("r1", "r3")], "p2": [("r3", "r4")]}
    with pytest.raises(ControllerError, match=r"leaves no day .* give longer slots"):
        network.client.follow(Rotation.ROTORNET, slot_s=0.1)
    with pytest.raises(ControllerError, match="no rack 'r9' in fabric demo"):
        network.client.follow([ListedSlot(2.0, {"p1": [("r1", "r9")]})])
    assert network.client.schedule()["given"] is None

    network.client.follow([ListedSlot(2.0, first), ListedSlot(2.0, second)])
    seen = set()

    def both_stood_twice():
        seen.add(frozenset(standing(network)))
        return len(slots_begun(network)) > 3

    wait_until(both_stood_twice, SECONDS)
    assert seen >= {
        frozenset({("p1", "r1", "r2")}),
        frozenset({("p1", "r1", "r3"), ("p2", "r3", "r4")}),
    }
    network.client.end_schedule()
    schedule = network.client.schedule()
    assert (schedule["given"], schedule["week"]) == (None, None)
    network.client.apply({"p1": [("r2", "r4")]})
    assert standing(network) == {("p1", "r2", "r4")}


def test_a_named_schedule_joins_all_racks(network):
    with paced_stream(network.stage, "h11", "h31", pps=200, payload_bytes=750) as udp:
        join_all(network)
        arrived = udp.stop()
    assert network.lost_but_in_queues(arrived) == 0
    assert network.dark_frames() == 0


def join_all(network):
    network.client.follow(Rotation.ROTORNET, slot_s=2.0)
    assert network.client.schedule()["given"] == "rotornet"
    met = set()

    def all_have_met():
        met.update((a, b) for _, a, b in standing(network))
        return len(met) == 6

    wait_until(all_have_met, SECONDS)


def slots_begun(network):
    """Finished changes from slot to slot."""
    changes = network.get("/v1/reconfigurations")["reconfigurations"]
    return [one for one in changes if (one["trigger"], one["state"]) == ("slotted", "done")]
