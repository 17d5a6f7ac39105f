"""A pair moves from circuit to circuit, as captured on the wire: none of its frames is
electrical.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed.capture import Capture, JointCapture
from mininet_scenarios.workloads.paced_udp import DATA, HEADER, MAGIC

from .live import live, on_each_substrate, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30), on_each_substrate]

ORDER = ["make", "carrier", "announce", "probe", "shift", "drain", "break"]


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        yield network


@pytest.mark.core("a change that traffic does not notice, on each substrate")
def test_the_steps_are_made_in_their_order(network):
    network.change("r1", "r2", "p1")
    for plane in ("p2", "p1"):
        record = network.change("r1", "r2", plane)
        assert record.state == "done", record.reason
        names = [step.step for step in record.timeline if step.device is None]
        assert [name for name in dict.fromkeys(names) if name in ORDER] == ORDER
        assert network.client.path_between("r1", "r2").planes == (plane,)
        assert network.reaches("h11", "h21")


def arrivals(testbed, rack_name):
    """Frames that reach a rack's ToR from the planes, in order of time.

    A ToR of Open vSwitch reads its ports in turn: under load, Open vSwitch itself reorders frames
    of two ports (``findings/ovs_order_of_ports.sh``).
    """
    (rack,) = (rack for rack in testbed.fabric.racks if rack.name == rack_name)
    return JointCapture(
        [
            Capture(port.tor_port, expression="vlan and udp", direction="in")
            for port in testbed.fabric.ports_of(rack.id)
        ]
    )


def numbers(frames):
    """The number of each datagram of a paced stream."""
    found = []
    for frame in frames:
        at = frame.data.index(MAGIC)
        _magic, kind, _stream, number, _sent_s = HEADER.unpack_from(frame.data, at)
        if kind == DATA:
            found.append(number)
    return found


def test_a_stream_notices_nothing(network):
    """A stream at 64 % of the electrical rate, over six changes: all datagrams on circuits, in
    order.
    """
    network.change("r1", "r2", "p1")
    dark = network.dark_frames()
    with (
        arrivals(network.testbed, "r2") as arriving,
        network.testbed.frames_at(
            "h11", "circuits", expression="vlan and udp", direction="out"
        ) as optical,
        network.testbed.frames_at(
            "h11", "electrical", expression="udp and not vlan", direction="out"
        ) as electrical,
        paced_stream(network.stage, "h11", "h21", pps=1000, payload_bytes=750) as udp,
    ):
        for plane in ("p2", "p1") * 3:
            assert network.change("r1", "r2", plane).state == "done"
        result = udp.stop()
    lost = network.lost_but_in_queues(result)
    assert (lost, result.duplicates) == (0, 0)
    arrived = numbers(arriving.frames())
    assert len(arrived) >= result.received
    assert arrived == sorted(arrived)
    assert network.dark_frames() == dark
    assert list(electrical.frames()) == []
    vlans = [int.from_bytes(frame.data[14:16], "big") & 0xFFF for frame in optical.frames()]
    assert sum(vlan != after for vlan, after in pairwise(vlans)) == 6, "one step for each change"


def test_a_pair_that_loses_its_path_makes_way_and_the_other_one_stays_in_the_light(network):
    """The other pair needs the pair's port; traffic is measured, so the senders are known."""
    network.client.reconfigure([PairDemand("r1", "r2", 80), PairDemand("r2", "r3", 80)])
    (there,) = network.planes_between("r2", "r3")
    assert network.planes_between("r1", "r2") != (there,)
    with paced_stream(network.stage, "h11", "h21", pps=1000, payload_bytes=750) as udp:
        wait_until(lambda: network.client.most_measured_mbps() > 1)
        with network.testbed.frames_at(
            "h11", "electrical", expression="udp and not vlan", direction="out"
        ) as electrical:
            record = network.change("r1", "r2", there)
        result = udp.stop()
    assert record.state == "done", record.reason
    names = [step.step for step in record.timeline if step.device is None]
    assert names.index("divert") < names.index("shift")
    assert network.planes_between("r1", "r2") == (there,)
    assert network.planes_between("r2", "r3") == ()
    assert list(electrical.frames()) == []
    assert (network.lost_but_in_queues(result), result.duplicates) == (0, 0)
