"""/v1/availability."""

from .fake_service import CREATED_UNIX_S

AT = "/v1/availability"


def test_the_next_day(client):
    client.post(
        "/v1/reservations",
        json={"src": "r1", "dst": "r2", "bandwidth_mbps": 60, "duration_s": 100},
    )
    answer = client.get(AT, params={"src": "r1", "dst": "r2"})
    assert answer.status_code == 200
    day = CREATED_UNIX_S + 86_400
    assert answer.json() == {
        "src": "r1",
        "dst": "r2",
        "spans": [
            {"start_unix_s": CREATED_UNIX_S, "end_unix_s": CREATED_UNIX_S + 100, "mbps": 40},
            {"start_unix_s": CREATED_UNIX_S + 100, "end_unix_s": day, "mbps": 100},
        ],
    }


def test_bad_questions(client):
    ends = {"src": "r1", "dst": "r2"}
    order = client.get(AT, params={**ends, "start_unix_s": 5, "end_unix_s": 5})
    assert order.status_code == 422
    assert "end_unix_s is not after start_unix_s" in order.json()["detail"]
    assert client.get(AT, params={"src": "r1"}).status_code == 422
    assert client.get(AT, params={"src": "r1", "dst": "r9"}).status_code == 404
    assert client.get(AT, params={"src": "r1", "dst": "h11"}).status_code == 422
    passed = client.get(AT, params={**ends, "end_unix_s": 5})
    assert (passed.status_code, "is not after the start" in passed.json()["detail"]) == (422, True)
