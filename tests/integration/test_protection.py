"""A protected reservation continues on its path on standby after a cut of the working path's
fibre.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager

import pytest

from mininet_scenarios.stage.streams import paced_stream

from .live import live, on_each_substrate, wait_until
from .reserved import release

pytestmark = [pytest.mark.takes(60), pytest.mark.ovs, on_each_substrate]
POLICY = {"paths_per_pair": 2, "audit_interval_s": 0}


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, POLICY) as network:
        yield network


@pytest.fixture
def reservation(network):
    made = network.reserve("h11", "h21", 40, protect="disjoint")
    assert made["state"] == "active", made
    wait_until(lambda: len(network.get("/v1/topology")["paths"]) == 2)
    return made


@contextmanager
def cut_fibre(plane):
    interface = f"hyc-{plane}-1"
    subprocess.run(["ip", "link", "set", "dev", interface, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", "dev", interface, "up"], check=True)


def plane_of(path):
    (hop,) = path["hops"]
    return hop["plane"]


def working(network, reservation):
    return network.get(f"/v1/reservations/{reservation['id']}")


def taken_over(network, reservation, standby):
    now = working(network, reservation)
    return now["path"] is not None and plane_of(now["path"]) == standby


def test_traffic_goes_on_when_the_working_fibre_is_cut(network, reservation):
    first, standby = plane_of(reservation["path"]), plane_of(reservation["protection"]["path"])
    assert {first, standby} == {"p1", "p2"}
    assert reservation["protection"]["shared"] == ["ToR of r1", "ToR of r2"]
    assert network.get("/v1/drift") == {"items": [], "silent": []}
    with (
        paced_stream(network.stage, "h11", "h21", pps=300, payload_bytes=200) as stream,
        cut_fibre(first),
    ):
        wait_until(lambda: taken_over(network, reservation, standby))
        wait_until(lambda: network.planes_between("r1", "r2") == (standby,))
        assert network.reaches("h11", "h21")
        wait_until(lambda: network.conditions("protection-lost"))
        (condition,) = network.conditions("protection-lost")
        assert condition["reservations"] == [reservation["id"]]
        result = stream.stop()
    assert result.lost < result.sent / 2, result
    divert = [
        step
        for record in network.client.reconfigurations()
        if record.trigger == "circuit lost"
        for step in record.timeline
        if step.step == "divert"
    ]
    assert divert == [], "its traffic never left the circuits"
    assert network.get("/v1/drift") == {"items": [], "silent": []}


def test_the_loss_of_the_second_path_leaves_the_first_alone(network, reservation):
    first, standby = plane_of(reservation["path"]), plane_of(reservation["protection"]["path"])
    with cut_fibre(standby):
        wait_until(lambda: network.conditions("protection-lost"))
        wait_until(lambda: working(network, reservation)["protection"] is None)
        assert network.planes_between("r1", "r2") == (first,)
        now = working(network, reservation)
        assert (now["state"], plane_of(now["path"])) == ("active", first)
    for port in network.get("/v1/quarantine")["ports"]:
        network.api("DELETE", f"/v1/quarantine/{port['rack']}/{port['port']}")
    wait_until(lambda: working(network, reservation)["protection"] is not None)
    wait_until(lambda: network.conditions("protection-lost") == [])
    wait_until(lambda: len(network.get("/v1/topology")["paths"]) == 2)
    release(network, reservation)
    wait_until(lambda: network.get("/v1/topology")["circuits"] == [])


def test_protection_outlives_the_controller(network, reservation):
    network.process.kill()
    network.process.start()
    wait_until(lambda: working(network, reservation)["state"] == "active")
    wait_until(lambda: len(network.get("/v1/topology")["paths"]) == 2)
    now = working(network, reservation)
    assert (now["path"], now["protection"]) == (reservation["path"], reservation["protection"])
    wait_until(lambda: network.get("/v1/drift") == {"items": [], "silent": []})
    standby = plane_of(now["protection"]["path"])
    with cut_fibre(plane_of(now["path"])):
        wait_until(lambda: taken_over(network, reservation, standby))
        assert network.reaches("h11", "h21")
