"""Predictors, each on a suitable demand, and the measure of their errors."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.demand.prediction import Forecast
from hydra.policy import CurrentPolicy, Mode, Policy, Prediction, Sharing, SlotPolicy

HORIZON_S = 10.0
R1, R2, R3 = range(3)


def forecast(prediction, **policy):
    policy = Policy(prediction=prediction, gain_horizon_s=HORIZON_S, **policy)
    return Forecast(CurrentPolicy(policy))


def run(one, mbps_at, seconds):
    """A reading per second of the demand from r1 to r2; returns the final prediction."""
    for second in range(seconds):
        demand = np.zeros((3, 3))
        demand[R1, R2] = mbps_at(second)
        one.see(demand, 1000.0 + second)
    latest_report = one.latest_report()
    planned = demand if latest_report.predicted_mbps is None else latest_report.predicted_mbps
    return float(planned[R1, R2])


def on_and_off(second):
    """15 s of 40 Mb/s, 15 s of nothing."""
    return 40.0 * (second // 15 % 2 == 0)


def test_without_a_prediction_the_demand_of_now_is_planned_for():
    one = forecast(Prediction.LAST)
    assert one.latest_report() == (None, None, None)
    assert run(one, float, 30) == 29.0
    assert one.latest_report().predicted_mbps is None


def test_an_average_hardly_moves_with_what_flickers():
    flickering = run(forecast(Prediction.EWMA), lambda second: 80.0 * (second % 2), 101)
    assert flickering == pytest.approx(40.0, abs=3)


def test_the_peak_is_kept_for_the_horizon():
    short_burst = {50: 90.0}
    assert run(forecast(Prediction.PEAK), lambda s: short_burst.get(s, 20.0), 58) == 90.0
    assert run(forecast(Prediction.PEAK), lambda s: short_burst.get(s, 20.0), 64) == 20.0


def test_a_trend_goes_on():
    growing = run(forecast(Prediction.HOLT), lambda second: 2.0 * second, 100)
    assert growing == pytest.approx(2 * (99 + HORIZON_S / 2), rel=0.02)
    shrinking = run(forecast(Prediction.HOLT), lambda second: max(0.0, 200 - 4.0 * second), 60)
    assert shrinking == 0.0, "there is no negative demand"


def test_a_season_comes_again():
    one = forecast(Prediction.SEASONAL, season_s=30.0)
    assert run(one, on_and_off, 119) == pytest.approx(32.0, abs=4), "silent now, and in 2 s busy"
    one = forecast(Prediction.SEASONAL, season_s=30.0)
    assert run(one, on_and_off, 104) == pytest.approx(8.0, abs=4), "busy now, and in 2 s silent"


def test_a_season_is_foretold_for_the_horizon_and_not_for_later():
    """A daily job from two to four, with phases of 45 minutes and a horizon of 10 s."""
    day_s, hour_s = 86_400.0, 3600.0
    one = forecast(Prediction.SEASONAL, season_s=day_s)
    for hours, foretold in ((1.4, 0.0), (2.4, 900.0), (3.4, 900.0), (5.0, 0.0)):
        for now_s in np.arange(0.0, 2 * day_s + hours * hour_s, 300.0):
            demand = np.zeros((3, 3))
            demand[R1, R2] = 900.0 * (2 <= now_s % day_s / hour_s < 4)
            one.see(demand, now_s)
        assert one.latest_report().predicted_mbps[R1, R2] == pytest.approx(foretold, abs=300), hours
        one = forecast(Prediction.SEASONAL, season_s=day_s)


def test_seasons_are_told_with_a_smaller_error_than_what_does_not_know_them():
    shares = {}
    for prediction in Prediction:
        one = forecast(prediction, season_s=30.0)
        run(one, on_and_off, 600)
        shares[prediction] = one.latest_report().error_share
    assert shares[Prediction.SEASONAL] == min(shares.values()) < 0.2
    assert shares[Prediction.LAST] > 2 * shares[Prediction.SEASONAL]


def test_errors_are_those_of_each_pair():
    one = forecast(Prediction.LAST)
    for second in range(12):
        demand = np.zeros((3, 3))
        demand[R1, R2], demand[R1, R3] = 30.0, 50.0 if second == 0 else 10.0
        one.see(demand, float(second))
    latest_report = one.latest_report()
    # 30 as predicted; 50 predicted, and 50 for one second, 10 for nine
    assert latest_report.error_mbps[R1].tolist() == [0.0, 0.0, pytest.approx(36.0)]
    assert latest_report.error_share == pytest.approx(36 / 44)


def test_mice_are_not_foretold():
    assert run(forecast(Prediction.EWMA, elephant_mbps=5.0), lambda s: 40.0 * (s < 10), 60) == 0.0


def test_another_choice_begins_anew():
    policy = CurrentPolicy(Policy(prediction=Prediction.PEAK))
    one = Forecast(policy)
    assert run(one, lambda second: 80.0 - second, 20) == 70.0, "that of the last ten seconds"
    assert one.latest_report().error_share is not None
    policy.now = Policy(prediction=Prediction.EWMA)
    one.see(np.full((3, 3), 20.0), 1020.0)
    assert one.latest_report().predicted_mbps[R1, R2] == 20.0
    assert one.latest_report().error_share is None


def test_slots_are_planned_for_their_week():
    slotted = {"mode": Mode.PERIODIC, "sharing": Sharing.SLOTTED}
    one = forecast(Prediction.LAST, **slotted, slots=SlotPolicy(week_s=4.0))
    for second in range(6):
        one.see(np.full((3, 3), 20.0 + 4 * second), 1000.0 + second)
    assert one.latest_report().error_share is not None, "a week is over"


@given(
    st.sampled_from(list(Prediction)),
    st.lists(st.floats(0, 1e5), min_size=1, max_size=40),
    st.lists(st.floats(1e-3, 30), min_size=40, max_size=40),
)
def test_no_prediction_is_negative_or_not_a_number(prediction, demands, gaps_s):
    one, now_s = forecast(prediction, season_s=7.0), 0.0
    for mbps, gap_s in zip(demands, gaps_s, strict=False):
        now_s += gap_s
        one.see(np.full((2, 2), mbps), now_s)
    latest_report = one.latest_report()
    predicted = (
        np.full((2, 2), mbps)
        if latest_report.predicted_mbps is None
        else latest_report.predicted_mbps
    )
    assert np.isfinite(predicted).all()
    assert (predicted >= 0).all()
    assert latest_report.error_share is None or (
        math.isfinite(latest_report.error_share) and latest_report.error_share >= 0
    )


def test_steady_demand_is_foretold_by_all_of_them():
    found = [run(forecast(prediction), lambda second: 25.0, 80) for prediction in Prediction]
    assert all(one == pytest.approx(other) for one, other in pairwise(found))
