import numpy as np
import pytest

from hydra.demand.elephants import ElephantWatch


def seen(watch, *rates):
    """The rates of a pair at which the pair is an elephant, in turn."""
    return [bool(watch.elephants(np.array([[0.0, rate], [0.0, 0.0]]))[0, 1]) for rate in rates]


def test_a_pair_that_falls_a_little_stays_an_elephant():
    watch = ElephantWatch(10.0, 0.8)
    assert seen(watch, 9.9, 10.0, 8.1, 8.0, 7.9, 9.9, 10.1) == [
        False,
        True,
        True,
        True,
        False,
        False,
        True,
    ]


def test_without_hysteresis_the_threshold_is_all():
    assert seen(ElephantWatch(10.0, 1.0), 10.0, 9.9, 10.0) == [True, False, True]


def test_a_rate_of_zero_is_no_elephant():
    assert seen(ElephantWatch(0.0, 0.0), 1.0, 0.0) == [True, False]


def test_rates_of_elephants_stay_as_they_are_and_mice_are_gone():
    rates = np.array([[0.0, 12.0], [3.0, 0.0]])
    found = ElephantWatch(10.0, 0.5).elephants(rates)
    assert found == pytest.approx(np.array([[0.0, 12.0], [0.0, 0.0]]))
    assert rates[1, 0] == 3.0
