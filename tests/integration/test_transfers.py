"""Bytes by a deadline: meters keep the rate, and a lost circuit leads to a new plan."""

from __future__ import annotations

import subprocess
import time

import pytest

from .live import live, wait_until

pytestmark = pytest.mark.ovs

WAIT = {"Prefer": "wait=60"}


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    with live(demo_testbed, tmp_path_factory.mktemp("transfers")) as running:
        yield running


def test_a_transfer_that_loses_its_circuit_is_planned_again(network):
    deadline = time.time() + 900
    body = {"src": "h11", "dst": "h21", "megabytes": 2_000, "end_unix_s": deadline}
    made = network.api("POST", "/v1/reservations", json=body, headers=WAIT).json()
    assert (made["state"], made["bandwidth_mbps"], made["duration_s"]) == ("active", 100, 160)
    other = network.reserve("h12", "h22", 60)
    assert other["state"] == "active"
    at, plane = f"/v1/reservations/{made['id']}", made["path"]["hops"][0]["plane"]
    assert other["path"]["hops"][0]["plane"] != plane
    cut = f"hyc-{plane}-1"
    subprocess.run(["ip", "link", "set", "dev", cut, "down"], check=True)
    try:
        wait_until(lambda: network.get(at)["bandwidth_mbps"] == 40)
        wait_until(lambda: network.get(at)["path"]["hops"] == other["path"]["hops"])
        now = network.get(at)
        assert now["state"] == "active"
        assert made["expires_unix_s"] < now["expires_unix_s"] <= deadline
        assert now["transfer"]["missing_megabytes"] == 0
        assert "was planned again" in now["reason"]
        assert network.reaches("h11", "h21")
        assert not network.conditions("transfer-at-risk")
        network.process.kill()
        network.process.start()
        wait_until(lambda: network.get(at)["state"] == "active")
        after = network.get(at)
        assert (after["bandwidth_mbps"], after["transfer"]) == (40, now["transfer"])
    finally:
        subprocess.run(["ip", "link", "set", "dev", cut, "up"], check=True)
    for one in (made, other):
        released = network.api("DELETE", f"/v1/reservations/{one['id']}", headers=WAIT)
        assert released.status_code == 200
