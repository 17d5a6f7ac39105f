"""When an agent reports, and what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.backlog import ReportRule

RULE = ReportRule(above_mb=1.0, change_mb=1.0)
MB = 1_000_000


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        ({}, {}),
        ({"r2": MB}, {}),
        ({"r2": MB + 1}, {"r2": 1.0}),
        ({"r2": 12_345_678, "r3": 999_999}, {"r2": 12.3}),
    ],
)
def test_only_what_is_above_the_threshold(waiting, told):
    assert RULE.worth_telling(waiting) == told


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ({}, {}, False),
        ({}, {"r2": 1.0}, False),
        ({}, {"r2": 1.1}, True),
        ({"r2": 5.0}, {"r2": 6.0}, False),
        ({"r2": 5.0}, {"r2": 6.1}, True),
        ({"r2": 5.0}, {"r2": 3.9}, True),
        ({"r2": 5.0}, {}, True),
        ({"r2": 5.0}, {"r3": 5.0}, True),
    ],
)
def test_changes_of_more_than_a_megabyte(before, now, changed):
    assert RULE.has_changed(before, now) is changed


waiting = st.dictionaries(st.sampled_from(["r1", "r2", "r3"]), st.integers(0, 2**32))


@given(told=waiting, now=waiting)
def test_what_was_told_is_never_off_by_more_than_the_thresholds(told, now):
    """So a controller that hears only changes knows every backlog to two megabytes."""
    before, after = RULE.worth_telling(told), RULE.worth_telling(now)
    if not RULE.has_changed(before, after):
        for rack in ("r1", "r2", "r3"):
            assert abs(before.get(rack, 0) - now.get(rack, 0) / MB) <= 2.1
