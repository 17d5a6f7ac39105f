"""Protected reservations with switches held by workers, and after a takeover."""

from __future__ import annotations

import pytest
import yaml

from hydra_hybrid_network_client import HydraClient, ReservationState
from hydra_hybrid_network_client.documents import Protect
from mininet_scenarios import plain_http
from mininet_scenarios.replicas import replicas
from mininet_scenarios.stage.controller_client import ControllerClient
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.workers import await_workers, workers
from tests.waiting import PATIENCE_S

from .live import DEMO_CONFIG, wait_until
from .pings import all_answered, ping_command
from .test_protection import POLICY, cut_fibre
from .warm import warm

pytestmark = [pytest.mark.ovs, pytest.mark.takes(90)]
LEASE_S = 7
"""Longer than the defaults: other tests keep the machine busy."""


@pytest.fixture
def stage(demo_testbed, tmp_path):
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    return Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)


def plane_of(path):
    (hop,) = path.hops
    return hop.plane


def protected(hydra):
    """An active reservation with both paths."""
    made = hydra.reserve("h11", "h21", 40, protect=Protect.DISJOINT, wait_s=60)
    assert made.state is ReservationState.ACTIVE
    wait_until(lambda: len(hydra.topology().paths) == 2)
    return hydra.reservation(made.id)


def goes_on_after_a_cut(stage, hydra, url, reservation):
    """The traffic goes on over the path on standby, and never leaves the circuits."""
    working, standby = plane_of(reservation.path), plane_of(reservation.protection.path)
    assert {working, standby} == {"p1", "p2"}
    with cut_fibre(working):
        wait_until(lambda: plane_of(hydra.reservation(reservation.id).path) == standby)
        wait_until(lambda: [plane_of(path) for path in hydra.topology().paths] == [standby])
        assert hydra.reservation(reservation.id).state is ReservationState.ACTIVE
        address = str(stage.fabric.server_by_name["h21"].addresses[0].ip)
        printed, _, _ = stage.testbed.host("h11").pexec(ping_command(address, 2))
        assert all_answered(printed, 2)
    with ControllerClient(url) as client:
        changes = [one for one in client.reconfigurations() if one.trigger == "circuit lost"]
    steps = {step.step for change in changes for step in change.timeline}
    assert changes
    assert "divert" not in steps


def test_the_other_worker_switches_over(stage):
    with (
        workers(stage, POLICY, ("w1", "w2"), lease_s=LEASE_S, launch=warm().launch) as running,
        HydraClient(running[0].base_url) as hydra,
    ):
        process, these = running

        def seen():
            url = f"{process.base_url}/v1/workers"
            return plain_http.get(url, timeout=PATIENCE_S).json()["workers"]

        await_workers(seen, lambda two: len(two) == 2 and all(one["serves"] for one in two))
        made = protected(hydra)
        these["w1"].kill()
        await_workers(seen, lambda one: [worker["name"] for worker in one] == ["w2"])
        wait_until(lambda: all(one.connected for one in hydra.devices().devices))
        goes_on_after_a_cut(stage, hydra, process.base_url, made)


def test_the_next_leader_switches_over(stage, tmp_path):
    options = {"lease_s": LEASE_S, "launch": warm().launch}
    with (
        EtcdMembers(tmp_path / "etcd", 1) as etcd,
        replicas(stage, etcd, POLICY, {}, **options) as these,
        HydraClient(",".join(one.base_url for one in these.processes.values())) as hydra,
    ):
        made = protected(hydra)
        these.kill("a")
        assert these.leader() == "b"
        wait_until(lambda: all(one.connected for one in hydra.devices().devices))
        now = hydra.reservation(made.id)
        assert (now.path, now.protection) == (made.path, made.protection)
        goes_on_after_a_cut(stage, hydra, these.processes["b"].base_url, now)
