"""/v1/shapes: a ring, a torus or a matrix of racks as one request."""

import pytest

from hydra.lifecycle import ReservationState as State

RING = {"pattern": "ring", "racks": ["r1", "r2", "r3", "r4"], "bandwidth_mbps": 80}


def test_ring_from_request_to_release(client, service):
    made = client.post("/v1/shapes", json=RING | {"purpose": "job 7", "duration_s": 60})
    assert made.status_code == 201
    shape = made.json()
    print(shape)
    bad = client.post("/v1/shapes", json=RING | {"bandwidth_mbps": 0})
    print(bad.json())
    bad = client.post("/v1/shapes", json=RING | {"bandwidth_mbps": "x"})
    print(bad.json())
    bad = client.post("/v1/shapes", json=RING | {"racks": ["r1", "r1"]})
    print(bad.json())
    bad = client.post("/v1/shapes", json=RING)
    print(bad.json())
    assert 0
