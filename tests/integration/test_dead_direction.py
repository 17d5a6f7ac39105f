"""Fibres dead in one direction only: there is light, and no frame passes."""

from __future__ import annotations

import subprocess

import pytest

from mininet_scenarios.stage.stage import tcp_transfer
from tests.waiting import PATIENCE_S

from .live import live, wait_until

pytestmark = pytest.mark.ovs

INTERVAL_S = 4.0
"""A path is dead after 3 s without a probe; all paths would be, if a busy machine stopped its
switches for as long.
"""
SHORT_S = 0.4


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, {"probe_interval_s": INTERVAL_S}) as network:
        yield network


@pytest.fixture
def often_probed(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, {"probe_interval_s": SHORT_S}) as network:
        yield network


def kill_direction(plane, from_rack):
    """Remove a mirror of the emulated switch, without the emulator's knowledge."""
    fibre = f"hyc-{plane}-{from_rack}"
    subprocess.run(["tc", "filter", "del", "dev", fibre, "ingress"], check=True)


@pytest.mark.parametrize("source", [1, 2])
def test_a_reservation_goes_elsewhere(network, source):
    assert network.reserve("r1", "r2")["path"]["hops"][0]["plane"] == "p1"
    kill_direction("p1", source)
    wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
    assert network.reaches("h11", "h21")

    def is_elsewhere():
        (reservation,) = network.get("/v1/reservations")["reservations"]
        return (reservation["state"], reservation["path"]["hops"][0]["plane"]) == ("active", "p2")

    wait_until(is_elsewhere)  # the reservation reports its active state once its path is up
    ports = network.get("/v1/quarantine")["ports"]
    assert {port["port"] for port in ports} == {"hyt-r1-p1", "hyt-r2-p1"}
    assert all("3 probes in a row lost from r" in port["reason"] for port in ports)
    assert network.everyone_reaches_everyone()


def test_a_path_that_nobody_reserved_is_planned_around_too(network):
    network.change("r3", "r4", "p2")
    kill_direction("p2", 3)
    wait_until(lambda: network.planes_between("r3", "r4") == ("p1",))
    assert network.everyone_reaches_everyone()


@pytest.mark.quiet("fills a circuit to the brim and asks how full it was")
def test_healthy_paths_under_load_stay(often_probed):
    """A TCP flow keeps the queue of its circuit full for twenty intervals."""
    network = often_probed
    network.reserve("r1", "r2")
    network.change("r3", "r4", "p2")
    epoch = network.get("/v1/topology")["epoch"]
    with tcp_transfer(network.stage, "h11", "h21", 5201, 20 * SHORT_S) as tcp:
        received, _ = tcp.finish(PATIENCE_S)
    assert received.average_mbps > 80
    assert not network.get("/v1/quarantine")["ports"]
    assert network.get("/v1/topology")["epoch"] == epoch
