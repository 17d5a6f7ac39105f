"""The dashboard in a real browser, with a controller of a real network."""

from __future__ import annotations

import re

import pytest
import yaml
from playwright.sync_api import expect

from apps.rest.tokens import write_tokens
from hydra.access import Role, make_token
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.stage.controller_client import ControllerClient, OneWayDemand, PairDemand
from mininet_scenarios.stage.streams import paced_stream

from .conftest import CONFIGS
from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(35)]

POLICY = {
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "quarantine_s": None,
}
"""A policy with quickly measured demand."""
SLOW_DRAIN = {"reads": 100, "interval_ms": 40, "bound_ms": 20_000}
"""A change of 4 s, so that a page can show the change."""
WATCH = """() => {
  window.shown = [];
  const facts = document.getElementById('reconfiguration-facts');
  new MutationObserver(() => window.shown.push(facts.textContent.split(' · ')[0].split(': ')[1]))
    .observe(facts, { childList: true, characterData: true, subtree: true });
}"""
"""Records every state of a reconfiguration shown by the page."""


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, POLICY) as network:
        yield network
    for plane in demo_testbed.fabric.planes:
        demo_testbed.ocs(plane.name).admin.clear()


def dry_run(network, page):
    """Press the button until there is traffic to plan for, as a person would."""
    wait_until(lambda: network.get("/v1/demand")["source"] == "measured")
    ask = page.locator("#ask")
    for _ in range(20):
        page.get_by_role("button", name="Plan…").click()
        expect(ask).to_be_visible()
        if ask.get_by_role("button", name="Carry out plan").is_visible():
            return ask
        ask.get_by_role("button", name="Cancel").click()
        page.wait_for_timeout(250)  # timed: then the test asks again
    raise AssertionError("the page never offered a plan")


@pytest.mark.core("the dashboard in a browser")
def test_an_operator_sees_a_reconfiguration_happen(network, page):
    page.goto(network.process.base_url)
    expect(page.locator("#connection")).to_have_text("● live")
    expect(page.locator("#circuits")).to_contain_text("No circuits.")
    with paced_stream(
        network.stage, "h11", "h21", pps=550, payload_bytes=1400, count=100_000
    ) as traffic:
        ask = dry_run(network, page)
        expect(ask).to_contain_text(re.compile(r"up: r1 =p\d= r2"))
        assert network.client.reconfigurations() == [], "a dry run changes nothing"
        ask.get_by_role("button", name="Carry out plan").click()
        expect(page.locator("#circuits tbody")).to_contain_text("r1 – r2")
        expect(page.locator("#reconfiguration-facts")).to_contain_text(": done")
        assert network.lost_but_in_queues(traffic.stop()) == 0
    (record,) = network.client.reconfigurations()
    assert record.trigger == "operator"
    timeline = page.locator("#timeline")
    for step in record.timeline:
        expect(timeline).to_contain_text(step.device or step.step)
    assert {"r1", "p1"} <= {step.device for step in record.timeline}
    expect(page.locator("#summary")).to_contain_text("epoch 1")
    page.get_by_role("button", name=re.compile(r"Why is r1 =p\d= r2 here")).click()
    expect(page.locator("#why")).to_contain_text(f"was set up by reconfiguration {record.id} of")
    expect(page.locator("#why")).to_contain_text("asked for by: operator")


def test_a_viewer_sees_what_an_operator_does_and_can_change_nothing(demo_testbed, tmp_path, page):
    viewer, seen = make_token("vera", Role.VIEWER, "of-no-controller", 1.0)
    operator, doing = make_token("olaf", Role.OPERATOR, "of-no-controller", 1.0)
    write_tokens(tmp_path / "tokens.json", [seen, doing])
    shipped = yaml.safe_load((CONFIGS / "demo.yaml").read_text())
    section = {**shipped["controller"], "tokens": str(tmp_path / "tokens.json")}
    with live(demo_testbed, tmp_path, POLICY, {"controller": section}) as network:
        page.goto(network.process.base_url)
        page.get_by_label("Token").fill(viewer)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("#connection")).to_have_text("● live")
        with ControllerClient(network.process.base_url, operator) as olaf:
            olaf.reconfigure([PairDemand("r1", "r2", 80.0)])
            expect(page.locator("#circuits tbody")).to_contain_text("r1 – r2")
            expect(page.locator("#summary")).to_contain_text("epoch 1")
            expect(page.locator("#who")).to_have_text("vera, viewer")
            expect(page.get_by_role("button", name="Plan…")).to_have_count(0)
    page.excused += ["401", "ERR_"]  # the browser itself reports each error


def test_a_circuit_that_moves_is_seen_to_run_empty(network, page):
    network.client.amend({"drain": SLOW_DRAIN})
    network.change("r1", "r2", "p1")
    page.goto(network.process.base_url)
    expect(page.locator("#connection")).to_have_text("● live")
    expect(page.locator("#circuits tbody")).to_contain_text("r1 – r2p1")
    page.evaluate(WATCH)
    network.change("r1", "r2", "p2")
    expect(page.locator("#circuits tbody")).to_contain_text("r1 – r2p2")
    expect(page.locator("#reconfiguration-facts")).to_contain_text("1 circuit up, 1 down")
    shown = page.evaluate("window.shown")
    assert {"making", "emptying"} <= set(shown[: shown.index("done")]), shown


def test_what_fails_is_in_quarantine_until_it_is_cleared_on_the_page(network, page):
    network.testbed.ocs("p1").admin.fault(FaultKind.NO_LIGHT)
    page.goto(network.process.base_url)
    expect(page.locator("#quarantine")).to_contain_text("No port is in quarantine.")
    assert network.reserve("r1", "r2")["state"] == "active"
    expect(page.locator("#circuits tbody")).to_contain_text("r1 – r2p2")
    expect(page.locator("#reservations tbody")).to_contain_text("r1 =p2= r240active")
    expect(page.locator("#quarantine tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Clear r1 hyt-r1-p1", exact=True).click()
    expect(page.locator("#ask")).to_contain_text("no carrier at r1")
    page.get_by_role("button", name="Clear port").click()
    expect(page.locator("#quarantine tbody tr")).to_have_count(1)
    assert [port["rack"] for port in network.get("/v1/quarantine")["ports"]] == ["r2"]


@pytest.mark.parametrize("shipped", ["one-way"], indirect=True, scope="module")
def test_a_ring_of_one_way_circuits_is_seen_with_its_directions(network, page):
    page.goto(network.process.base_url)
    expect(page.locator("#connection")).to_have_text("● live")
    with paced_stream(
        network.stage, "h21", "h11", pps=275, payload_bytes=1400, count=100_000
    ) as udp:
        ask = dry_run(network, page)
        expect(ask).to_contain_text(re.compile(r"up: r2 =p\d> r1"))
        ask.get_by_role("button", name="Cancel").click()
        assert network.lost_but_in_queues(udp.stop()) == 0
    ring = [("r1", "r2"), ("r2", "r3"), ("r3", "r1")]
    demand = [OneWayDemand(src, dst, 80) for src, dst in ring]
    record = network.client.reconfigure(demand, use_planes=["p1"])
    for src, dst in ring:
        expect(page.locator("#circuits tbody")).to_contain_text(f"{src} → {dst}p1")
    page.get_by_role("button", name="Why is r3 =p1> r1 here?").click()
    why = page.locator("#why")
    expect(why).to_contain_text("The circuit lights r1 hyt-r1-p1, which sends on r1 =p1> r2.")
    expect(why).to_contain_text(f"was set up by reconfiguration {record.id} of")
