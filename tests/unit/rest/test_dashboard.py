"""The dashboard's content, in a real browser, with a running REST server."""

import re
import time

import pytest
from playwright.sync_api import expect

from hydra.history import HappeningKind
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState
from hydra.policy import DemandBasis, Prediction
from hydra.reservations.reservation import ReservationRequest
from hydra.service import DeviceStatus

from .dashboard_pages import MOMENT, shoot
from .fake_service import recorded, ring_state

pytestmark = pytest.mark.takes(10)


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
        "To do: repair the devices; clearing the ports ends the trial now: hydra quarantine"
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
    expect(why).to_contain_text("the averages that servers send, over 3 s.")
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


NO_LOOKS = """
const later = window.setTimeout;
window.setTimeout = (what, ms) => (ms < 1500 ? later(what, ms) : 0);
"""
"""The page reads only after an event, never because a pause is over."""


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
