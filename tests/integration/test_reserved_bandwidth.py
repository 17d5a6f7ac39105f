"""Reserved bandwidth in the data plane: kept against other traffic on the circuit, and measured."""

from __future__ import annotations

import re
import subprocess

import pytest

from mininet_scenarios.stage.controller_process import ALL_THERE
from mininet_scenarios.stage.streams import paced_stream
from tests.waiting import PATIENCE_S

from .live import wait_until
from .reserved import CIRCUIT_MBPS, RESERVED_MBPS, kept_against_greedy_tcp, ofctl, release, slow

pytestmark = pytest.mark.ovs
PPS, PAYLOAD_BYTES = 1600, 1200
FRAME_BYTES = PAYLOAD_BYTES + 42
"""Headers of UDP, IPv4 and Ethernet."""


@pytest.fixture(scope="module")
def network(machine, tmp_path_factory):
    with slow("demo", tmp_path_factory.mktemp("reserved")) as running:
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


@pytest.mark.quiet("measures the rates of streams that compete", takes_s=15)
def test_a_reservation_is_kept_against_greedy_tcp_which_uses_the_rest(network, reserve):
    kept_against_greedy_tcp(network, reserve())
    # TCP slows down at each frame that a meter drops: datagrams show how much there is.
    with paced_stream(
        network.stage, "h12", "h22", pps=PPS, payload_bytes=PAYLOAD_BYTES, count=5 * PPS
    ) as udp:
        rest = udp.finish(PATIENCE_S)
    frames_per_s = rest.received / (rest.sent / rest.pps)
    remaining_mbps = 0.97 * CIRCUIT_MBPS - RESERVED_MBPS
    assert frames_per_s * FRAME_BYTES * 8e-6 >= 0.9 * remaining_mbps


def test_what_is_held_outlives_the_controller_and_ends_with_the_reservation(network, reserve):
    reservation = reserve()
    held = ofctl("dump-meters", "hyv-h12")
    assert "rate=" in held
    network.process.kill()
    assert ofctl("dump-meters", "hyv-h12") == held
    network.process.start()
    wait_until(lambda: network.api("GET", ALL_THERE).status_code == 200)
    wait_until(lambda: "meter:" in ofctl("dump-flows", "hyv-h12"))
    wait_until(lambda: network.get("/v1/drift")["items"] == [])
    release(network, reservation)
    wait_until(lambda: "rate=" not in ofctl("dump-meters", "hyv-h12"))
    assert "meter:" not in ofctl("dump-flows", "hyv-h12")


def test_a_meter_that_somebody_changed_gets_its_rate_again(network, reserve):
    """The switch does not report the change; its meters would stay too slow, or too fast, for
    good.
    """
    reserve()
    wait_until(lambda: "rate=" in ofctl("dump-meters", "hyv-h12"))
    (number,) = re.findall(r"meter=(\d+)", ofctl("dump-meters", "hyv-h12"))
    other = f"meter={number},kbps,band=type=drop,rate=100"
    subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "mod-meter", "hyv-h12", other], check=True)
    assert "rate=100\n" in ofctl("dump-meters", "hyv-h12")
    wait_until(lambda: "rate=100\n" not in ofctl("dump-meters", "hyv-h12"))
    wait_until(lambda: "lets 0.1 Mb/s pass" in network.process.log.read_text())


def test_a_guaranteed_circuit_is_for_nobody_else(network, reserve):
    reserve(service="guaranteed")
    assert network.reaches("h12", "h22")
    assert network.reaches("h11", "h21")
    electrical = network.fabric.server_by_name["h12"].vswitch.electrical_port
    command = ["ovs-vsctl", "get", "Interface", electrical, "ofport"]
    port = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def rule() -> str:
        lines = ofctl("dump-flows", "hyv-h12").splitlines()
        (found,) = (line for line in lines if "table=4" in line and "metadata=0x2" in line)
        return found

    assert rule().endswith(f"actions=output:{port}")
    wait_until(lambda: "n_packets=0," not in rule())  # Open vSwitch counts late
