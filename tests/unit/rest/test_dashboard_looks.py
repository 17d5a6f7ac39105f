"""Appearance and handling of the dashboard's parts, in a real browser."""

import re
import time

import pytest
from playwright.sync_api import expect

from hydra.history import HappeningKind
from hydra.lifecycle import ReservationState
from hydra.model import Circuit, NetworkState, PlaneId, PortId, Topology

from .dashboard_pages import MOMENT, told_by
from .fake_service import recorded, relay_path

pytestmark = pytest.mark.takes(10)

OTHER = Circuit(PlaneId(0), PortId(2), PortId(6))
"""From r2 to r4 on p1."""


def test_tiles_tell_of_now_and_of_the_last_hour(server, network, page):
    recorded(network)
    page.goto(server.url)
    tiles = page.locator(".tile")
    expect(tiles.locator("dt")).to_have_text(
        ["Carried", "On circuits", "Circuits in use", "Reservations kept", "Last change"]
    )
    values = tiles.locator(".value")
    expect(values).to_have_text(["15.5 Mb/s", "81 %", "2", "1 of 1", "4.5 ms"])
    expect(tiles.locator(".note")).to_contain_text(
        ["by both networks", "of pairs with circuits", "4 of 8 ports", "all stages due", MOMENT]
    )
    carried = tiles.first.locator(".line")
    expect(carried).to_have_attribute("d", re.compile(r"^M116\.0 0\.0h0L.*L120\.0 0\.0$"))
    network.settle("v0", ReservationState.FAILED, "no other path")
    expect(values.nth(3)).to_have_text("0 of 1")
    expect(tiles.nth(3)).to_contain_text("✗ 1 not kept")


def test_tiles_say_that_nothing_is_recorded(server, network, page):
    page.goto(server.url)
    expect(page.locator(".tile").first).to_contain_text("not recorded")


def test_a_remedy_and_an_id_are_copied_by_a_click(server, network, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(server.url)
    page.get_by_role("button", name="Copy hydra quarantine clear r2 hyt-r2-p2").click()
    expect(page.locator("#toast")).to_have_text("Copied hydra quarantine clear r2 hyt-r2-p2")
    read = "navigator.clipboard.readText()"
    assert page.evaluate(read) == "hydra quarantine clear r2 hyt-r2-p2"
    page.locator("#reservations").get_by_role("button", name="Copy v0").click()
    expect(page.locator("#toast")).to_have_text("Copied v0")
    assert page.evaluate(read) == "v0"


def test_a_long_id_is_shown_short_and_copied_whole(server, network, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    document = told_by(server, "reconfigurations")
    document["reconfigurations"][0]["id"] = "0123456789ab"
    page.route("**/v1/reconfigurations", lambda route: route.fulfill(json=document))
    page.goto(server.url)
    expect(page.locator("#reconfiguration-facts")).to_contain_text("012345: partial")
    page.get_by_role("button", name="Copy 0123456789ab").click()
    expect(page.locator("#toast")).to_have_text("Copied 0123456789ab")
    assert page.evaluate("navigator.clipboard.readText()") == "0123456789ab"


def test_times_are_short_and_have_their_date(server, network, page):
    now_s = time.time()
    for age_s in (7200, 130, 5):
        network.past.add(now_s - age_s, HappeningKind.LOGIN, f"{age_s} s ago", [])
    page.goto(server.url)
    times = page.locator("#history time")
    expect(times.nth(0)).to_have_text(re.compile("^just now$|^1 min ago$"))
    expect(times.nth(1)).to_have_text(re.compile(r"^\d min ago$"))
    expect(times.nth(2)).to_have_text(re.compile(r"\d\d:\d\d:\d\d$"))
    expect(times.nth(5)).to_have_text(MOMENT)
    expect(times.nth(5)).to_have_attribute("title", re.compile("14 November 2023.* UTC"))
    expect(page.locator("#zone")).to_have_text("times in UTC")


def test_on_a_telephone_rows_are_cards_with_the_heads_of_their_columns(server, network, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server.url)
    cells = page.locator("#circuits tbody tr").first.locator("td")
    expect(cells).to_have_count(4)
    named = "all => all.map(one => getComputedStyle(one, '::before').content)"
    assert cells.evaluate_all(named) == ['"Circuit"', '"Plane"', '"Load"', '"Why"']
    tops = cells.evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert tops == sorted(set(tops)), "below each other"


PIXELS = """(points) => {
  const canvas = document.getElementById('heat');
  const ratio = canvas.width / canvas.getBoundingClientRect().width;
  const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return points.map(([x, y]) => {
    const at = 4 * (Math.round(y * ratio) * width + Math.round(x * ratio));
    return [...data.slice(at, at + 3)];
  });
}"""
"""Colours of the heat map at the given points."""


def test_cells_of_the_heat_map_tell_zero_from_itself_and_from_a_demand(server, network, page):
    page.goto(server.url)
    expect(page.locator("#heat-legend li")).to_have_count(3)
    side = page.locator("#heat").bounding_box()["width"]
    cell = 48
    edge = side - 4 * cell - 1
    assert 10 < edge < cell
    places = [(3, 0), (0, 0), (3, 3), (0, 1), (2, 3)]  # rows and columns
    points = [[edge + (to + 0.2) * cell, edge + (of + 0.85) * cell] for of, to in places]
    nothing, first, last, highest, other = page.evaluate(PIXELS, points)
    assert nothing == [0, 0, 0], "nothing is drawn: the background"
    assert first == last == [207, 214, 221], "the diagonal is grey"
    assert highest == [0, 34, 78]
    assert other not in (nothing, first, highest)


def test_what_averages_keep_of_traffic_that_has_ended_is_zero(server, network, page):
    document = told_by(server, "demand")
    for entry in document["entries"]:
        if entry["src"] == "r3":
            entry["rate_mbps"] = 1e-8
    page.route("**/v1/demand", lambda route: route.fulfill(json=document))
    page.goto(server.url)
    expect(page.locator("#electrical tbody")).to_have_text("None.")
    side = page.locator("#heat").bounding_box()["width"]
    edge = side - 4 * 48 - 1
    assert page.evaluate(PIXELS, [[edge + 3.2 * 48, edge + 2.85 * 48]]) == [[0, 0, 0]]


def test_the_ring_is_walked_and_pointed_at(server, network, page):
    page.goto(server.url)
    words = page.locator("#ring-circuit")
    expect(words).to_contain_text("Point at a circuit")
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    ring = page.locator("#ring")
    ring.focus()
    page.keyboard.press("ArrowRight")
    expect(words).to_have_text("r1 =p1= r3: 13% of 100 Mb/s")
    page.keyboard.press("ArrowRight")
    expect(words).to_have_text("r2 =p2= r3: 0% of 100 Mb/s")
    page.keyboard.press("Enter")
    expect(page.locator("#why")).to_contain_text("ports hyt-r2-p2 and hyt-r3-p2")
    page.keyboard.press("Escape")
    box = ring.bounding_box()
    middle = {"x": box["width"] / 2, "y": box["height"] / 2}
    ring.hover(position={"x": 10, "y": 10})
    expect(words).to_contain_text("Point at a circuit")
    ring.hover(position=middle)
    expect(words).to_have_text("r1 =p1= r3: 13% of 100 Mb/s")
    ring.click(position=middle)
    expect(page.locator("#why")).to_contain_text("ports hyt-r1-p1 and hyt-r3-p1")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_circuits_that_come_and_go_are_marked_while_a_change_lasts(server, network, page, motion):
    page.emulate_media(reduced_motion=motion)
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    network.reconfigure(None, "operator")
    expect(page.locator("#reconfiguration-facts")).to_contain_text("queued")
    first, _ = relay_path().circuits
    network.network = NetworkState(4, Topology(frozenset({first}), ()))
    marks = page.locator("#ring-change")
    expect(marks).to_have_text("× 1 circuit going down")
    moves = "true" if motion == "no-preference" else "false"
    expect(page.locator("#ring")).to_have_attribute("data-moves", moves)
    network.network = NetworkState(5, Topology(frozenset({first, OTHER}), ()))
    expect(marks).to_have_text("+ 1 circuit coming up · × 1 circuit going down")
    network.finish("c1")
    expect(marks).to_be_empty()


def test_why_is_answered_in_the_first_sentence(server, network, page):
    page.goto(server.url)
    why = page.locator("#why")
    page.get_by_role("button", name="Why is r1 =p1= r3 here?").click()
    answer = why.locator("#why-text > :first-child")
    expect(answer).to_have_text("The circuit was promised to the reservation of r1 to r2.")
    page.keyboard.press("Escape")
    network.settle("v0", ReservationState.FAILED, "no other path")
    expect(page.locator("#reservations")).to_contain_text("✗ failed")
    page.get_by_role("button", name="Why is r1 =p1= r3 here?").click()
    expect(answer).to_have_text("The circuit carries the traffic of r1 to r2.")
    page.keyboard.press("Escape")
    network.network = NetworkState(4, Topology(frozenset(relay_path().circuits), ()))
    expect(page.locator("#summary")).to_contain_text("0 paths")
    page.get_by_role("button", name="Why is r1 =p1= r3 here?").click()
    expect(answer).to_have_text(
        "No traffic uses the circuit: the circuit is idle, and free for the next plan."
    )


def test_large_numbers_are_divided_by_commas(server, network, page):
    page.goto(server.url)
    counted = "({ count }) => [1, 320, 5119].map(many => count(many, 'port'))"
    assert page.evaluate(f"import('/dashboard/dom.js').then({counted})") == [
        "1 port",
        "320 ports",
        "5,119 ports",
    ]


def test_each_dialog_has_at_most_one_primary_button(server, network, page):
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    many = "all => all.map(one => one.querySelectorAll('.primary, .danger').length)"
    assert set(page.locator("dialog").evaluate_all(many)) <= {0, 1}


@pytest.mark.parametrize(("width", "columns"), [(390, 1), (1280, 2), (1920, 3), (2560, 3)])
def test_columns_follow_the_width_and_the_header_stays(server, network, page, width, columns):
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    lefts = page.locator(".column > section").evaluate_all(
        "all => all.map(one => Math.round(one.getBoundingClientRect().left))"
    )
    assert len(set(lefts)) == columns
    page.evaluate("scrollTo(0, 600)")
    assert page.locator("header").evaluate("one => one.getBoundingClientRect().top") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
