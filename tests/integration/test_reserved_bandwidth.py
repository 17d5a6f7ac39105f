"""Reserved bandwidth in the data plane: kept against others on the circuit, and measured."""

from __future__ import annotations

import subprocess
import time

import pytest
import yaml

from apps.configuration import load_configuration
from mininet_scenarios.contest import contest
from mininet_scenarios.testbed import Testbed

from .live import DEMO_CONFIG, live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.alone]
SECONDS = 8.0
ATTEMPTS = 3
"""A machine that is busy with other things does not always send as fast as its circuits go."""
CIRCUIT_MBPS = 20.0
"""A fifth of the demo's, for the same reason; `benchmarks.reserved` has the demo's own."""
RESERVED_MBPS = 8.0


@pytest.fixture(scope="module")
def network(machine, tmp_path_factory):
    directory = tmp_path_factory.mktemp("reserved")
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    planes = [{**plane, "rate_mbps": CIRCUIT_MBPS} for plane in document["planes"]]
    changes = {"planes": planes, "electrical": {"rate_mbps": 2}}
    path = directory / "demo.yaml"
    path.write_text(yaml.safe_dump(document | changes, sort_keys=False))
    slow = load_configuration(path)
    with (
        Testbed(slow.fabric, slow.controller, fdb_age_s=slow.policy.fdb_age_s) as testbed,
        live(testbed, directory / "controller", changes=changes) as running,
    ):
        yield running


@pytest.fixture
def reserve(network):
    """Reserve bandwidth between h11 and h21 until the end of the test."""
    made = []

    def make(**more):
        made.append(network.reserve("h11", "h21", RESERVED_MBPS, **more))
        assert made[-1]["state"] == "active", made[-1]["reason"]
        return made[-1]

    yield make
    for reservation in made:
        release(network, reservation)


def release(network, reservation):
    path = f"/v1/reservations/{reservation['id']}"
    assert network.api("DELETE", path, headers={"Prefer": "wait=20"}).status_code == 200


def ofctl(command: str, bridge: str) -> str:
    full = ["ovs-ofctl", "-O", "OpenFlow13", command, bridge]
    return subprocess.run(full, check=True, capture_output=True, text=True).stdout


def contend(network, reservation):
    """(what h11 delivered, what h12 took of the rest, what was reported meanwhile)"""
    ends = {"steady": ("h11", "h21"), "greedy": ("h12", "h22")}
    with contest(network.stage, SECONDS, steady_mbps=RESERVED_MBPS, **ends) as under_way:
        time.sleep(SECONDS - 2)
        delivery = network.get(f"/v1/reservations/{reservation['id']}/delivery")
        outcome = under_way.finish(SECONDS)
    return outcome.steady.average_mbps, outcome.greedy_mbps, delivery


def test_a_reservation_is_kept_against_greedy_tcp_which_uses_the_rest(network, reserve):
    reservation = reserve()
    for _ in range(ATTEMPTS):
        steady_mbps, greedy_mbps, delivery = contend(network, reservation)
        if steady_mbps >= 0.95 * RESERVED_MBPS:
            break
    assert steady_mbps >= 0.95 * RESERVED_MBPS
    left_mbps = 0.97 * CIRCUIT_MBPS - RESERVED_MBPS
    assert greedy_mbps > 0.5 * left_mbps, "as far as TCP gets through a meter"
    assert delivery["promised_mbps"] == RESERVED_MBPS
    assert delivery["there_mbps"] > 0.8 * RESERVED_MBPS
    assert delivery["unheld"] == []
    assert network.get("/v1/drift") == {"items": [], "silent": []}


def test_what_is_held_outlives_the_controller_and_ends_with_the_reservation(network, reserve):
    reservation = reserve()
    held = ofctl("dump-meters", "hyv-h12")
    assert "rate=" in held
    network.process.kill()
    assert ofctl("dump-meters", "hyv-h12") == held
    network.process.start()
    wait_until(lambda: network.api("GET", "/readyz").status_code == 200)
    wait_until(lambda: "meter:" in ofctl("dump-flows", "hyv-h12"))
    assert network.get("/v1/drift")["items"] == []
    release(network, reservation)
    wait_until(lambda: "rate=" not in ofctl("dump-meters", "hyv-h12"))
    assert "meter:" not in ofctl("dump-flows", "hyv-h12")


def test_a_guaranteed_circuit_is_for_nobody_else(network, reserve):
    reserve(service="guaranteed")
    assert network.reaches("h12", "h22")
    assert network.reaches("h11", "h21")
    electrical = network.fabric.server_by_name["h12"].vswitch.electrical_port
    command = ["ovs-vsctl", "get", "Interface", electrical, "ofport"]
    port = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    (rule,) = (
        line
        for line in ofctl("dump-flows", "hyv-h12").splitlines()
        if "table=3" in line and "metadata=0x2" in line
    )
    assert rule.endswith(f"actions=output:{port}")
    assert "n_packets=0," not in rule
