"""Trails of lost datagrams, from a tcpdump of all interfaces at once."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from mininet_scenarios.chaos.evidence import seen_in, trails
from mininet_scenarios.chaos.pairs import Outage
from mininet_scenarios.testbed.capture import Frame
from mininet_scenarios.workloads.pair_probes import HEADER, MAGIC

INTERFACES = {7: "hyh-h11", 8: "hyo-h11"}
SERVERS = ["h11", "h21"]
ADDRESSES = {("h21", 4): "10.0.2.1", ("h21", 6): "fd00::21"}
TO_PEER, OUTGOING = 3, 4
TAG = struct.pack("!HH", 100, 0x0800)


def cooked(number, interface, kind, *, to="10.0.2.1", tag=b"", at_s=0.0):
    """A probe from h11, sent every 100 ms, in an Ethernet frame's payload behind SLL2's header."""
    address = ip_address(to)
    ip_header = bytes(12 if address.version == 4 else 24) + address.packed
    probe = HEADER.pack(MAGIC, 0, address.version, number, number / 10)
    head = struct.pack("!HHIHBB8s", 0x0800, 0, interface, 1, kind, 6, bytes(8))
    return Frame(at_s, head + tag + ip_header + bytes(8) + probe)


def test_probes_are_told_by_source_destination_number_and_place():
    frames = [
        cooked(5, 7, TO_PEER, at_s=0.51),
        cooked(5, 8, OUTGOING, tag=TAG, at_s=0.52),
        cooked(6, 9, TO_PEER, to="fd00::21"),
        Frame(0.0, bytes(64)),
    ]
    found = [
        (one.source, one.destination, one.number, one.place) for one in seen_in(frames, INTERFACES)
    ]
    assert found == [
        (0, "10.0.2.1", 5, "hyh-h11 in"),
        (0, "10.0.2.1", 5, "hyo-h11 out"),
        (0, "fd00::21", 6, "9 in"),
    ]


def lines(frames, *, version=4):
    outage = Outage("h11", "h21", version, 1, 0.4, 0.6)
    return list(trails([outage], list(seen_in(frames, INTERFACES)), SERVERS, ADDRESSES))


def test_a_trail_is_in_order_of_time_and_its_neighbours_are_beside_it():
    frames = [
        cooked(number, interface, kind, at_s=number / 10 + interface / 1000)
        for number in range(3, 9)
        for interface, kind in ((8, OUTGOING), (7, TO_PEER))
        if (number, interface) != (5, 8)
    ]
    told = lines(frames)
    datagrams = [line.split()[1].strip(",") for line in told if "datagram" in line]
    assert datagrams == ["4", "5", "6"]
    places = [line.split()[1] for line in told if line.startswith("    ")]
    assert places == ["hyh-h11", "hyo-h11", "hyh-h11", "hyh-h11", "hyo-h11"]


def test_a_datagram_that_never_left_its_server_is_named():
    told = lines([cooked(4, 7, TO_PEER), cooked(6, 7, TO_PEER)])
    assert told[-1] == "  seen at no switch: datagrams 5"
    assert lines([], version=6)[-1] == "  none of its datagrams was seen at any switch"
