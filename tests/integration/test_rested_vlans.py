"""VLAN-IDs and labels rest: no other path gets an ID before switches have forgotten the old
path.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

import pytest

from hydra.policy import Policy
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed.layout import server_interface

from .live import live

pytestmark = [
    pytest.mark.ovs,
    pytest.mark.quiet(
        "floods switches so that they forget late, which slows down others, too", takes_s=25
    ),
    pytest.mark.parametrize("shipped", ["demo", "openflow-only"], indirect=True, scope="module"),
]

CHANGES = 12
MACS = 10_000
PER_SECOND = 2000
FLOOD = """
import socket, sys, time
interface, macs, per_second, target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
    sender.bind((interface, 0))
    while True:
        for number in range(macs):
            source = bytes((2, 0xEE)) + number.to_bytes(4, "big")
            sender.send(bytes.fromhex(target) + source + bytes((0x88, 0xB7)) + bytes(50))
            if number % 20 == 0:
                time.sleep(20 / per_second)
"""


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        yield network


@contextmanager
def many_addresses(network):
    """Each address makes a cached flow, so that a revalidation takes longer."""
    servers = network.fabric.server_by_name
    words = [
        server_interface(servers["h41"]),
        MACS,
        PER_SECOND,
        servers["h11"].mac.replace(":", ""),
    ]
    flood = network.testbed.host("h41").popen([sys.executable, "-c", FLOOD, *map(str, words)])
    try:
        yield
        assert flood.poll() is None
    finally:
        flood.kill()
        flood.wait()


def test_no_id_is_used_again_too_soon_and_no_frame_is_lost_in_the_dark(network):
    lost_s, vlan, soonest_s = {}, None, float("inf")
    dark = network.dark_frames()
    stream = {"pps": 200, "payload_bytes": 200}
    with (
        many_addresses(network),
        paced_stream(network.stage, "h11", "h21", **stream),
        paced_stream(network.stage, "h11", "h31", **stream),
    ):
        for number in range(CHANGES):
            asked_s = time.monotonic()
            network.change("r1", ("r2", "r3")[number % 2], "p1")
            if vlan is not None:
                lost_s[vlan] = asked_s
            ((vlan, vlans),) = [(p["vlan"], p) for p in network.get("/v1/topology")["paths"]]
            assert {vlans["src"], vlans["dst"]} == {"r1", ("r2", "r3")[number % 2]}
            soonest_s = min(soonest_s, time.monotonic() - lost_s.get(vlan, float("-inf")))
        assert soonest_s >= Policy().vlan_rest_s
        assert network.dark_frames() == dark
