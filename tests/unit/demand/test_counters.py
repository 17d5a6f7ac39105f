import math

import numpy as np
import pytest

from hydra.demand.counters import Anomaly, DemandMeter, PortMeter
from hydra.model import PortId
from tests.unit.core.fabrics import openflow_only, small_fabric

FABRIC = small_fabric(racks=3, planes=1, servers=2)
H11, H12, H21 = 0, 1, 2
MBIT = 1_000_000 / 8
"""Bytes in a megabit."""


def meter(window_s=3.0):
    return DemandMeter(FABRIC, window_s)


def totals(*mbit):
    return (np.array(mbit) * MBIT).astype(np.uint64)


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


def test_what_is_sent_away_server_by_server_on_average_and_now():
    demand = meter(window_s=2.0)
    demand.update(H21, totals(0, 0, 0), 0.0)
    for second, mbit in enumerate((0, 10, 40)):
        demand.update(H11, totals(7, mbit, 0), float(second))
        demand.update(H21, totals(mbit / 2, 3, 0), 1.0 + second)
    sent = demand.sent()
    assert list(zip(sent.source, sent.to, strict=True)) == [(H11, 1), (H21, 0)]
    assert sent.mbps[0] == pytest.approx(demand.matrix()[0, 1])
    assert sent.latest_mbps == pytest.approx([30, 15])
    assert sent.least_mbps == pytest.approx([10, 5])


def test_a_rate_that_one_interval_alone_tells_is_none():
    """A counter that is updated every 0.5 s, and read as often: a reading may hold two updates."""
    demand = meter(window_s=1.0)
    least = []
    for number, mbit in enumerate((0, 4, 8, 8, 16, 20)):
        demand.update(H11, totals(0, mbit, 0), 0.5 * number)
        least += list(demand.sent().least_mbps)
    assert least == pytest.approx([0, 8, 0, 0, 8])


@pytest.mark.parametrize(
    ("each_mbit", "expected_mbps"),
    [
        ((20, 4, 4, 4), 4.0),
        ((20, 4, 3.5, 4.2), 3.9),
        ((20, 6, 11, 4, 4), None),  # not steady, then only two of three readings
        ((20, 0, 0, 0), None),  # a pause
        ((20, 11, 11, 11), None),  # more than half: the average follows soon enough
        ((4, 20, 20, 20), None),  # a growing rate, as in a burst
    ],
)
def test_traffic_that_is_steady_at_less_than_half_is_taken_at_its_new_rate(
    each_mbit, expected_mbps
):
    demand = meter(window_s=8.0)
    sums = np.cumsum((0, *each_mbit))
    for second, mbit in enumerate(sums):
        demand.update(H11, totals(0, mbit, mbit), float(second))
    averaged = each_mbit[0]
    for mbit in each_mbit[1:]:
        averaged += (1 - math.exp(-1 / 8)) * (mbit - averaged)
    expected = averaged if expected_mbps is None else expected_mbps
    assert demand.matrix()[0] == pytest.approx([0, expected, expected], rel=1e-6)


def test_a_counter_that_is_not_available_moves_no_rate_then_or_when_it_is_back():
    """OpenFlow 1.3.5, section 5.8: the counter is 2^64 - 1, after which all bytes sent so far would
    look new.
    """
    demand = meter()
    demand.update(H11, totals(0, 5000, 0), 0.0)
    demand.update(H11, totals(0, 5010, 2), 1.0)
    partly = totals(0, 0, 4)
    partly[1] = 2**64 - 1
    assert demand.update(H11, partly, 2.0) is Anomaly.NOT_COUNTED
    assert demand.update(H11, totals(0, 5030, 6), 3.0) is None
    assert demand.matrix()[0] == pytest.approx([0, 10, 2])
    assert demand.update(H11, totals(0, 5040, 8), 4.0) is None
    assert demand.matrix()[0] == pytest.approx([0, 10, 2])


def test_a_steady_rate_is_the_rate_whatever_the_intervals():
    demand = meter()
    now_s = sent = 0.0
    for interval_s in (0.5, 1.0, 0.1, 4.0):
        demand.update(H11, totals(0, sent, 0), now_s)
        now_s += interval_s
        sent += 12 * interval_s
    assert demand.matrix()[0, 1] == pytest.approx(12)


def read_every_second(demand, *readings):
    """The rates after readings (in Mbit, of r2 and r3) a second apart; the anomaly of each
    reading.
    """
    wrong = [
        demand.update(H11, totals(0, *reading), float(second))
        for second, reading in enumerate(readings)
    ]
    return demand.matrix()[0, 1:].tolist(), wrong


def test_a_counter_that_went_back_moves_its_rate_only_from_the_next_reading_on():
    demand = meter(window_s=1e-3)
    rates, wrong = read_every_second(demand, (1000, 50), (1010, 55), (8, 60))
    assert rates == pytest.approx([10, 5])
    assert wrong == [None, None, Anomaly.COUNTER_WENT_BACK]
    demand.update(H11, totals(0, 38, 60), 3.0)
    assert demand.matrix()[0, 1:].tolist() == pytest.approx([30, 0])
    assert demand.anomalies == {Anomaly.COUNTER_WENT_BACK: 1}


def test_a_counter_that_wraps_goes_on():
    demand = meter()
    last = 2**64 - int(3 * MBIT)
    demand.update(H11, np.array([0, last, 0], dtype=np.uint64), 0.0)
    assert demand.update(H11, totals(0, 4, 0), 1.0) is None
    assert demand.matrix()[0, 1] == pytest.approx(7)


def test_a_great_counter_that_starts_over_is_no_wrap():
    demand = meter()
    demand.update(H11, np.array([0, 3 * 2**62, 0], dtype=np.uint64), 0.0)
    assert demand.update(H11, totals(0, 1, 0), 1.0) is Anomaly.IMPLAUSIBLE_RATE
    assert not demand.matrix().any()


def test_a_rate_beyond_belief_moves_nothing():
    demand = meter()
    most = 1000 * FABRIC.server_rate_mbps
    rates, wrong = read_every_second(demand, (0, 0), (10, 5), (10 + 1.1 * most, 10))
    assert rates == pytest.approx([10, 5])
    assert wrong[2] is Anomaly.IMPLAUSIBLE_RATE


def test_the_same_reading_twice_is_passed_over():
    demand = meter()
    demand.update(H11, totals(0, 0, 0), 1.0)
    assert demand.update(H11, totals(0, 500, 0), 1.0) is None
    assert not demand.ready
    demand.update(H11, totals(0, 10, 0), 2.0)
    assert demand.matrix()[0, 1] == pytest.approx(10)


def test_a_clock_that_steps_back_moves_no_rate_and_does_not_stop_the_meter():
    demand = meter(window_s=1e-3)
    read_every_second(demand, (0, 0), (10, 5))
    assert demand.update(H11, totals(0, 500, 0), -100.0) is Anomaly.CLOCK_WENT_BACK
    assert demand.matrix()[0, 1] == pytest.approx(10)
    assert demand.update(H11, totals(0, 520, 0), -99.0) is None
    assert demand.matrix()[0, 1] == pytest.approx(20)


def test_a_clock_that_steps_forward_is_known_by_the_switchs_own():
    demand = meter(window_s=1e-3)
    for second, mbit in enumerate((0, 10)):
        demand.update(H11, totals(0, mbit, 0), float(second), 60.0 + second)
    assert demand.update(H11, totals(0, 20, 0), 3600.0, 62.0) is Anomaly.CLOCKS_DISAGREE
    assert demand.matrix()[0, 1] == pytest.approx(10)
    assert demand.update(H11, totals(0, 50, 0), 3601.0, 63.0) is None
    assert demand.matrix()[0, 1] == pytest.approx(30)


@pytest.mark.parametrize("age_s", [62.9, 60.0, 0.0])
def test_ages_in_whole_seconds_and_rules_installed_anew_are_no_clocks_that_step(age_s):
    demand = meter(window_s=1e-3)
    demand.update(H11, totals(0, 0, 0), 0.0, 61.0)
    assert demand.update(H11, totals(0, 10, 0), 1.0, age_s) is None
    assert demand.matrix()[0, 1] == pytest.approx(10)


def test_a_switch_that_tells_no_ages_is_measured_all_the_same():
    demand = meter()
    for second in (0, 60, 120):
        assert demand.update(H11, totals(0, 10 * second, 0), float(second), 0.0) is None
    assert demand.matrix()[0, 1] == pytest.approx(10)


def test_a_silent_server_keeps_its_rates_and_is_named():
    demand = meter()
    demand.update(H11, totals(0, 0, 0), 0.0)
    demand.update(H11, totals(0, 9, 0), 1.0)
    demand.update(H12, totals(0, 0, 0), 5.0)
    assert demand.matrix()[0, 1] == pytest.approx(9)
    assert demand.stale(6.0, limit_s=2.0) == ["h11", "h21", "h22", "h31", "h32"]
    assert demand.stale(1.5, limit_s=2.0) == ["h21", "h22", "h31", "h32"]


def test_what_is_not_known_of_pairs_is_not_zero():
    demand = meter()
    assert np.isnan(demand.known(0.0, 3.0)).all(), "nobody has been read"
    for second in range(4):
        demand.update(H11, totals(0, 10 * second, 0), float(second))
        demand.update(H12, totals(0, 0, 5 * second), float(second))
    known = demand.known(3.0, 3.0)
    assert np.isnan(known[1:]).all(), "nobody has answered there"
    assert known[0] == pytest.approx([0.0, 10.0, 5.0])
    demand.update(H12, totals(0, 0, 30), 6.0)
    late = np.isnan(demand.known(6.5, 3.0)[0])
    assert late.tolist() == [False, True, False], "h11 is late, and last sent to r2"
    assert np.isnan(demand.known(9.5, 3.0)[0]).all(), "nobody in r1 was heard lately"


def test_demand_is_unsure_until_it_has_been_read_a_few_times():
    demand = meter()
    demand.update(H11, totals(0, 0, 0), 0.0)
    assert demand.unsure(0.0, 3.0).sum() == 6, "nobody knows yet what anybody sends"
    demand.update(H11, totals(0, 10, 0), 1.0)
    for server in range(1, 6):
        for second in range(3):
            demand.update(server, totals(0, 0, 0), float(second))
    assert np.argwhere(demand.unsure(2.0, 3.0)).tolist() == [[0, 1]]
    demand.update(H11, totals(0, 20, 0), 2.0)
    assert not demand.unsure(2.0, 3.0).any()


def test_demand_is_unsure_where_it_rests_on_late_readings():
    demand = meter()
    for server in range(6):
        for second in range(3):
            demand.update(server, totals(0, 10 * second if server == H11 else 0, 0), float(second))
    assert np.argwhere(demand.unsure(5.1, 3.0)).tolist() == [[0, 1]]


def test_a_switch_that_never_came_is_not_waited_for_forever():
    demand = meter()
    for second in range(3):
        demand.update(H11, totals(0, 0, 0), float(second))
    assert demand.unsure(60.0, 100.0).any()
    assert not demand.unsure(60.1, 100.0).any()


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


def test_a_port_counter_that_went_back_keeps_its_rate_for_an_interval():
    ports = PortMeter()
    for second, mbit in enumerate((100, 104)):
        ports.update(P, int(mbit * MBIT), float(second))
    assert ports.update(P, int(3 * MBIT), 2.0) is Anomaly.COUNTER_WENT_BACK
    assert ports.rates_mbps() == {P: pytest.approx(4)}
    assert ports.update(P, int(9 * MBIT), 3.0) is None
    assert ports.rates_mbps() == {P: pytest.approx(6)}
    assert ports.anomalies == {Anomaly.COUNTER_WENT_BACK: 1}


def test_a_port_counter_that_wraps_goes_on():
    ports = PortMeter()
    ports.update(P, 2**64 - int(MBIT), 0.0)
    ports.update(P, int(MBIT), 1.0)
    assert ports.rates_mbps() == {P: pytest.approx(2)}


def test_a_clock_that_steps_back_moves_no_port_rate():
    ports = PortMeter()
    ports.update(P, 0, 1.0)
    assert ports.update(P, int(MBIT), 0.5) is Anomaly.CLOCK_WENT_BACK
    assert ports.rates_mbps() == {}


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


def test_what_is_counted_of_servers_that_share_a_switch():
    """Agents report for servers; a steering ToR counts for a whole rack."""
    vswitches = small_fabric(racks=3, planes=1, servers=2)
    for fabric, pair_mbps, all_mbps in (
        (vswitches, [80.0, 0.0], [120.0, 0.0]),
        (openflow_only(vswitches), [80.0, 80.0], [60.0, 60.0]),
    ):
        meter = DemandMeter(fabric, window_s=1.0)
        for now_s, mbit in ((0.0, 0), (1.0, 1)):
            totals = np.array([0, 80, 40], dtype=np.uint64) * np.uint64(mbit * 125_000)
            meter.update(0, totals, now_s)
        counted, sending = meter.counted(np.array([0, 1]), np.array([1, 1]))
        assert counted.tolist() == pytest.approx(pair_mbps)
        assert sending.tolist() == pytest.approx(all_mbps)
