"""The poller on connections in memory, with a simulated clock."""

import logging
import struct
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from apps.demand.poller import Inlet, StatsPoller
from apps.openflow.fleet import Fleet
from apps.openflow.interface import PortInfo, SumRequest, Sums
from drivers.codecs.openflow.messages import MULTIPART_PORT_STATS
from hydra.forwarding.pipeline import RuleKind, cookie
from hydra.policy import Policy, Timeouts
from tests.unit.core.fabrics import small_fabric
from tests.unit.openflow.ryu_reference import split
from tests.waiting import wait_until

pytestmark = pytest.mark.quiet("polls 25 times a second: a busy machine misses moments")
FABRIC = small_fabric(racks=3, planes=1, servers=1)
INTERVAL_S = 0.04
POLICY = Policy(poll_interval_s=INTERVAL_S, demand_window_s=0.001, timeouts=Timeouts(vswitch_s=1))
SERVERS = [server.vswitch.datapath_id for server in FABRIC.servers]
TOR1 = FABRIC.racks[0].tor.datapath_id
MBIT = 125_000


def flow_entry(rack, octets):
    subject = cookie(RuleKind.ACCOUNT_V4, 0, rack + 1)
    return struct.pack("!H22xQQQHHxxxx", 56, subject, 1, octets, 1, 4)


def port_entry(number, tx_bytes):
    return struct.pack("!Ixxxx12QII", number, 0, 0, 0, tx_bytes, *(0,) * 8, 0, 0)


class Switch:
    """Answers with ``body``, in two parts, from another thread, at once."""

    address = "192.0.2.1:40000"

    def __init__(
        self,
        fleet: Fleet,
        datapath,
        body: Callable[[], bytes | None],
        port="host",
        ports: Callable[[], bytes] = bytes,
    ):
        self.fleet, self.datapath, self.body = fleet, datapath, body
        self.port, self.ports = port, ports
        self.asked_s = []
        fleet.switch_connected(datapath, self, {1: PortInfo(1, port, True)})

    def send(self, message):
        for one in split(message):
            if self.port == "host" and struct.unpack_from("!H", one, 8)[0] == MULTIPART_PORT_STATS:
                body = self.ports()
            else:
                self.asked_s.append(time.monotonic())
                body = self.body()
            if body is not None:
                xid = struct.unpack_from("!I", one, 4)[0]
                self.fleet.statistics_replied(self, xid, body, more=True)
                self.fleet.statistics_replied(self, xid, b"", more=False)


@pytest.fixture
def fleet():
    return Fleet(FABRIC, post=lambda function: function())


@pytest.fixture
def start(fleet):
    pollers = []

    def start(clock=time.monotonic):
        pollers.append(StatsPoller(fabric=FABRIC, policy=POLICY, fleet=fleet, clock=clock))
        pollers[-1].start()
        return pollers[-1]

    yield start
    for poller in pollers:
        poller.stop()


def sends(mbps, to, clock=time.monotonic):
    """Counters of a server that has sent only to rack ``to`` since the start."""
    started_s = clock()
    return lambda: flow_entry(to, int((clock() - started_s) * mbps * MBIT))


def test_counters_become_rates(fleet, start):
    Switch(fleet, SERVERS[0], sends(80, to=1))
    Switch(fleet, SERVERS[2], sends(20, to=0))
    poller = start()

    def are_right() -> bool:  # a switch that was read late, on a busy machine, is not missing
        rates = poller.rates_mbps()
        wanted = [pytest.approx(80, rel=0.5), pytest.approx(20, rel=0.5)]
        return [rates[0, 1], rates[2, 0]] == wanted and poller.freshness()[0] < 10 * INTERVAL_S

    wait_until(are_right)
    _, stale, ready = poller.freshness()
    assert ready
    assert "h21" in stale


@pytest.mark.parametrize("number", [0, 1, 7])
def test_sums_of_another_number_than_racks_are_malformed_and_others_count(
    fleet, start, caplog, number
):
    """As from a worker of another release, or another configuration."""

    class Summed:
        address, takes_sums = "192.0.2.1:1", True

        def send(self, message):
            if isinstance(message, SumRequest):
                sums = Sums(np.zeros(number, dtype=np.uint64), 1.0)
                fleet.sums_replied(self, message.xid, sums)

    fleet.switch_connected(SERVERS[1], Summed(), {1: PortInfo(1, "host", True)})
    Switch(fleet, SERVERS[0], sends(80, to=1))
    poller = start()
    wait_until(lambda: f"statistics: {number} sums, not 3" in caplog.text)
    wait_until(lambda: poller.rates_mbps()[0, 1] > 0)
    assert "h21" in poller.freshness()[1], "stale"


def test_a_silent_switch_is_stale_not_zero_and_delays_nobody(fleet, start, caplog):
    silent = threading.Event()
    counters = sends(50, to=1)
    hung = Switch(fleet, SERVERS[0], lambda: None if silent.is_set() else counters())
    other = Switch(fleet, SERVERS[1], sends(10, to=0))
    poller = start()
    wait_until(lambda: poller.rates_mbps()[0, 1] > 0)
    silent.set()
    asked = len(other.asked_s)
    wait_until(lambda: poller.troubles().get("no answer", 0) > 2 and len(other.asked_s) > asked + 3)
    rates, (_, stale, _) = poller.rates_mbps(), poller.freshness()
    assert "h11" in stale
    assert rates[0, 1] > 10
    assert len(hung.asked_s) < len(other.asked_s)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in warnings] == [
        "statistics of h11: no answer (plans use the last rates); further cases are only counted"
    ]


def test_a_switch_that_restarts_moves_no_rate(fleet, start, caplog):
    counters, restarted = sends(50, to=1), threading.Event()
    Switch(fleet, SERVERS[0], lambda: flow_entry(1, 5) if restarted.is_set() else counters())
    poller = start()
    wait_until(lambda: poller.rates_mbps()[0, 1] > 0)
    restarted.set()
    wait_until(lambda: "counter went back" in caplog.text)
    assert poller.troubles() == {"counter went back": 1}
    assert caplog.text.count("counter went back") == 1


@pytest.mark.parametrize("body", [b"short", bytes(56), struct.pack("!H54x", 9000)])
def test_garbage_is_counted_and_ends_nothing(fleet, start, caplog, body):
    Switch(fleet, SERVERS[0], lambda: body)
    Switch(fleet, SERVERS[1], sends(10, to=0))
    poller = start()
    wait_until(
        lambda: poller.troubles().get("malformed reply", 0) > 2 and poller.rates_mbps()[1, 0] > 0
    )
    assert not poller.rates_mbps()[0].any()
    assert caplog.text.count("malformed reply") == 1


def test_a_switch_that_goes_is_counted(fleet, start):
    switch = Switch(fleet, SERVERS[0], lambda: None)
    poller = start()
    wait_until(lambda: switch.asked_s)
    fleet.switch_disconnected(SERVERS[0], switch)
    wait_until(lambda: poller.troubles().get("request failed") == 1)


def test_port_rates_are_forgotten_when_a_tor_falls_silent(fleet, start):
    port = FABRIC.ports_of(FABRIC.racks[0].id)[0]
    silent, started_s = threading.Event(), time.monotonic()

    def counters():
        sent = int((time.monotonic() - started_s) * 30 * MBIT)
        return None if silent.is_set() else port_entry(1, sent)

    Switch(fleet, TOR1, counters, port=port.tor_port)
    poller = start()
    wait_until(poller.port_rates_mbps)
    assert poller.port_rates_mbps()[port.id] == pytest.approx(30, rel=0.5)
    silent.set()
    wait_until(lambda: not poller.port_rates_mbps())


def test_rules_that_count_no_rack_are_passed_over(fleet, start):
    counters = sends(40, to=1)
    foreign = struct.pack("!H22xQQQHHxxxx", 56, cookie(RuleKind.ACCOUNT_V4, 0, 99), 1, 7, 1, 4)
    Switch(fleet, SERVERS[0], lambda: foreign + counters())
    poller = start()
    wait_until(lambda: poller.rates_mbps()[0, 1] > 0)
    assert poller.troubles() == {}


def test_servers_links_are_counted_where_they_receive(fleet, start):
    """At the steering switch's port: bytes sent there, and bytes received from the electrical
    network if the switch has such a port.
    """
    started_s = time.monotonic()

    def ports():
        return port_entry(1, int((time.monotonic() - started_s) * 30 * MBIT))

    Switch(fleet, SERVERS[0], sends(80, to=1), ports=ports)
    poller = start()
    wait_until(poller.received_mbps)
    assert list(poller.received_mbps()) == [Inlet(0, electrical=False)]
    assert poller.received_mbps()[Inlet(0, electrical=False)] == pytest.approx(30, rel=0.5)
    assert poller.port_rates_mbps() == {}
    wait_until(lambda: len(poller.sent().mbps))
    sent = poller.sent()
    assert (sent.source.tolist(), sent.to.tolist()) == ([0], [1])
    assert sent.latest_mbps == pytest.approx(80, rel=0.5)
    assert poller.troubles() == {}
