"""Steering ToRs, as seen by the controller's rooms."""

from __future__ import annotations

import struct
import time
from dataclasses import replace

import pytest

from apps.controller.announcer import Announcer
from apps.controller.devices import Devices
from apps.demand.poller import StatsPoller
from apps.openflow.fleet import Fleet, Question
from apps.openflow.interface import PortInfo
from drivers.codecs.openflow.rules import SwitchPorts, encode_packet_out
from hydra.errors import DeviceUnavailable
from hydra.forwarding.frames import announcement
from hydra.forwarding.match_action import Table, server_port, wired_port
from hydra.forwarding.pipeline import RuleKind, cookie
from hydra.forwarding.substrate import substrate_of
from hydra.model import MacAddress, NetworkState, RackId
from hydra.policy import Policy, Timeouts
from hydra.reconfiguration.switches import reachable_on
from tests.unit.core.fabrics import openflow_only, path_of, small_fabric, state_of, with_guests
from tests.unit.openflow.ryu_reference import split
from tests.waiting import wait_until

FABRIC = with_guests(
    openflow_only(small_fabric(racks=3, planes=2, servers=2)), MacAddress("52:54:00:00:00:01")
)
R1, R2, R3 = (rack.tor.datapath_id for rack in FABRIC.racks)
PORTS = {"s1": 5, "s2": 6, "up": 7, "o1.1": 8, "o2.1": 9}
MBIT = 125_000


class Tor:
    """A connection that records its messages, and reports counters."""

    address = "192.0.2.1:40000"

    def __init__(self, fleet, datapath, ports=PORTS, mbps=0.0):
        self.fleet, self.datapath, self.mbps = fleet, datapath, mbps
        self.started_s = time.monotonic()
        self.sent = []
        described = {n: PortInfo(n, name, True) for name, n in ports.items()}
        fleet.switch_connected(datapath, self, described)

    def send(self, message):
        for one in split(message):
            self.sent.append(one)
            kind = struct.unpack_from("!H", one, 8)[0]
            octets = int((time.monotonic() - self.started_s) * self.mbps * MBIT)
            body = self.ports(octets) if kind == 4 else self.rules(octets)
            xid = struct.unpack_from("!I", one, 4)[0]
            self.fleet.statistics_replied(self, xid, body, more=False)

    def rules(self, octets):
        subject = cookie(RuleKind.ACCOUNT_V4, 0, 2)
        return struct.pack("!H22xQQQHHxxxx", 56, subject, 1, octets, 1, 4)

    def ports(self, octets):
        return struct.pack("!Ixxxx12QII", PORTS["o1.1"], 0, 0, 0, octets, *(0,) * 8, 0, 0)


@pytest.fixture
def fleet():
    return Fleet(FABRIC, post=lambda function: function())


def test_places_become_a_switchs_own_numbers(fleet):
    Tor(fleet, R1)
    assert fleet.port_number(R1, server_port(1)) == 6
    assert fleet.port_number(R1, wired_port(0)) == 8
    assert fleet.missing_ports(R1) == ()
    Tor(fleet, R2, {"s1": 5, "up": 7, "o1.1": 8})
    assert set(fleet.missing_ports(R2)) == {"s2", "o2.1"}
    assert fleet.port_number(R2, wired_port(1)) == 0
    assert fleet.port_number(R3, wired_port(1)) == 0


def test_a_place_beyond_the_last_is_an_error():
    with pytest.raises(IndexError):
        SwitchPorts(servers=(1,)).number(server_port(1))


def test_a_tor_is_asked_for_rules_and_for_ports(fleet):
    tor = Tor(fleet, R1)
    asked = fleet.ask_for_counters([Question(R1, Table.ACCOUNT), Question(R1, None)])
    assert len(tor.sent) == len(asked) == 2
    assert all(future.done() for future in asked.values())


def test_a_racks_demand_and_its_ports_rates_are_measured(fleet):
    Tor(fleet, R1, mbps=40)
    policy = Policy(poll_interval_s=0.04, demand_window_s=0.001, timeouts=Timeouts(vswitch_s=1))
    poller = StatsPoller(fabric=FABRIC, policy=policy, fleet=fleet)
    poller.start()
    try:
        wait_until(lambda: poller.freshness()[2] and poller.port_rates_mbps())
        rates, (_, stale, _) = poller.rates_mbps(), poller.freshness()
    finally:
        poller.stop()
    assert rates[0, 1] == pytest.approx(40, rel=0.5)
    assert stale == ("r2", "r3"), "one row a rack"
    (port,) = poller.port_rates_mbps()
    assert FABRIC.ports[port].tor_port == "o1.1"


def test_servers_are_announced_by_their_tor_and_electrically_only(fleet):
    tor = Tor(fleet, R1)
    tor.sent.clear()
    sent = []
    tor.send = lambda message: sent.extend(split(message))
    announcer = Announcer(
        fleet=fleet, substrate=substrate_of(FABRIC), current=tuple, interval_s=1.0
    )
    state = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))
    announcer.announce(reachable_on(FABRIC, state))
    xids = [struct.unpack_from("!I", message, 4)[0] for message in sent]
    macs = [mac for server in FABRIC.racks[0].servers for mac in server.macs]
    assert len(macs) == 3
    assert sent == [
        encode_packet_out(announcement(mac, None, 0), PORTS["up"], xid)
        for mac, xid in zip(macs, xids, strict=True)
    ]
    sent.clear()
    announcer.announce(reachable_on(FABRIC, state))
    (again, *_) = (struct.unpack_from("!I", message, 4)[0] for message in sent)
    assert sent[0] == encode_packet_out(announcement(macs[0], None, 1), PORTS["up"], again)


def test_such_tors_have_no_session_of_their_own():
    planes = tuple(
        replace(plane, driver="polatis-scpi", address=f"127.0.0.1:{plane.id + 1}")
        for plane in FABRIC.planes
    )
    devices = Devices(fabric=replace(FABRIC, planes=planes), policy=Policy())
    try:
        assert {status.kind for status in devices.statuses()} == {"optical-switch"}
        assert devices.tor_problem(RackId(0)) is None
        with pytest.raises(DeviceUnavailable, match="r1: not connected by OpenFlow"):
            devices.link_up(RackId(0), ["o1.1"])
    finally:
        devices.close()
