"""The dashboard of an absent, late or standby controller, in a real browser."""

import re
import time

import pytest
from playwright.sync_api import expect

from apps.controller.standby_service import StoredView
from apps.process.term import Standby
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.model import NetworkState
from tests.waiting import PATIENCE_S

from .dashboard_pages import told_by
from .test_replicas import Term
from .test_standby import Copies

pytestmark = pytest.mark.takes(8)


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
    expect(page.locator("#error")).to_have_text(f"{words}; trying again. The page shows old data.")
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
    page.wait_for_timeout(1000)  # timed: no further request is allowed
    expect(page.locator("#error")).to_be_hidden()


def hang(page):
    """The controller answers no request of the page until ``unroute`` lets requests through."""
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
"""The first reading takes a minute longer than in reality."""


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
    page.route(
        "**/events*", lambda route: route.abort()
    )  # otherwise the page may be live again at once
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
    with tabs[1].expect_request("**/v1/reconfigurations/c0"):  # read after its event
        network.finish("c0")
    with context.expect_event("request", lambda one: "/events" in one.url):
        page.close()
    told = []
    last.on("request", lambda one: told.append(one) if one.url.endswith("/c0") else None)
    deadline = time.monotonic() + PATIENCE_S
    while not told and time.monotonic() < deadline:  # until the next tab's events are forwarded
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
    why = "this controller stands by, and does not know who leads: etcd did not answer"
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
    term.known = Standby("this controller stands by, and nobody leads: ask again in a moment")
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
