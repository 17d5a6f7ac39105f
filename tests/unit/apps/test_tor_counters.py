"""ToR counters by drivers: rates of what answers, and nothing made up of what does not."""

import time
from dataclasses import replace

import pytest

from apps.tor_counters import TorCounters
from hydra.errors import DeviceUnavailable
from hydra.model import RackId
from hydra.policy import Policy
from hydra.roles import PortCounters
from tests.unit.core.fabrics import small_fabric

WIRED = small_fabric(racks=3, planes=2)
FABRIC = replace(
    WIRED,
    racks=tuple(
        replace(rack, tor=replace(rack.tor, datapath_id=None)) if rack.id != 2 else rack
        for rack in WIRED.racks
    ),
)
"""The third ToR speaks OpenFlow."""
FIRST, SECOND = RackId(0), RackId(1)
MBIT = 125_000


class Devices:
    def __init__(self):
        self.answers = {}
        self.asked = []

    def counters_age_s(self, rack):
        return 5.0 if rack != SECOND else 0.0

    def counters(self, rack):
        self.asked.append(rack)
        answer = self.answers.get(rack)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def devices():
    return Devices()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def counters(devices, clock):
    return TorCounters(FABRIC, Policy(), devices, clock)


def sent(mbit):
    names = [port.tor_port for port in FABRIC.ports_of(FIRST)]
    return {names[0]: PortCounters(0, 0, 0, mbit * MBIT, 0, 0)}


def test_two_readings_make_a_rate(counters, devices, clock):
    port = FABRIC.ports_of(FIRST)[0].id
    devices.answers[FIRST] = sent(0)
    counters.read(FIRST)
    assert counters.rates_mbps() == {}
    clock.now_s += 5
    devices.answers[FIRST] = sent(400)
    counters.read(FIRST)
    assert counters.rates_mbps() == {port: pytest.approx(80)}
    clock.now_s += 1
    devices.answers[FIRST] = None
    counters.read(FIRST)
    assert counters.rates_mbps() == {port: pytest.approx(80)}, "busy is not silent"


def test_a_tor_that_does_not_answer_is_unknown_not_idle(counters, devices, clock, caplog):
    for mbit in (0, 400):
        clock.now_s += 5
        devices.answers[FIRST] = sent(mbit)
        counters.read(FIRST)
    devices.answers[FIRST] = DeviceUnavailable("r1", "no answer within 5 s")
    for _ in range(3):
        counters.read(FIRST)
    assert counters.rates_mbps() == {}
    assert counters.troubles() == {"no port counters": 3}
    assert len(caplog.records) == 1


def test_counters_that_went_back_are_counted(counters, devices, clock):
    for mbit in (400, 0, 40):
        clock.now_s += 5
        devices.answers[FIRST] = sent(mbit)
        counters.read(FIRST)
    assert counters.troubles() == {"counter went back": 1}
    assert list(counters.rates_mbps().values()) == [pytest.approx(8)]


def test_only_those_without_openflow_are_asked_and_no_oftener_than_it_makes_sense(devices):
    seldom = TorCounters(FABRIC, Policy(poll_interval_s=1.0), devices)
    assert seldom._interval_s == 5.0
    assert seldom._racks == (FIRST, SECOND)
    devices.counters_age_s = lambda _rack: 0.0
    often = TorCounters(FABRIC, Policy(poll_interval_s=0.01), devices)
    often.start()
    deadline_s = time.monotonic() + 10
    while len(devices.asked) < 6:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    often.stop()
    assert set(devices.asked) == {FIRST, SECOND}


@pytest.mark.parametrize(("fabric", "interval_s"), [(WIRED, 1.0), (FABRIC, 0.0)])
def test_nothing_to_do(fabric, interval_s, devices):
    idle = TorCounters(fabric, Policy(poll_interval_s=interval_s), devices)
    idle.start()
    idle.stop()
    assert devices.asked == []
