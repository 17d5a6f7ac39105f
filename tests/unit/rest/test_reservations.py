import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from apps.cli.reservations import _describe_own_path
from apps.rest import reply
from apps.rest.app import create_app
from apps.rest.resources.reservations import Reservation
from apps.rest.server import RestServer
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.bundle import bundle_of, divisions
from hydra.reservations.reservation import ReservationRequest
from tests.waiting import HANGS_S, PATIENCE_S, remains, wait_until

from .fake_service import FakeService, relay_path

ENTRY = {"src": "r1", "dst": "r2", "bandwidth_mbps": 10}
BODY = {**ENTRY, "duration_s": 60}
BOOKED = {
    "src": "r1",
    "dst": "r2",
    "vlan": None,
    "one_way": False,
    "hops": [
        {
            "plane": "p1",
            "from_rack": "r1",
            "from_port": "hyt-r1-p1",
            "to_rack": "r2",
            "to_port": "hyt-r2-p1",
            "rate_mbps": 100.0,
        }
    ],
}


def test_post_creates_and_tells_where(client):
    answer = client.post("/v1/reservations", json=BODY)
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/reservations/v0"
    assert "preference-applied" not in answer.headers
    created = answer.json()
    assert created == client.get(answer.headers["location"]).json()
    assert created == {
        "id": "v0",
        "state": "activating",
        "src": "r1",
        "dst": "r2",
        "src_rack": "r1",
        "dst_rack": "r2",
        "bandwidth_mbps": 10.0,
        "wanted_mbps": None,
        "minimum_mbps": None,
        "priority": 0,
        "service": "shared",
        "purpose": "",
        "duration_s": 60.0,
        "created_unix_s": 1_700_000_000.0,
        "start_unix_s": 1_700_000_000.0,
        "expires_unix_s": 1_700_000_060.0,
        "held_until_unix_s": None,
        "group": None,
        "booked": BOOKED,
        "path": None,
        "bundle": None,
        "parts": [],
        "constraints": {
            "avoid_planes": [],
            "require_planes": [],
            "avoid_relays": [],
            "max_hops": None,
        },
        "protect": "none",
        "protection": None,
        "transfer": None,
        "reason": "",
        "since_unix_s": 1_700_000_000.0,
    }


def test_a_purpose_comes_back_with_a_reservation_and_with_each_of_a_group(client):
    made = client.post("/v1/reservations", json={**BODY, "purpose": "job 42: ☃ shuffle"}).json()
    assert made["purpose"] == "job 42: ☃ shuffle"
    changed = client.patch(f"/v1/reservations/{made['id']}", json={"bandwidth_mbps": 5}).json()
    assert changed["purpose"] == "job 42: ☃ shuffle"
    entries = [ENTRY, {**ENTRY, "dst": "r3"}]
    group = client.post("/v1/groups", json={"entries": entries, "purpose": "job 43"}).json()
    assert [one["purpose"] for one in group["reservations"]] == ["job 43", "job 43"]


def test_constraints_and_protection_come_back(client):
    constraints = {"avoid_planes": [], "avoid_relays": ["r4"], "max_hops": 1}
    wish = {"constraints": constraints, "protect": "disjoint"}
    made = client.post("/v1/reservations", json={**BODY, **wish}).json()
    assert made["constraints"] == {"require_planes": [], **constraints}
    assert made["protect"] == "disjoint"
    group = client.post("/v1/groups", json={"entries": [ENTRY], **wish}).json()
    assert group["reservations"][0]["constraints"] == made["constraints"]
    for wrong in ({"max_hops": 0}, {"avoid_planes": [""]}, {"planes": ["p1"]}):
        refused = client.post("/v1/reservations", json={**BODY, "constraints": wrong})
        assert refused.status_code == 422, refused.text


@pytest.mark.parametrize("purpose", ["two\nlines", "\x1b[2J", "\x9b2J", "x" * 201])
def test_a_purpose_is_one_line_of_text(client, purpose):
    refused = client.post("/v1/reservations", json={**BODY, "purpose": purpose})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/purpose")


def test_the_path_runs_from_src_to_dst(client, service):
    """The model stores paths from the lower rack number; the client's request was from h22 to
    h11.
    """
    client.post("/v1/reservations", json={"src": "h22", "dst": "h11", "bandwidth_mbps": 0.5})
    service.settle("v0", State.ACTIVE, path=relay_path())
    reservation = client.get("/v1/reservations/v0").json()
    assert reservation["duration_s"] is None
    assert reservation["expires_unix_s"] is None
    assert (reservation["src_rack"], reservation["dst_rack"]) == ("r2", "r1")
    assert reservation["path"] == {
        "src": "r2",
        "dst": "r1",
        "vlan": 100,
        "one_way": False,
        "hops": [
            {
                "plane": "p2",
                "from_rack": "r2",
                "from_port": "hyt-r2-p2",
                "to_rack": "r3",
                "to_port": "hyt-r3-p2",
                "rate_mbps": 100.0,
            },
            {
                "plane": "p1",
                "from_rack": "r3",
                "from_port": "hyt-r3-p1",
                "to_rack": "r1",
                "to_port": "hyt-r1-p1",
                "rate_mbps": 100.0,
            },
        ],
    }


@pytest.mark.parametrize("end", [State.ACTIVE, State.FAILED])
def test_prefer_wait_answers_with_the_outcome(client, service, end, monkeypatch, waits):
    monkeypatch.setattr(reply, "LONGEST_WAIT_S", 120)
    started = time.monotonic()
    with waits("reservation", lambda: service.settle("v0", end, "because")):
        answer = client.post("/v1/reservations", json=BODY, headers={"Prefer": "wait=120"})
    assert time.monotonic() - started < HANGS_S
    assert answer.status_code == 201
    assert answer.headers["preference-applied"] == "wait=120"
    assert answer.headers["location"] == "/v1/reservations/v0"
    assert answer.json()["state"] == end.value
    assert answer.json()["reason"] == "because"


def test_prefer_wait_ends_without_an_outcome(client):
    started = time.monotonic()
    answer = client.post("/v1/reservations", json=BODY, headers={"Prefer": "wait=1"})
    assert 0.9 < time.monotonic() - started < HANGS_S
    assert answer.status_code == 201
    assert answer.json()["state"] == "activating"


def no_more(reads: list[object]) -> bool:
    seen = len(reads)
    return remains(lambda: len(reads) == seen, 1.0)


def test_nothing_is_waited_for_once_the_client_has_gone(service, monkeypatch):
    monkeypatch.setattr(reply, "LONGEST_WAIT_S", 3600)
    made = service.reserve(ReservationRequest("r1", "r2", 10.0))
    reads, read = [], service.reservation
    monkeypatch.setattr(service, "reservation", lambda *asked: reads.append(asked) or read(*asked))
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    try:
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as client:
            line = f"GET /v1/reservations/{made.id}?wait=active HTTP/1.1\r\nHost: {host}\r\n\r\n"
            client.sendall(line.encode())
            wait_until(lambda: len(reads) > 3)
        wait_until(lambda: no_more(reads))
    finally:
        server.stop()


def test_waiting_clients_do_not_hold_up_others(client, service, monkeypatch):
    """More requests than threads in the pool."""
    monkeypatch.setattr(reply, "LONGEST_WAIT_S", 120)
    body = {**BODY, "bandwidth_mbps": 1}
    with ThreadPoolExecutor(60) as pool:
        waiting = [
            pool.submit(client.post, "/v1/reservations", json=body, headers={"Prefer": "wait=120"})
            for _ in range(60)
        ]
        wait_until(lambda: len(service.reservations()) == 60)
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/topology").status_code == 200
        assert not any(answer.done() for answer in waiting)
        for number in range(60):
            service.settle(f"v{number}", State.ACTIVE)
        assert {answer.result().json()["state"] for answer in waiting} == {"active"}


def test_parallel_posts_are_all_admitted_and_never_too_many(client):
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(
                lambda _: client.post("/v1/reservations", json={**BODY, "bandwidth_mbps": 8}),
                range(20),
            )
        )
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [201] * 12 + [409] * 8, "12 times 8 Mb/s fit into 100"
    created = {a.headers["location"] for a in answers if a.status_code == 201}
    listed = client.get("/v1/reservations").json()["reservations"]
    assert created == {f"/v1/reservations/{one['id']}" for one in listed}


def test_the_list_can_be_filtered_by_state(client, service):
    for _ in range(3):
        client.post("/v1/reservations", json=BODY)
    service.settle("v1", State.ACTIVE)
    service.settle("v2", State.FAILED)

    def ids(**params):
        listed = client.get("/v1/reservations", params=params).json()["reservations"]
        return [one["id"] for one in listed]

    assert ids() == ["v0", "v1", "v2"]
    assert ids(state="active") == ["v1"]
    assert ids(state=["active", "failed"]) == ["v1", "v2"]
    assert ids(state="expired") == []


def test_delete_releases_and_can_be_repeated(client, service):
    client.post("/v1/reservations", json=BODY)
    service.settle("v0", State.ACTIVE)
    for _ in range(2):
        answer = client.delete("/v1/reservations/v0")
        assert (answer.status_code, answer.json()["state"]) == (202, "releasing")
    service.settle("v0", State.RELEASED)
    answer = client.delete("/v1/reservations/v0")
    assert (answer.status_code, answer.json()["state"]) == (200, "released")
    assert client.get("/v1/reservations/v0").json()["state"] == "released"


@pytest.mark.parametrize(
    ("end", "then"), [(State.FAILED, State.RELEASED), (State.EXPIRED, State.EXPIRED)]
)
def test_delete_of_what_ended_otherwise(client, service, end, then):
    client.post("/v1/reservations", json=BODY)
    service.settle("v0", end)
    answer = client.delete("/v1/reservations/v0")
    assert (answer.status_code, answer.json()["state"]) == (200, then.value)


def test_delete_can_wait_for_the_end(client, service, waits):
    client.post("/v1/reservations", json=BODY)
    with waits("reservation", lambda: service.settle("v0", State.RELEASED)):
        answer = client.delete("/v1/reservations/v0", headers={"Prefer": "wait=60"})
    assert (answer.status_code, answer.json()["state"]) == (200, "released")
    assert answer.headers["preference-applied"] == "wait=60"


# --- time, holds, dry runs ------------------------------------------------------------------


def test_a_later_start_is_scheduled_and_can_be_cancelled(client):
    later = {**BODY, "start_unix_s": 1_700_000_100}
    answer = client.post("/v1/reservations", json=later, headers={"Prefer": "wait=60"})
    created = answer.json()
    assert (answer.status_code, created["state"]) == (201, "scheduled")
    assert (created["start_unix_s"], created["expires_unix_s"]) == (1_700_000_100, 1_700_000_160)
    answer = client.delete("/v1/reservations/v0")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")


def test_what_is_held_is_committed_once(client, service):
    created = client.post("/v1/reservations", json={**BODY, "hold_s": 30}).json()
    assert (created["state"], created["held_until_unix_s"]) == ("held", 1_700_000_030)
    for _ in range(2):
        answer = client.post("/v1/reservations/v0/commit")
        assert (answer.status_code, answer.json()["state"]) == (200, "activating")
        assert answer.json()["held_until_unix_s"] is None
    service.settle("v0", State.FAILED)
    answer = client.post("/v1/reservations/v0/commit")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/lifecycle-conflict")


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ("/v1/reservations", BODY),
        ("/v1/reservations/preview", BODY),
        ("/v1/reservations", {**BODY, "priority": 9}),
        ("/v1/reservations", {**BODY, "start_unix_s": 1_800_000_000.0, "hold_s": 60}),
        ("/v1/groups", {"entries": [ENTRY, ENTRY], "all_or_nothing": False}),
        ("/v1/groups", {"entries": [ENTRY, ENTRY]}),
    ],
)
def test_nothing_is_reserved_where_circuits_are_one_way(fabric, shared_app, client, where, body):
    shared_app[0].state.service = FakeService(replace(fabric, one_way=True))
    refused = client.post(where, json=body)
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["type"] == "/problems/admission-refused"
    assert "this network has one-way circuits" in problem["detail"]
    assert "alternatives" not in problem, "there are none"
    assert client.get("/v1/reservations").json()["reservations"] == []


def test_a_dry_run_changes_nothing(client):
    answer = client.post("/v1/reservations/preview", json=BODY)
    assert answer.status_code == 200
    preview = answer.json()
    assert preview["booked"] == BOOKED
    assert [circuit["plane"] for circuit in preview["connect"]] == ["p1"]
    assert client.get("/v1/reservations").json()["reservations"] == []
    refused = client.post("/v1/reservations/preview", json={**BODY, "bandwidth_mbps": 101})
    assert refused.status_code == 409


def test_a_refusal_offers_what_is_then_admitted(client):
    client.post("/v1/reservations", json={**BODY, "bandwidth_mbps": 70})
    wanted = {**BODY, "bandwidth_mbps": 60}
    refused = client.post("/v1/reservations", json=wanted).json()
    assert refused["alternatives"] == [
        {"bandwidth_mbps": 30.0},
        {"bandwidth_mbps": 60.0, "start_unix_s": 1_700_000_060.0},
    ]
    for alternative in refused["alternatives"]:
        answer = client.post("/v1/reservations", json={**wanted, **alternative})
        assert answer.status_code == 201, answer.text


def test_a_later_start_comes_with_its_end_where_an_end_was_asked_for(client):
    client.post("/v1/reservations", json={**BODY, "bandwidth_mbps": 70})
    until = {"src": "r1", "dst": "r2", "bandwidth_mbps": 60, "end_unix_s": 1_700_000_020}
    lower, later = client.post("/v1/reservations", json=until).json()["alternatives"]
    assert lower == {"bandwidth_mbps": 30.0}
    assert (later["start_unix_s"], later["end_unix_s"]) == (1_700_000_060, 1_700_000_080)
    assert client.post("/v1/reservations", json={**until, **later}).status_code == 201


def test_two_ends_are_one_too_many(client):
    both = {**BODY, "end_unix_s": 1_700_000_100}
    answer = client.post("/v1/reservations", json=both)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-request")
    assert "not both" in answer.json()["detail"]


# --- groups ---------------------------------------------------------------------------------


def entry(src, dst, mbps):
    return {"src": src, "dst": dst, "bandwidth_mbps": mbps}


def test_a_matrix_is_admitted_as_one(client):
    body = {"entries": [entry("r1", "r2", 60), entry("r3", "h41", 50)], "duration_s": 60}
    answer = client.post("/v1/groups", json=body)
    assert answer.status_code == 201
    group = answer.json()
    assert group["refused"] == []
    assert {one["group"] for one in group["reservations"]} == {group["id"]}
    read = client.get(answer.headers["location"]).json()
    assert read == {key: group[key] for key in ("id", "reservations")}
    released = client.delete(answer.headers["location"])
    assert released.status_code == 202
    assert {one["state"] for one in released.json()["reservations"]} == {"releasing"}
    assert client.delete("/v1/groups/g9").status_code == 404


def test_all_or_nothing(client):
    body = {"entries": [entry("r1", "r2", 60), entry("h11", "r2", 50)]}
    answer = client.post("/v1/groups", json=body)
    assert answer.status_code == 409
    assert answer.json()["alternatives"] == [{"bandwidth_mbps": 40.0}]
    assert client.get("/v1/reservations").json()["reservations"] == []


def test_as_much_as_fits(client, service):
    body = {
        "entries": [entry("r1", "r2", 60), entry("h11", "r2", 50)],
        "all_or_nothing": False,
    }
    answer = client.post("/v1/groups", json=body)
    assert answer.status_code == 201
    assert [one["bandwidth_mbps"] for one in answer.json()["reservations"]] == [60]
    (refused,) = answer.json()["refused"]
    assert refused["src"] == "h11"
    (alternative,) = refused["alternatives"]
    left_out = dict.fromkeys(("start_unix_s", "end_unix_s", "racks"))
    assert alternative == {"bandwidth_mbps": 40.0} | left_out
    service.settle("v0", State.FAILED)
    assert client.delete(answer.headers["location"]).status_code == 200


# --- retries, preconditions, pages ----------------------------------------------------------


def test_a_retry_with_the_same_key_makes_nothing_new(client):
    key = {"Idempotency-Key": "job-17"}
    first = client.post("/v1/reservations", json=BODY, headers=key)
    again = client.post("/v1/reservations", json=BODY, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    other = client.post("/v1/reservations", json={**BODY, "bandwidth_mbps": 11}, headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
    assert client.post("/v1/reservations", json=BODY).json()["id"] == "v1"
    assert len(client.get("/v1/reservations").json()["reservations"]) == 2


def test_a_retried_group_makes_nothing_new(client):
    body = {"entries": [entry("r1", "r2", 60), entry("r3", "h41", 50)]}
    answers = [
        client.post("/v1/groups", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert len(client.get("/v1/reservations").json()["reservations"]) == 2


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_has_limits(client, key):
    answer = client.post("/v1/reservations", json=BODY, headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-request")


def test_etags_change_with_the_resource(client, service):
    created = client.post("/v1/reservations", json=BODY)
    tag = created.headers["etag"]
    same = client.get("/v1/reservations/v0", headers={"If-None-Match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    service.settle("v0", State.ACTIVE)
    changed = client.get("/v1/reservations/v0", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
    stale = client.delete("/v1/reservations/v0", headers={"If-Match": tag})
    assert (stale.status_code, stale.json()["type"]) == (412, "/problems/precondition-failed")
    assert client.get("/v1/reservations/v0").json()["state"] == "active"
    fresh = f'"x", {changed.headers["etag"]}'
    assert client.delete("/v1/reservations/v0", headers={"If-Match": fresh}).status_code == 202


def test_commit_only_what_was_seen(client):
    tag = client.post("/v1/reservations", json={**BODY, "hold_s": 30}).headers["etag"]
    path = "/v1/reservations/v0/commit"
    assert client.post(path, headers={"If-Match": '"other"'}).status_code == 412
    assert client.post(path, headers={"If-Match": tag}).json()["state"] == "activating"


def test_pages_cover_the_list_once(client):
    for _ in range(5):
        client.post("/v1/reservations", json={**BODY, "bandwidth_mbps": 1})
    seen, after = [], None
    while True:
        params = {"limit": 2} | ({"after": after} if after else {})
        page = client.get("/v1/reservations", params=params).json()
        seen += [one["id"] for one in page["reservations"]]
        assert len(page["reservations"]) <= 2
        if (after := page["next"]) is None:
            break
    assert seen == ["v0", "v1", "v2", "v3", "v4"]
    assert client.get("/v1/reservations", params={"after": "v9"}).status_code == 404
    assert client.get("/v1/reservations", params={"limit": 0}).status_code == 422


def test_the_list_can_be_filtered_by_rack_and_group(client):
    client.post("/v1/reservations", json=BODY)
    group = client.post("/v1/groups", json={"entries": [entry("r3", "r4", 5)]}).json()["id"]

    def ids(**params):
        listed = client.get("/v1/reservations", params=params).json()["reservations"]
        return [one["id"] for one in listed]

    assert ids(rack="h22") == ["v0"]
    assert ids(rack="r4") == ids(group=group) == ["v1"]
    assert ids(rack="r4", group="other") == []
    assert client.get("/v1/reservations", params={"rack": "r9"}).status_code == 404


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_change_that_waits_for_the_controller_keeps_nobody_else_waiting(
    client, service, monkeypatch, method
):
    """As during a write to a slow disk: the first lookup waits, too."""
    made = client.post("/v1/reservations", json={"src": "r1", "dst": "r2", "bandwidth_mbps": 40})
    path, asked, answers = f"/v1/reservations/{made.json()['id']}", Event(), Event()
    look_up = service.reservation

    def late(reservation_id):
        asked.set()
        answers.wait(PATIENCE_S)
        return look_up(reservation_id)

    monkeypatch.setattr(service, "reservation", late)
    body = {"json": {"bandwidth_mbps": 60}} if method == "PATCH" else {}
    headers = {"If-Match": made.headers["ETag"]}
    with ThreadPoolExecutor(1) as another:
        changed = another.submit(client.request, method, path, headers=headers, **body)
        try:
            assert asked.wait(PATIENCE_S)
            assert client.get("/healthz", timeout=PATIENCE_S).status_code == 200
        finally:
            answers.set()
        assert changed.result().is_success


def test_a_reservation_is_modified_where_it_is_or_not_at_all(client, service):
    made = client.post("/v1/reservations", json={"src": "h11", "dst": "r2", "bandwidth_mbps": 40})
    path, tag = f"/v1/reservations/{made.json()['id']}", made.headers["ETag"]
    changed = client.patch(path, json={"bandwidth_mbps": 60, "src": "h12"})
    assert changed.status_code == 200
    assert (changed.json()["bandwidth_mbps"], changed.json()["src"]) == (60, "h12")
    assert changed.headers["ETag"] == client.get(path).headers["ETag"] != tag
    late = client.patch(path, json={"bandwidth_mbps": 10}, headers={"If-Match": tag})
    assert late.status_code == 412
    client.post("/v1/reservations", json={"src": "r1", "dst": "r2", "bandwidth_mbps": 30})
    refused = client.patch(path, json={"bandwidth_mbps": 80})
    assert refused.status_code == 409
    assert refused.json()["type"] == "/problems/not-hitless"
    assert "hitless modification not possible" in refused.json()["detail"]
    assert refused.json()["alternatives"] == [{"bandwidth_mbps": 70}]
    assert client.get(path).json() == changed.json()
    assert client.patch(path, json={"dst": "r3"}).json()["type"] == "/problems/not-hitless"
    assert client.patch(path, json={"state": "active"}).status_code == 422
    assert client.patch("/v1/reservations/none", json={}).status_code == 404
    client.delete(path)
    assert client.patch(path, json={"bandwidth_mbps": 1}).json()["type"] == (
        "/problems/lifecycle-conflict"
    )


# --- bundles ------------------------------------------------------------------------------------


def test_what_no_circuit_carries_is_one_answer_with_its_parts(client, service):
    service.divides = True
    body = {**ENTRY, "bandwidth_mbps": 150}
    preview = client.post("/v1/reservations/preview", json=body).json()
    assert (preview["booked"], len(preview["parts"]), len(preview["connect"])) == (None, 2, 2)
    answer = client.post("/v1/reservations", json=body)
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/reservations/v0"
    created = answer.json()
    assert (created["id"], created["bandwidth_mbps"]) == ("v0", 150.0)
    assert (created["booked"], created["path"], created["bundle"]) == (None, None, None)
    assert [(one["src"], one["dst"], one["bandwidth_mbps"]) for one in created["parts"]] == [
        ("h11", "r2", 75.0),
        ("h12", "r2", 75.0),
    ]
    assert [one["booked"]["hops"][0]["plane"] for one in created["parts"]] == ["p1", "p2"]
    again = client.get("/v1/reservations/v0", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    listed = client.get("/v1/reservations").json()["reservations"]
    assert [(one["id"], one["bundle"], one["parts"]) for one in listed] == [
        ("v0.0", "v0", []),
        ("v0.1", "v0", []),
    ]


def test_a_part_whose_path_the_configuration_has_no_more_is_shown_without(fabric):
    """A reservation read after a start without one of its ports: failed."""
    book = ReservationBook(fabric)
    way = next(divisions(fabric, ReservationRequest("r1", "r2", 150.0), 16))
    for number, part in enumerate(way):
        book.add(f"v.{number}", part, 0.0, bundle="v")
    lost, *others = book.parts("v")
    lost = replace(lost, state=State.FAILED, reason="it has no port", booked=None)
    shown = Reservation.of(fabric, bundle_of(fabric, [lost, *others]))
    assert shown.state is State.FAILED
    assert [part.booked is None for part in shown.parts] == [True, False]
    assert "h11 to r2, 75.0 Mb/s: none" in _describe_own_path(shown.model_dump(mode="json"))


def test_a_group_releases_all_parts_of_a_bundle(client, service):
    service.divides = True
    client.post("/v1/reservations", json={**ENTRY, "bandwidth_mbps": 150})
    assert client.delete("/v1/groups/g").status_code == 202
    assert [one.state.value for one in service.group("g")] == ["releasing"] * 2
