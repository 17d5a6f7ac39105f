"""The periodic mode: circuits follow the polled counters, and only where that pays."""

from __future__ import annotations

import time

import pytest

from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.streams import paced_stream

from .live import live, wait_until

pytestmark = pytest.mark.ovs

PERIODIC = {
    "mode": "periodic",
    "epoch_s": 1.0,
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "minimum_circuit_life_s": 0.0,
}


def hot_pair(network, seconds):
    """6 Mb/s from rack 1 to rack 2 over the electrical network: an elephant."""
    return paced_stream(
        network.stage, "h11", "h21", pps=1000, payload_bytes=750, count=int(seconds * 1000)
    )


def test_counters_bring_a_circuit(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, PERIODIC) as network, hot_pair(network, 8) as udp:
        wait_until(lambda: len(network.client.path_between("r1", "r2").planes) == 1)
        wait_until(lambda: network.client.reconfigurations()[0].state == "done")
        first = network.client.reconfigurations()[0]
        assert first.trigger == "periodic"
        assert first.reason.startswith("gains ")
        assert any(" change: gains " in words for words in decisions(network))
        assert network.lost_but_in_queues(udp.finish(30)) == 0


def test_without_polling_nothing_moves(demo_testbed, tmp_path):
    """The same run with polling off: the counters are all that the trigger has."""
    policy = {**PERIODIC, "poll_interval_s": 0}
    with live(demo_testbed, tmp_path, policy) as network, hot_pair(network, 5) as udp:
        udp.finish(30)
        assert network.client.path_between("r1", "r2").planes == ()
        assert network.client.reconfigurations() == []
        assert all("no demand has been measured" in words for words in decisions(network))


def test_a_change_that_does_not_pay_is_refused(demo_testbed, tmp_path):
    """The pair is served as well as it would be elsewhere: keep what stands."""
    policy = {**PERIODIC, "minimum_gain_mbps": 1000.0}
    with live(demo_testbed, tmp_path, policy) as network, hot_pair(network, 6) as udp:
        wait_until(lambda: any(" keep: gains " in words for words in decisions(network)))
        udp.finish(30)
        assert network.client.reconfigurations() == []
        assert network.client.path_between("r1", "r2").planes == ()


def test_an_operator_may_ask_for_what_pays_only(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        network.client.reconfigure([PairDemand("r1", "r2", 80)])
        body = {
            "demand": [{"src": "r1", "dst": "r2", "mbps": 80}],
            "use_planes": ["p2"],
            "only_if_it_pays": True,
        }
        answer = network.api("POST", "/v1/reconfigurations", json=body)
        path = answer.headers["location"]
        wait_until(lambda: network.get(path)["state"] == "refused")
        assert "does not pay" in network.get(path)["reason"]
        assert network.client.path_between("r1", "r2").planes == ("p1",)


def test_a_reservation_expires(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        reservation = network.reserve("r1", "r2", duration_s=2)
        assert reservation["state"] == "active"
        path = f"/v1/reservations/{reservation['id']}"
        wait_until(lambda: network.get(path)["state"] == "expired")
        wait_until(lambda: network.get("/v1/topology")["circuits"] == [])
        assert reservation["expires_unix_s"] <= time.time()


def decisions(network):
    return network.get("/v1/decisions")["decisions"]
