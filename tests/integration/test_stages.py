"""A change that diverts more than the electrical network has room for, on the data plane."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.streams import paced_stream
from tests.waiting import PATIENCE_S

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(20)]

FLOWS = {("h31", "h11"): 520, ("h32", "h12"): 520, ("h31", "h41"): 480, ("h32", "h42"): 480}
"""Datagrams per second, of 1,050 bytes on the wire: 17 Mb/s of r3's 20 Mb/s electrical rate, of
which 16 may be used, and less than 9 of a server's 10 Mb/s.
"""
SECONDS = 8
POLICY = {"poll_interval_s": 0.5, "demand_window_s": 1.0}


@pytest.mark.quiet("its datagrams fill six sevenths of the electrical network", takes_s=15)
def test_it_is_made_in_stages_that_lose_nothing(demo_testbed, tmp_path):
    wanted = [PairDemand("r2", "r3", 80), PairDemand("r1", "r4", 80)]
    asked = {"demand": [entry for pair in wanted for entry in pair.entries()]}
    with live(demo_testbed, tmp_path, POLICY) as network, ExitStack() as stack:
        network.change("r1", "r3", "p1")
        network.begin_change("r3", "r4", "p2")
        wait_until(lambda: network.planes_between("r3", "r4") == ("p2",))
        streams = [
            stack.enter_context(
                paced_stream(network.stage, *ends, pps=pps, payload_bytes=1000, count=pps * SECONDS)
            )
            for ends, pps in FLOWS.items()
        ]
        wait_until(lambda: len(network.api("POST", "/v1/plan", json=asked).json()["stages"]) > 1)
        foreseen = network.api("POST", "/v1/plan", json=asked).json()["stages"]
        assert all(stage["beyond"] == [] for stage in foreseen)
        assert all(stage["diverted_mbps"] < 16 for stage in foreseen)
        whole = network.client.reconfigure(wanted)
        results = [stream.finish(PATIENCE_S) for stream in streams]
        assert whole.state == "done"
        changes = network.get("/v1/reconfigurations")["reconfigurations"]
        parts = [one for one in changes if one["reason"].endswith(f" of {whole.id}")]
        assert len(parts) == len(foreseen) - 1
        assert all(one["state"] == "done" for one in parts)
        circuits = network.get("/v1/topology")["circuits"]
        joined = {frozenset((one["a"]["rack"], one["b"]["rack"])) for one in circuits}
        assert joined == {frozenset(("r2", "r3")), frozenset(("r1", "r4"))}
        assert [result.lost for result in results] == [0, 0, 0, 0]
        assert network.dark_frames() == 0
