"""Bodies meant to bring the server down: each is refused at little cost, with a short message."""

import json
import socket
import threading
import time

import pytest

from apps.rest.document import MOST_ENTRIES
from apps.rest.middleware import BODY_LIMIT_BYTES, body_limit
from apps.rest.resources.agents import BacklogBody
from hydra.demand.backlog import MOST_ELEPHANTS
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S

HEADERS = {"Content-Type": "application/json"}
PLAN, GROUPS, RESERVATIONS = "/v1/plan", "/v1/groups", "/v1/reservations"
BACKLOG = "/v1/agents/h11/backlog"


def request(client, path, body):
    method = "PUT" if path == BACKLOG else "POST"
    content = body if isinstance(body, str) else json.dumps(body)
    return client.request(method, path, content=content, headers=HEADERS)


@pytest.mark.parametrize("path", [PLAN, GROUPS, RESERVATIONS, BACKLOG])
def test_much_is_not_read(client, path):
    answer = request(client, path, "[" + "1," * (1 << 23) + "1]")
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PLAN, {"demand": [1] * 20_000}),
        (PLAN, {"demand": [{"a": 1}] * 5_000}),
        (PLAN, {"demand_matrix": {"mbps": [["x"] * 5_000] * 2}}),
        (PLAN, {"racks": [1] * 20_000}),
        (PLAN, {f"k{n}": 1 for n in range(5_000)}),
        (PLAN, {"k" * 60_000: 1}),
        (PLAN, {"demand": [{"src": f"x{n}", "dst": "r1", "mbps": 1} for n in range(1_500)]}),
        (PLAN, {"demand": [{"src": "r1", "dst": "r1", "mbps": 1}] * 1_500}),
        (GROUPS, {"entries": [{}] * 10_000}),
        (GROUPS, {"entries": [], **{f"k{n}": 1 for n in range(9_000)}}),
        (RESERVATIONS, {f"k{n}": 1 for n in range(5_000)}),
        (BACKLOG, {"backlog_mb": {f"r{n}": "x" for n in range(3_000)}}),
        (BACKLOG, {"backlog_mb": {}, "elephants": [1] * 20_000}),
        ("/v1/webhooks", {"url": "http://a/", "kinds": ["x"] * 10_000}),
    ],
)
def test_of_many_errors_few_are_told(client, path, body):
    answer = request(client, path, body)
    assert answer.status_code in {404, 422}
    problem = answer.json()
    assert 1 <= len(problem["errors"]) <= 20
    assert len(answer.content) < 16_384


def test_the_others_are_counted(client):
    answer = request(client, RESERVATIONS, {f"k{n}": 1 for n in range(5_000)})
    assert "(and 5001 more)" in answer.json()["detail"]  # src and dst are missing
    entries = [{"src": f"x{n}", "dst": "r1", "mbps": 1} for n in range(1_000)]
    answer = request(client, PLAN, {"demand": entries})
    assert answer.json()["detail"].endswith("; and 980 more")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ('{"src": "r1", "src": "r2"}', "'src' occurs twice"),
        ("{" + ",".join(f'"k{n}":1' for n in range(10_001)) + "}", "10001 keys"),
        ("[" * 50_000, "nested more than 64 levels deep"),
        ("[" * 65 + "]" * 65, "nested more than 64 levels deep"),
        ("1" * 50_000, "too many digits"),
        (b"\xc3(", "at byte"),
    ],
)
def test_what_is_ambiguous_or_no_json_is_refused(client, body, detail):
    answer = client.post(GROUPS, content=body, headers=HEADERS)
    assert answer.status_code == 400
    assert detail in answer.json()["detail"]


def test_the_limits_leave_room_for_all_that_can_be_meant(fabric):
    names = [*fabric.rack_by_name, *fabric.server_by_name]
    longest = max(names, key=len)
    racks = list(fabric.rack_by_name)
    demand = [{"src": a, "dst": b, "mbps": 12345.678901234567} for a in racks for b in racks]
    assert len(json.dumps({"demand": demand}, indent=4)) < body_limit("POST", PLAN, fabric)
    entry = {"src": longest, "dst": longest, "bandwidth_mbps": 1e5, "minimum_mbps": 1e4}
    group = {"entries": [entry] * MOST_ENTRIES}
    assert len(json.dumps(group, indent=2)) < body_limit("POST", GROUPS, fabric)
    report = BacklogBody(
        backlog_mb=dict.fromkeys(racks, 12345.678901234567),
        elephants=[{"address": "f" * 4 + ":ffff" * 7, "src_port": 65535, "dst_port": 65535}]
        * MOST_ELEPHANTS,
    )
    assert len(report.model_dump_json(indent=2)) < body_limit("PUT", BACKLOG, fabric)
    assert body_limit("POST", RESERVATIONS, fabric) == BODY_LIMIT_BYTES


def test_an_endless_body_ends_with_its_answer(server):
    head = (
        b"POST /v1/reservations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head)
        with pytest.raises(ConnectionError):
            while sent < 200 << 20:
                connection.sendall(chunk)
                sent += len(chunk)
    assert sent < 100 << 20


def test_others_are_answered_while_a_large_body_is_read(server):
    """Reading the body takes about a second of processor time; a probe must not wait for that."""
    entry = {"src": "r1", "dst": "r2", "bandwidth_mbps": 1}
    body = json.dumps({"entries": [entry] * 9_999 + [1]})
    stop = threading.Event()

    def send() -> None:
        with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
            while not stop.is_set():
                assert client.post(GROUPS, content=body, headers=HEADERS).status_code == 422

    senders = [threading.Thread(target=send) for _ in range(3)]
    for sender in senders:
        sender.start()
    try:
        with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
            end_s = time.monotonic() + 2  # timed: duration of the requests
            while time.monotonic() < end_s:
                assert client.get("/readyz").status_code == 200
    finally:
        stop.set()
        for sender in senders:
            sender.join()
