import math

import numpy as np
import pytest

from hydra.counters import DemandMeter, PortMeter
from hydra.model import PortId
from tests.unit.core.fabrics import small_fabric

FABRIC = small_fabric(racks=3, planes=1, servers=2)
H11, H12, H21 = 0, 1, 2
MBIT = 1_000_000 / 8
"""Bytes in a megabit."""


def meter(window_s=3.0):
    return DemandMeter(FABRIC, window_s)


def totals(*mbit):
    return np.array(mbit) * MBIT


def test_one_reading_is_not_a_rate():
    demand = meter()
    demand.update(H11, totals(0, 100, 0), 1.0)
    assert not demand.ready
    assert not demand.matrix().any()


def test_two_readings_give_the_rate_of_the_interval():
    demand = meter()
    demand.update(H11, totals(0, 100, 0), 1.0)
    demand.update(H11, totals(0, 130, 5), 3.0)
    assert demand.ready
    assert demand.matrix() == pytest.approx(np.array([[0, 15, 2.5], [0, 0, 0], [0, 0, 0]]))


def test_servers_of_a_rack_add_up_and_the_diagonal_is_empty():
    demand = meter()
    for server in (H11, H12, H21):
        demand.update(server, totals(0, 0, 0), 0.0)
        demand.update(server, totals(7, 10, 20), 1.0)
    assert demand.matrix() == pytest.approx(np.array([[0, 20, 40], [7, 0, 20], [0, 0, 0]]))


def test_later_rates_are_weighed_by_the_time_they_cover():
    demand = meter(window_s=2.0)
    for second, mbit in enumerate((0, 10, 40)):
        demand.update(H11, totals(0, mbit, 0), float(second))
    weight = 1 - math.exp(-1 / 2)
    assert demand.matrix()[0, 1] == pytest.approx(10 + weight * (30 - 10))


def test_a_steady_rate_is_the_rate_whatever_the_intervals():
    demand = meter()
    now_s = sent = 0.0
    for interval_s in (0.5, 1.0, 0.1, 4.0):
        demand.update(H11, totals(0, sent, 0), now_s)
        now_s += interval_s
        sent += 12 * interval_s
    assert demand.matrix()[0, 1] == pytest.approx(12)


def test_a_counter_that_went_back_counts_from_zero():
    demand = meter()
    demand.update(H11, totals(0, 1000, 50), 0.0)
    demand.update(H11, totals(0, 8, 60), 1.0)
    assert demand.matrix()[0, 1] == pytest.approx(8)
    assert demand.matrix()[0, 2] == pytest.approx(10)


@pytest.mark.parametrize("now_s", [1.0, 0.5])
def test_a_clock_that_stands_or_steps_back_is_passed_over(now_s):
    demand = meter()
    demand.update(H11, totals(0, 0, 0), 1.0)
    demand.update(H11, totals(0, 500, 0), now_s)
    assert not demand.ready
    demand.update(H11, totals(0, 10, 0), 2.0)
    assert demand.matrix()[0, 1] == pytest.approx(10)


def test_a_silent_server_keeps_its_rates_and_is_named():
    demand = meter()
    demand.update(H11, totals(0, 0, 0), 0.0)
    demand.update(H11, totals(0, 9, 0), 1.0)
    demand.update(H12, totals(0, 0, 0), 5.0)
    assert demand.matrix()[0, 1] == pytest.approx(9)
    assert demand.stale(6.0, limit_s=2.0) == ["h11", "h21", "h22", "h31", "h32"]
    assert demand.stale(1.5, limit_s=2.0) == ["h21", "h22", "h31", "h32"]


def test_the_age_is_the_newest_readings():
    demand = meter()
    assert demand.age_s(9.0) is None
    demand.update(H11, totals(0, 0, 0), 2.0)
    demand.update(H12, totals(0, 0, 0), 5.0)
    assert demand.age_s(9.0) == pytest.approx(4.0)


P, Q = PortId(0), PortId(1)


def test_a_port_read_once_has_no_rate():
    ports = PortMeter()
    ports.update(P, 1000, 1.0)
    assert ports.rates_mbps() == {}


def test_a_ports_rate_is_that_of_the_last_interval():
    ports = PortMeter()
    for second, mbit in enumerate((0, 5, 25)):
        ports.update(P, int(mbit * MBIT), second * 2.0)
        ports.update(Q, 0, second * 2.0)
    assert ports.rates_mbps() == {P: pytest.approx(10), Q: 0.0}


def test_a_port_counter_that_went_back_counts_from_zero():
    ports = PortMeter()
    ports.update(P, 10**9, 0.0)
    ports.update(P, int(3 * MBIT), 1.0)
    assert ports.rates_mbps() == {P: pytest.approx(3)}


def test_a_port_read_at_one_time_twice_keeps_its_first_reading():
    ports = PortMeter()
    ports.update(P, 0, 1.0)
    ports.update(P, int(50 * MBIT), 1.0)
    ports.update(P, int(20 * MBIT), 2.0)
    assert ports.rates_mbps() == {P: pytest.approx(20)}


def test_a_forgotten_port_is_unknown_not_idle():
    ports = PortMeter()
    ports.update(P, 0, 0.0)
    ports.update(P, 1000, 1.0)
    ports.forget(P)
    ports.forget(Q)
    assert ports.rates_mbps() == {}
    ports.update(P, 2000, 2.0)
    assert ports.rates_mbps() == {}
