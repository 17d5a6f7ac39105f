"""Two racks with a circuit on each plane: both are used, and either can go."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

import pytest

from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.stage import tcp_transfer
from mininet_scenarios.stage.streams import paced_stream
from tests.waiting import PATIENCE_S

from .live import live

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]


@pytest.fixture
def network(demo_testbed, tmp_path):
    policy = {"paths_per_pair": 2, "algorithm": "hydra-bfs+"}
    with live(demo_testbed, tmp_path, policy) as network:
        yield network


def join_twice(network):
    record = network.client.reconfigure([PairDemand("r1", "r2", 180)])
    assert record.state == "done"
    paths = network.get("/v1/topology")["paths"]
    assert [(path["src"], path["dst"]) for path in paths] == [("r1", "r2")] * 2
    assert {path["hops"][0]["plane"] for path in paths} == {"p1", "p2"}
    return {path["vlan"] for path in paths}


def test_flows_are_spread_and_each_comes_back_as_it_goes(network):
    vlans = join_twice(network)
    vlans_of_flow = defaultdict(set)
    with (
        network.testbed.frames_at("h11", "optical", expression="vlan and ip and tcp") as frames,
        tcp_transfer(network.stage, "h11", "h21", 5201, 1.0, streams=16, rate_mbps=1) as tcp,
    ):
        tcp.finish(PATIENCE_S)
    for frame in frames.frames():
        vlan = int.from_bytes(frame.data[14:16], "big") & 0xFFF
        flow = frozenset((frame.data[38:40], frame.data[40:42]))  # the two ports
        vlans_of_flow[flow].add(vlan)
    assert len(vlans_of_flow) >= 16
    assert all(len(its) == 1 for its in vlans_of_flow.values())
    assert set().union(*vlans_of_flow.values()) == vlans
    assert network.everyone_reaches_everyone()


@pytest.mark.parametrize("shipped", ["demo", "openflow-only"], indirect=True, scope="module")
def test_nothing_is_lost_when_one_goes_and_comes_again(network):
    join_twice(network)
    dark = network.dark_frames()
    streams = [("h11", "h21"), ("h12", "h22"), ("h22", "h11")]
    with ExitStack() as stack:
        sending = [
            stack.enter_context(paced_stream(network.stage, *ends, pps=300, payload_bytes=200))
            for ends in streams
        ]
        for planes in (["p1"], None, ["p2"]):
            network.client.reconfigure([PairDemand("r1", "r2", 180)], use_planes=planes)
        results = [one.stop() for one in sending]
    assert [one.duplicates for one in results] == [0] * 3
    assert network.lost_but_in_queues(*results) == 0
    assert network.dark_frames() == dark
    assert network.planes_between("r1", "r2") == ("p2",)
