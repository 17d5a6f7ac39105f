"""A pair with a full circuit uses the electrical network, too: which flows move, and the
reports.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import product

import pytest
import yaml

from apps.process.configuration import load_configuration
from mininet_scenarios.stage.building import scaled_config
from mininet_scenarios.stage.stage import sent_bytes, tcp_transfer
from mininet_scenarios.testbed import Testbed

from .live import CONFIGS, live, wait_until

pytestmark = [
    pytest.mark.ovs,
    pytest.mark.takes(25),
    pytest.mark.quiet("fills a circuit to the brim, and what spills is taken back if it is not"),
]
PATIENCE_S = 60.0
SENDERS = ("h11", "h12")
STREAMS = 32
"""Number of connections of each server. The kernel chooses their ports at random: the chance that
all 64 miss a sixth of the buckets is 1 in 100,000 (with 16 of one server: 1 in 20).
"""
SCALE = 0.1
"""Circuits of 10 Mb/s, which even a busy machine fills."""


def config_of(fabric):
    return scaled_config(SCALE, CONFIGS / f"{fabric.name}.yaml")


@pytest.fixture(scope="module")
def slow_testbed(machine, shipped, tmp_path_factory):
    path = tmp_path_factory.mktemp("slow") / "fabric.yaml"
    path.write_text(yaml.safe_dump(config_of(shipped.fabric), sort_keys=False))
    slow = load_configuration(path)
    with Testbed(slow.fabric, slow.controller, fdb_age_s=slow.policy.fdb_age_s) as testbed:
        yield testbed


@pytest.fixture
def network(slow_testbed, tmp_path):
    policy = {"spill": "on", "poll_interval_s": 0.5, "gain_horizon_s": 3.0}
    slow = config_of(slow_testbed.fabric)
    with live(slow_testbed, tmp_path, {**slow.pop("policy"), **policy}, slow) as network:
        assert network.change("r1", "r2", "p1").state == "done"
        yield network


def fill(network):
    """TCP from r1 to r2, at the full rate of the circuit."""
    stack = ExitStack()
    for ends in zip(SENDERS, ("h21", "h22"), strict=True):
        stack.enter_context(tcp_transfer(network.stage, *ends, 5201, 120.0, streams=STREAMS))
    return stack


def electrical_mbps(network, seconds=1.0):
    """Traffic of r1's servers on their electrical uplinks."""
    servers = (network.fabric.server_by_name[name] for name in SENDERS)
    ports = [server.vswitch.electrical_port for server in servers]
    before = sent_bytes(ports)
    time.sleep(seconds)
    return (sent_bytes(ports) - before) * 8e-6 / seconds


def connections(captures):
    """TCP connections with IPv4: address and port of sender and receiver, tagged or not."""
    found = set()
    for capture in captures:
        for frame in capture.frames():
            at = 18 if frame.data[12:14] == b"\x81\x00" else 14
            found.add(frame.data[at + 12 : at + 24])
    return found


def while_the_share_stays(network):
    """Connections by the port that they use, in a second without changes of the ports.

    Both ports carry some connections: TCP that starves on a slow link may be silent for a second
    and longer.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        share = network.client.electrical_share("r1", "r2")
        captures = {"electrical": [], "optical": []}
        with ExitStack() as capturing:
            for server, kind in product(SENDERS, captures):
                at_port = network.testbed.frames_at(server, kind, expression="tcp or vlan")
                captures[kind].append(capturing.enter_context(at_port))
            time.sleep(1.0)
        by_port = {kind: connections(of_servers) for kind, of_servers in captures.items()}
        stays = share and share == network.client.electrical_share("r1", "r2")
        if stays and all(by_port.values()):
            return by_port
    raise AssertionError(f"no second with a share that stays and both ports in {PATIENCE_S:.0f} s")


def test_part_of_the_flows_is_electrical_while_the_circuit_is_full(network):
    assert not network.client.electrical_share("r1", "r2")
    with fill(network):
        wait_until(lambda: network.client.electrical_share("r1", "r2") > 0)
        wait_until(lambda: electrical_mbps(network) > 0.1)
        by_port = while_the_share_stays(network)
        assert not by_port["electrical"] & by_port["optical"], "each flow takes one of the two"
        said = network.get("/v1/explanations/circuits/r1/r2")["lines"]
        assert any("flows from r1 to r2 is electrical" in line for line in said)
        network.client.amend({"spill": "off"})
        wait_until(lambda: not network.client.electrical_share("r1", "r2"))
        wait_until(lambda: electrical_mbps(network) < 0.04)
