"""Admission with all features, on random books, compared with a referee.

``python -m benchmarks.calendars`` plays 100,000 books.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydra.reservations import book, calendar, modification, preemption

from .random_books import Play

pytestmark = pytest.mark.takes(20)

STEPS = 16


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_asked_for_is_granted_just_where_it_fits(seed):
    Play(seed).run(STEPS)


def test_in_random_books_everything_happens():
    counts = sum((Play(seed).run(STEPS) for seed in range(60)), Counter())
    least = {"admitted": 500, "refused": 200, "alternatives": 80, "given way": 40, "series": 20}
    least |= {"changed": 30, "unchanged": 5, "rerouted": 20}
    assert {name: counts[name] for name in least if counts[name] < least[name]} == {}


@pytest.mark.parametrize(
    ("where", "name", "instead", "words"),
    [
        (calendar.Window, "load_mbps", lambda *_: 0.0, "admitted what does not fit"),
        (calendar.Window, "_onward", lambda *_: (), "refused what fits"),
        (calendar.Window, "bound_paths", lambda *_: frozenset(), "admitted what does not fit"),
        (calendar.Window, "has_all_paths", lambda *_: False, "admitted what does not fit"),
        (
            calendar.Window,
            "bound_paths",
            lambda self, pair, _need: self.booked_paths(pair),
            "refused what fits",
        ),
        (preemption, "takes", lambda *_: False, "need not have given way"),
        (modification, "takes", lambda *_: True, "changed what does not fit"),
        (book, "lower_ranks", lambda *_: [], "refused what fits"),
    ],
)
def test_a_referee_that_can_object(monkeypatch, where, name, instead, words):
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError, match=words):
        for seed in range(200):
            _play_until(words, seed)


def _play_until(words, seed):
    """Raises AssertionError only if the referee objects in these words."""
    try:
        Play(seed).run(STEPS)
    except AssertionError as error:
        if words in str(error):
            raise
