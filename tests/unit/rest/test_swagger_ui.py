"""/docs works without the Internet."""

import re
from html.parser import HTMLParser

import pytest

from apps.rest.app import create_app
from apps.rest.tokens import TokenFile, write_tokens
from hydra.access import Role, make_token


class References(HTMLParser):
    """Files loaded by a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, _tag, attributes):
        self.found += [value for name, value in attributes if name in {"src", "href"}]


@pytest.fixture
def references(client):
    parser = References()
    parser.feed(client.get("/docs").text)
    return parser.found


def test_everything_that_the_page_loads_is_here(client, references):
    assert len(references) == 4
    for address in references:
        assert re.fullmatch(r"/docs/[\w.-]+", address)
        answer = client.get(address)
        assert answer.status_code == 200
        assert len(answer.content) > 100


def test_the_page_names_no_address_outside(client):
    for address in ("/docs", "/docs/start.js"):
        assert "//" not in client.get(address).text, address
    assert "validatorUrl: null" in client.get("/docs/start.js").text, "its default is outside"
    assert client.get("/openapi.json").status_code == 200, "what start.js loads"


def test_the_browser_is_told_to_load_from_here_only(client, references):
    for address in ("/docs", *references):
        policy = dict(
            rule.strip().split(" ", 1)
            for rule in client.get(address).headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert not re.search(r"https?:|\*", " ".join(policy.values()))


def test_style_sheets_import_nothing(client):
    css = client.get("/docs/swagger-ui.css").text
    assert "@import" not in css
    loaded = re.findall(r"""url\(["']?([^"')]+)""", css)
    assert all(one.startswith("data:") for one in loaded)


def test_only_its_files_are_served(client):
    for name in ("redoc.standalone.js", "../core.py", "..%2Fcore.py", "none"):
        assert client.get(f"/docs/{name}").status_code == 404


def test_the_description_asks_for_a_token_where_the_server_does(service, tmp_path):
    assert {} in create_app(service).openapi()["security"], "a token is optional"
    path = tmp_path / "tokens.json"
    write_tokens(path, [make_token("olaf", Role.OPERATOR, "x", 1.0)[1]])
    description = create_app(service, TokenFile(path)).openapi()
    assert description["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert description["security"] == [{"token": []}]
    assert description["paths"]["/healthz"]["get"]["security"] == []
    assert "security" not in description["paths"]["/v1/topology"]["get"]
