"""Bad input to the live controller: a clear error for each request, and no change."""

from __future__ import annotations

import pytest

from .live import live

pytestmark = [pytest.mark.ovs, pytest.mark.takes(40)]

GOOD = {"src": "r1", "dst": "r2", "bandwidth_mbps": 10}


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    with live(demo_testbed, tmp_path_factory.mktemp("bad")) as network:
        yield network
        assert network.everyone_reaches_everyone()


def circuits(network):
    return [(c["plane"], c["a"], c["b"]) for c in network.get("/v1/topology")["circuits"]]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"src": "r9"}, 404, "r9"),
        ({"dst": "h99"}, 404, "h99"),
        ({"dst": "r1"}, 422, "r1"),
        ({"src": "h11", "dst": "h21", "bandwidth_mbps": 101}, 409, "100"),
        ({"bandwidth_mbps": 201}, 409, "200"),
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


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"src": ', 400),
        (b"", 422),
        (b"[1, 2]", 422),
        (b'{"src": "r1", "dst": "r2", "bandwidth_mbps": NaN}', 422),
        (b'{"src": "r1", "dst": "r2", "bandwidth_mbps": 1e999}', 422),
        (b"\xff\xfe", 400),
    ],
)
def test_a_body_that_is_no_reservation(network, content, status):
    before = circuits(network), network.get("/v1/reservations")
    headers = {"content-type": "application/json"}
    answer = network.api("POST", "/v1/reservations", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (circuits(network), network.get("/v1/reservations")) == before


@pytest.mark.parametrize("path", ["/v1/plan", "/v1/reconfigurations"])
@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"demand": [{"src": "r1", "dst": "r7", "mbps": 1}]}, 404, "r7"),
        ({"demand": [{"src": "r1", "dst": "r2", "mbps": -1}]}, 422, "/demand/0/mbps"),
        ({"demand": [{"src": "r1", "dst": "r1", "mbps": 1}]}, 422, "r1"),
        ({"demand": [], "use_planes": ["p9"]}, 404, "p9"),
        ({"demand": [], "algorithm": "oracle"}, 404, "oracle"),
    ],
)
def test_a_demand_that_makes_no_sense(network, path, body, status, words):
    before = circuits(network), network.get("/v1/reconfigurations")
    answer = network.api("POST", path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.text
    assert (circuits(network), network.get("/v1/reconfigurations")) == before


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
            "DELETE", f"/v1/reservations/{reservation['id']}", headers={"Prefer": "wait=60"}
        )
        assert answer.status_code == 200
    assert network.get("/v1/topology")["circuits"] == []
