"""/v1/load: the last hour of circuits and rack pairs."""

import pytest

from hydra.model import NetworkState, Topology

from .fake_service import CREATED_UNIX_S, recorded, relay_path, ring_state


@pytest.fixture
def hour(service):
    path = relay_path()
    service.network = NetworkState(3, Topology(frozenset(path.circuits), (path,)))
    recorded(service)
    return service


def test_circuits_and_pairs_are_told_with_their_times(client, hour):
    document = client.get("/v1/load").json()
    assert document["interval_s"] == 10.0
    assert document["unix_s"] == [CREATED_UNIX_S + 10 * number for number in range(13)]
    first, second = document["circuits"]
    assert (first["plane"], first["a"], first["rate_mbps"]) == (
        "p1",
        {"rack": "r1", "port": "hyt-r1-p1"},
        100.0,
    )
    assert first["a_to_b_mbps"] == [None if n == 6 else 5.0 * n for n in range(13)]
    assert first["b_to_a_mbps"] == [None if n == 6 else 0.0 for n in range(13)]
    assert second["a_to_b_mbps"] == second["b_to_a_mbps"] == [None] * 13, "unknown is never 0"
    assert document["pairs"] == [{"src": "r1", "dst": "r2", "mbps": [80.0] * 13}]
    assert document["totals"] == {
        "carried_mbps": [80.0] * 13,
        "with_circuits_mbps": [80.0] * 13,
        "circuits": [2.0] * 13,
        "reservations": [1.0 + number for number in range(13)],
    }


def test_racks_narrow_it(client, hour):
    at_r2 = client.get("/v1/load?rack=r2").json()
    assert [one["plane"] for one in at_r2["circuits"]] == ["p2"]
    assert [(one["src"], one["dst"]) for one in at_r2["pairs"]] == [("r1", "r2")]
    between = client.get("/v1/load?rack=r4&rack=r3").json()
    assert between["circuits"] == []
    assert between["pairs"] == [
        {"src": "r4", "dst": "r3", "mbps": [None] * 13},
        {"src": "r3", "dst": "r4", "mbps": [0.0] * 13},
    ]
    assert len(client.get("/v1/load?limit=1").json()["circuits"]) == 1


def test_a_one_way_circuit_has_no_way_back(client, service):
    service.network = ring_state()
    recorded(service)
    first, *_ = client.get("/v1/load").json()["circuits"]
    assert (first["one_way"], first["a_to_b_mbps"][-1], first["b_to_a_mbps"]) == (True, 60.0, None)


def test_where_nothing_is_polled_nothing_is_recorded(client):
    totals = {"carried_mbps": [], "with_circuits_mbps": [], "circuits": [], "reservations": []}
    nothing = {"interval_s": None, "unix_s": [], "circuits": [], "pairs": [], "totals": totals}
    assert client.get("/v1/load").json() == nothing


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("rack=r9", 404, "no rack 'r9'"),
        (
            "rack=r1&rack=r1",
            422,
            "`rack` is given twice with the same name: name one rack",
        ),
        ("rack=r1&rack=r2&rack=r3", 422, "at most 2"),
        ("limit=0", 422, "greater than or equal to 1"),
        ("limit=101", 422, "less than or equal to 100"),
        ("since=1", 422, "since: is unknown: leave the field out"),
    ],
)
def test_what_makes_no_sense_is_refused(client, hour, query, status, words):
    answer = client.get(f"/v1/load?{query}")
    assert answer.status_code == status
    assert words in answer.text
