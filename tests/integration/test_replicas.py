"""Controllers that share a store take over from each other, under paced traffic."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager

import pytest
import yaml

from apps.client import ClientError, HydraClient
from apps.rest.models import Gap
from hydra.lifecycle import ReservationState
from mininet_scenarios.replicas import replicas
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream

from .live import DEMO_CONFIG, dropped_frames
from .warm import warm

pytestmark = [pytest.mark.ovs, pytest.mark.takes(60)]

LEASE_S = 7
"""Longer than the default: other tests keep the machine busy, and a leader that gets no processor
for as long ends, as it should."""
LOST_LEASE = 75


class Follower:
    """Follows the events of whoever leads, by the URLs of all, until a reservation is released."""

    def __init__(self, urls):
        self.ids = []
        self.gaps = 0
        self._urls = urls
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def await_end(self):
        self._thread.join(60)
        assert not self._thread.is_alive()
        return [int(one.rpartition("-")[2]) for one in self.ids]

    def _follow(self):
        with HydraClient(",".join(self._urls)) as client:
            last = None
            while True:
                try:
                    for number, event in client.events(last_id=last):
                        last = number
                        self.ids.append(number)
                        self.gaps += isinstance(event, Gap)
                        one = None if isinstance(event, Gap) else event.reservation
                        if one is not None and one.state is ReservationState.RELEASED:
                            return
                except ClientError:
                    time.sleep(0.1)


def test_another_one_leads_and_nothing_is_lost(demo_testbed, tmp_path):
    """After a kill, a pause past the lease, when asked to, and without etcd: what was promised
    stands, and who follows events misses none.
    """
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)
    options = {"lease_s": LEASE_S, "launch": warm().launch}
    with (
        EtcdMembers(tmp_path / "etcd", 3) as etcd,
        replicas(stage, etcd, {}, {}, **options) as these,
    ):
        http, urls = these.http, {name: one.base_url for name, one in these.processes.items()}

        refuses_to_be_taken_for_the_leader(http, urls)
        follower = Follower([urls["b"], urls["a"]])
        promise = Promise(http, urls)
        dark, dropped = dark_frames(demo_testbed), dropped_frames(demo_testbed)
        with paced_stream(stage, "h11", "h21", pps=200, payload_bytes=200, count=40_000) as stream:
            these.kill("a")
            assert these.leader() == "b"
            promise.stands("b")
            assert promise.asked_again("b") == promise.id
            these.start("a")
            these.standing_by(1)
            these.freeze("b")
            assert these.leader() == "a"
            assert these.thaw("b") == LOST_LEASE
            assert these.ready() == {"a"}
            promise.stands("a")
            these.start("b")
            these.standing_by(1)
            asked = http.post(f"{urls['a']}/v1/handover", json={})
            assert asked.json() == {"standing_by": [urls["b"]]}
            assert these.leader("a") == "b"
            assert these.await_end("a") == 1
            promise.stands("b")
            these.start("a")
            these.standing_by(1)
            with without_quorum(etcd):
                assert these.await_end("b") == LOST_LEASE
                refuses_all_but_old_reads(http, urls["a"], promise.path)
            assert these.leader() == "a"
            promise.stands("a")
            result = stream.stop()
        assert http.delete(urls["a"] + promise.path).is_success
        numbers = follower.await_end()
        assert (numbers, follower.gaps) == ([*range(numbers[0], numbers[-1] + 1)], 0)
        assert dark_frames(demo_testbed) == dark
        assert max(0, result.lost - (dropped_frames(demo_testbed) - dropped)) == 0
        assert result.sent > 200 * LEASE_S


def refuses_to_be_taken_for_the_leader(http, urls):
    refused = http.get(f"{urls['b']}/readyz")
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/standing-by")
    assert refused.json()["detail"].endswith(f"leads: ask at {urls['a']}")


class Promise:
    """A reservation that was asked for by way of a controller that stands by."""

    def __init__(self, http, urls):
        self._http = http
        self._urls = urls
        made = self._reserve("b")
        assert made.is_success, made.text
        assert (made.json()["state"], made.headers["Via"]) == ("active", "1.1 hydra")
        self.id = made.json()["id"]
        self.path = f"/v1/reservations/{self.id}"
        asked_unix_s = time.time()
        seen = http.get(urls["b"] + self.path)
        assert seen.json() == made.json()
        assert float(seen.headers["HydRA-As-Of"]) >= asked_unix_s - 0.001
        self._at = made.json()["path"]
        self._circuits = self._circuits_at("a")

    def asked_again(self, name):
        """Id of what the same request has made."""
        return self._reserve(name).json()["id"]

    def stands(self, name):
        found = self._http.get(self._urls[name] + self.path).json()
        assert (found["state"], found["path"], found["reason"]) == ("active", self._at, "")
        assert self._circuits_at(name) == self._circuits

    def _reserve(self, name):
        headers = {"Prefer": "wait=20", "Idempotency-Key": "once"}
        body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 20}
        url = f"{self._urls[name]}/v1/reservations"
        return self._http.post(url, json=body, headers=headers, timeout=30)

    def _circuits_at(self, name):
        found = self._http.get(f"{self._urls[name]}/v1/topology").json()["circuits"]
        return [(one["plane"], one["a"], one["b"]) for one in found]


@contextmanager
def without_quorum(etcd):
    """Of three members the one that leads is killed, and its successor stopped for the block."""
    etcd.kill(etcd.leader())
    stopped = etcd.leader()
    etcd.signal(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        etcd.signal(stopped, signal.SIGCONT)


def refuses_all_but_old_reads(http, url, promised):
    old = http.get(url + promised)
    assert (old.json()["state"], int(old.headers["Age"]) > 0) == ("active", True)
    for refused in (
        http.patch(url + promised, json={"bandwidth_mbps": 10}),
        http.get(f"{url}/readyz"),
        http.get(f"{url}/readyz?standby=true"),
    ):
        assert (refused.status_code, refused.json()["type"]) == (503, NO_STORE)
    (wrong,) = http.get(f"{url}/v1/conditions").json()["conditions"]
    assert (wrong["kind"], wrong["pairs_total"]) == ("store-unavailable", 1)


NO_STORE = "/problems/store-unavailable"


def dark_frames(testbed):
    return sum(testbed.ocs(plane.name).dark_frames() for plane in testbed.fabric.planes)
