"""The dashboard in a real browser, in front of a running REST server."""

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from apps.controller.stored import StoredView
from apps.process.term import Standby
from apps.rest.app import create_app
from apps.rest.resources import dashboard
from apps.rest.server import RestServer
from hydra.history import HappeningKind
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState
from hydra.policy import DemandBasis, Prediction
from hydra.reservations.reservation import ReservationRequest
from hydra.service import DeviceStatus
from tests.waiting import PATIENCE_S

from .dashboard_pages import MOMENT, complaints, shoot, told_by
from .fake_service import recorded, ring_state
from .test_replicas import Term
from .test_standby import Copies

pytestmark = pytest.mark.takes(25)

STATIC = Path(dashboard.__file__).parents[1] / "static"


def test_everything_is_shown(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_have_text(
        "✓ ready · ✗ not healthy: 2 things wrong"
        " · epoch 3 · 4 racks · 2 planes · 2 circuits · 1 path"
    )
    wrong = page.locator("#conditions li")
    expect(wrong).to_have_count(2)
    expect(wrong.nth(1)).to_contain_text("no carrier at r1 (r1:hyt-r1-p1)")
    expect(wrong.nth(1)).to_contain_text(
        "To do: repair the devices, and clear the ports: hydra quarantine"
    )
    expect(page.locator("#connection")).to_have_text("● live")
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    expect(page.locator("#circuits tbody tr").first).to_contain_text("r1 – r3")
    expect(page.locator("#circuits tbody tr").first).to_contain_text("13%")
    expect(page.locator("#demand-summary")).to_contain_text(
        "15.5 Mb/s measured, on average over 3 s"
    )
    expect(page.locator("#timeline")).to_contain_text("h11")
    expect(page.locator("#timeline .note")).to_have_text("2 rules")
    expect(page.locator("#day")).to_have_text("Nothing in the last day.")  # of years ago
    expect(page.locator("#reconfiguration-facts")).to_contain_text("no light at r3")
    expect(page.locator("#reservations tbody")).to_contain_text(
        re.compile(r"r1 to r2v0r1 =p.=.* r240active38.5 / –from .* until released")
    )
    expect(page.locator("#devices tbody tr").first).to_contain_text("never connected")
    expect(page.locator("#quarantine tbody tr")).to_have_count(2)
    expect(page.locator("#history tbody tr").first).to_contain_text(
        "v7 (r1 to r2, 40 Mb/s) is failed"
    )
    expect(page.locator("#decisions li")).to_have_text(
        f"{MOMENT} keep: gains 1.0 Mb/s, less than 5 Mb/s"
    )
    shoot(page, "demo")


def test_why_is_this_circuit_here(server, network, page):
    page.goto(server.url)
    page.get_by_role("button", name="Why is r1 =p1= r3 here?").click()
    why = page.locator("#why")
    expect(why).to_contain_text("r1 =p1= r3 =p2= r2, VLAN 7: 12.5 Mb/s there")
    expect(why).to_contain_text("v0 active: r1 to r2, 40 Mb/s")
    expect(why).to_contain_text("was set up by reconfiguration c0 of")
    expect(why).to_contain_text("asked for by: periodic")
    expect(why).to_contain_text(f"c0 of {MOMENT}, asked for by")
    expect(why).to_contain_text(f"r1:hyt-r1-p1 is on trial, since {MOMENT}: no carrier at r1")
    assert not re.search(r"\dT\d\d:\d\d:\d\dZ", why.inner_text()), "one form of time"
    shoot(page, "why")
    page.keyboard.press("Escape")
    expect(why).not_to_be_visible()


def test_the_last_day_has_a_line_for_each_kind(server, network, page):
    now_s = time.time()
    for hours, kind in ((30, "login"), (18, "quarantine"), (6, "quarantine"), (6, "condition")):
        network.past.add(now_s - 3600 * hours, HappeningKind(kind), "words", [])
    page.goto(server.url)
    day = page.locator("#day")
    expect(day).to_have_text(re.compile("condition1quarantine2a day agonow"))
    places = day.locator(".piece").evaluate_all("all => all.map(one => parseFloat(one.style.left))")
    assert sorted(places) == pytest.approx([25, 75, 75], abs=0.5)
    network.past.add(time.time(), HappeningKind.LOGIN, "olaf came", [])
    expect(day).to_contain_text("login1")
    expect(day).to_contain_text("quarantine2")


def test_the_last_hour_of_circuits_and_pairs_is_drawn_and_told(server, network, page):
    recorded(network)
    page.goto(server.url)
    page.get_by_role("button", name="Why is r1 =p1= r3 here?").click()
    why = page.locator("#why")
    there = "r1 to r3: 60 Mb/s at the last sample, 60 at most, 30 on average; not known for 10 s."
    ports = "A sample every 10 s: the rate between the last two readings of the ports."
    expect(why).to_contain_text(ports)
    expect(why).to_contain_text("what servers send, on average over 3 s.")
    expect(why.locator(".load-there")).to_have_text(there)
    expect(why.locator(".load-back")).to_contain_text("r3 to r1: 0 Mb/s at the last sample, 0 at")
    line = why.locator("svg.load .there").get_attribute("d")
    assert line.count("M") == 2, "the line is broken where nothing is known"
    assert line.endswith("L600.0 48.0"), "60 of 100 Mb/s, now"
    shoot(page, "load")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="The last hour of r3 to r4").click()
    expect(why.locator(".load-there")).to_have_text(
        "r3 to r4: 0 Mb/s at the last sample, 0 at most, 0 on average."
    )
    expect(why).to_contain_text("A sample every 10 s: the average over 3 s.")
    expect(why.locator(".load-back")).to_have_text("r4 to r3: not known.")
    page.keyboard.press("Escape")
    page.locator("#heat").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#why-title")).to_have_text("r1 to r2, the last hour")
    expect(why.locator(".load-there")).to_contain_text("r1 to r2: 80 Mb/s at the last")
    expect(why).to_contain_text("carrier lost at r1:hyt-r1-p1")  # a circuit that is gone
    expect(why).to_contain_text("reservation v7 (r1 to r2, 40 Mb/s) is failed: no other path")
    page.keyboard.press("Escape")
    network.recorded = None
    page.get_by_role("button", name="Why is r1 =p1= r3 here?").click()
    expect(why).to_contain_text("Not recorded: policy.poll_interval_s is 0.")


def test_one_way_circuits_are_shown_by_their_direction(server, service, page):
    service.network = ring_state()
    page.goto(server.url)
    rows = page.locator("#circuits tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_have_text(re.compile(r"r1 → r2p1\s*13%"))
    page.get_by_role("button", name="Why is r3 =p1> r1 here?").click()
    why = page.locator("#why")
    expect(why).to_contain_text("from port hyt-r3-p1 to hyt-r1-p1, 100 Mb/s.")
    expect(why).to_contain_text("The circuit lights r1 hyt-r1-p1, which sends on r1 =p1> r2.")
    carried = why.locator("h3:has-text('Paths over the circuit') + ul > li")
    expect(carried).to_have_text("r3 =p1> r1, VLAN 7: 0 Mb/s")
    shoot(page, "one-way")
    page.keyboard.press("Escape")
    page.locator("#heat").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#heat-cell")).to_have_text(
        "r1 to r2: 12.5 Mb/s, by circuits; "
        "constrained, wants perhaps 25 Mb/s, plans count on 20 Mb/s"
    )
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#heat-cell")).to_have_text("r2 to r1: 0 Mb/s, electrically")


def test_arrows_show_where_one_way_circuits_lead(server, service, page, monkeypatch):
    monkeypatch.setattr(service, "port_rates_mbps", dict)
    drawn = []
    for backwards in (False, True, False):
        service.network = ring_state(backwards=backwards)
        page.goto(server.url)
        expect(page.locator("#circuits tbody tr")).to_have_count(3)
        drawn.append(page.evaluate("document.getElementById('ring').toDataURL()"))
    assert drawn[0] == drawn[2] != drawn[1]


def test_a_port_is_set_aside_with_all_that_stands_on_it(server, service, page):
    service.network = ring_state()
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(3)
    page.locator("#aside-rack").fill("r2")
    page.locator("#aside-port").fill("hyt-r2-p1")
    page.get_by_role("button", name="Set aside…").click()
    ask = page.locator("#ask")
    for circuit in ("r1 =p1> r2", "r2 =p1> r3"):
        expect(ask).to_contain_text(f"{circuit} stands on it")
        expect(ask).to_contain_text(f"It carries {circuit}.")
    expect(ask).not_to_contain_text("r3 =p1> r1")


NO_LOOKS = """
const later = window.setTimeout;
window.setTimeout = (what, ms) => (ms < 1500 ? later(what, ms) : 0);
"""
"""The page looks only where an event says so, never because a pause is over."""


def test_an_event_shows_at_once(server, network, page):
    page.add_init_script(NO_LOOKS)
    page.goto(server.url)
    expect(page.locator("#connection")).to_have_text("● live")
    expect(page.locator("#reservations tbody")).to_contain_text("active")
    network.network = NetworkState(4)
    network.settle("v0", ReservationState.FAILED, "no light")
    expect(page.locator("#summary")).to_contain_text("epoch 4")
    expect(page.locator("#circuits")).to_contain_text("No circuits.")
    expect(page.locator("#reservations tbody")).to_contain_text("failed")


def test_a_reconfiguration_is_seen_to_happen(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    network.reconfigure(None, "operator")
    chosen = page.locator("#reconfiguration option").nth(1)
    expect(chosen).to_have_text(re.compile("operator: queued"))
    expect(page.locator("#timeline")).to_contain_text("No substep has begun yet.")
    network.finish("c1")
    expect(page.locator("#timeline")).to_contain_text("divert")
    expect(page.locator("#reconfiguration-facts")).to_contain_text("c1: partial")


@pytest.mark.parametrize(
    ("amendments", "words"),
    [
        ({"demand": DemandBasis.RATE}, "as sent, wants 25 Mb/s"),
        ({"demand": DemandBasis.BACKLOG}, "for waiting traffic, wants 25 Mb/s"),
        (
            {"prediction": Prediction.HOLT},
            "constrained, wants perhaps 25 Mb/s, plans count on 20 Mb/s, holt foretells 25 Mb/s",
        ),
    ],
)
def test_the_heat_map_tells_how_demand_is_known(server, network, page, amendments, words):
    network.amendments |= amendments
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    page.locator("#heat").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#heat-cell")).to_have_text(f"r1 to r2: 12.5 Mb/s, by circuits; {words}")


def test_the_heat_map_is_walked_with_the_keyboard(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    page.locator("#heat").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#heat-cell")).to_have_text("r1 to r1: 0 Mb/s, electrically")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#heat-cell")).to_have_text(
        "r1 to r2: 12.5 Mb/s, by circuits; "
        "constrained, wants perhaps 25 Mb/s, plans count on 20 Mb/s"
    )
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#heat-cell")).to_have_text("r1 to r1: 0 Mb/s, electrically")


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


def test_a_plan_is_asked_of_an_earlier_leader_as_it_can_be(server, network, page):
    """Its demand has no ``expected_mbps``, and in a body it would refuse that."""
    document = told_by(server, "demand")
    for entry in document["entries"]:
        del entry["expected_mbps"]
    page.route("**/v1/demand", lambda route: route.fulfill(json=document))
    sent = []
    page.on("request", lambda one: sent.append(one.post_data) if one.method == "POST" else None)
    page.goto(server.url)
    page.get_by_role("button", name="Plan…").click()
    expect(page.locator("#ask")).to_contain_text("would be served")
    (body,) = sent
    assert json.loads(body)["demand"]
    assert "expected_mbps" not in body
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#heat-cell")).not_to_contain_text("NaN")


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
    expect(ask).to_contain_text("r2 =p2= r3 stands on it")
    expect(ask).to_contain_text("It carries r1 =p1= r3 =p2= r2.")
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


def test_alarms_are_shown_with_their_device(server, network, page):
    page.goto(server.url)
    expect(page.locator("#device-summary")).to_contain_text("1 alarm.")
    expect(page.locator("#devices")).to_contain_text("▲ major LOS at port 3: no light at the input")


def test_devices_that_are_not_listed_are_counted(server, network, page, monkeypatch):
    every = [DeviceStatus(f"p{n}", "optical-switch", "polatis-scpi", True) for n in range(352)]
    monkeypatch.setattr(network, "devices", lambda: every)
    page.goto(server.url)
    expect(page.locator("#devices tbody tr")).to_have_count(100)
    expect(page.locator("#devices-more")).to_have_text("and 252 more: hydra devices")


def test_planes_that_fail_come_first_and_circuits_on_dead_ones_are_marked(
    server, network, page, monkeypatch
):
    dead = DeviceStatus("p2", "optical-switch", "polatis-scpi", False, "no answer")
    monkeypatch.setattr(network, "devices", lambda: [dead])
    network.quarantined.clear()
    page.goto(server.url)
    legend = page.locator("#legend li")
    expect(legend).to_have_text(["p2: 1 ✗ can't be commanded", "p1: 1"])
    expect(page.locator("#circuits tbody tr").first).to_contain_text("✗ p2")
    expect(page.locator("#circuits .bad")).to_have_text(["✗ p2"])
    expect(page.locator("#plane option")).to_have_text(["all", "✗ p2", "p1"])


def test_a_rack_is_looked_for_on_all_planes_and_one_that_is_not_there_is_told(
    server, network, page
):
    page.goto(server.url)
    rows = page.locator("#circuits tbody tr")
    page.locator("#plane").select_option("p2")
    expect(rows).to_have_count(1)
    page.locator("#rack").fill("r3")
    expect(rows).to_have_count(2)
    expect(page.locator("#no-rack")).to_have_text("r3 on all planes")
    page.locator("#rack").fill("r9")
    expect(page.locator("#no-rack")).to_have_text("There is no rack r9.")


def test_hottest_pairs_without_a_circuit_and_idle_circuits_are_named(server, network, page):
    page.goto(server.url)
    hottest = page.locator("#electrical tbody tr")
    expect(hottest.first).to_contain_text("r")
    served = {"r1 to r2", "r2 to r1"}
    pairs = [text.split("\t")[0] for text in hottest.all_inner_texts()]
    rates = [float(cell) for cell in page.locator("#electrical td:nth-child(2)").all_inner_texts()]
    assert pairs and not served & set(pairs)
    assert rates == sorted(rates, reverse=True)
    expect(page.locator("#idle")).to_have_text("1 circuit with less than 1% load: r2 =p2= r3")


def test_reservations_are_shown_whatever_number_of_others_is_over(server, network, page):
    past = ReservationRequest("r3", "r4", 1.0, hold_s=60.0)
    for _ in range(1000):
        network.release(network.reserve(past).id)
    late = network.reserve(ReservationRequest("r3", "r4", 20.0))
    page.goto(server.url)
    rows = page.locator("#reservations tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text(f"r3 to r4{late.id}")
    network.settle(late.id, ReservationState.FAILED, "no other path")
    expect(rows.last).to_contain_text("✗ failed")


def test_what_begins_tomorrow_and_has_no_end_is_within_the_calendar(server, network, page):
    start_s = time.time() + 86_400
    network.reserve(ReservationRequest("r3", "r4", 20.0, start_unix_s=start_s))
    page.goto(server.url)
    bar = page.locator("#reservations .calendar").last
    expect(bar).to_be_visible()
    place = bar.locator(".piece").evaluate("one => [one.style.left, one.style.width]")
    left, width = (float(share.removesuffix("%")) for share in place)
    assert 90 < left < 100 and left + width == pytest.approx(100)


def test_names_are_text_and_never_markup(server, network, page):
    network.unready = ["<img src=x onerror=alert(1)>"]
    network.reconfigure(None, "<script>alert(1)</script>")
    page.goto(server.url)
    option = page.locator("#reconfiguration option").nth(1)
    expect(option).to_have_text(re.compile(re.escape("<script>alert(1)</script>: queued")))
    page.excused.append("503")  # /readyz: the browser reports it itself


def test_a_controller_that_goes_and_comes_back(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    expect(page.locator("#summary .bad")).to_have_count(1)
    server.stop()
    expect(page.locator("#error")).to_contain_text("does not answer")
    expect(page.locator("#summary")).to_contain_text(re.compile("ready · not healthy.* s ago"))
    expect(page.locator("#summary .old")).to_have_count(2)
    expect(page.locator("#summary .good, #summary .bad")).to_have_count(0)
    page.excused.append("ERR_")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (502, "<html>Bad Gateway</html>", "HTTP 502"),
        (500, '{"type": "/problems/internal", "detail": "unexpected error"}', "unexpected error"),
    ],
)
def test_what_is_shown_grows_old_while_readings_fail(server, network, page, status, body, words):
    page.excused.append(str(status))
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("✓ ready")
    page.route("**/v1/**", lambda route: route.fulfill(status=status, body=body))
    expect(page.locator("#error")).to_have_text(f"{words}; trying again. What is shown is old.")
    expect(page.locator("#summary")).to_contain_text(re.compile("ready · not healthy.* s ago"))
    expect(page.locator("#summary .good, #summary .bad")).to_have_count(0)
    page.reload()
    expect(page.locator("#error")).to_have_text(f"{words}; trying again.")
    page.unroute("**/v1/**")
    expect(page.locator("#summary")).to_contain_text("✓ ready")
    expect(page.locator("#error")).to_be_hidden()


def test_an_answer_that_breaks_off_is_no_answer(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    page.route("**/v1/topology", lambda route: route.fulfill(status=200, body='{"fabric": "de'))
    expect(page.locator("#error")).to_contain_text("The controller does not answer")
    expect(page.locator("#circuits")).to_contain_text("r1 – r3")
    page.unroute("**/v1/topology")
    expect(page.locator("#error")).to_be_hidden()


def test_a_controller_that_comes_back_with_fewer_racks_is_shown(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("4 racks")
    page.locator("#heat").focus()
    for key in ["ArrowRight", *["ArrowDown"] * 3]:
        page.keyboard.press(key)
    expect(page.locator("#heat-cell")).to_contain_text("r4 to r1")
    fewer = ["r1", "r2", "r3"]
    topology = {**told_by(server, "topology"), "racks": fewer, "epoch": 9}
    demand = {**told_by(server, "demand"), "entries": []}
    page.route("**/v1/topology", lambda route: route.fulfill(json=topology))
    page.route("**/v1/demand", lambda route: route.fulfill(json=demand))
    expect(page.locator("#summary")).to_contain_text("✓ ready · ✗ not healthy: 2 things wrong")
    expect(page.locator("#summary")).to_contain_text("epoch 9 · 3 racks")
    page.wait_for_timeout(1000)  # timed: nothing may follow
    expect(page.locator("#error")).to_be_hidden()


def hang(page):
    """The controller answers a request of the page no more, until ``unroute`` lets it through."""
    page.route("**/v1/topology", lambda _: None)
    with page.expect_request("**/v1/topology"):
        page.clock.fast_forward(3000)


def test_what_is_shown_grows_old_while_a_controller_hangs(server, network, page):
    page.clock.install()
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("✓ ready")
    hang(page)
    page.clock.fast_forward(7000)
    expect(page.locator("#summary")).to_contain_text(re.compile("ready · not healthy.* s ago"))
    expect(page.locator("#summary .good, #summary .bad")).to_have_count(0)
    page.unroute("**/v1/topology")
    expect(page.locator("#summary")).to_contain_text("✓ ready")


def test_a_controller_that_hangs_is_asked_again(server, network, page):
    page.clock.install()
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("✓ ready")
    hang(page)
    page.clock.fast_forward(21_000)
    expect(page.locator("#error")).to_contain_text("does not answer")
    page.unroute("**/v1/topology")
    page.clock.fast_forward(3000)
    expect(page.locator("#summary")).to_contain_text("✓ ready")
    expect(page.locator("#error")).to_be_hidden()


ANSWERED_LATE = """
const [now, really] = [performance.now.bind(performance), window.fetch];
let behind = 0;
performance.now = () => now() + behind;
window.fetch = async (path, ...more) => {
  const answer = await really(path, ...more);
  if (path === "/v1/demand" && !behind) behind = 60_000;
  return answer;
};
"""
"""The first reading takes a minute longer than it does."""


def test_a_controller_that_answered_late_is_looked_at_again_soon(server, network, page):
    page.add_init_script(ANSWERED_LATE)
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    network.network = NetworkState(4)
    expect(page.locator("#summary")).to_contain_text("epoch 4")


def test_a_stream_that_is_silent_is_not_live(server, network, page):
    page.clock.install()
    page.goto(server.url)
    expect(page.locator("#connection")).to_have_text("● live")
    page.route("**/events*", lambda route: route.abort())  # else it may be live again at once
    page.clock.fast_forward(46_000)
    expect(page.locator("#connection")).to_have_text("○ not live: connecting again")


def test_tabs_share_one_stream(server, network, page):
    """A browser has six connections to a server."""
    streams = []
    context = page.context
    context.on("request", lambda one: streams.append(one.frame) if "/events" in one.url else None)
    tabs = [page, *(context.new_page() for _ in range(6))]
    for tab in tabs:
        tab.goto(server.url)
        expect(tab.locator("#connection")).to_have_text("● live")
    assert streams == [page.main_frame]
    last = tabs[-1]
    last.get_by_role("button", name="Plan…").click()
    last.get_by_role("button", name="Carry out plan").click()
    with tabs[1].expect_request("**/v1/reconfigurations/c0"):  # that is read when it is told of
        network.finish("c0")
    with context.expect_event("request", lambda one: "/events" in one.url):
        page.close()
    told = []
    last.on("request", lambda one: told.append(one) if one.url.endswith("/c0") else None)
    deadline = time.monotonic() + PATIENCE_S
    while not told and time.monotonic() < deadline:  # until what the next tab hears is passed on
        network.finish("c0")
        last.wait_for_timeout(100)
    assert told
    assert len(streams) == 2


def test_a_page_that_can_share_no_stream_has_one_of_its_own(server, network, page):
    context = page.context
    context.add_init_script("delete Navigator.prototype.locks")
    streams = []
    context.on("request", lambda one: streams.append(one.frame) if "/events" in one.url else None)
    tabs = [page, context.new_page()]
    for tab in tabs:
        tab.goto(server.url)
        expect(tab.locator("#connection")).to_have_text("● live")
    assert streams == [tab.main_frame for tab in tabs]


LOOKS_SOON = """
const later = window.setTimeout;
window.setTimeout = (what, ms) => later(what, ms / 10);
"""


@pytest.fixture
def replica(service, network):
    """One of several controllers, and its term."""
    term, copies = Term(), Copies()
    term.leads = True
    app = create_app(service, term=term, view=StoredView(service.fabric, copies))
    running = RestServer(app, "127.0.0.1", 0)
    running.start()
    yield running, term
    running.stop()


def test_where_no_controller_leads_a_standby_says_why_and_is_not_ready(replica, page):
    server, term = replica
    page.excused.append("503")
    page.add_init_script(LOOKS_SOON)
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("✓ ready · ✗ not healthy: 2 things")
    why = "this controller stands by, and does not know the leader: etcd did not answer"
    term.known = Standby(why, None, (1000.0, "etcd did not answer"))
    term.leads = False
    summary = "✗ not ready · ✗ not healthy: 1 thing wrong"
    expect(page.locator("#summary")).to_contain_text(f"{summary} · epoch 3")
    expect(page.locator("#summary .good")).to_have_count(0)
    expect(page.locator("#missing")).to_have_text(f"Not ready: {why}.")
    expect(page.locator("#conditions")).to_contain_text("does not answer: etcd did not answer")
    expect(page.locator("#error")).to_contain_text("No controller leads; trying again.")
    expect(page.locator("#circuits")).to_contain_text("r1 – r3")
    page.reload()
    expect(page.locator("#summary")).to_have_text(summary)
    expect(page.locator("#connection")).to_have_text("○ not live: connecting again")
    expect(page.locator("#conditions")).to_contain_text("hydra replicas")
    term.known = Standby(
        "this controller stands by, and no controller leads: ask again in a moment"
    )
    expect(page.locator("#summary")).to_have_text("✗ not ready · health not known")
    expect(page.locator("#conditions")).to_have_text("Not known.")
    term.leads = True
    expect(page.locator("#summary")).to_contain_text("✓ ready · ✗ not healthy: 2 things")
    expect(page.locator("#error")).to_be_hidden()
    expect(page.locator("#connection")).to_have_text("● live")


def test_that_nothing_is_wrong_is_not_known_of_a_controller_that_is_gone(server, network, page):
    network.quarantined.clear()
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("✓ healthy")
    expect(page.locator("#wrong")).to_be_hidden()
    server.stop()
    expect(page.locator("#conditions")).to_have_text("Not known.")
    expect(page.locator("#wrong")).to_be_visible()
    page.excused.append("ERR_")


def test_what_is_wrong_comes_first_and_as_text(server, network, page):
    network.unready = ["vswitch h42 is not connected"]
    network.network = NetworkState(4)
    network.settle("v0", ReservationState.FAILED, "no other path")
    page.excused.append("503")  # /readyz: the browser reports it itself
    for width in (390, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(server.url)
        failed = page.locator("#conditions li").first
        expect(failed).to_contain_text("v0 (r1 to r2, 40 Mb/s) has failed: no other path")
        expect(failed).to_contain_text("affects pairs r1–r2; reservations v0")
        expect(page.locator("#reservations .bad")).to_have_text("✗ failed")
        expect(page.locator("#reservations")).to_contain_text("no other path")
        expect(page.locator("#missing")).to_have_text("Not ready: vswitch h42 is not connected.")
        tops = page.evaluate(
            "[...document.querySelectorAll('section')].map((s) => s.getBoundingClientRect().top)"
        )
        assert tops[0] < min(tops[1:])
        shoot(page, f"wrong-{width}")
    network.unready = []
    network.quarantined.clear()
    network._book.remove("v0")
    expect(page.locator("#summary")).to_contain_text("✓ healthy")
    expect(page.locator("#wrong")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_fits_and_can_be_read(server, network, page, width, scheme):
    """No sideways scrolling, and text of at least 4.5 to 1 against its ground (WCAG 1.4.3)."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ratios = page.evaluate(
        """() => {
          const value = (name) => {
            const pen = document.createElement('canvas').getContext('2d');
            pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
            pen.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => {
              c /= 255;
              return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          return ['--ink', '--quiet', '--bad', '--good'].map((one) =>
            Math.min(...['--card', '--ground'].map((on) => contrast(value(one), value(on)))));
        }"""
    )
    assert min(ratios) >= 4.5
    shoot(page, f"{scheme}-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_page_nor_in_its_dialogs(server, network, page, scheme):
    recorded(network)
    network.past.add(time.time(), HappeningKind.LOGIN, "olaf came", [])
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server.url)
    expect(page.locator("#conditions .bad-thing").first).to_be_visible()
    page.get_by_text("What the periodic mode decided").click()
    assert complaints(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})
    dialogs = {
        "Why is r1 =p1= r3 here?": "#why .load-there",
        "The last hour of r3 to r4": "#why .load-there",
        "Plan…": "#ask li",
        "Policy…": "#policy-groups table",
    }
    for button, content in dialogs.items():
        page.get_by_role("button", name=button).click()
        expect(page.locator(content).first).to_be_visible()
        assert complaints(page) == [], button
        page.keyboard.press("Escape")


def test_what_has_not_changed_is_left_alone(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("✓ ready")
    changed = page.evaluate(
        """async () => {
          let changes = 0;
          const watch = new MutationObserver((all) => { changes += all.length; });
          for (const one of document.querySelectorAll('#summary, #conditions, #history, #error'))
            watch.observe(one, { childList: true, characterData: true, subtree: true });
          getSelection().selectAllChildren(document.querySelector('#conditions code'));
          const looks = () => Number(document.body.dataset.looks);
          const first = looks();
          while (looks() < first + 2) await new Promise((done) => setTimeout(done, 50));
          return [changes, String(getSelection())];
        }"""
    )
    assert changed == [0, page.locator("#conditions code").first.inner_text()]
    network.quarantined.clear()
    expect(page.locator("#summary")).to_contain_text("✓ healthy")


def test_whoever_closes_a_dialog_is_back_on_its_button(server, network, page):
    page.goto(server.url)
    for name, dialog in (("Why is r1 =p1= r3 here?", "#why"), ("Clear r1 hyt-r1-p1", "#ask")):
        button = page.get_by_role("button", name=name, exact=True)
        button.press("Enter")
        expect(page.locator(dialog)).to_be_visible()
        looks = int(page.locator("body").get_attribute("data-looks"))
        page.wait_for_function("many => Number(document.body.dataset.looks) > many", arg=looks)
        page.keyboard.press("Escape")
        expect(button).to_be_focused()


def test_every_control_can_be_reached_with_the_keyboard(server, network, page):
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.getAttribute('aria-label')"
            )
        )
    assert {"plan", "plane", "rack", "heat", "reconfiguration", "timeline"} <= {
        *reached,
        *({"timeline"} if "Timeline by substep and device" in reached else ()),
    }
    assert {"Why is r1 =p1= r3 here?", "Clear r1 hyt-r1-p1"} <= reached


def test_nothing_comes_from_elsewhere(client):
    answer = client.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in STATIC.iterdir():
        assert not re.search(r"(?:src|href|url|import)\W+(?:https?:)?//", path.read_text()), path
    for name in re.findall(r'"(/dashboard/[^"]+)"', answer.text):
        assert client.get(name).status_code == 200


def test_only_what_belongs_to_the_page_is_given_out(client):
    for name in ("nothing.js", "..%2fapp.py", "%2e%2e", "app.py"):
        answer = client.get(f"/dashboard/{name}")
        assert answer.status_code == 404
        assert json.loads(answer.text)["type"].startswith("/problems/")


def test_the_page_is_part_of_what_is_installed():
    setup = (Path(__file__).parents[3] / "setup.py").read_text()
    assert '"apps.rest": ["static/*"]' in setup
    assert {path.suffix for path in STATIC.iterdir()} == {".html", ".css", ".js"}


def test_the_page_is_no_larger_than_150_kb():
    assert sum(path.stat().st_size for path in STATIC.iterdir()) <= 150_000
