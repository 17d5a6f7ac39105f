"""Controllers that share a store take over from each other, under paced traffic.

The incident of a lost quorum is tested as an operator sees it (the other incidents are in
`test_incidents`); with `-rP`, pytest shows the delays.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import yaml
from playwright.sync_api import expect

from hydra_hybrid_network_client import ClientError, HydraClient, ReservationState
from hydra_hybrid_network_client.documents import Gap
from mininet_scenarios.emulators.stranger import Stranger
from mininet_scenarios.replicas import replicas
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream
from tests.prometheus import ask, scraping
from tests.waiting import HANGS_S, PATIENCE_S

from .live import DEMO_CONFIG, PATIENT, dropped_frames, wait_until
from .operators import Operator, shortened_rules
from .warm import warm

pytestmark = [pytest.mark.ovs, pytest.mark.takes(60)]

LEASE_S = 7
"""Longer than the default: other tests keep the machine busy, and a leader without processor time
for the lease ends, as intended.
"""
LOST_LEASE = 75
PPS = 100
"""Any fault here that cut a pair off would last for seconds."""
MINUTE_S = 10
"""Time of the alerts: a controller restarted within a minute is no incident."""


class Follower:
    """Follows the leader's events, by the URLs of all controllers, until a reservation is
    released.
    """

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


def test_another_one_leads_and_nothing_is_lost(demo_testbed, tmp_path, page):
    """After a kill, a pause past the lease, a handover, and without etcd: promises stand, and
    followers miss no event.
    """
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)
    options = {"lease_s": LEASE_S, "launch": warm().launch}
    with (
        EtcdMembers(tmp_path / "etcd", 3) as etcd,
        replicas(stage, etcd, PATIENT, {}, **options) as these,
    ):
        http, urls = these.http, {name: one.base_url for name, one in these.processes.items()}

        refuses_to_be_taken_for_the_leader(http, urls)
        wait_until(lambda: roles_at_switches(these) == {("a", "master"), ("b", "slave")})
        follower = Follower([urls["b"], urls["a"]])
        promise = Promise(http, urls)
        dark, dropped = dark_frames(demo_testbed), dropped_frames(demo_testbed)
        with paced_stream(stage, "h11", "h21", pps=PPS, payload_bytes=200) as stream:
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
            wait_until(lambda: roles_at_switches(these) == {("a", "slave"), ("b", "master")})
            with watched(urls, tmp_path, page) as operator:
                with operator.incident(without_quorum(etcd)):
                    assert these.await_end("b") == LOST_LEASE
                    these.start("b")  # as by its service
                    is_told_that_nobody_leads(operator, promise, urls["b"])
                    refuses_all_but_old_reads(http, urls["a"], promise.path)
                leader = these.leader()
                is_told_that_it_is_over(operator)
            promise.stands(leader)
            result = stream.stop()
        assert http.delete(urls[leader] + promise.path).is_success
        numbers = follower.await_end()
        assert (numbers, follower.gaps) == ([*range(numbers[0], numbers[-1] + 1)], 0)
        assert dark_frames(demo_testbed) == dark
        assert max(0, result.lost - (dropped_frames(demo_testbed) - dropped)) == 0
        assert result.sent > PPS * LEASE_S


def test_a_takeover_does_not_wait_for_a_switch_that_is_connected_and_silent(demo_testbed, tmp_path):
    """The stranger has a vswitch's datapath id, says hello, and answers only echoes."""
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)
    policy = {"timeouts": {"vswitch_s": PATIENCE_S}}
    vswitch = demo_testbed.fabric.server_by_name["h41"].vswitch
    with (
        EtcdMembers(tmp_path / "etcd", 1) as etcd,
        replicas(stage, etcd, policy, {}, lease_s=LEASE_S, launch=warm().launch) as these,
        without_controllers(vswitch.bridge),
        ExitStack() as strangers,
    ):
        for one in these.processes.values():
            address = one.settings.openflow_host, one.settings.openflow_port
            stranger = Stranger(address, vswitch.datapath_id, nonsense=True)
            strangers.callback(stranger.leave)
            assert stranger.is_switch.wait(PATIENCE_S)
        these.kill("a")
        killed_s = time.monotonic()
        assert these.leader() == "b"
        assert time.monotonic() - killed_s < HANGS_S


@contextmanager
def without_controllers(bridge):
    """A vswitch that keeps its rules, and connects to no controller."""
    asked = ["ovs-vsctl", "get-controller", bridge]
    targets = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["ovs-vsctl", "del-controller", bridge], check=True)
    try:
        yield
    finally:
        subprocess.run(["ovs-vsctl", "set-controller", bridge, *targets], check=True)


def roles_at_switches(these):
    """The role of each controller by Open vSwitch, at any switch."""
    shown = subprocess.run(
        ["ovs-vsctl", "--format=json", "--columns=target,role", "list", "controller"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = {
        f"tcp:127.0.0.1:{one.settings.openflow_port}": name for name, one in these.processes.items()
    }
    seen = json.loads(shown)["data"]
    return {(names[target], role if isinstance(role, str) else "none") for target, role in seen}


def refuses_to_be_taken_for_the_leader(http, urls):
    refused = http.get(f"{urls['b']}/readyz")
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/standing-by")
    assert refused.json()["detail"].endswith(f"leads: ask at {urls['a']}")


class Promise:
    """A reservation requested through a standby."""

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
        """Id of the reservation made by the same request."""
        return self._reserve(name).json()["id"]

    def stands(self, name):
        found = self._http.get(self._urls[name] + self.path).json()
        assert (found["state"], found["path"], found["reason"]) == ("active", self._at, "")
        assert self._circuits_at(name) == self._circuits

    def _reserve(self, name):
        headers = {"Prefer": "wait=60", "Idempotency-Key": "once"}
        body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 20}
        url = f"{self._urls[name]}/v1/reservations"
        return self._http.post(url, json=body, headers=headers, timeout=PATIENCE_S)

    def _circuits_at(self, name):
        found = self._http.get(f"{self._urls[name]}/v1/topology").json()["circuits"]
        return [(one["plane"], one["a"], one["b"]) for one in found]


@contextmanager
def without_quorum(etcd):
    """etcd's leader of three members is killed, and its successor is stopped for the block."""
    etcd.kill(etcd.leader())
    stopped = etcd.leader()
    etcd.signal(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        etcd.signal(stopped, signal.SIGCONT)


@contextmanager
def watched(urls, directory, page):
    """An operator asks the first controller, a standby, while Prometheus scrapes all
    controllers.
    """
    page.excused += ["503", "ERR_"]  # the browser itself reports each error
    targets = [one.removeprefix("http://") for one in urls.values()]
    rules = shortened_rules(directory / "hydra.rules.yml", MINUTE_S)
    with scraping(targets, rules, directory) as prometheus:
        page.goto(urls["a"])
        expect(page.locator("#summary")).to_contain_text("✓ ready · ✓ healthy")
        wait_until(lambda: len(ask(prometheus, "hydra_leads")) == len(targets))
        yield Operator(urls["a"], prometheus, page)


def is_told_that_nobody_leads(operator, promise, started):
    """Also by the former leader, which has just been started again."""
    operator.note("nobody leads")
    (wrong,) = operator.is_told("store-unavailable", words=NO_ANSWER, status=1)
    assert (wrong["reservations"], wrong["command"]) == ([promise.id], "hydra replicas")
    assert [one["kind"] for one in operator.conditions(started)] == ["store-unavailable"]
    asked = operator.run("status", "--url", started)
    operator.note("status, of both")
    assert (asked[0], asked[1].startswith(f"not ready: {NOBODY_KNOWN}")) == (1, True), asked
    page = operator.page
    expect(page.locator("#summary")).to_contain_text("✗ not ready · ✗ not healthy: 1 thing wrong")
    expect(page.locator("#missing")).to_contain_text(NOBODY_KNOWN)
    expect(page.locator("#error")).to_contain_text("No controller leads")
    operator.note("not ready on the page")
    code, explained = operator.run("explain", "circuit", "r1", "r2")
    assert (code, NOBODY_KNOWN in explained) == (3, True), explained
    wait_until(lambda: "HydraNobodyLeads" in operator.firing())
    operator.note("HydraNobodyLeads")
    wait_until(lambda: len(ask(operator.prometheus, "ALERTS")) == 1)  # b answers again
    assert operator.firing() == {"HydraNobodyLeads"}


def is_told_that_it_is_over(operator):
    operator.note("one leads again")
    wait_until(lambda: operator.run("status")[0] == 0)
    expect(operator.page.locator("#summary")).to_contain_text("✓ ready · ✓ healthy")
    expect(operator.page.locator("#error")).to_be_hidden()
    wait_until(lambda: not ask(operator.prometheus, "ALERTS"))
    assert operator.firing() == {"HydraNobodyLeads"}
    operator.note("over")


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
NO_ANSWER = "the store that the controllers share does not answer"
NOBODY_KNOWN = "this controller stands by, and does not know the leader"


def dark_frames(testbed):
    return sum(testbed.ocs(plane.name).dark_frames() for plane in testbed.fabric.planes)
