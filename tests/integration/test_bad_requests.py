"""Bad input to the live controller: one clear error each, and nothing changes."""

from __future__ import annotations

import pytest

from .live import live

pytestmark = pytest.mark.ovs

GOOD = {"src": "r1", "dst": "r2", "bandwidth_mbps": 10}


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    with live(demo_testbed, tmp_path_factory.mktemp("bad")) as network:
        yield network


def circuits(network):
    return [(c["plane"], c["a"], c["b"]) for c in network.get("/v1/topology")["circuits"]]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"src": "r9"}, 404, "r9"),
        ({"dst": "h99"}, 404, "h99"),
        ({"dst": "r1"}, 409, "r1"),
        ({"bandwidth_mbps": 101}, 409, "100"),
        ({"bandwidth_mbps": -1}, 422, "bandwidth_mbps"),
        ({"bandwidth_mbps": "ten"}, 422, "bandwidth_mbps"),
        ({"duration_s": 0}, 422, "duration_s"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
def test_a_reservation_that_cannot_be(network, change, status, words):
    before = circuits(network), network.get("/v1/reservations")
    answer = network.api("POST", "/v1/reservations", json={**GOOD, **change})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.text
    assert (circuits(network), network.get("/v1/reservations")) == before


def test_malformed_json(network):
    answer = network.api(
        "POST",
        "/v1/reservations",
        content=b'{"src": ',
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_busy_ports_are_named(network):
    """Rack 1 has two optical ports: a third full circuit does not fit."""
    held = [network.reserve("r1", other, 100) for other in ("r2", "r3")]
    assert [reservation["state"] for reservation in held] == ["active", "active"]
    before = circuits(network)
    answer = network.api(
        "POST", "/v1/reservations", json={"src": "r1", "dst": "r4", "bandwidth_mbps": 100}
    )
    assert answer.status_code == 409
    for reservation in held:
        assert reservation["id"] in answer.json()["detail"]

    assert circuits(network) == before
    assert network.everyone_reaches_everyone()
    for reservation in held:
        answer = network.api(
            "DELETE", f"/v1/reservations/{reservation['id']}", headers={"Prefer": "wait=20"}
        )
        assert answer.status_code == 200
    assert network.get("/v1/topology")["circuits"] == []
