"""Circuits that are listed instead of planned go through the three substeps like any others."""

from __future__ import annotations

import pytest

from hydra.policy import Transition
from mininet_scenarios.stage.controller_client import ControllerError
from mininet_scenarios.stage.streams import paced_stream

from .live import live

pytestmark = [pytest.mark.ovs, pytest.mark.takes(15)]
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
