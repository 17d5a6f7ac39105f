"""Groups at recurring times: all or none."""

import pytest

START_UNIX_S = 1_800_000_000.0
DAY_S = 86_400.0


def body(mbps=60.0, times=5, **more):
    entries = [{"src": "r1", "dst": "r2", "bandwidth_mbps": mbps}]
    repeat = {"every_s": DAY_S, "times": times}
    span = {"start_unix_s": START_UNIX_S, "duration_s": 3600.0}
    return {"entries": entries, "repeat": repeat, **span, **more}


def test_each_time_is_a_reservation_of_the_group(client):
    made = client.post("/v1/groups", json=body())
    assert made.status_code == 201
    members = client.get(made.headers["location"]).json()["reservations"]
    assert [one["start_unix_s"] for one in members] == [START_UNIX_S + n * DAY_S for n in range(5)]
    assert {one["expires_unix_s"] - one["start_unix_s"] for one in members} == {3600.0}
    assert {one["state"] for one in members} == {"scheduled"}


def test_one_time_that_is_taken_takes_the_others_with_it(client):
    third = {"start_unix_s": START_UNIX_S + 2 * DAY_S, "duration_s": 60.0}
    first = {"src": "r1", "dst": "r2", "bandwidth_mbps": 80.0, **third}
    assert client.post("/v1/reservations", json=first).status_code == 201
    assert client.post("/v1/groups", json=body()).status_code == 409
    assert len(client.get("/v1/reservations").json()["reservations"]) == 1
    some = client.post("/v1/groups", json=body(all_or_nothing=False)).json()
    assert (len(some["reservations"]), len(some["refused"])) == (4, 1)


@pytest.mark.parametrize(
    ("change", "words", "pointer"),
    [
        ({"start_unix_s": None}, "needs start_unix_s", "/start_unix_s"),
        ({"duration_s": None}, "until released", "/duration_s"),
        ({"duration_s": DAY_S + 1}, "of at most every_s", "/duration_s"),
        (
            {"duration_s": None, "end_unix_s": START_UNIX_S + 2 * DAY_S},
            "of at most every_s",
            "/end_unix_s",
        ),
        ({"entries": body()["entries"] * 3000}, "15000 reservations", "/repeat"),
        (
            {"entries": [*body()["entries"], {**body()["entries"][0], "dst": "r1"}]},
            "rack r1",
            "/entries/1/dst",
        ),
    ],
)
def test_times_that_make_no_sense(client, change, words, pointer):
    refused = client.post("/v1/groups", json=body() | change)
    assert refused.status_code == 422
    assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]
    assert words in refused.json()["detail"]
