"""Outages and their causes."""

from __future__ import annotations

import pytest

from mininet_scenarios.chaos.harness import REST_S, Blow
from mininet_scenarios.chaos.pairs import Outage


@pytest.mark.parametrize(
    ("lost", "from_s", "to_s", "silent_s"),
    [
        (10, 5.0, 6.1, 1.1),
        (1, 5.0, 9.0, 0.2),  # the sender stood still; one datagram was lost
        (2, 5.0, 5.25, 0.25),
    ],
)
def test_silence_is_time_in_which_what_was_sent_was_lost(lost, from_s, to_s, silent_s):
    assert Outage("h11", "h21", 4, lost, from_s, to_s).silent_s == pytest.approx(silent_s)


@pytest.mark.parametrize(
    ("from_s", "to_s", "near"),
    [
        (8.0, 9.0, False),
        (8.0, 9.9, True),  # lost on its way at the time of the fault
        (12.0, 13.0, True),
        (12.0, 15.0 + REST_S - 0.1, True),
        (12.0, 15.0 + REST_S + 0.1, False),  # the fault should have been over
    ],
)
def test_a_fault_answers_for_what_ends_soon_after_it(from_s, to_s, near):
    blow = Blow(None, "x", 0.0, 0.0, from_s=10.0, to_s=15.0)
    assert blow.concerns(Outage("h11", "h21", 6, 1, from_s, to_s), 15.0 + REST_S) is near
