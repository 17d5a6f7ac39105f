"""Incidents of a night: output of status, conditions, page and explain, and the alert that fires.

A real Prometheus scrapes the controller and judges by the shipped rules, in which a minute is three
quarters of a second here: `for: 10m` takes 7.5 s, and `[15m]` looks back 11.25 s. The incident of a
lost quorum is in `test_replicas`, which has several controllers. With `-rP`, pytest shows the
delays of all reports.
"""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
import yaml
from playwright.sync_api import expect

from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.testbed.disk import small_disk
from tests.prometheus import ask, scraping

from .full_disk import filled, refused_for_the_disk
from .live import DEMO_CONFIG, Live, live, silent, wait_until
from .operators import Operator, shortened_rules

pytestmark = [pytest.mark.ovs, pytest.mark.takes(140)]

MINUTE_S = 0.75
PATIENT_S = 5.5
"""Longer than the wait of any rule that could fire for an incident."""
DISK_BYTES = 16 << 20


@dataclass(kw_only=True)
class Night(Operator):
    network: Live

    def hears_only(self, alert: str) -> None:
        """Wait for the alert, then as long as other alerts would need."""
        wait_until(lambda: alert in self.firing())
        self.note(alert)
        time.sleep(PATIENT_S)  # timed: other alerts would need so long
        assert self.firing() == {alert}

    def is_over(self) -> None:
        """No condition and no alert is left."""
        network = self.network
        network.give_everything_back()
        for one in network.get("/v1/reservations?state=failed")["reservations"]:
            self.run("release", one["id"])
        wait_until(lambda: self.run("status")[0] == 0)
        # Rules are judged one after another: an inhibited alert may follow the alert that inhibited
        # it.
        wait_until(lambda: not ask(self.prometheus, "count_over_time(ALERTS[2s])"))


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """The shipped rules, with MINUTE_S for a minute."""
    return shortened_rules(tmp_path_factory.mktemp("rules") / "hydra.rules.yml", MINUTE_S)


def remote(verb: str, number: int) -> None:
    """Have the database listen for a rack's session, or close the rack's session."""
    words = [f"ovsdb-server/{verb}-remote", f"ptcp:{6640 + number}:127.0.0.1"]
    subprocess.run(["ovs-appctl", "-t", "ovsdb-server", *words], check=True)


@pytest.fixture(scope="module")
def whole_night(demo_testbed, tmp_path_factory, rules, browser):
    directory = tmp_path_factory.mktemp("night")
    racks = yaml.safe_load(DEMO_CONFIG.read_text())["racks"]
    racks[0]["tor"]["address"] = (
        "127.0.0.1:{6640 + rack}"  # a session per rack, so that a single session can be closed
    )
    with ExitStack() as stack:
        for number in range(1, len(demo_testbed.fabric.racks) + 1):
            remote("add", number)
            stack.callback(remote, "remove", number)
        disk = stack.enter_context(small_disk(directory / "disk", DISK_BYTES))
        (directory / "journal.db").symlink_to(disk / "journal.db")
        network = stack.enter_context(live(demo_testbed, directory, None, {"racks": racks}))
        target = network.process.base_url.removeprefix("http://")
        prometheus = stack.enter_context(scraping([target], rules, directory))
        page = stack.enter_context(browser.new_context()).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(network.process.base_url)
        wait_until(lambda: bool(ask(prometheus, "hydra_ready == 1")))
        yield Night(network.process.base_url, prometheus, page, network=network)
        assert errors == []


@pytest.fixture
def night(whole_night):
    """A controller and a fabric for all incidents; each incident ends with a healthy network."""
    yield whole_night
    whole_night.is_over()


@contextmanager
def cut(plane: str, rack: int = 1):
    """A cut fibre."""
    link = f"hyc-{plane}-{rack}"
    subprocess.run(["ip", "link", "set", "dev", link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", "dev", link, "up"], check=True)


@contextmanager
def dead(ocs):
    """A dead optical switch whose mirrors hold."""
    ocs.kill()
    try:
        yield
    finally:
        ocs.start()
        ocs.wait_until_ready()


@contextmanager
def refusing(ocs):
    """An optical switch that moves no mirror."""
    ocs.admin.fault(FaultKind.REFUSE)
    try:
        yield
    finally:
        ocs.admin.clear()


@contextmanager
def hung_up(number: int):
    """A ToR that closes its session, and accepts no new session."""
    remote("remove", number)
    try:
        yield
    finally:
        remote("add", number)


@contextmanager
def stopped(process):
    """A stopped controller."""
    assert process.stop() == 0
    try:
        yield
    finally:
        process.start()


def test_a_fibre_is_cut_and_another_plane_is_free(night):
    kept = night.network.reserve("r1", "r2")
    (plane,) = night.network.planes_between("r1", "r2")
    with night.incident(cut(plane)):
        wait_until(lambda: night.network.planes_between("r1", "r2") not in ((), (plane,)))
        (out,) = night.is_told("port-quarantined", words=f"carrier lost at r1:hyt-r1-{plane}")
        assert "has other paths" in out["done"] and out["reservations"] == []
        night.hears_only("HydraCircuitLost")
    assert f"carrier lost at r1:hyt-r1-{plane}" in night.run("explain", "circuit", "r1", "r2")[1]
    assert night.network.get(f"/v1/reservations/{kept['id']}")["state"] == "active"


def test_a_fibre_is_cut_and_no_plane_is_free(night):
    network = night.network
    lost, other = network.reserve("r1", "r2", 80), network.reserve("r1", "r3", 80)
    (plane,) = network.planes_between("r1", "r2")
    with night.incident(cut(plane)):
        wait_until(lambda: network.get(f"/v1/reservations/{lost['id']}")["state"] == "failed")
        first, _ = night.is_told(
            "reservation-failed", "port-quarantined", words=f"reservation {lost['id']}"
        )
        assert (first["kind"], first["reservations"]) == ("reservation-failed", [lost["id"]])
        assert first["pairs"] == [{"src": "r1", "dst": "r2"}]
        night.hears_only("HydraReservationFailed")
        explained = night.run("explain", "circuit", "r1", "r2")[1]
        assert f"carrier lost at r1:hyt-r1-{plane}" in explained
        assert f"reservation {lost['id']} (r1 to r2, 80 Mb/s) is failed" in explained
        out = rf"r1:hyt-r1-{plane} is (left out of plans until .*|on trial), since .*: carrier lost"
        assert re.search(out, explained)
        assert first["command"] == "hydra reserve r1 r2 --mbps 80 --at-least 20", "by two relays"
        assert night.run("release", other["id"])[0] == 0
        first, _ = night.conditions()
        command = first["command"].split()
        assert command == ["hydra", "reserve", "r1", "r2", "--mbps", "80"]
        assert night.run(*command[1:], "--wait")[0] == 0, "what it says to do helps"
        assert night.kinds() == {"port-quarantined"}


def test_an_optical_switch_dies(night):
    kept = night.network.reserve("r1", "r2")
    (plane,) = night.network.planes_between("r1", "r2")
    with night.incident(dead(night.network.testbed.ocs(plane))):
        words = f"optical switch {plane} can't be commanded"
        (down,) = night.is_told("optical-switch-down", words=words)
        assert down["reservations"] == [kept["id"]]
        assert down["pairs"] == [{"src": "r1", "dst": "r2"}]
        night.hears_only("HydraDeviceDown")
        planned = night.run("plan", "--demand", "r3:r4=80")[1]
        assert f"at risk: optical switch {plane} is left out" in planned
        assert words in night.run("explain", "circuit", "r1", "r2")[1]


def test_an_optical_switch_refuses(night):
    with night.incident(refusing(night.network.testbed.ocs("p1"))):
        assert night.network.reserve("r1", "r2")["state"] == "active"
        assert night.network.planes_between("r1", "r2") == ("p2",)
        (out,) = night.is_told("port-quarantined", words="r1:hyt-r1-p1")
        assert "p1" in out["what"]
        night.hears_only("HydraCircuitsFail")
        assert out["what"].partition(" (r1:")[0] in night.run("explain", "circuit", "r1", "r2")[1]


def test_a_vswitch_is_away(night):
    kept = night.network.reserve("r1", "r2")
    bridge = night.network.fabric.server_by_name["h11"].vswitch.bridge
    with night.incident(silent(bridge)):
        words = f"switch {bridge} is not connected"
        (gone,) = night.is_told("switch-not-connected", words=words)
        assert gone["reservations"] == [kept["id"]]
        night.hears_only("HydraVswitchesMissing")
        assert f"at risk: vswitch {bridge} is not" in night.run("plan", "--demand", "r1:r3=80")[1]
        assert words in night.run("explain", "circuit", "r1", "r2")[1]


def test_a_tor_hangs_up(night):
    kept = night.network.reserve("r1", "r2")
    with night.incident(hung_up(1)):
        words = "ToR r1 can't be commanded"
        (down,) = night.is_told("tor-down", words=words)
        assert down["reservations"] == [kept["id"]]
        night.hears_only("HydraDeviceDown")
        assert words in night.run("explain", "circuit", "r1", "r2")[1]


def test_the_controller_is_away_and_comes_back_while_the_page_is_open(night):
    kept = night.network.reserve("r1", "r2")
    page = night.page
    expect(page.locator("#summary")).to_contain_text("✓ ready · ✓ healthy")
    with night.incident(stopped(night.network.process)):
        expect(page.locator("#error")).to_contain_text("does not answer")
        expect(page.locator("#summary .old")).to_have_count(2)
        expect(page.locator("#conditions")).to_have_text("Not known.")
        night.note("on the page")
        assert night.run("status")[0] == 3
        # No other target is scraped that could cause a further alert.
        wait_until(lambda: night.firing() == {"HydraDown"})
        night.note("HydraDown")
    expect(page.locator("#summary")).to_contain_text("✓ ready · ✓ healthy")
    expect(page.locator("#error")).to_be_hidden()
    copy = page.locator("#reservations").get_by_role("button", name=f"Copy {kept['id']}")
    expect(copy).to_be_visible()
    assert night.run("status")[0] == 0
    explained = night.run("explain", "circuit", "r1", "r2")[1]
    assert f"reservation {kept['id']}" in explained
    assert f"asked for by: reservation {kept['id']}" in explained, "from before it was away"


def test_the_disk_is_full(night):
    kept = night.network.reserve("r3", "r4")
    disk = night.network.process.config.parent / "disk"
    with night.incident(filled(disk)):
        assert refused_for_the_disk(night.network).status_code == 503
        (failed,) = night.is_told("journal-failed", words="disk is full", status=1)
        assert failed["command"] == "df -h"
        night.hears_only("HydraJournalFails")
        assert kept["id"] in night.run("explain", "circuit", "r3", "r4")[1]
