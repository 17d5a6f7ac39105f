"""Operators' actions on the dashboard: plans, quarantine and policy, in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from .dashboard_pages import shoot, told_by
from .fake_service import ring_state

pytestmark = pytest.mark.takes(7)


def test_a_port_is_set_aside_with_all_that_stands_on_it(server, service, page):
    service.network = ring_state()
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(3)
    page.locator("#aside-rack").fill("r2")
    page.locator("#aside-port").fill("hyt-r2-p1")
    page.get_by_role("button", name="Set aside…").click()
    ask = page.locator("#ask")
    for circuit in ("r1 =p1> r2", "r2 =p1> r3"):
        expect(ask).to_contain_text(f"{circuit} stands on the port")
        expect(ask).to_contain_text(f"The circuit carries {circuit}.")
    expect(ask).not_to_contain_text("r3 =p1> r1")


def test_a_plan_is_shown_before_it_is_carried_out(server, network, page):
    page.goto(server.url)
    page.get_by_role("button", name="Plan…").click()
    ask = page.locator("#ask")
    expect(ask).to_contain_text("80 of 80 Mb/s would be served")
    expect(ask).to_contain_text("Circuits alone would serve 75.0 %")
    expect(ask).to_contain_text("no plan can serve more than 87.5 % so")
    expect(ask).to_contain_text("up: r1 =p1= r3")
    expect(ask).not_to_contain_text("At risk")
    shoot(page, "plan")
    page.get_by_role("button", name="Cancel").click()
    network.away = ["vswitch h42 is not connected"]
    page.get_by_role("button", name="Plan…").click()
    expect(ask).to_contain_text("At risk, as devices are missing:vswitch h42 is not connected")
    network.away = []
    page.get_by_role("button", name="Cancel").click()
    assert len(network.reconfigurations()) == 1
    page.get_by_role("button", name="Plan…").click()
    page.get_by_role("button", name="Carry out plan").click()
    expect(page.locator("#reconfiguration option").nth(1)).to_have_text(re.compile("operator"))
    assert len(network.reconfigurations()) == 2


def test_a_plan_is_for_the_demand_that_policy_foretells(server, network, page):
    document = told_by(server, "demand")
    for entry in document["entries"]:
        entry["planned_mbps"] = 33.0
    page.route("**/v1/demand", lambda route: route.fulfill(json=document))
    page.goto(server.url)
    page.get_by_role("button", name="Plan…").click()
    expect(page.locator("#ask")).to_contain_text("would be served")
    demand = network.plan_requests[-1].demand
    assert set(demand[demand > 0]) == {33.0}


def test_a_plan_prefers_guesses_as_the_loop_does(server, network, page):
    page.goto(server.url)
    page.get_by_role("button", name="Plan…").click()
    ask = page.locator("#ask")
    expect(ask).to_contain_text("would be served")
    ask.get_by_role("button", name="Carry out plan").click()
    expect(page.locator("#reconfiguration option").nth(1)).to_have_text(re.compile("operator"))
    _, shown, made = network.plan_requests
    assert network.demand().counted_on_mbps.sum() < network.demand().planned_mbps.sum()
    for request in (shown, made):
        assert request.demand == pytest.approx(network.demand().planned_mbps)
        assert request.weights == pytest.approx(network.demand().counted_on_mbps)


def test_a_second_press_before_the_answer_asks_nothing_more(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    network.blocked.clear()
    page.get_by_role("button", name="Plan…").dblclick()
    expect(page.locator("#asking")).to_have_text("Asking the controller…")
    page.get_by_role("button", name="Clear r1 hyt-r1-p1", exact=True).click()
    ask = page.locator("#ask")
    expect(ask).not_to_be_visible()
    network.blocked.set()
    ask.get_by_role("button", name="Carry out plan").click()
    expect(page.locator("#reconfiguration option").nth(1)).to_have_text(re.compile("operator"))
    expect(page.locator("#asking")).to_be_empty()
    assert len(network.plan_requests) == 3, "the fixture's, a dry run, and what it showed"
    assert len(network.reconfigurations()) == 2
    assert len(network.quarantined) == 2
    page.get_by_role("button", name="Clear r1 hyt-r1-p1", exact=True).click()
    expect(ask).to_contain_text("no carrier at r1")


def test_a_quarantine_is_cleared_after_a_question(server, network, page):
    page.goto(server.url)
    page.get_by_role("button", name="Clear r1 hyt-r1-p1", exact=True).click()
    expect(page.locator("#ask")).to_contain_text("no carrier at r1")
    page.get_by_role("button", name="Clear port").click()
    expect(page.locator("#quarantine tbody tr")).to_have_count(1)


def test_a_port_is_set_aside_after_a_question(server, network, page):
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    page.locator("#aside-rack").fill("r2")
    page.locator("#aside-port").fill("hyt-r2-p2")
    page.get_by_role("button", name="Set aside…").click()
    ask = page.locator("#ask")
    expect(ask).to_contain_text("r2 =p2= r3 stands on the port")
    expect(ask).to_contain_text("The circuit carries r1 =p1= r3 =p2= r2.")
    ask.get_by_label("Why?").fill("fibre is cleaned")
    shoot(page, "aside")
    ask.get_by_role("button", name="Set port aside").click()
    expect(page.locator("#quarantine")).to_contain_text("fibre is cleaned")
    assert network.quarantined[-1].entry.until_unix_s is None


def test_the_file_is_taken_over_from_the_policy(server, network, page):
    page.goto(server.url)
    page.get_by_role("button", name="Policy…").click()
    dialog = page.locator("#policy-dialog")
    expect(dialog).to_contain_text("policy.epoch_s: 10.0 → 5.0")
    expect(dialog).to_contain_text("Waits for the next start")
    shoot(page, "policy")
    dialog.get_by_role("button", name="Cancel").click()
    assert network.reloads == 0
    page.get_by_role("button", name="Policy…").click()
    page.get_by_role("button", name="Take the file over").click()
    expect(dialog).not_to_be_visible()
    assert network.reloads == 1


def test_the_policy_begins_with_what_differs_and_is_searched(server, network, page):
    network.amendments |= {"epoch_s": 7.0}
    page.goto(server.url)
    page.get_by_role("button", name="Policy…").click()
    groups = page.locator("#policy-groups .group")
    expect(groups.first.locator("h3")).to_have_text("Differs from the default")
    expect(groups.first.locator("tbody tr")).to_have_count(1)
    expect(groups.first).to_contain_text("epoch_s")
    expect(groups.first.locator("td").nth(2)).to_have_text("10.0 s")
    assert "Drain" in groups.locator("h3").all_inner_texts()
    page.get_by_label("Search").fill("readings with unchanged counters")
    shown = page.locator("#policy-groups tbody tr:visible")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("drain.reads")
    expect(page.locator("#policy-found")).to_have_text("1 key found")
    expect(groups.first).to_be_hidden()


def test_the_policy_is_changed_where_it_is_shown(server, network, page):
    page.goto(server.url)
    page.get_by_role("button", name="Policy…").click()
    dialog = page.locator("#policy-dialog")
    change = dialog.get_by_role("button", name="Change policy")
    expect(change).to_be_disabled()
    dialog.get_by_label("policy.epoch_s").fill("soon")
    change.click()
    expect(dialog.get_by_role("alert")).to_contain_text("epoch_s")
    page.excused.append("422")
    dialog.get_by_label("policy.epoch_s").fill("20")
    dialog.get_by_label("policy.mode").select_option("periodic")
    expect(page.locator("#policy-changes")).to_have_text(
        "mode: on-request → periodic · epoch_s: 10.0 → 20"
    )
    change.click()
    expect(dialog).not_to_be_visible()
    assert (network.policy.epoch_s, network.policy.mode.value) == (20.0, "periodic")
