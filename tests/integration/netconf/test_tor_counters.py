"""ToR counters read by the controller's own devices and drivers from a real NETCONF server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller.devices import Devices
from apps.demand.tor_counters import TorCounters
from apps.process.configuration import load_configuration
from hydra.model import Fabric, RackId, Tor
from hydra.policy import Policy, Timeouts
from tests.integration.conftest import DEMO_CONFIG
from tests.integration.netconf.conftest import PORTS
from tests.waiting import wait_until

INTERFACES = "http://openconfig.net/yang/interfaces"
FIRST, SILENT = RackId(0), RackId(1)
MBIT = 125_000
POLICY = Policy(timeouts=Timeouts(tor_s=10.0))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def fabric(server) -> Fabric:
    """The demo's ToRs; the first speaks NETCONF, and no server listens at the second's address."""
    demo = load_configuration(DEMO_CONFIG).fabric
    options = {"host_key": server.host_key}
    first, second, *others = demo.racks
    tor = Tor("openconfig-vlan", server.address, "", None, first.tor.native_vlan, server.login)
    tor = replace(tor, options=options)
    silent = replace(tor, address="127.0.0.1:1")
    own = iter(PORTS)
    ports = tuple(replace(p, tor_port=next(own)) if p.rack == FIRST else p for p in demo.ports)
    racks = (replace(first, tor=tor), replace(second, tor=silent), *others)
    return replace(demo, racks=racks, ports=ports)


@pytest.fixture(scope="module")
def devices(fabric):
    devices = Devices(fabric=fabric, policy=POLICY)
    yield devices
    devices.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counters(fabric, devices, clock) -> TorCounters:
    return TorCounters(fabric=fabric, policy=POLICY, devices=devices, clock=clock)


@pytest.fixture(autouse=True)
def connected(devices, fabric):
    """As after a start, when the controller has read all devices."""
    devices.vlans(FIRST, [port.tor_port for port in fabric.ports_of(FIRST)])


@pytest.fixture
def sent(server, fabric):
    """Set both ports' counters of the first ToR, in Mbit."""

    def count(mbit: float) -> None:
        interfaces = "".join(
            f"<interface><name>{port.tor_port}</name><state><counters>"
            f"<out-octets>{int(mbit * MBIT)}</out-octets></counters></state></interface>"
            for port in fabric.ports_of(FIRST)
        )
        server.write(f'<interfaces xmlns="{INTERFACES}">{interfaces}</interfaces>')

    return count


def test_two_readings_make_a_rate(counters, fabric, clock, sent):
    sent(0)
    counters.read(FIRST)
    assert counters.rates_mbps() == {}
    clock.now_s += 5
    sent(400)
    counters.read(FIRST)
    ports = {port.id for port in fabric.ports_of(FIRST)}
    assert counters.rates_mbps() == dict.fromkeys(ports, pytest.approx(80))


def test_a_tor_that_does_not_answer_is_unknown_not_idle(counters, clock, sent, server, caplog):
    for mbit in (0, 400):
        sent(mbit)
        counters.read(FIRST)
        clock.now_s += 5
    assert counters.rates_mbps()
    counters.read(SILENT)
    assert counters.rates_mbps(), "the silence of one says nothing of another"
    server.stop()
    try:
        for _ in range(2):
            counters.read(FIRST)
    finally:
        server.start()
        server.become_switch(PORTS)
    assert counters.rates_mbps() == {}
    assert counters.troubles() == {"no port counters": 1}, "it is not asked while it is away"
    assert len([one for one in caplog.records if one.name == "hydra.counters"]) == 1


def test_what_was_heard_holds_for_three_intervals(counters, devices, clock, sent):
    """A reconfiguration may be using a ToR; a reconfiguration's ToR may be held by another
    controller.
    """
    for mbit in (0, 400):
        clock.now_s += 5
        sent(mbit)
        counters.read(FIRST)
    devices.close()
    for passed_s, known in ((2.0, True), (2.0, False)):
        clock.now_s += passed_s
        counters.read(FIRST)
        assert bool(counters.rates_mbps()) == known


def test_counters_that_went_back_are_counted(counters, clock, sent):
    for mbit in (400, 0, 40):
        sent(mbit)
        counters.read(FIRST)
        clock.now_s += 5
    assert counters.troubles() == {"counter went back": 2}, "one of each port"
    assert list(counters.rates_mbps().values()) == [pytest.approx(8)] * 2


def test_the_thread_asks_again_and_again(fabric, devices, sent):
    """ToRs without OpenFlow."""
    sent(100)
    asking = TorCounters(
        fabric=fabric, policy=replace(POLICY, poll_interval_s=0.1), devices=devices
    )
    asking.start()
    wait_until(lambda: len(asking.rates_mbps()) >= len(fabric.ports_of(FIRST)))
    asking.stop()
    assert set(asking.rates_mbps()) == {port.id for port in fabric.ports_of(FIRST)}
    assert asking.troubles() == {}


def test_no_tor_is_asked_oftener_than_its_counters_change(fabric, devices):
    """Open vSwitch writes counters into its database every 5 s."""
    *others, last = fabric.racks
    by_ovsdb = replace(last, tor=replace(last.tor, datapath_id=None))
    fabric = replace(fabric, racks=(*others, by_ovsdb))
    assert TorCounters(fabric=fabric, policy=POLICY, devices=devices)._interval_s == 5.0


def test_a_tor_is_asked_as_often_as_its_counters_change_also_if_it_says_so_late(
    fabric, clock, monkeypatch
):
    """Drivers read the interval of Open vSwitch at the first reading."""
    age_s = [5.0]
    devices = SimpleNamespace(counters_age_s=lambda _rack: age_s[0], counters=lambda _rack: {})
    counters = TorCounters(fabric=fabric, policy=POLICY, devices=devices, clock=clock)
    assert counters.is_due(FIRST)
    counters.read(FIRST)
    age_s[0] = 30.0
    clock.now_s += 29.0
    assert not counters.is_due(FIRST)
    clock.now_s += 1.0
    assert counters.is_due(FIRST)


@pytest.mark.parametrize("interval_s", [0.0, 1.0])
def test_nothing_to_do(fabric, devices, interval_s):
    """Polling is off, or all ToRs speak OpenFlow."""
    demo = load_configuration(DEMO_CONFIG).fabric
    idle = TorCounters(
        fabric=fabric if not interval_s else demo,
        policy=replace(POLICY, poll_interval_s=interval_s),
        devices=devices,
    )
    idle.start()
    idle.stop()
    assert idle.rates_mbps() == {}
    assert idle.troubles() == {}
