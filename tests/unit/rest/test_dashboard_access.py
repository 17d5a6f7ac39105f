"""Sign-in to the dashboard, and the content and actions for each role, in a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, write_tokens
from hydra.access import Role, make_token
from hydra.lifecycle import ReservationState
from hydra.reservations.quotas import Quota
from hydra.reservations.reservation import ReservationRequest

from .dashboard_pages import MOMENT, complaints, shoot

pytestmark = pytest.mark.takes(10)


@pytest.fixture
def guarded(service, tmp_path):
    """A server that needs tokens, and tokens by name."""
    roles = {"vera": Role.VIEWER, "tina": Role.TENANT, "olaf": Role.OPERATOR, "h11": Role.AGENT}
    made = {
        name: make_token(name, role, "of-no-controller", 1.0, Quota(5, 120.0))
        for name, role in roles.items()
    }
    write_tokens(tmp_path / "tokens.json", [stored for _, stored in made.values()])
    server = RestServer(create_app(service, TokenFile(tmp_path / "tokens.json")), "127.0.0.1", 0)
    server.start()
    yield server, {name: token for name, (token, _) in made.items()}
    server.stop()


def sign_in(page: Page, url: str, token: str) -> None:
    """The browser itself reports refusals: 401 before there is a token."""
    page.excused += ["401", "ERR_"]
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Go on").click()


def test_a_viewer_gives_a_token_and_sees_no_buttons_of_operators(guarded, network, page):
    server, tokens = guarded
    sign_in(page, server.url, tokens["vera"])
    expect(page.locator("#who")).to_have_text("vera, viewer")
    expect(page.locator("#summary")).to_contain_text("ready")
    expect(page.locator("#connection")).to_have_text("● live")
    expect(page.locator("#quarantine tbody tr")).to_have_count(2)
    for name in ("Plan…", "Set aside…", re.compile("^Clear")):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.get_by_role("button", name="Policy…").click()
    dialog = page.locator("#policy-dialog")
    expect(dialog).to_contain_text("Operators can change the policy")
    expect(dialog).to_contain_text("epoch_s")
    for name in ("Change policy", "Take the file over"):
        expect(dialog.get_by_role("button", name=name)).to_have_count(0)
    expect(dialog.locator("td input, td select")).to_have_count(0)


def test_an_operator_has_the_buttons(guarded, network, page):
    server, tokens = guarded
    sign_in(page, server.url, tokens["olaf"])
    expect(page.locator("#who")).to_have_text("olaf, operator")
    for name in ("Plan…", "Policy…", "Set aside…", "Clear r1 hyt-r1-p1"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()


def test_a_wrong_token_is_told_of_and_another_one_asked_for(guarded, network, page):
    server, tokens = guarded
    sign_in(page, server.url, tokens["vera"] + "x")
    expect(page.get_by_role("alert").filter(has_text="not valid")).to_be_visible()
    assert complaints(page) == []
    page.get_by_label("Token").fill(tokens["vera"])
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#who")).to_have_text("vera, viewer")
    expect(page.locator("#sign-in")).not_to_be_visible()


def test_a_token_that_is_revoked_meanwhile_is_told_of(guarded, network, page, tmp_path):
    server, tokens = guarded
    sign_in(page, server.url, tokens["vera"])
    expect(page.locator("#wrong-token")).to_be_hidden()
    expect(page.locator("#summary")).to_contain_text("ready")
    write_tokens(tmp_path / "tokens.json", [])
    expect(page.locator("#wrong-token")).to_be_visible()


def test_who_comes_with_another_token_has_the_page_of_that_one(guarded, network, page, tmp_path):
    server, tokens = guarded
    everybody = (tmp_path / "tokens.json").read_text()
    sign_in(page, server.url, tokens["olaf"])
    expect(page.get_by_role("button", name="Plan…")).to_be_visible()
    write_tokens(tmp_path / "tokens.json", [])
    expect(page.locator("#wrong-token")).to_be_visible()
    (tmp_path / "tokens.json").write_text(everybody)
    page.get_by_label("Token").fill(tokens["tina"])
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#who")).to_have_text("tina, tenant")
    expect(page.get_by_role("button", name="Plan…")).to_have_count(0)
    expect(page.locator("#book")).to_be_visible()


def test_a_page_without_a_token_waits_for_one(guarded, network, page, tmp_path):
    server, tokens = guarded
    sign_in(page, server.url, tokens["vera"])
    expect(page.locator("#connection")).to_have_text("● live")
    write_tokens(tmp_path / "tokens.json", [])
    expect(page.locator("#wrong-token")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("○ not live: connecting again")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(5000)  # timed: no further request is allowed
    assert len(asked) <= 1, "a request that is refused is a line in the audit log"
    for _ in range(2):
        page.keyboard.press("Escape")
        expect(page.get_by_label("Token")).to_be_visible()


def test_a_token_that_no_header_can_carry_is_asked_for_anew(guarded, network, page):
    server, tokens = guarded
    sign_in(page, server.url, tokens["vera"] + "\u200b")
    expect(page.locator("#wrong-token")).to_be_visible()
    page.get_by_label("Token").fill(tokens["vera"])
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#who")).to_have_text("vera, viewer")


def test_an_agent_is_told_that_there_is_nothing_to_see(guarded, network, page):
    server, tokens = guarded
    sign_in(page, server.url, tokens["h11"])
    expect(page.locator("#summary")).to_contain_text("no content for agents")
    expect(page.locator("main")).to_be_hidden()
    for name in ("Plan…", "Policy…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_a_tenant_books_changes_and_releases_and_sees_nobody_else(guarded, network, page):
    server, tokens = guarded
    sign_in(page, server.url, tokens["tina"])
    expect(page.locator("#who")).to_have_text("tina, tenant")
    expect(page.locator("#reservations tbody")).to_have_text(
        "No reservations."
    )  # v0 belongs to another tenant
    expect(page.locator("#quota")).to_have_text(
        "You have 0 of 5 reservations and at most 0 of 120 Mb/s at a time."
    )
    expect(page.get_by_role("button", name="Plan…")).to_have_count(0)
    expect(page.locator("#fabric, #wrong")).to_have_count(0)
    ask = page.locator("#ask")
    page.get_by_label("From").fill("r3")
    page.get_by_label("To", exact=True).fill("r4")
    page.get_by_label("Mb/s").fill("110")
    page.get_by_role("button", name="Check for room…").click()
    expect(ask).to_contain_text("The reservation does not fit")
    shoot(page, "tenant-does-not-fit")
    ask.get_by_role("button", name="Take 60 Mb/s").click()
    expect(ask).to_contain_text("r3 to r4, 60 Mb/s in both directions")
    shoot(page, "tenant-fits")
    assert complaints(page) == []
    ask.get_by_role("button", name="Book path").click()
    booked = page.locator("#reservations tbody tr")
    expect(booked).to_contain_text("r3 to r4v1")
    page.get_by_role("button", name="Change v1, r3 to r4").click()
    ask.get_by_label("Mb/s").fill("")
    ask.get_by_role("button", name="Change reservation").click()
    expect(ask).to_be_visible()  # a rate is needed
    ask.get_by_label("Mb/s").fill("50")
    ask.get_by_role("button", name="Change reservation").click()
    expect(booked.locator("td").nth(1)).to_have_text("50")
    assert network.reservation("v1").owner == "tina"
    for width in (390, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shoot(page, f"tenant-{width}")
    page.get_by_role("button", name="Release v1, r3 to r4").click()
    release = ask.get_by_role("button", name="Release reservation")
    expect(release).to_have_class("danger")
    release.click()
    expect(page.locator("#reservations")).not_to_contain_text("v1active")
    assert network.reservation("v1").state is not ReservationState.ACTIVE
    page.excused.append("409")


def test_a_tenant_that_presses_twice_books_once(guarded, network, page):
    server, tokens = guarded
    sign_in(page, server.url, tokens["tina"])
    page.get_by_label("From").fill("r3")
    page.get_by_label("To", exact=True).fill("r4")
    page.get_by_label("Mb/s").fill("10")
    page.get_by_role("button", name="Check for room…").dblclick()
    page.locator("#ask").get_by_role("button", name="Book path").click()
    expect(page.locator("#reservations tbody tr")).to_contain_text("r3 to r4v1")
    expect(page.locator("#asking")).to_be_empty()
    assert [one.id for one in network.reservations() if one.owner == "tina"] == ["v1"]


@pytest.mark.parametrize("lost", ["reply", "proxy"])
def test_a_tenant_whose_booking_is_not_answered_is_not_told_that_it_failed(
    guarded, network, page, lost
):
    server, tokens = guarded
    sign_in(page, server.url, tokens["tina"])

    def lose(route):
        dry = route.request.method != "POST" or route.request.url.endswith("/preview")
        if dry:
            route.continue_()
            return
        route.fetch()
        if lost == "reply":
            route.abort()
        else:
            route.fulfill(status=504, body="<html>Gateway Time-out</html>")

    page.route("**/v1/reservations", lose)
    page.get_by_label("From").fill("r3")
    page.get_by_label("To", exact=True).fill("r4")
    page.get_by_label("Mb/s").fill("10")
    page.get_by_role("button", name="Check for room…").click()
    ask = page.locator("#ask")
    ask.get_by_role("button", name="Book path").click()
    expect(ask).to_contain_text("The outcome is unknown")
    expect(page.locator("#ask-title")).to_have_text("Not known")
    ask.get_by_role("button", name="Cancel").click()
    expect(page.locator("#reservations tbody tr")).to_contain_text("r3 to r4v1")
    page.excused.append("504")


def test_a_tenant_sees_that_the_controller_is_gone_and_lets_go_of_what_failed(
    guarded, network, page
):
    server, tokens = guarded
    request = ReservationRequest("r3", "r4", 40.0, owner="tina")
    failed = network.reserve(request)
    network.settle(failed.id, ReservationState.FAILED, "start at 2023-11-14T22:13:20Z")
    sign_in(page, server.url, tokens["tina"])
    row = page.locator("#reservations tbody tr")
    expect(row).to_contain_text("✗ failed")
    expect(row).to_contain_text(f"start at {MOMENT}")
    page.route("**/v1/**", lambda route: route.abort())
    expect(page.locator("#error")).to_contain_text("does not answer")
    expect(page.locator("#summary")).to_contain_text("s ago")
    page.unroute("**/v1/**")
    expect(page.locator("#error")).to_be_hidden()
    page.get_by_role("button", name=f"Release {failed.id}, r3 to r4").click()
    expect(page.locator("#ask")).to_contain_text("is not listed any more then")
    page.locator("#ask").get_by_role("button", name="Release reservation").click()
    expect(page.locator("#reservations tbody")).to_have_text("No reservations.")
