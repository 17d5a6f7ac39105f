"""Times and contents of an agent's reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.demand.backlog import ConnectionKey, ConnectionWatch, ReportRule, Sending

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
    assert RULE.worth_reporting(waiting) == told


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
    """So a controller that gets only changes knows every backlog to two megabytes."""
    before, after = RULE.worth_reporting(told), RULE.worth_reporting(now)
    if not RULE.has_changed(before, after):
        for rack in ("r1", "r2", "r3"):
            assert abs(before.get(rack, 0) - now.get(rack, 0) / MB) <= 2.1


FLOW, OTHER = ConnectionKey(bytes(4), 1, 2), ConnectionKey(bytes(4), 3, 2)


def test_a_connection_is_an_elephant_by_its_bytes_until_it_has_rested():
    watch = ConnectionWatch(above_bytes=10 * MB, idle_s=2.0)
    assert watch.elephants({FLOW: Sending(6 * MB, 3 * MB)}, 0.0) == set()
    assert watch.elephants({FLOW: Sending(6 * MB, 4 * MB), OTHER: Sending(5, 5)}, 1.0) == {FLOW}
    assert watch.elephants({FLOW: Sending(1, 0)}, 2.0) == {FLOW}, "it still sends"
    assert watch.elephants({}, 4.0) == {FLOW}, "it may have more in a moment"
    assert watch.elephants({}, 4.1) == set()
    assert watch.elephants({FLOW: Sending(1, 0)}, 5.0) == set(), "a new one with the same ports"


def test_small_ones_never_are_however_many():
    watch = ConnectionWatch(above_bytes=10 * MB, idle_s=2.0)
    mice = {ConnectionKey(bytes(4), port, 2): Sending(MB, 8 * MB) for port in range(1000)}
    assert watch.elephants(mice, 0.0) == set()
