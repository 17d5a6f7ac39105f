"""Limits of requests per second for each caller, without memory of absent callers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.rest import rate
from apps.rest.rate import BURST_S, Limiter


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_a_burst_and_then_the_rate(clock):
    limiter = Limiter(2.0, clock)
    assert [limiter.wait_s("a") for _ in range(12)] == [0] * 10 + [1, 1], "2 per second, over 5 s"
    clock.now_s += 0.5
    assert [limiter.wait_s("a") for _ in range(2)] == [0, 1], "one is due each half second"
    clock.now_s += 3.0
    assert [limiter.wait_s("a") for _ in range(7)] == [0] * 6 + [1]


def test_callers_do_not_share(clock):
    limiter = Limiter(1.0, clock)
    assert [limiter.wait_s("a") for _ in range(6)][-1] == 1
    assert limiter.wait_s("b") == 0


@pytest.mark.parametrize("requests_per_s", [0.05, 0.25])
def test_a_slow_rate_says_how_long_to_wait_and_that_is_enough(clock, requests_per_s):
    limiter = Limiter(requests_per_s, clock)
    while not (wait_s := limiter.wait_s("a")):
        pass
    assert wait_s <= 1 / requests_per_s
    clock.now_s += wait_s
    assert limiter.wait_s("a") == 0


def test_being_refused_does_not_prolong_it(clock):
    limiter = Limiter(1.0, clock)
    for _ in range(1000):
        limiter.wait_s("a")
    clock.now_s += 1.0
    assert limiter.wait_s("a") == 0


def test_who_went_away_is_forgotten(clock):
    limiter = Limiter(100.0, clock)
    for number in range(500):
        limiter.wait_s(f"address {number}")
    assert len(limiter) == 500
    clock.now_s += BURST_S
    for _ in range(300):
        limiter.wait_s("the one that stays")
    assert len(limiter) == 1


def test_no_number_of_addresses_makes_it_grow(clock, monkeypatch):
    monkeypatch.setattr(rate, "_MOST_KEYS", 50)
    limiter = Limiter(0.01, clock)
    for number in range(1000):
        limiter.wait_s(f"address {number}")
    assert len(limiter) <= 51


@given(
    st.floats(0.1, 50.0),
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=200),
)
def test_in_no_time_more_than_its_rate_and_one_burst(requests_per_s, pauses_s):
    clock = Clock()
    limiter = Limiter(requests_per_s, clock)
    let_in_s: list[float] = []
    for pause_s in pauses_s:
        clock.now_s += pause_s
        if not limiter.wait_s("a"):
            let_in_s.append(clock.now_s)
    burst = max(1, -(-requests_per_s * BURST_S // 1))
    for first, start_s in enumerate(let_in_s):
        for last in range(first, len(let_in_s)):
            allowed = burst + (let_in_s[last] - start_s) * requests_per_s
            assert last - first + 1 <= allowed + 1e-3
