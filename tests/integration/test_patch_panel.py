"""A plane operated by a person: its circuits wait for the person, and nothing else waits."""

from __future__ import annotations

import time

import pytest
import yaml

from drivers.registry import optical_switch
from hydra.model import CrossConnect
from tests.waiting import HANGS_S, PATIENCE_S

from .live import DEMO_CONFIG, live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(15)]


@pytest.fixture
def network(demo_testbed, tmp_path):
    """The demo's fabric, with p1 as a patch panel for the controller; its fibres are emulated
    mirrors.
    """
    (plane,) = yaml.safe_load(DEMO_CONFIG.read_text())["planes"]
    panel = {"names": "p1", "driver": "manual", "address": "panel: shelf 1"}
    panel["options"] = {"state": f"{tmp_path}/{{name}}.db"}
    planes = [plane | panel, plane | {"names": "p2", "address": "127.0.0.1:5026"}]
    with live(demo_testbed, tmp_path, {"audit_interval_s": 0}, {"planes": planes}) as running:
        yield running


def pairs(told) -> list[CrossConnect]:
    return [CrossConnect(one["ingress"], one["egress"]) for one in told]


def person_works(network) -> None:
    """Does each task, and confirms."""
    (task,) = network.get("/v1/devices/p1/tasks")["tasks"]
    fibres = optical_switch(
        network.fabric.plane_by_name["p1"], PATIENCE_S
    )  # by the testbed's names
    fibres.change(pairs(task["disconnect"]), pairs(task["connect"]))
    fibres.close()
    said = network.api("POST", f"/v1/devices/p1/tasks/{task['id']}", json={"state": "done"})
    assert said.status_code == 200, said.text


def test_others_do_not_wait_for_the_person(network):
    slow = network.begin_change("r1", "r2", "p1")
    wait_until(lambda: network.state_of(slow) == "partial")
    failure = network.get(f"/v1/reconfigurations/{slow}")["failures"][0]["reason"]
    assert "task 1 waits for a person" in failure
    (panel,) = [d for d in network.get("/v1/devices")["devices"] if d["name"] == "p1"]
    assert (panel["connected"], panel["detail"]) == (True, "task 1 waits for a person (r1 - r2)")

    started = time.monotonic()
    quick = network.begin_change("r3", "r4", "p2")
    wait_until(lambda: network.state_of(quick) == "done")
    assert time.monotonic() - started < HANGS_S, "a person has half an hour"
    assert network.everyone_reaches_everyone()
    assert network.planes_between("r1", "r2") == ()

    person_works(network)
    wait_until(lambda: network.planes_between("r1", "r2") == ("p1",))
    assert network.planes_between("r3", "r4") == ("p2",)
    assert network.everyone_reaches_everyone()


def test_a_reservation_is_activating_until_the_person_has_worked(network):
    for rack, plane in (("r1", "p2"), ("r2", "p2"), ("r3", "p1"), ("r4", "p1")):
        aside = f"/v1/quarantine/{rack}/hyt-{rack}-{plane}"
        assert network.api("PUT", aside, json={"reason": "no spare fibre"}).is_success
    body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 40}
    waiting = network.api("POST", "/v1/reservations", json=body).json()
    wait_until(lambda: network.get("/v1/devices/p1/tasks")["tasks"] != [])

    def state() -> str:
        return network.get(f"/v1/reservations/{waiting['id']}")["state"]

    network.process.kill()  # the task outlives the controller
    network.process.start()
    wait_until(network.devices_are_connected)
    assert network.reserve("r3", "r4")["state"] == "active"
    assert state() == "activating"
    person_works(network)
    wait_until(lambda: state() == "active")
    assert network.planes_between("r1", "r2") == ("p1",)
    assert network.reaches("h11", "h21")
