"""Reservations that begin later, come in groups, and outlive the controller."""

from __future__ import annotations

import time

import pytest

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    with live(demo_testbed, tmp_path_factory.mktemp("over_time")) as running:
        yield running


def state_of(network, reservation) -> str:
    return network.get(f"/v1/reservations/{reservation['id']}")["state"]


def release(network, path: str) -> None:
    answer = network.api("DELETE", path, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text


def test_a_scheduled_one_begins_and_ends_by_itself(network):
    start = time.time() + 5  # timed: it begins by itself
    body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 40, "start_unix_s": start}
    answer = network.api("POST", "/v1/reservations", json={**body, "duration_s": 10})
    assert answer.status_code == 201, answer.text
    reservation = answer.json()
    assert reservation["state"] == "scheduled"
    assert network.planes_between("r1", "r2") == ()
    wait_until(lambda: state_of(network, reservation) == "active")
    assert time.time() > start
    assert network.planes_between("r1", "r2")
    assert network.reaches("h11", "h21")
    wait_until(lambda: state_of(network, reservation) == "expired")
    wait_until(lambda: network.planes_between("r1", "r2") == ())


def test_a_group_comes_up_in_one_reconfiguration(network):
    entries = [
        {"src": "r1", "dst": "r2", "bandwidth_mbps": 90},
        {"src": "r3", "dst": "r4", "bandwidth_mbps": 90},
        {"src": "r1", "dst": "r3", "bandwidth_mbps": 50},
    ]
    before = len(network.get("/v1/reconfigurations")["reconfigurations"])
    answer = network.api(
        "POST", "/v1/groups", json={"entries": entries}, headers={"Prefer": "wait=60"}
    )
    assert answer.status_code == 201, answer.text
    group = answer.json()
    assert {one["state"] for one in group["reservations"]} == {"active"}
    for one in group["reservations"]:
        hops = [hop["plane"] for hop in one["booked"]["hops"]]
        assert [hop["plane"] for hop in one["path"]["hops"]] == hops
    assert len(network.get("/v1/reconfigurations")["reconfigurations"]) == before + 1
    assert network.everyone_reaches_everyone()
    release(network, f"/v1/groups/{group['id']}")
    assert network.get("/v1/topology")["circuits"] == []


def test_promises_outlive_a_killed_controller(network):
    active = network.reserve("r1", "r2", 100)
    later = {"src": "r1", "dst": "r3", "bandwidth_mbps": 100, "start_unix_s": time.time() + 60}
    scheduled = network.api("POST", "/v1/reservations", json=later).json()
    held = network.api(
        "POST",
        "/v1/reservations",
        json={"src": "r3", "dst": "r4", "bandwidth_mbps": 10, "hold_s": 600},
    ).json()
    network.process.kill()
    network.process.start()
    wait_until(lambda: state_of(network, active) == "active")
    assert network.planes_between("r1", "r2")
    assert state_of(network, scheduled) == "scheduled"
    assert state_of(network, held) == "held"
    refused = network.api("POST", "/v1/reservations", json={**later, "dst": "r4"})
    assert refused.status_code == 409, "both ports of r1 are promised by then"
    assert scheduled["id"] in refused.json()["detail"]
    committed = network.api(
        "POST", f"/v1/reservations/{held['id']}/commit", headers={"Prefer": "wait=60"}
    )
    assert committed.json()["state"] == "active"
    for one in (active, scheduled, held):
        release(network, f"/v1/reservations/{one['id']}")
    assert network.get("/v1/topology")["circuits"] == []
