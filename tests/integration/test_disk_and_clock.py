"""A controller with a full disk or a changed clock: traffic and controller go on."""

from __future__ import annotations

import time

import pytest

from mininet_scenarios.stage.preloaded import Preloaded
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed.disk import small_disk

from .full_disk import filled, refused_for_the_disk
from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]

DISK_BYTES = 1 << 20
FOR_EVER = {"duration_s": 400_000}


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", DISK_BYTES) as directory:
        yield directory


def test_a_full_disk_stops_changes_and_no_traffic(demo_testbed, tmp_path, disk):
    (tmp_path / "journal.db").symlink_to(disk / "journal.db")
    with live(demo_testbed, tmp_path) as network:
        assert network.reserve("r3", "r4")["state"] == "active"
        network.change("r1", "r2", "p1")
        standing = network.planes_between("r3", "r4")
        with paced_stream(network.stage, "h31", "h41", pps=100, payload_bytes=200) as udp:
            with filled(disk):
                answer = refused_for_the_disk(network)
                assert answer.status_code == 503, answer.text
                assert answer.json()["type"] == "/problems/journal-failed"
                assert "database or disk is full" in answer.json()["detail"]
                change = network.begin_change("r1", "r2", "p2")
                wait_until(lambda: network.state_of(change) == "failed")
                assert network.planes_between("r3", "r4") == standing
                assert network.everyone_reaches_everyone()
            network.give_everything_back()
            assert network.reserve("r3", "r4")["state"] == "active"
            network.change("r1", "r2", "p2")
            assert network.planes_between("r1", "r2") == ("p2",)
            result = udp.stop()
        assert network.lost_but_in_queues(result) == 0
        assert network.everyone_reaches_everyone()


@pytest.fixture
def clock(tmp_path, monkeypatch):
    """Shifts the time of day, in s, of processes started from now on."""
    preloaded = Preloaded(tmp_path)
    for name, value in preloaded.environment.items():
        monkeypatch.setenv(name, value)
    return preloaded.set_clock_by


def today(network):
    """The controller's time of day."""
    return network.reserve("r1", "r3", 1, hold_s=60)["created_unix_s"]


def test_a_clock_that_is_set_moves_nothing(demo_testbed, tmp_path, clock):
    with live(demo_testbed, tmp_path, {"poll_interval_s": 0.5}, cold=True) as network:
        kept = network.reserve("r3", "r4", **FOR_EVER)
        with paced_stream(network.stage, "h31", "h41", pps=100, payload_bytes=200) as udp:
            for jump_s in (86_400, -86_400):
                clock(jump_s)
                wait_until(lambda by=jump_s: abs(today(network) - time.time() - by) < 60)
                assert network.devices_are_connected()
                network.change("r1", "r2", "p1")
                network.change("r1", "r2", "p2")
                assert network.get(f"/v1/reservations/{kept['id']}")["state"] == "active"
            result = udp.stop()
        assert network.lost_but_in_queues(result) == 0
        changes = network.client.reconfigurations()
        assert [one.state for one in changes[:4]] == ["done"] * 4
        assert network.everyone_reaches_everyone()


def test_a_clock_that_steps_back_as_reservations_begin_costs_no_frame(
    demo_testbed, tmp_path, clock
):
    with live(demo_testbed, tmp_path, cold=True) as network:
        dark = network.dark_frames()
        with paced_stream(network.stage, "h11", "h21", pps=300, payload_bytes=200) as udp:
            for jump_s in (-3_600, 0) * 2:
                body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 40, **FOR_EVER}
                answer = network.api("POST", "/v1/reservations", json=body)
                clock(jump_s)
                path = f"/v1/reservations/{answer.json()['id']}"
                wait_until(lambda it=path: network.get(it)["state"] == "active")
                assert network.planes_between("r1", "r2")
                assert network.api("DELETE", path).is_success
                wait_until(lambda it=path: network.get(it)["state"] == "released")
            result = udp.stop()
        assert network.lost_but_in_queues(result) == 0
        assert network.dark_frames() == dark
