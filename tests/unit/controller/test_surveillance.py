"""The prober on connections in memory: vswitches that carry probes to each other, or drop
probes.
"""

import itertools
from functools import partial

import pytest

from apps.controller.surveillance import Prober
from apps.openflow.fleet import Fleet
from drivers.codecs.openflow.messages import TYPE_BARRIER_REQUEST
from hydra.faults.server_links import LinkDirection
from hydra.forwarding.frames import parse_probe, probe
from hydra.model import NetworkState
from hydra.policy import Policy
from tests.unit.core.fabrics import path_of, small_fabric, state_of
from tests.unit.openflow.fleet_switches import VSWITCH_PORTS

FABRIC = small_fabric(racks=3, planes=1, servers=2)
PATH = path_of(FABRIC, 0, 1)
STATE = state_of(FABRIC, NetworkState(), PATH)
SERVER_BY_MAC = {bytes.fromhex(s.mac.replace(":", "")): s for s in FABRIC.servers}


class Wire:
    """All vswitches; a frame sent by a vswitch is received by the frame's destination."""

    def __init__(self, interval_s=1.0):
        self.fleet = Fleet(FABRIC, post=lambda function: function())
        self.frames = []
        self.longest = 0
        self.broken = set()
        """Names of servers that receive no frames."""
        self.late = False
        """True while switches that are prompt again report their backlog."""
        self.waiting = []
        self.ports = {}
        for server in FABRIC.servers:
            self.ports[server.name] = Port(self)
            self.fleet.switch_connected(
                server.vswitch.datapath_id, self.ports[server.name], VSWITCH_PORTS
            )
        self.able = {server.vswitch.datapath_id for server in FABRIC.servers}
        self.linked = frozenset()
        self.moving = ()
        self.lost = []
        self.links = []
        """Reports of servers' links, in order."""
        self.prober = Prober(
            fabric=FABRIC,
            policy=Policy(probe_interval_s=interval_s),
            fleet=self.fleet,
            standing=lambda: (STATE, self.moving),
            able=lambda: self.able,
            report=self.lost.extend,
            metrics=None,
            linked=lambda: self.linked,
            report_links=self.links.append,
        )
        self.now_s = 0.0

    def run(self, seconds):
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.02
            if not self.late:
                waiting, self.waiting = self.waiting, []
                for told in waiting:
                    told()
            self.prober.tick(self.now_s)


class Port:
    address = "192.0.2.1:40000"

    def __init__(self, wire):
        self.wire = wire

    def send(self, message):
        while message:
            length = int.from_bytes(message[2:4], "big")
            one, message = message[:length], message[length:]
            if one[1] == TYPE_BARRIER_REQUEST:
                xid = int.from_bytes(one[4:8], "big")
                self.tell(partial(self.wire.fleet.barrier_replied, self, xid))
                continue
            frame = one[40:]
            source, target = SERVER_BY_MAC[frame[6:12]], SERVER_BY_MAC[frame[:6]]
            assert parse_probe(frame) is not None
            self.wire.longest = max(self.wire.longest, len(frame))
            self.wire.frames.append((source.name, target.name))
            if target.name not in self.wire.broken:
                port, datapath = self.wire.ports[target.name], target.vswitch.datapath_id
                self.tell(partial(self.wire.fleet.packet_received, datapath, port, frame))

    def tell(self, told):
        if self.wire.late:
            self.wire.waiting.append(told)
        else:
            told()


@pytest.fixture
def wire():
    return Wire()


def test_standing_paths_are_probed_both_ways(wire):
    wire.run(5)
    assert wire.lost == []
    racks = {(FABRIC.server_by_name[a].rack, FABRIC.server_by_name[b].rack) for a, b in wire.frames}
    assert racks == {(0, 1), (1, 0)}
    assert 8 <= len(wire.frames) <= 10


def test_a_server_that_hears_nothing_is_not_a_dead_path(wire):
    """The repeated probe goes to its neighbours, too."""
    rack = FABRIC.racks[1]
    wire.broken = {rack.servers[0].name}
    wire.run(5)
    assert wire.lost == []
    assert any(target == rack.servers[1].name for _, target in wire.frames)


def test_a_rack_that_hears_nothing_is(wire):
    wire.broken = {server.name for server in FABRIC.racks[1].servers}
    wire.run(2.5)
    assert {one.path for one in wire.lost} == {PATH}
    assert wire.lost[0].circuits == frozenset(PATH.circuits)


def test_servers_probe_each_others_links_by_frames_of_full_size(wire):
    wire.linked = frozenset(wire.able)
    wire.able = set()  # of paths, nothing is probed
    wire.run(5)
    assert wire.links == []
    assert set(wire.frames) == {
        pair
        for rack in FABRIC.racks
        for pair in itertools.permutations([server.name for server in rack.servers], 2)
    }
    assert wire.longest == 1514


def test_a_link_on_which_nothing_comes_is_reported_and_its_return(wire):
    wire.linked = frozenset(wire.able)
    wire.run(2)
    wire.broken = {"h12"}
    wire.run(3)
    assert wire.links == [{"h12": {LinkDirection.RECEIVING}}]
    wire.broken = set()
    wire.run(6)
    assert wire.links[1:] == [{}]
    assert wire.lost == []


def test_where_nothing_is_probed_nothing_is_kept_of_frames_that_come_late():
    """Probes of changes' gates, and servers' frames in the form of probes."""
    wire = Wire(interval_s=0.0)
    one, other = (FABRIC.racks[rack].servers[0] for rack in (0, 1))
    port = wire.ports[other.name]
    for nonce in range(100):
        frame = probe(one.mac, other.mac, STATE.vlans[PATH], nonce)
        wire.fleet.packet_received(other.vswitch.datapath_id, port, frame)
    assert not wire.prober._received


def test_without_vswitches_that_could_nothing_is_sent_and_nothing_lost(wire):
    wire.able = set()
    wire.run(5)
    assert wire.frames == wire.lost == []


def test_while_the_hub_is_busy_nothing_counts_as_lost(wire):
    wire.run(1.5)
    wire.broken = {server.name for server in FABRIC.servers}
    wire.fleet._post = lambda _function: None
    wire.run(10)
    assert wire.lost == []


@pytest.mark.parametrize("late_s", [2.0, 10.0])
def test_late_switches_are_no_dead_paths_and_no_dead_links(wire, late_s):
    """These servers get no additional probes, which would keep them in the late state."""
    wire.linked = frozenset(wire.able)
    wire.run(5)
    sent = len(wire.frames)
    for _ in range(3):
        wire.late = True
        wire.run(late_s)
        wire.late = False
        wire.run(3)
    assert wire.lost == wire.links == []
    assert len(wire.frames) - sent <= sent / 5 * 3 * (late_s + 3)


def test_a_path_is_found_dead_as_soon_while_a_switch_beside_it_is_mute(wire):
    """In each rack, a server's switch is silent."""
    mute = {rack.servers[0].name for rack in FABRIC.racks[:2]}
    for name in mute:
        wire.ports[name].tell = lambda _told: None
    wire.run(2)
    wire.broken = {server.name for server in FABRIC.racks[1].servers}
    wire.run(6)
    assert {one.path for one in wire.lost} == {PATH}


def test_pairs_under_way_are_not_probed(wire):
    wire.moving = {(0, 1)}
    wire.run(3)
    assert wire.frames == []
