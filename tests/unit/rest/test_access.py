"""Tokens, roles, tenants, limits, TLS and the audit log."""

import json
import logging
import os
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from httpx_sse import connect_sse
from starlette.routing import Route

from apps.cli.client import ControllerClient
from apps.cli.output import UnreachableError
from apps.rest import guard
from apps.rest.app import create_app
from apps.rest.guard import AuditLog, Guard
from apps.rest.rate import Limiter
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, read_tokens, write_tokens
from apps.rest.trust import Tls
from apps.tools.authority import Use, create_authority, issue
from hydra.access import Caller, Role, identify, make_token
from hydra.errors import Alternative, DeviceMissing, HydraError
from hydra.events import EventKind
from hydra.history import HappeningKind
from hydra.reservations.reservation import ReservationRequest
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S, wait_until

from .fake_service import FakeService, relay_path

SECRET = "s3cret-that-must-not-leak"  # noqa: S105 - of no controller
NAMES = {"vera": Role.VIEWER, "tina": Role.TENANT, "tom": Role.TENANT, "olaf": Role.OPERATOR}
NAMES |= {"h11": Role.AGENT}
TOKENS = {name: f"hydra_{name}_{SECRET}-{name}" for name in NAMES}
GOOD = {"src": "r1", "dst": "r2", "bandwidth_mbps": 10}

READ = {"GET /v1/topology", "GET /v1/demand", "GET /v1/devices", "GET /v1/decisions"}
READ |= {"GET /v1/conditions", "GET /v1/history", "GET /v1/load"}
READ |= {"GET /v1/reconfigurations", "GET /v1/reconfigurations/{reconfiguration_id}"}
READ |= {"GET /v1/explanations/circuits/{rack}/{other_rack}"}
READ |= {"GET /v1/drift", "GET /v1/quarantine", "GET /v1/devices/{name}/tasks"}
READ |= {"GET /metrics", "GET /v1/policy"}
OWN_READ = {"GET /v1/reservations", "GET /v1/reservations/{reservation_id}"}
OWN_READ |= {"GET /v1/groups/{group_id}", "GET /v1/events", "GET /v1/quotas"}
OWN_READ |= {"GET /v1/servers", "GET /v1/reservations/{reservation_id}/delivery"}
OWN_READ |= {"GET /v1/deliveries", "GET /v1/availability"}
OWN_READ |= {"GET /v1/shapes", "GET /v1/shapes/{shape_id}"}
OWN_WRITE = {"POST /v1/reservations", "POST /v1/reservations/{reservation_id}/commit"}
OWN_WRITE |= {"DELETE /v1/reservations/{reservation_id}", "POST /v1/groups"}
OWN_WRITE |= {"PATCH /v1/reservations/{reservation_id}", "POST /v1/reservations/preview"}
OWN_WRITE |= {"DELETE /v1/groups/{group_id}", "POST /v1/shapes", "DELETE /v1/shapes/{shape_id}"}
READ |= {"GET /v1/webhooks", "GET /v1/webhooks/{webhook_id}"}
READ |= {"GET /v1/agents", "GET /v1/agents/{server_name}", "GET /v1/sharing"}
READ |= {"GET /v1/schedule", "GET /v1/replicas", "GET /v1/workers"}
READ |= {"GET /v1/agents/{server_name}/circuits"}
AGENT = {"GET /v1/agents/{server_name}", "GET /v1/agents/{server_name}/circuits"}
AGENT |= {"PUT /v1/agents/{server_name}/backlog"}
PLAN = {"POST /v1/plan", "POST /v1/reconfigurations"}
OPERATE = (
    PLAN
    | {"PATCH /v1/policy", "PUT /v1/sharing", "POST /v1/reconcile", "POST /v1/reload"}
    | {"POST /v1/handover", "PUT /v1/schedule", "DELETE /v1/schedule"}
    | {"POST /v1/webhooks", "PUT /v1/webhooks/{webhook_id}", "DELETE /v1/webhooks/{webhook_id}"}
    | AGENT
    | {"PUT /v1/quarantine/{rack}/{port}", "DELETE /v1/quarantine/{rack}/{port}"}
    | {"POST /v1/devices/{name}/tasks/{task_id}"}
    | {"DELETE /v1/reconfigurations/{reconfiguration_id}"}
    | {"PATCH /v1/reconfigurations/{reconfiguration_id}"}
)
PUBLIC = {"GET /healthz", "GET /readyz", "GET /problems/{slug}", "GET /openapi.json"}
PUBLIC |= {"GET /docs", "GET /docs/start.js", "GET /docs/{name}"}
PUBLIC |= {"GET /", "GET /dashboard/{name}"}
WHOAMI = {"GET /v1/whoami"}
ALLOWED = {
    None: PUBLIC,
    "vera": PUBLIC | WHOAMI | READ | OWN_READ,
    "tina": PUBLIC | WHOAMI | OWN_READ | OWN_WRITE,
    "h11": PUBLIC | WHOAMI | AGENT,
    "olaf": PUBLIC | WHOAMI | READ | OWN_READ | OWN_WRITE | OPERATE,
}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens.json"
    made = [make_token(name, role, f"{SECRET}-{name}", 1.0) for name, role in NAMES.items()]
    assert {token for token, _ in made} == set(TOKENS.values())
    write_tokens(path, [stored for _, stored in made])
    return path


@pytest.fixture
def audit_file(tmp_path):
    return tmp_path / "audit.jsonl"


@pytest.fixture
def guarded(service, token_file, audit_file):
    app = create_app(service, TokenFile(token_file), None, AuditLog(str(audit_file)))
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


def bearer(name):
    return {} if name is None else {"Authorization": f"Bearer {TOKENS[name]}"}


@pytest.fixture
def ask(guarded):
    """Send a request as a caller: ask(name, method, path, …)."""
    with plain_http.client(base_url=guarded.url, timeout=PATIENCE_S) as client:

        def send(name, method, path, **kwargs):
            headers = {**bearer(name), **kwargs.pop("headers", {})}
            return client.request(method, path, headers=headers, **kwargs)

        yield send


def test_the_matrix_covers_every_route(service, ask):
    """All described routes, and all served routes without a description."""
    paths = ask("olaf", "GET", "/openapi.json").json()["paths"]
    described = {f"{method.upper()} {path}" for path, some in paths.items() for method in some}
    (installed,) = (one for one in create_app(service).user_middleware if one.cls is Guard)
    routes = [route for route in installed.kwargs["routes"] if isinstance(route, Route)]
    served = {
        f"{method} {route.path_format}" for route in routes for method in route.methods - {"HEAD"}
    }
    assert len(described) > 40
    assert described <= served
    assert ALLOWED["olaf"] == served
    assert {route for allowed in ALLOWED.values() for route in allowed} <= served
    assert {NAMES[name] for name in ALLOWED if name is not None} == set(Role)


@pytest.mark.parametrize("name", ALLOWED)
def test_role_by_endpoint(guarded, service, name):
    """Other errors of the request do not matter here."""
    with plain_http.client(base_url=guarded.url, timeout=PATIENCE_S) as client:
        for route in sorted(ALLOWED["olaf"]):
            method, path = route.split(" ")
            path = re.sub(r"\{\w+\}", "1", path.replace("{server_name}", "h11"))
            service.plan_requests.clear()
            body = {} if method == "GET" else {"json": {}}
            with client.stream(method, path, headers=bearer(name), **body) as answer:
                status = answer.status_code
            if route in ALLOWED[name]:
                assert status not in {401, 403}, route
            else:
                assert status == (401 if name is None else 403), route
            assert bool(service.plan_requests) == (route in PLAN and name == "olaf")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        f"Basic {TOKENS['olaf']}",
        TOKENS["olaf"],
        f"Bearer {TOKENS['olaf']}x",
        f"Bearer {TOKENS['olaf'][:-1]}",
        "Bearer hydra_olaf_",
        f"Bearer hydra_nobody_{SECRET}-olaf",
        f"Bearer hydra_olaf_{SECRET}-vera",
        f"Bearer x{TOKENS['olaf']}",
        "Bearer " + "x" * 10_000,
        "Bearer \xff\xfe",
    ],
)
def test_what_is_no_token(ask, header):
    headers = {"Authorization": header.encode("latin-1")}
    answer = ask(None, "GET", "/v1/topology", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["type"] == "/problems/unauthenticated"
    assert SECRET not in answer.text


def test_a_stranger_learns_nothing_of_what_there_is(ask):
    for path in ("/v1/nothing", "/v1/reservations/v0", "/nothing"):
        assert ask(None, "GET", path).status_code == 401
    assert ask("vera", "GET", "/v1/nothing").status_code == 404
    assert ask("vera", "PUT", "/v1/topology").status_code == 405


def test_head_is_no_way_around(ask):
    assert ask("tina", "HEAD", "/v1/topology").status_code == 403
    assert ask("vera", "HEAD", "/v1/topology").status_code == 200


# --- tenants --------------------------------------------------------------------------------


def test_tenants_see_only_their_own(ask):
    mine = ask("tina", "POST", "/v1/reservations", json=GOOD).json()["id"]
    entries = {"entries": [{"src": "r3", "dst": "r4", "bandwidth_mbps": 5}]}
    group = ask("tina", "POST", "/v1/groups", json=entries).json()["id"]
    for name, expected in (("tina", 2), ("tom", 0), ("vera", 2), ("olaf", 2)):
        listed = ask(name, "GET", "/v1/reservations").json()["reservations"]
        assert len(listed) == expected, name
        assert len(ask(name, "GET", "/v1/deliveries").json()["deliveries"]) == expected, name
    for method, path in (
        ("GET", f"/v1/reservations/{mine}"),
        ("DELETE", f"/v1/reservations/{mine}"),
        ("POST", f"/v1/reservations/{mine}/commit"),
        ("GET", f"/v1/groups/{group}"),
        ("DELETE", f"/v1/groups/{group}"),
        ("GET", f"/v1/shapes/{group}"),
        ("DELETE", f"/v1/shapes/{group}"),
    ):
        hidden = ask("tom", method, path)
        nothing = ask("tom", method, path.replace(mine, "v99").replace(group, "v99"))
        assert hidden.status_code == nothing.status_code == 404
        replaced = hidden.json()["detail"].replace(mine, "v99").replace(group, "v99")
        assert replaced == nothing.json()["detail"]
    assert ask("tina", "DELETE", f"/v1/reservations/{mine}").status_code == 202
    assert ask("olaf", "DELETE", f"/v1/groups/{group}").status_code == 202


def test_a_refusal_does_not_name_others(ask):
    ask("tina", "POST", "/v1/reservations", json={**GOOD, "bandwidth_mbps": 80, "src": "h11"})
    wanted = {**GOOD, "bandwidth_mbps": 40}
    entries = {"bandwidth_mbps": 40, "src": "r1", "dst": "r2"}
    for path, body in (
        ("/v1/reservations", wanted),
        ("/v1/reservations/preview", wanted),
        ("/v1/groups", {"entries": [entries]}),
        ("/v1/shapes", {"matrix": [entries]}),
    ):
        answer = ask("tom", "POST", path, json=body)
        assert answer.status_code == 409
        assert "v0" not in answer.text
        assert "tina" not in answer.text
        assert answer.json()["alternatives"] == [{"bandwidth_mbps": 20.0}]
    assert "v0" in ask("olaf", "POST", "/v1/reservations", json=wanted).json()["detail"]
    some = {"entries": [entries, {**entries, "bandwidth_mbps": 5}], "all_or_nothing": False}
    assert "v0" not in json.dumps(ask("tom", "POST", "/v1/groups", json=some).json()["refused"])


def test_a_refusal_for_a_missing_device_is_discreet_and_has_alternatives(ask, service):
    service.fails_with = DeviceMissing(
        "OCS p1 is down (10.1.2.3): taken by v0", [Alternative(20.0, None)], "it does not fit"
    )
    for path, body in (
        ("/v1/reservations", GOOD),
        ("/v1/reservations/preview", GOOD),
        ("/v1/groups", {"entries": [{"bandwidth_mbps": 40, "src": "r1", "dst": "r2"}]}),
    ):
        answer = ask("tom", "POST", path, json=body)
        assert answer.status_code == 503
        assert answer.json()["type"] == "/problems/device-unavailable"
        assert answer.json()["detail"] == "it does not fit"
        assert answer.json()["alternatives"] == [{"bandwidth_mbps": 20.0}]


def test_two_tenants_may_use_the_same_idempotency_key(ask):
    key = {"Idempotency-Key": "1"}
    made = [
        ask(name, "POST", "/v1/reservations", json=GOOD, headers=key).json()["id"]
        for name in ("tina", "tom", "tina")
    ]
    assert made == ["v0", "v1", "v0"]


def test_tenants_are_told_of_their_own(guarded, service):
    circuit, other = relay_path().circuits
    theirs = service.reserve(ReservationRequest("r1", "r2", 1.0, owner="tina"))
    mine = service.reserve(ReservationRequest("r3", "r4", 1.0, owner="tom"))
    service.tell(theirs)
    why = f"reservation {theirs.id}"
    for one, served in ((circuit, [theirs]), (other, []), (circuit, [theirs, mine])):
        service.events.publish(
            EventKind.CIRCUIT_MOVING, 1.0, circuit=one, served=served, reason=why
        )
    service.tell(mine)
    headers = {**bearer("tom"), "Last-Event-ID": "run-0"}
    with (
        plain_http.client(base_url=guarded.url) as client,
        connect_sse(client, "GET", "/v1/events", headers=headers) as source,
    ):
        events = (one for one in source.iter_sse() if one.data)
        first, second = (json.loads(next(events).data) for _ in range(2))
    assert first["reservations"] == [mine.id]
    assert first["reason"] == "", "it names another's"
    assert second["reservation"]["id"] == mine.id


# --- tokens and their file ------------------------------------------------------------------


def test_a_revoked_token_is_refused_at_once(ask, token_file):
    assert ask("vera", "GET", "/v1/topology").status_code == 200
    kept = [token for token in read_tokens(token_file).values() if token.name != "vera"]
    write_tokens(token_file, kept)
    assert ask("vera", "GET", "/v1/topology").status_code == 401
    assert ask("olaf", "GET", "/v1/topology").status_code == 200


def test_a_broken_file_does_not_lock_everybody_out(ask, token_file, caplog):
    token_file.write_text(f'{{"tokens": [{{"name": "{SECRET}"')
    assert ask("olaf", "GET", "/v1/topology").status_code == 200
    assert "still count" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"tokens": {}}',
        '{"tokens": []}',
        '{"tokens": [1]}',
        '{"tokens": [{"name": "a", "role": "king", "secret_sha256": "", "created_unix_s": 1}]}',
        '{"tokens": [{"name": "a", "role": "viewer", "secret_sha256": "x", "created_unix_s": 1}]}',
    ],
)
def test_a_file_that_is_none_of_tokens(tmp_path, content):
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(HydraError):
        TokenFile(path)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ('"max_mbps": Infinity', "token tina: max_mbps is not a finite number from 0"),
        ('"max_mbps": NaN', "token tina: max_mbps is not a finite number from 0"),
        ('"max_mbps": "9"', "token tina: max_mbps is not a finite number from 0"),
        ('"max_mbps": 1' + 400 * "0", "not a token's record (OverflowError)"),
        ('"max_reservations": -1', "token tina: max_reservations is not a whole number from 0"),
        ('"max_priority": 10', "token tina: max_priority is not a whole number from 0 to 9"),
    ],
)
def test_a_limit_that_is_none_is_told_with_file_and_token(tmp_path, limit, words):
    path = tmp_path / "tokens.json"
    record = f'"name": "tina", "role": "tenant", "secret_sha256": "{64 * "0"}"'
    path.write_text(f'{{"tokens": [{{{record}, "created_unix_s": 1, {limit}}}]}}')
    with pytest.raises(HydraError) as refused:
        read_tokens(path)
    assert str(refused.value) == f"{path}: {words}"


def test_the_file_is_its_owners_and_holds_no_secret(token_file):
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert SECRET not in token_file.read_text()
    assert list(token_file.parent.iterdir()) == [token_file]


def test_identify():
    token, stored = make_token("a.b-1", Role.VIEWER, "x_y_z", 1.0)
    assert identify(token, {"a.b-1": stored}) == Caller("a.b-1", Role.VIEWER)
    assert identify(token, {}) is None
    for name in ("", "-a", "a_b", "a b", "x" * 64):
        with pytest.raises(HydraError, match="can't name a token"):
            make_token(name, Role.VIEWER, "x", 1.0)


# --- limits, audit, TLS ---------------------------------------------------------------------


def test_each_caller_has_a_rate_of_its_own(service, token_file):
    app = create_app(service, TokenFile(token_file), Limiter(2.0, lambda: 0.0))
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    try:
        with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
            codes = [
                client.get("/v1/topology", headers=bearer("vera")).status_code for _ in range(12)
            ]
            assert codes == [200] * 10 + [429] * 2, "2 per second, over 5 s"
            refused = client.get("/v1/topology", headers=bearer("vera"))
            assert refused.json()["type"] == "/problems/too-many-requests"
            assert 1 <= int(refused.headers["retry-after"]) <= 5
            assert client.get("/v1/topology", headers=bearer("olaf")).status_code == 200
            guesses = [client.get("/v1/topology").status_code for _ in range(12)]
            assert guesses == [401] * 10 + [429] * 2, "guessing tokens is slow, too"
            assert client.get("/healthz").status_code == 200
    finally:
        server.stop()


def test_the_audit_log_has_who_did_what_and_no_secret(ask, audit_file, caplog):
    caplog.set_level(logging.DEBUG)
    ask("tina", "POST", "/v1/reservations", json=GOOD)
    ask("tina", "GET", "/v1/reservations")
    ask("tina", "GET", "/v1/topology")
    ask(None, "POST", "/v1/plan", headers={"Authorization": f"Bearer {SECRET}"})
    ask("olaf", "DELETE", "/v1/reservations/v0")
    # Written after the answer was sent.
    wait_until(lambda: len(audit_file.read_text().splitlines()) >= 4)
    entries = [json.loads(line) for line in audit_file.read_text().splitlines()]
    assert [(e["caller"], e["method"], e["path"], e["status"]) for e in entries] == [
        ("tina", "POST", "/v1/reservations", 201),
        ("tina", "GET", "/v1/topology", 403),
        (None, "POST", "/v1/plan", 401),
        ("olaf", "DELETE", "/v1/reservations/v0", 202),
    ]
    assert entries[0]["from"] == "127.0.0.1"
    assert SECRET not in audit_file.read_text()
    ours = [r.getMessage() for r in caplog.records if r.name.startswith(("hydra", "uvicorn"))]
    assert SECRET not in "\n".join(ours)
    assert audit_file.stat().st_mode & 0o777 == 0o600


def test_what_went_wrong_inside_is_on_record_too(ask, audit_file, service, monkeypatch):
    def broken(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(service, "release", broken)
    assert ask("olaf", "DELETE", "/v1/reservations/v0").status_code == 500
    (line,) = audit_file.read_text().splitlines()
    assert json.loads(line)["status"] == 500


def test_an_audit_log_that_stands_still_holds_up_nobody(service, token_file, tmp_path, caplog):
    """A pipe without a reader: a request or two wait a second, and all lines arrive later."""
    pipe = tmp_path / "audit"
    os.mkfifo(pipe)
    app = create_app(service, TokenFile(token_file), None, AuditLog(str(pipe)))
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    try:
        with plain_http.client(base_url=server.url, timeout=60) as client:
            for number in range(20):
                path = f"/v1/reservations/x{number}"
                assert client.delete(path, headers=bearer("olaf")).status_code == 404
            assert client.get("/healthz").status_code == 200
        assert "has taken no line for 1 s" in caplog.text
        # Both ways: each line opens the file anew, and no line ends the reader's file.
        with os.fdopen(os.open(pipe, os.O_RDWR)) as late:
            entries = [json.loads(late.readline()) for _ in range(20)]
    finally:
        server.stop()
    assert [entry["path"] for entry in entries] == [f"/v1/reservations/x{n}" for n in range(20)]


def test_an_audit_log_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HydraError, match="audit_log"):
        AuditLog(str(tmp_path / "file" / "audit"))


def test_tls(fabric, certificate):
    server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0, Tls(*certificate))
    server.start()
    try:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=certificate[0])
        assert (
            httpx.get(f"{server.url}/healthz", verify=trusted, timeout=PATIENCE_S).status_code
            == 200
        )
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(
                f"{server.url}/healthz", verify=ssl.create_default_context(), timeout=PATIENCE_S
            )
        plain = server.url.replace("https", "http")
        with pytest.raises(httpx.RemoteProtocolError):
            plain_http.get(f"{plain}/healthz")
    finally:
        server.stop()


def test_the_command_line_tells_a_certificate_from_nobody(
    fabric, certificate, tmp_path, monkeypatch
):
    """A controller answers: starting another controller would not help."""

    def asked(url):
        with ControllerClient(url) as client:
            return client.get("/v1/topology")

    authority = create_authority(tmp_path, "lab", 2, datetime.now(UTC))
    server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0, Tls(*certificate))
    plain = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0)
    server.start()
    plain.start()
    try:
        monkeypatch.delenv("HYDRA_CA", raising=False)
        with pytest.raises(
            UnreachableError, match=r"untrusted certificate .*: set HYDRA_CA to the file of"
        ):
            asked(server.url)
        monkeypatch.setenv("HYDRA_CA", str(authority))
        with pytest.raises(
            UnreachableError, match=r"HYDRA_CA, .*, lacks the certificate's authority"
        ):
            asked(server.url)
        monkeypatch.setenv("HYDRA_CA", certificate[0])
        assert asked(server.url)["fabric"] == fabric.name
        with pytest.raises(UnreachableError, match="with TLS, the URL begins with https://"):
            asked(server.url.replace("https", "http"))
        with pytest.raises(UnreachableError, match="without TLS, the URL begins with http://"):
            asked(plain.url.replace("http", "https"))
    finally:
        server.stop()
        plain.stop()


def test_connections_begin_with_the_certificate_as_it_is_by_then(fabric, certificate, tmp_path):
    authority = create_authority(tmp_path, "lab", 2, datetime.now(UTC))
    renewed = issue(tmp_path, "rest", ["127.0.0.1"], Use.SERVER, 1, datetime.now(UTC))
    first, second = (ssl.create_default_context(cafile=one) for one in (certificate[0], authority))
    pem, key = tmp_path / "used.pem", tmp_path / "used.key"
    pem.write_text(Path(certificate[0]).read_text())
    key.write_text(Path(certificate[1]).read_text())
    tls = Tls(str(pem), str(key))
    server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0, tls)
    server.start()
    try:
        url = f"{server.url}/healthz"
        with httpx.Client(verify=first, trust_env=False, timeout=PATIENCE_S) as standing:
            before = standing.get(url).extensions["network_stream"]
            renewed.replace(pem)
            assert (
                httpx.get(url, verify=first, trust_env=False, timeout=PATIENCE_S).status_code == 200
            )
            (tmp_path / "rest.key").replace(key)
            assert (
                httpx.get(url, verify=second, trust_env=False, timeout=PATIENCE_S).status_code
                == 200
            )
            with pytest.raises(httpx.ConnectError, match="certificate"):
                httpx.get(url, verify=first, trust_env=False, timeout=PATIENCE_S)
            assert standing.get(url).extensions["network_stream"] is before
    finally:
        server.stop()


def test_a_certificate_that_can_not_be_used(fabric, certificate, tmp_path):
    pem, key = certificate
    for broken in (Tls(pem, pem), Tls(str(tmp_path / "none"), key), Tls(key, key)):
        server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0, broken)
        with pytest.raises(HydraError, match=r"check controller\.tls_certificate"):
            server.start()


def test_what_is_missing_is_for_those_who_may_see_devices(ask, service):
    service.unready = ["switch 127.0.0.1:6640 of rack r1"]
    for name in (None, "tina", "h11"):
        answer = ask(name, "GET", "/readyz")
        assert answer.status_code == 503
        assert "r1" not in answer.text
        assert "missing" not in answer.json()
    for name in ("vera", "olaf"):
        assert ask(name, "GET", "/readyz").json()["missing"] == service.unready


def test_tenants_learn_that_something_is_at_risk_and_no_name(ask, service):
    service.away = ["vswitch h42 is not connected"]
    seen = {
        name: ask(name, "POST", "/v1/reservations/preview", json=GOOD).json()["at_risk"]
        for name in ("tina", "olaf")
    }
    assert seen["olaf"] == service.away
    assert seen["tina"] == ["a device needed for the reservation does not answer now"]


def test_everybody_with_a_token_learns_who_they_are(ask):
    for name, role in NAMES.items():
        assert ask(name, "GET", "/v1/whoami").json() == {"name": name, "role": role.value}
    refused = ask(None, "GET", "/v1/whoami")
    assert (refused.status_code, "valid token" in refused.json()["detail"]) == (401, True)


def test_viewers_see_no_secrets_of_webhooks(ask):
    url = "https://batch.example:8443/hooks/s3cret?token=s3cret"
    created = ask("olaf", "POST", "/v1/webhooks", json={"url": url}).json()
    for path in ("/v1/webhooks", f"/v1/webhooks/{created['id']}"):
        seen = ask("vera", "GET", path).text
        assert "https://batch.example:8443/…" in seen
        assert "s3cret" not in seen
        assert "s3cret" in ask("olaf", "GET", path).text
    assert created["secret"] not in ask("olaf", "GET", "/v1/webhooks").text


def test_the_history_tells_which_operator_came_and_from_where(ask, service, monkeypatch):
    def logins():
        lines = service.history(0.0, float("inf"), {HappeningKind.LOGIN}, 9)
        return [line.text for line in lines]

    for name in ("vera", "tina", "olaf", "olaf"):
        ask(name, "GET", "/v1/whoami")
    assert logins() == ["olaf came, from 127.0.0.1"], "who is at work has logged in once"
    monkeypatch.setattr(guard, "_AWAY_S", 0.0)
    ask("olaf", "GET", "/v1/topology")
    assert len(logins()) == 2
