"""Reserved bandwidth on slow circuits, for tests: a network, and a contest on a circuit."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager

import yaml

from apps.process.configuration import load_configuration
from mininet_scenarios.stage.contest import contest
from mininet_scenarios.testbed import Testbed

from .live import CONFIGS, live

SECONDS = 8.0
ATTEMPTS = 3
"""A busy machine does not always send at its circuits' rate."""
CIRCUIT_MBPS = 20.0
"""A fifth of the demo's rate, for the same reason; `benchmarks.reserved` uses the demo's rate."""
ELECTRICAL_MBPS = 2.0
RESERVED_MBPS = 8.0


@contextmanager
def slow(name, directory):
    """The shipped fabric with slow circuits, and a controller."""
    document = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    planes = [{**plane, "rate_mbps": CIRCUIT_MBPS} for plane in document["planes"]]
    changes = {
        "planes": planes,
        "electrical": {**document["electrical"], "rate_mbps": ELECTRICAL_MBPS},
    }
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document | changes, sort_keys=False))
    loaded = load_configuration(path)
    with (
        Testbed(loaded.fabric, loaded.controller, fdb_age_s=loaded.policy.fdb_age_s) as testbed,
        live(testbed, directory / "controller", changes=changes) as running,
    ):
        yield running


def release(network, reservation):
    path = f"/v1/reservations/{reservation['id']}"
    assert network.api("DELETE", path, headers={"Prefer": "wait=60"}).status_code == 200


def ofctl(command: str, bridge: str) -> str:
    full = ["ovs-ofctl", "-O", "OpenFlow13", command, bridge]
    return subprocess.run(full, check=True, capture_output=True, text=True).stdout


def contend(network, reservation):
    """(Mbps delivered by h11, Mbps of the rest delivered by h12, reports meanwhile)"""
    ends = {"steady": ("h11", "h21"), "greedy": ("h12", "h22")}
    with contest(network.stage, SECONDS, steady_mbps=RESERVED_MBPS, **ends) as under_way:
        time.sleep(SECONDS - 2)  # timed: most of the contest is over
        delivery = network.get(f"/v1/reservations/{reservation['id']}/delivery")
        outcome = under_way.finish(SECONDS)  # timed: the duration of the contest
    return outcome.steady.average_mbps, outcome.greedy_mbps, delivery


def kept_against_greedy_tcp(network, reservation):
    for _ in range(ATTEMPTS):
        steady_mbps, greedy_mbps, delivery = contend(network, reservation)
        if steady_mbps >= 0.95 * RESERVED_MBPS:
            break
    assert steady_mbps >= 0.95 * RESERVED_MBPS
    assert greedy_mbps > ELECTRICAL_MBPS, "the rest of the circuit is for others"
    assert delivery["promised_mbps"] == RESERVED_MBPS
    assert delivery["there_mbps"] > 0.8 * RESERVED_MBPS
    assert delivery["unheld"] == []
    assert network.get("/v1/drift") == {"items": [], "silent": []}
