"""/v1/reservations for megabytes by a deadline."""

import pytest

from .fake_service import CREATED_UNIX_S

BYTES = {"src": "r1", "dst": "r2", "megabytes": 125, "end_unix_s": CREATED_UNIX_S + 100}


def test_bytes_get_a_rate_and_an_end(client):
    answer = client.post("/v1/reservations", json=BYTES)
    assert answer.status_code == 201
    made = answer.json()
    assert (made["bandwidth_mbps"], made["duration_s"]) == (100, 10)
    assert made["transfer"] == {
        "megabytes": 125,
        "deadline_unix_s": CREATED_UNIX_S + 100,
        "profile": "earliest",
        "missing_megabytes": 0,
    }
    later = client.post("/v1/reservations", json=BYTES | {"profile": "latest"}).json()
    assert later["state"] == "scheduled"
    assert later["expires_unix_s"] == CREATED_UNIX_S + 100


def test_a_deadline_before_the_earliest_end_is_refused_with_that_end(client, service):
    refused = client.post("/v1/reservations", json=BYTES | {"end_unix_s": CREATED_UNIX_S + 5})
    assert refused.status_code == 409
    (offer,) = refused.json()["alternatives"]
    assert offer["end_unix_s"] == CREATED_UNIX_S + 10
    assert "the earliest end that fits is" in refused.json()["detail"]
    assert service.reservations() == []


def test_rate_and_end_stay(client):
    made = client.post("/v1/reservations", json=BYTES).json()
    refused = client.patch(f"/v1/reservations/{made['id']}", json={"bandwidth_mbps": 5})
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/admission-refused")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (BYTES | {"bandwidth_mbps": 5}, "give bandwidth_mbps or megabytes, and not both"),
        ({"src": "r1", "dst": "r2"}, "give bandwidth_mbps or megabytes: neither is given"),
        (BYTES | {"end_unix_s": None}, "megabytes need end_unix_s, the deadline"),
        (BYTES | {"minimum_mbps": 5}, "megabytes go without minimum_mbps"),
        (BYTES | {"duration_s": 5}, "not both"),
        (BYTES | {"megabytes": 0}, "must be greater than 0"),
        (BYTES | {"profile": "soon"}, "must be 'earliest', 'latest' or 'cheapest'"),
        (BYTES | {"megabytes": None, "bandwidth_mbps": 5, "profile": "latest"}, "profile goes"),
    ],
)
def test_bad_input_is_one_error(client, service, body, told):
    refused = client.post("/v1/reservations", json=body)
    assert refused.status_code == 422
    assert told in refused.json()["detail"]
    assert len(refused.json()["errors"]) == 1
    assert service.reservations() == []


def test_a_deadline_that_has_passed(client):
    refused = client.post("/v1/reservations", json=BYTES | {"end_unix_s": CREATED_UNIX_S - 5})
    assert refused.status_code == 422
    assert "is not after the start" in refused.json()["detail"]
