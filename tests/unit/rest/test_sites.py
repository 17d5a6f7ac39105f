"""Requests that a browser sends for a foreign page: by header, and by a real browser."""

import http.server
import socket
import threading

import pytest

from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.sites import Sites
from apps.rest.tokens import TokenFile, write_tokens
from hydra.access import Role, make_token
from hydra.lifecycle import ReservationState
from mininet_scenarios import plain_http
from tests.conftest import CHROMIUM

BODY = {"src": "r1", "dst": "r2", "bandwidth_mbps": 1}
PATH = "/v1/reservations"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8080"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "a.test:8080", "Origin": "http://a.test"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Host": "localhost:8080"}, 201),
        ({"Host": "LOCALHOST"}, 201),
        ({"Host": "hydra.localhost"}, 201),
        ({"Host": socket.gethostname()}, 201),
        ({"Host": "[::1]:8080", "Origin": "http://[::1]:8080"}, 201),
        ({"Host": "192.0.2.7:8080", "Origin": "http://192.0.2.7:8080"}, 201),
    ],
)
def test_who_may_change_something(client, service, headers, status):
    answer = client.post(PATH, json=BODY, headers=headers)
    assert answer.status_code == status
    assert len(service.reservations()) == (status == 201)
    if status == 403:
        assert answer.json()["type"] == "/problems/foreign-site"


def test_reading_asks_for_our_name_alone(client):
    page = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert client.get(PATH, headers=page).status_code == 200  # the browser caches the answer
    assert client.get(PATH, headers={"Host": "evil.example"}).status_code == 403


def test_a_body_is_not_needed(client, service):
    identity = client.post(PATH, json={**BODY, "hold_s": 60}).json()["id"]
    headers = {"Origin": "http://evil.example"}
    assert client.post(f"{PATH}/{identity}/commit", headers=headers).status_code == 403
    assert client.get(f"{PATH}/{identity}").json()["state"] == "held"


@pytest.mark.parametrize(
    ("hosts", "host", "origin", "allowed"),
    [
        (["hydra.example"], "hydra.example", "https://hydra.example", True),
        (["hydra.example"], "HYDRA.example.:8443", None, True),
        (["hydra.example"], "127.0.0.1:8080", "https://hydra.example", True),  # through a proxy
        (["hydra.example"], "other.example", None, False),
        ([], "any.example", None, True),
        ([], "any.example", "https://any.example", True),
        ([], "any.example", "https://other.example", False),
    ],
)
def test_names_of_our_own_where_tokens_are_asked_for(hosts, host, origin, allowed):
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    scope = {"type": "http", "method": "POST", "headers": headers}
    assert (Sites(hosts, any_host=True).objection(scope) is None) == allowed


def test_a_token_makes_no_page_ours(fabric, service, tmp_path):
    token, stored = make_token("olaf", Role.OPERATOR, "x" * 32, 0.0)
    write_tokens(tmp_path / "tokens.json", [stored])
    server = RestServer(create_app(service, TokenFile(tmp_path / "tokens.json")), "127.0.0.1", 0)
    server.start()
    headers = {"Authorization": f"Bearer {token}", "Host": "hydra.example"}
    assert plain_http.post(server.url + PATH, json=BODY, headers=headers).status_code == 201
    headers["Origin"] = "http://evil.example"
    assert plain_http.post(server.url + PATH, json=BODY, headers=headers).status_code == 403
    server.stop()


@pytest.fixture
def evil_page(browser):
    """A browser that resolves evil.test to this machine, as in DNS rebinding."""
    rebound = browser.browser_type.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--host-resolver-rules=MAP evil.test 127.0.0.1"],
    )
    yield rebound.new_page()
    rebound.close()


def test_a_rebound_name_opens_nothing(server, service, evil_page):
    answer = evil_page.goto(f"http://evil.test:{server.port}/healthz")
    assert answer.status == 403
    status = evil_page.evaluate(
        """async body => (await fetch("/v1/reservations", {
            method: "POST", body: JSON.stringify(body),
            headers: {"Content-Type": "application/json"}})).status""",
        BODY,
    )
    assert status == 403
    assert service.reservations() == []


def test_a_form_of_another_site_commits_nothing(server, client, service, evil_page):
    identity = plain_http.post(server.url + PATH, json={**BODY, "hold_s": 60}).json()["id"]
    form = f'<form method="POST" action="{server.url}{PATH}/{identity}/commit"></form>'

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(form.encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Evil) as evil:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        evil_page.goto(f"http://evil.test:{evil.server_port}/")
        with evil_page.expect_navigation() as sent:
            evil_page.evaluate("document.forms[0].submit()")
        evil.shutdown()
    assert sent.value.status == 403
    assert service.reservation(identity).state is ReservationState.HELD
