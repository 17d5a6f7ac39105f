"""Probes of a new path: repeated soon, and accepted late."""

from __future__ import annotations

import struct
import threading
import time
from itertools import count

import pytest

from apps.controller.runner import Runner
from apps.openflow.fleet import Fleet
from apps.openflow.interface import PortInfo
from apps.process.metrics import Metrics
from drivers.codecs.openflow.messages import TYPE_BARRIER_REQUEST, TYPE_PACKET_OUT
from hydra.failures import FailureKind
from hydra.model import VlanId
from hydra.policy import CurrentPolicy, Policy
from hydra.reconfiguration.commands import Batch, Marker, PassMarkers, ProbePath
from tests.unit.controller.runners import performed
from tests.unit.core.fabrics import path_of, small_fabric

FABRIC = small_fabric(racks=2, planes=1, servers=1)
H11, H21 = FABRIC.servers
PACKET_OUT_BYTES = 8 + 16 + 16
TIMEOUT_S = 1.5

in_time = pytest.mark.quiet("tells parts of a time-out from each other")


class Network:
    """Two servers' vswitches: ``carry`` hands each vswitch's probes to the other vswitch."""

    def __init__(self, carry):
        self.fleet = Fleet(FABRIC, post=lambda function: function())
        self.carry = carry
        self.sent = {H11.name: count(1), H21.name: count(1)}
        for server in (H11, H21):
            switch = server.vswitch
            names = (switch.host_port, switch.optical_port, switch.electrical_port)
            ports = {n: PortInfo(n, name, up=True) for n, name in enumerate(names, start=1)}
            self.port = Port(self, server.name)
            self.answer = lambda answer: answer()
            self.fleet.switch_connected(switch.datapath_id, self.port, ports)
        self.runner = Runner(
            fabric=FABRIC,
            policy=CurrentPolicy(Policy()),
            fleet=self.fleet,
            devices=None,
            writer=None,
            reservations=None,
            announcer=None,
            metrics=Metrics(),
            mastership=None,
            policing=None,
        )

    def probe(self):
        started = time.monotonic()
        outcome = self.outcome_of_probe()
        assert outcome.confirmed
        return outcome.value, time.monotonic() - started

    def outcome_of_probe(self):
        command = ProbePath(
            path_of(FABRIC, 0, 1), VlanId(100), (H11, H21), timeout_s=TIMEOUT_S
        )  # timed: of lost probes
        (outcome,) = performed(self.runner, Batch("probe", (command,)))
        self.runner.close()
        return outcome

    def pass_marker(self):
        command = PassMarkers(
            (Marker(path=path_of(FABRIC, 0, 1), vlan=VlanId(100), src=H11, dst=H21),), TIMEOUT_S
        )
        started = time.monotonic()
        (outcome,) = performed(self.runner, Batch("drain", (command,)))
        self.runner.close()
        return outcome.value, time.monotonic() - started

    def arrives(self, frame):
        self.fleet.packet_received(H21.vswitch.datapath_id, self.port, frame)


class Port:
    address = "192.0.2.1:40000"

    def __init__(self, network, server):
        self.network, self.server = network, server

    def send(self, message):
        if message[1] == TYPE_BARRIER_REQUEST:
            xid = int.from_bytes(message[4:8], "big")
            self.network.answer(lambda: self.network.fleet.barrier_replied(self, xid))
            return
        assert message[1] == TYPE_PACKET_OUT
        assert struct.unpack_from("!H", message, 2)[0] == len(message)
        attempt = next(self.network.sent[self.server])
        self.network.carry(self.network, self.server, attempt, message[PACKET_OUT_BYTES:])


@in_time
def test_a_path_that_carries_probes_is_found_good_at_once():
    missing, seconds = Network(lambda network, _from, _n, frame: network.arrives(frame)).probe()
    assert missing == ()
    assert seconds < TIMEOUT_S


@in_time
def test_a_probe_that_is_lost_is_soon_repeated():
    def loses_two(network, _from, attempt, frame):
        if attempt > 2:
            network.arrives(frame)

    missing, seconds = Network(loses_two).probe()
    assert missing == ()
    assert TIMEOUT_S * 3 / 15 <= seconds < TIMEOUT_S * 7 / 15


@in_time
def test_a_probe_that_is_late_counts():
    def is_late(network, _from, attempt, frame):
        if attempt == 1:
            # timed: half of the time of the probe
            threading.Timer(TIMEOUT_S / 2, network.arrives, [frame]).start()

    missing, seconds = Network(is_late).probe()
    assert missing == ()
    assert TIMEOUT_S / 2 <= seconds < TIMEOUT_S


def test_probes_that_come_later_than_their_time_count_if_the_switches_are_late_as_a_whole():
    """The switches report probes before they answer later barriers."""
    waiting = []
    network = Network(lambda network, _from, _n, frame: waiting.append(frame))

    def answer(answer):
        for frame in waiting:
            network.arrives(frame)
        answer()

    network.answer = answer
    missing, _ = network.probe()
    assert missing == ()


def test_a_path_whose_switches_answer_nothing_has_not_been_probed():
    network = Network(lambda *_: None)
    network.answer = lambda _answer: None
    failure = network.outcome_of_probe().failure
    assert failure.kind is FailureKind.NOT_PROBED
    assert "no answer within" in failure.reason


def test_a_direction_that_is_dead_is_named_and_the_other_one_not_probed_again():
    def one_way(network, source, _attempt, frame):
        if source == H11.name:
            network.arrives(frame)

    network = Network(one_way)
    missing, seconds = network.probe()
    assert missing == (f"{H21.name} to {H11.name}",)
    assert seconds >= TIMEOUT_S
    of_each_size = 4
    sent = next(network.sent[H11.name]), next(network.sent[H21.name])
    assert sent == (2, 1 + 2 * of_each_size)


def test_a_path_that_passes_small_frames_alone_is_no_path():
    """Pings get through, and no large frame does."""
    sizes = set()

    def small_alone(network, _from, _attempt, frame):
        sizes.add(len(frame))
        if len(frame) < 1500:
            network.arrives(frame)

    missing, _ = Network(small_alone).probe()
    told = "(small frames pass, and none of 1518 bytes: an MTU)"
    assert missing == (
        f"{H11.name} to {H21.name} {told}",
        f"{H21.name} to {H11.name} {told}",
    )
    assert sizes == {60, 1518}


@in_time
def test_a_marker_that_arrives_shows_that_the_path_is_empty():
    missing, seconds = Network(
        lambda network, _from, _n, frame: network.arrives(frame)
    ).pass_marker()
    assert missing == ()
    assert seconds < TIMEOUT_S / 15


@in_time
def test_a_marker_that_was_repeated_is_waited_for_as_often():
    """The repetition is under way, too: nothing may move before it has arrived."""

    sent, arrived = [], []

    def late(network, _from, _attempt, frame):
        def repetition_arrives():
            arrived.append(frame)
            network.arrives(frame)

        sent.append(frame)
        if len(sent) > 1:
            network.arrives(sent[0])
            # timed: within the time of the marker
            threading.Timer(TIMEOUT_S * 4 / 15, repetition_arrives).start()

    missing, seconds = Network(late).pass_marker()
    assert missing == ()
    assert arrived == sent[1:]
    assert len(sent) == 2
    assert seconds < TIMEOUT_S


@in_time
def test_a_marker_behind_a_long_queue_is_not_repeated_for_ever():
    """Each marker takes longer than the pause before its repetition: the first to arrive ends
    both.
    """
    sent = []

    def behind(network, _from, attempt, frame):
        sent.append(attempt)
        # timed: later than the pause before its repetition
        threading.Timer(TIMEOUT_S * 6 / 15, network.arrives, [frame]).start()

    missing, seconds = Network(behind).pass_marker()
    assert missing == ()
    assert sent == [1, 2, 3]
    assert TIMEOUT_S * 9 / 15 <= seconds < TIMEOUT_S
