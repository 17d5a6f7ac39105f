"""Frames tagged by servers, passed by policy, over real wires.

veth is needed: on patch ports, Open vSwitch has read all tags before it pushes a circuit's tag.
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
from contextlib import contextmanager

import pytest

from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from hydra.forwarding.rules import Install
from hydra.forwarding.substrate import DualHomedVlan
from hydra.model import NetworkState
from hydra.policy import SourceCheck
from hydra.sharing.policing import Tally, tally_rules
from tests.integration.bare_switch import bare_switch
from tests.waiting import wait_until

pytestmark = pytest.mark.ovs

BRIDGE, CIRCUIT, OWN = "hyT1", 104, 7
WIRES = ("hyTh", "hyTo")
"""Ports of the bridge: to the server, and to the ToR. The far end of each has an f behind it."""
PORTS = SwitchPorts(host=1, optical=2, electrical=0)
FRAMES = 5


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def vswitch(switches, demo):
    """h11's vswitch with the counting rules of a reservation from r2, without a source check."""
    for wire in WIRES:
        run("ip", "link", "add", wire, "type", "veth", "peer", "name", f"{wire}f")
        run("ip", "link", "set", wire, "up")
        run("ip", "link", "set", f"{wire}f", "up")
    fabric = demo.fabric
    receiver = fabric.servers[0]
    datapath = receiver.vswitch.datapath_id
    rules = [
        *DualHomedVlan(fabric).rules(datapath, NetworkState(), (), SourceCheck.OFF),
        *tally_rules(fabric, Tally(receiver.name, fabric.racks[1].id), 1),
    ]
    with bare_switch(BRIDGE) as switch:
        for number, wire in enumerate(WIRES, start=1):
            asked = ["set", "Interface", wire, f"ofport_request={number}"]
            run("ovs-vsctl", "add-port", BRIDGE, wire, "--", *asked)
        changes = [Install(rule) for rule in rules]
        assert switch.confirm(encode_changes(changes, PORTS, 1, None), 1) == []
        try:
            yield switch
        finally:
            for wire in WIRES:
                run("ip", "link", "del", wire)


@contextmanager
def tags_read(limit):
    """Set the number of tags that Open vSwitch reads; None: the default."""
    if limit is not None:
        run("ovs-vsctl", "set", "Open_vSwitch", ".", f"other_config:vlan-limit={limit}")
    try:
        yield
    finally:
        run("ovs-vsctl", "remove", "Open_vSwitch", ".", "other_config", "vlan-limit")


def met():
    """Frames for the server so far: frames counted for the reservation, and all other frames."""
    table = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", BRIDGE, "table=0")
    lines = [line for line in table.splitlines() if "pop_vlan" in line]
    counts = {True: 0, False: 0}
    for line in lines:
        counts["priority=404" in line] += int(re.search(r"n_packets=(\d+)", line)[1])
    return counts[True], counts[False]


def arrive(demo, *tags):
    """Send frames from r2 by circuit, with these tags inside the circuit's tag: returns how many
    count for the reservation, and how many others the server gets.
    """
    receiver, sender = demo.fabric.servers[0], demo.fabric.racks[1].servers[0]
    head = bytes.fromhex((receiver.mac + sender.mac).replace(":", ""))
    head += b"".join(struct.pack("!HH", 0x8100, tag) for tag in (CIRCUIT, *tags))
    ends = sender.addresses[0].ip.packed + receiver.addresses[0].ip.packed
    packet = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0) + ends
    packet += struct.pack("!HHHH", 9, 9, 8, 0)
    frame = (head + struct.pack("!H", 0x0800) + packet).ljust(72, b"\0")
    before = met()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as tor:
        tor.bind((f"{WIRES[1]}f", 0))
        for _ in range(FRAMES):
            tor.send(frame)
    wait_until(lambda: sum(met()) == sum(before) + FRAMES)
    counting, others = (now - then for now, then in zip(met(), before, strict=True))
    return counting, others


@pytest.mark.parametrize("limit", [None, 2])
def test_untagged_ones_count(vswitch, demo, limit):
    with tags_read(limit):
        assert arrive(demo) == (FRAMES, 0)


def test_by_default_those_with_a_tag_arrive_and_do_not_count(vswitch, demo):
    with tags_read(None):
        assert arrive(demo, OWN) == (0, FRAMES)


def test_they_count_with_what_the_guide_says(vswitch, demo):
    with tags_read(2):
        assert arrive(demo, OWN) == (FRAMES, 0)
