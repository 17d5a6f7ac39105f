"""/v1/shapes: a ring, a torus or a matrix of racks as one request."""

import pytest

from hydra.lifecycle import ReservationState as State

RING = {"pattern": "ring", "racks": ["r1", "r2", "r3", "r4"], "bandwidth_mbps": 80}
MATRIX = {"matrix": [{"src": "r1", "dst": "r2", "bandwidth_mbps": 40}]}


def settle(service, shape, state):
    for one in shape["reservations"]:
        booked = service.reservation(one["id"]).booked
        service.settle(one["id"], state, path=booked)


def test_a_ring_from_the_request_to_the_release(client, service):
    answer = client.post("/v1/shapes", json=RING | {"purpose": "job 7", "duration_s": 60})
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["Location"] == f"/v1/shapes/{made['id']}"
    assert (made["state"], made["racks"], made["bandwidth_mbps"]) == (
        "activating",
        RING["racks"],
        80,
    )
    assert [(one["src"], one["dst"]) for one in made["reservations"]] == [
        *(("r1", "r2"), ("r2", "r3"), ("r3", "r4"), ("r4", "r1"))
    ]
    group = client.get(f"/v1/groups/{made['id']}").json()["reservations"]
    assert {one["purpose"] for one in group} == {"job 7"}
    settle(service, made, State.ACTIVE)
    at = f"/v1/shapes/{made['id']}"
    assert client.get(at).json()["state"] == "ready"
    (listed,) = client.get("/v1/shapes").json()["shapes"]
    assert (listed["id"], listed["state"]) == (made["id"], "ready")
    assert "reservations" not in listed
    released = client.delete(at)
    assert (released.status_code, released.json()["state"]) == (202, "over")
    settle(service, made, State.RELEASED)
    assert client.delete(at).status_code == 200


def test_a_lost_pair_degrades_the_shape_with_a_remedy(client, service):
    made = client.post("/v1/shapes", json=RING | {"pattern": "pairs"}).json()
    settle(service, made, State.ACTIVE)
    service.settle(made["reservations"][0]["id"], State.FAILED, "no light at r2")
    at = f"/v1/shapes/{made['id']}"
    assert client.get(at).json()["instead"] == ["r1", "r2", "r3", "r4"]
    client.post("/v1/reservations", json={"src": "r1", "dst": "r2", "bandwidth_mbps": 30})
    shape = client.get(at).json()
    assert (shape["state"], shape["instead"]) == ("degraded", ["r3", "r4"])
    assert shape["reason"] == "r1 to r2 is failed (no light at r2)"
    assert "ask for it again, without r1, r2" in shape["to_do"]


def test_the_most_and_a_matrix(client):
    made = client.post("/v1/shapes", json=RING | {"bandwidth_mbps": "most"}).json()
    assert made["bandwidth_mbps"] == 100
    client.delete(f"/v1/shapes/{made['id']}")
    most = client.post("/v1/shapes", json=MATRIX | {"bandwidth_mbps": "most"}).json()
    assert (most["pattern"], most["racks"], most["bandwidth_mbps"]) == ("matrix", ["r1", "r2"], 100)


def test_racks_are_chosen(client):
    client.post("/v1/reservations", json={"src": "r1", "dst": "r2", "bandwidth_mbps": 30})
    body = RING | {"pattern": "pairs", "racks": {"any": 2}}
    made = client.post("/v1/shapes", json=body).json()
    assert made["racks"] == ["r3", "r4"]
    assert made["choice"].startswith("2 of 4 racks, by most free Mb/s at their ports")
    assert client.get(f"/v1/shapes/{made['id']}").json()["choice"] == made["choice"]
    client.delete(f"/v1/shapes/{made['id']}")
    body["racks"] = {"any": 2, "from": ["h11", "h31"]}
    assert client.post("/v1/shapes", json=body).json()["racks"] == ["h31", "h11"]


def test_every_pair_is_protected_and_keeps_to_the_constraints(client, service):
    body = RING | {"pattern": "pairs", "racks": ["r1", "r2"], "protect": "disjoint"}
    made = client.post("/v1/shapes", json=body | {"constraints": {"max_hops": 1}}).json()
    (pair,) = made["reservations"]
    hops = [pair["booked"]["hops"], pair["protection"]["path"]["hops"]]
    assert {hop["plane"] for (hop,) in hops} == {"p1", "p2"}
    assert pair["constraints"]["max_hops"] == 1
    client.delete(f"/v1/shapes/{made['id']}")
    body["constraints"] = {"require_planes": ["p1"]}
    refused = client.post("/v1/shapes", json=body)
    assert refused.status_code == 409
    assert "a disjoint path needs a second plane" in refused.json()["detail"]


def test_a_refusal_holds_nothing_and_names_what_fits(client, service):
    client.post("/v1/shapes", json=MATRIX)
    pairs = RING | {"pattern": "pairs"}
    refused = client.post("/v1/shapes", json=pairs)
    assert refused.status_code == 409
    assert refused.json()["type"] == "/problems/admission-refused"
    assert refused.json()["alternatives"] == [
        {"bandwidth_mbps": 60.0},
        {"bandwidth_mbps": 80.0, "racks": ["r3", "r4"]},
    ]
    assert "ask for at most 60 Mb/s at each edge, or leave out r1, r2" in refused.json()["detail"]
    assert len(service.reservations()) == 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (RING | {"racks": ["r1", "r2", "r1"]}, "rack r1 is named twice"),
        (RING | {"racks": ["r1", "r2"]}, "ring needs 3 racks or more"),
        (RING | {"pattern": "torus:3x2"}, "torus:3x2 needs 6 racks, and 4 are given"),
        (RING | {"racks": {"any": 2}}, "ring needs 3 racks or more"),
        (RING | {"racks": {"any": 0}}, "any: must be greater than or equal to 2, not 0"),
        (RING | {"racks": {"any": "8"}}, "any: must be a valid integer, not"),
        (RING | {"racks": {}}, "any: is missing"),
        (RING | {"racks": {"any": 3, "of": []}}, "of: is unknown"),
        (RING | {"racks": {"any": 3, "from": []}}, "from: List should have at least 1 item"),
        (RING | {"racks": {"any": 3, "from": ["r1", "r2"]}}, "3 racks of 2 are asked for"),
        (RING | {"racks": {"any": 3, "from": ["r1", "r1", "r2"]}}, "rack r1 is named twice"),
        (RING | {"racks": "r1"}, "must be a valid list"),
        (RING | {"racks": ["r1", 2]}, "1: must be a valid string"),
        (MATRIX | {"racks": {"any": 3}}, "give pattern and racks, or a matrix"),
        (RING | {"pattern": "star"}, "there is no pattern 'star', but ring"),
        (RING | {"bandwidth_mbps": 0}, "above 0"),
        (RING | {"bandwidth_mbps": "all"}, "above 0"),
        (RING | {"bandwidth_mbps": 10**400}, "above 0"),
        (RING | {"bandwidth_mbps": None}, "give bandwidth_mbps"),
        (RING | {"bandwidth_mbps": "most", "service": "best-effort"}, "name a rate"),
        (RING | MATRIX, "a pattern or a matrix, not both"),
        (MATRIX | {"bandwidth_mbps": 5}, "leave out bandwidth_mbps"),
        ({"racks": ["r1", "r2"], "bandwidth_mbps": 5}, "give pattern and racks, or a matrix"),
        ({"matrix": MATRIX["matrix"] * 2}, "the pair r1 and r2 is named twice"),
        (RING | {"duration_s": 1, "end_unix_s": 1}, "not both"),
    ],
)
def test_bad_input_is_one_error(client, service, body, told):
    refused = client.post("/v1/shapes", json=body)
    assert refused.status_code == 422
    assert told in refused.json()["detail"]
    assert len(refused.json()["errors"]) == 1
    assert service.reservations() == []


def test_unknown_names(client):
    assert client.post("/v1/shapes", json=RING | {"racks": ["r1", "r2", "r9"]}).status_code == 404
    assert client.get("/v1/shapes/g9").status_code == 404
    entry = {"src": "r1", "dst": "r2", "bandwidth_mbps": 5}
    group = client.post("/v1/groups", json={"entries": [entry]}).json()["id"]
    assert client.get(f"/v1/shapes/{group}").status_code == 404
    assert client.delete(f"/v1/shapes/{group}").status_code == 404


def test_a_repeated_request_with_the_key_gets_the_same_shape(client, service):
    headers = {"Idempotency-Key": "k"}
    body = RING | {"bandwidth_mbps": "most"}
    first, second = (client.post("/v1/shapes", json=body, headers=headers).json() for _ in "12")
    assert first == second
    assert len(service.reservations()) == 4
