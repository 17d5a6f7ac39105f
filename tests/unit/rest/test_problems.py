"""Every error is a problem document (RFC 9457) with a remedy, and changes nothing."""

import json
import logging
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from apps.rest.errors import json_pointer
from apps.rest.middleware import BODY_LIMIT_BYTES
from apps.rest.problems import CATALOGUE
from hydra.errors import (
    AdmissionError,
    ConfigError,
    DeviceError,
    DeviceMissing,
    DeviceUnavailable,
    LifecycleError,
    OutcomeUnknown,
    PlanError,
    Problem,
    QuotaExceeded,
)
from hydra.journal import JournalError
from tests.waiting import wait_until

from .fake_service import SurpriseError

RESERVATION = {"src": "r1", "dst": "r2", "bandwidth_mbps": 10}
RESERVATIONS, PLAN, RECONFIGURATIONS = "/v1/reservations", "/v1/plan", "/v1/reconfigurations"
GROUPS, SHAPES = "/v1/groups", "/v1/shapes"


@dataclass
class Case:
    status: int
    slug: str
    path: str
    body: Any = None
    method: str = "POST"
    pointers: tuple[str, ...] = ()
    detail: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})

    def __str__(self):
        return f"{self.method} {self.path} {self.body!r:.60} {self.status}"


def reservation(status: int, slug: str, *pointers: str, detail: str = "", **change: Any) -> Case:
    body = {k: v for k, v in {**RESERVATION, **change}.items() if v is not ...}
    return Case(status, slug, RESERVATIONS, body, pointers=pointers, detail=detail)


def demand(status: int, slug: str, *pointers: str, entries: Any, detail: str = "") -> Case:
    return Case(status, slug, PLAN, {"demand": entries}, pointers=pointers, detail=detail)


def entry(src: Any = "r1", dst: Any = "r2", mbps: Any = 1) -> dict[str, Any]:
    return {"src": src, "dst": dst, "mbps": mbps}


CASES = [
    # malformed
    Case(400, "malformed-json", RESERVATIONS, '{"src": "r1",', detail="character 13"),
    Case(400, "malformed-json", PLAN, "{'demand': null}"),
    Case(400, "malformed-json", PLAN, b"\xff\xfe"),
    Case(400, "malformed-json", PLAN, "[" * 50_000),
    Case(400, "malformed-json", PLAN, '{"demand": ' + "1" * 10_000 + "}"),
    # wrong form
    Case(422, "invalid-request", RESERVATIONS, "", pointers=("",)),
    Case(422, "invalid-request", RESERVATIONS, "null", pointers=("",)),
    Case(422, "invalid-request", RESERVATIONS, [], pointers=("",)),
    Case(422, "invalid-request", RESERVATIONS, '"r1"', pointers=("",)),
    reservation(422, "invalid-request", "/bandwidth_mbps", bandwidth_mbps="12"),
    reservation(422, "invalid-request", "/bandwidth_mbps", bandwidth_mbps=True),
    reservation(422, "invalid-request", "", bandwidth_mbps=None),
    reservation(422, "invalid-request", "", bandwidth_mbps=...),
    reservation(422, "invalid-request", "/bandwidth_mbps", bandwidth_mbps=float("nan")),
    reservation(422, "invalid-request", "/bandwidth_mbps", bandwidth_mbps=float("inf")),
    reservation(422, "invalid-request", "/bandwidth_mbps", bandwidth_mbps=10**400),
    reservation(422, "invalid-request", "/bandwidth_mbps", bandwidth_mbps=0),
    reservation(422, "invalid-request", "/bandwidth_mbps", bandwidth_mbps=-5),
    reservation(422, "invalid-request", "/duration_s", duration_s=0),
    reservation(422, "invalid-request", "/duration_s", duration_s="60"),
    reservation(422, "invalid-request", "/src", src=1),
    reservation(422, "invalid-request", "/src", src=""),
    reservation(422, "invalid-request", "/src", src="r" * 256),
    reservation(422, "invalid-request", "/src", src="\ud800"),
    reservation(422, "invalid-request", "/src", "/dst", src=None, dst=2, detail="and 1 more"),
    reservation(422, "invalid-request", "/bandwith~1mbps~0", **{"bandwith/mbps~": 1}),
    Case(422, "invalid-request", PLAN, {"demands": []}, pointers=("/demands",)),
    Case(422, "invalid-request", PLAN, {"planes": []}, pointers=("/planes",)),
    Case(422, "invalid-request", PLAN, {"racks": "r1"}, pointers=("/racks",)),
    Case(422, "invalid-request", PLAN, {"only_if_it_pays": 1}, pointers=("/only_if_it_pays",)),
    # demand entries
    demand(422, "invalid-request", "/demand/1/mbps", entries=[entry(), entry("r2", "r1", -1)]),
    demand(422, "invalid-request", "/demand/0/mbps", entries=[entry(mbps=float("nan"))]),
    demand(422, "invalid-request", "/demand/0/mbps", entries=[entry(mbps="80")]),
    demand(422, "invalid-request", "/demand/0", entries=[entry("r1", "r1")], detail="r1 to itself"),
    demand(
        422,
        "invalid-request",
        "/demand/2",
        entries=[entry(), entry("r2", "r1"), entry()],
        detail="given twice, first by /demand/0",
    ),
    demand(404, "unknown-name", "/demand/0/dst", entries=[entry(dst="r7")], detail="'r7'"),
    demand(404, "unknown-name", "/demand/0/src", entries=[entry(src="h11")]),
    demand(
        422,
        "invalid-request",
        "/demand/1",
        "/demand/0/src",
        entries=[entry(src="x"), entry("r2", "r2")],
    ),
    Case(404, "unknown-name", PLAN, {"planes": ["p1", "q2"]}, pointers=("/planes/1",)),
    Case(404, "unknown-name", PLAN, {"use_planes": ["p3"]}, pointers=("/use_planes/0",)),
    Case(404, "unknown-name", RECONFIGURATIONS, {"racks": ["r0"]}, pointers=("/racks/0",)),
    Case(404, "unknown-name", PLAN, {"algorithm": "magic"}, detail="hydra-bfs"),
    # names
    reservation(404, "unknown-name", src="r99", detail="'r99'"),
    reservation(404, "unknown-name", dst="h13", detail="did you mean"),
    Case(404, "unknown-name", RESERVATIONS + "/v7", method="GET", detail="'v7'"),
    Case(404, "unknown-name", RESERVATIONS + "/v7", method="DELETE"),
    Case(404, "unknown-name", RESERVATIONS + "/%C3%A4%20%00", method="GET"),
    Case(404, "unknown-name", RECONFIGURATIONS + "/c7", method="GET"),
    Case(404, "unknown-name", "/problems/boredom", method="GET"),
    # admission
    reservation(409, "admission-refused", bandwidth_mbps=101, detail="at most 100 Mb/s"),
    reservation(
        422,
        "invalid-request",
        "/bandwidth",
        bandwidth_mbps=...,
        bandwidth=10,
        detail="/bandwidth: is unknown: did you mean 'bandwidth_mbps'?",
    ),
    Case(
        422,
        "invalid-request",
        GROUPS,
        {"entries": [{**RESERVATION, "minimum": 1}]},
        pointers=("/entries/0/minimum",),
        detail="did you mean 'minimum_mbps'?",
    ),
    # names and numbers that contradict each other
    reservation(422, "invalid-request", "/dst", src="h11", dst="h12", detail="rack r1"),
    reservation(422, "invalid-request", "/start_unix_s", start_unix_s=5, detail="has passed"),
    reservation(
        422,
        "invalid-request",
        "/end_unix_s",
        end_unix_s=5,
        detail="give a later end",
        duration_s=...,
    ),
    reservation(422, "invalid-request", "/minimum_mbps", minimum_mbps=99, detail="the most"),
    Case(
        422,
        "invalid-request",
        GROUPS,
        {"entries": [RESERVATION, {**RESERVATION, "dst": "r1"}]},
        pointers=("/entries/1/dst",),
    ),
    Case(
        422,
        "invalid-request",
        GROUPS,
        {"entries": [RESERVATION], "start_unix_s": 5, "all_or_nothing": False},
        pointers=("/start_unix_s",),
    ),
    Case(
        422,
        "invalid-request",
        SHAPES,
        {"pattern": "pairs", "racks": ["h11", "h12"], "bandwidth_mbps": 1},
        pointers=("/racks",),
    ),
    Case(404, "not-found", "/v1/v1/topology", method="GET", detail="leave /v1 out of its URL"),
    # HTTP
    Case(404, "not-found", "/v2/reservations", method="GET"),
    Case(404, "not-found", "/nothing", method="GET"),
    Case(404, "not-found", "/redoc", method="GET"),
    Case(404, "not-found", RESERVATIONS + "/", method="GET"),
    Case(415, "unsupported-media-type", PLAN, "{}", headers={"Content-Type": "text/plain"}),
    Case(415, "unsupported-media-type", PLAN, "{}", headers={}),
    Case(403, "foreign-site", PLAN, {}, headers={"Host": "evil.example"}),
    Case(413, "body-too-large", RESERVATIONS, " " * BODY_LIMIT_BYTES + "{}"),
]


def send(client, case: Case):
    content = case.body
    if content is not None and not isinstance(content, str | bytes):
        content = json.dumps(content)
    return client.request(case.method, case.path, content=content, headers=case.headers)


def check_problem(answer, status: int, slug: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == f"/problems/{slug}"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"] == answer.request.url.raw_path.decode().split("?")[0]
    return problem


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bad_requests(client, service, case):
    problem = check_problem(send(client, case), case.status, case.slug)
    pointers = tuple(error["pointer"] for error in problem.get("errors", ()))
    assert pointers == case.pointers
    assert all(error["detail"] for error in problem.get("errors", ()))
    assert case.detail in problem["detail"]
    assert service.reservations() == []
    assert service.reconfigurations() == []


@pytest.mark.parametrize(
    ("raised", "status", "slug"),
    [
        (AdmissionError("all ports are taken"), 409, "admission-refused"),
        (DeviceMissing("p1 is down: all ports are taken"), 503, "device-unavailable"),
        (QuotaExceeded("50 Mb/s at a time"), 409, "quota-exceeded"),
        (LifecycleError("too late"), 409, "lifecycle-conflict"),
        (PlanError("no path within 3 hops"), 409, "no-plan"),
        (ConfigError("f.yaml", [Problem("racks", "", 7)]), 409, "invalid-configuration"),
        (DeviceUnavailable("p1", "connection refused"), 503, "device-unavailable"),
        (JournalError("can't write the journal (disk is full)"), 503, "journal-failed"),
        (DeviceError("p1", "refused"), 502, "device-error"),
        (OutcomeUnknown("p1", "no reply in 5 s"), 502, "device-error"),
    ],
)
@pytest.mark.parametrize("path", [RESERVATIONS, PLAN, RECONFIGURATIONS])
def test_what_the_controller_raises(client, service, path, raised, status, slug):
    service.fails_with = raised
    body = RESERVATION if path == RESERVATIONS else {}
    problem = check_problem(client.post(path, json=body), status, slug)
    assert problem["detail"] == str(raised)


@pytest.mark.parametrize("raised", [KeyError("secret"), SurpriseError("secret")])
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/topology"), ("POST", PLAN)])
def test_a_defect_is_logged_and_not_shown(client, service, caplog, method, path, raised):
    service.fails_with = raised
    with caplog.at_level(logging.ERROR):
        answer = client.request(method, path, json={} if method == "POST" else None)
        wait_until(lambda: "secret" in caplog.text)  # logged after the answer was sent
    check_problem(answer, 500, "internal")
    assert (
        answer.headers["connection"] == "close"
    )  # as the server does, for any next request on the connection
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    service.fails_with = None
    assert client.get("/v1/topology").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", RESERVATIONS, "GET, HEAD, POST"),
        ("PUT", RESERVATIONS + "/v0", "DELETE, GET, HEAD, PATCH"),
        ("POST", "/v1/topology", "GET, HEAD"),
        ("GET", PLAN, "POST"),
        ("HEAD", PLAN, "POST"),
        ("DELETE", RECONFIGURATIONS, "GET, HEAD, POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/openapi.json", "GET, HEAD"),
        ("OPTIONS", RESERVATIONS, "GET, HEAD, POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(client, method, path, allowed):
    answer = client.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    if method != "HEAD":
        check_problem(answer, 405, "method-not-allowed")


def test_a_wrong_query_names_the_parameter(client):
    problem = check_problem(client.get(RESERVATIONS + "?state=asleep"), 422, "invalid-request")
    assert problem["errors"][0]["parameter"] == "state"
    assert "'active'" in problem["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("path", "parameter", "remedy"),
    [
        (RESERVATIONS + "?stat=active", "stat", "did you mean 'state'?"),
        (RESERVATIONS + "/v7?waits=active", "waits", "did you mean 'wait'?"),
        ("/readyz?complet=true", "complet", "did you mean 'complete'?"),
        ("/v1/events?reservations=v7", "reservations", "did you mean 'reservation'?"),
        ("/v1/topology?rack=r1", "rack", "is unknown"),
    ],
)
def test_an_unknown_parameter_of_a_query_is_refused_with_the_nearest_name(
    client, path, parameter, remedy
):
    problem = check_problem(client.get(path), 422, "invalid-request")
    (error,) = problem["errors"]
    assert error["parameter"] == parameter
    assert remedy in error["detail"]


def test_no_described_route_takes_an_unknown_parameter(client):
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method in operations:
            answer = client.request(method, re.sub(r"{\w+}", "x", path) + "?unheard_of=1", json={})
            assert answer.status_code == 422, (method, path, answer.text)


def test_a_large_body_within_the_limit_is_read(client):
    body = "{}" + " " * (BODY_LIMIT_BYTES - 2)
    answer = client.post(PLAN, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200


def test_a_body_of_unannounced_length_is_limited_too(client):
    def chunks():
        for _ in range(3):
            yield b" " * (BODY_LIMIT_BYTES // 2)

    answer = client.post(PLAN, content=chunks(), headers={"Content-Type": "application/json"})
    check_problem(answer, 413, "body-too-large")


def test_every_problem_type_can_be_looked_up(client):
    assert len({problem.slug for problem in CATALOGUE}) == len(CATALOGUE)
    for problem in CATALOGUE:
        described = client.get(problem.uri).json()
        assert described["type"] == problem.uri
        assert described["status"] == problem.status
        assert described["meaning"]


def test_every_problem_type_is_met_in_these_tests():
    """A type without a cause has no place in the catalogue."""
    tested = {case.slug for case in CASES} | {
        "lifecycle-conflict",
        "quota-exceeded",
        "not-hitless",
        "precondition-failed",
        "key-reused",
        "too-many-subscribers",
        "too-many-webhooks",
        "too-many-requests",
        "unauthenticated",
        "forbidden",
        "no-plan",
        "invalid-configuration",
        "device-unavailable",
        "journal-failed",
        "device-error",
        "internal",
        "method-not-allowed",
        "not-ready",
        "standing-by",
        "store-unavailable",
        "leader-unanswered",
    }
    assert tested == {problem.slug for problem in CATALOGUE}


@pytest.mark.parametrize(
    ("steps", "pointer"), [((), ""), (("a", 0), "/a/0"), (("a/b", "c~d"), "/a~1b/c~0d")]
)
def test_json_pointers_are_escaped(steps, pointer):
    assert json_pointer(*steps) == pointer
