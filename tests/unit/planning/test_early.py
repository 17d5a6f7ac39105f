"""Rounds before their epoch is over: what shows, when, and how often."""

import math
from dataclasses import replace

import numpy as np
import pytest

from apps.planning.early import EarlyRounds
from hydra.policy import CurrentPolicy, DemandBasis, Mode, Policy, Sharing
from hydra.service import DemandReport, DemandSource

POLICY = Policy(mode=Mode.PERIODIC, poll_interval_s=1.0, epoch_s=10.0, minimum_circuit_life_s=0.0)
NOBODY = np.zeros((4, 4))


def seen(*held_back, **more):
    """A report in which something full holds these pairs back."""
    constrained = np.zeros((4, 4), dtype=bool)
    for pair in held_back:
        constrained[pair] = True
    return DemandReport(
        DemandSource.MEASURED, NOBODY, NOBODY, 0.1, (), constrained=constrained, **more
    )


def rounds(**policy):
    return EarlyRounds(CurrentPolicy(replace(POLICY, **policy)), 4)


def looked(early, *looks, begin_s=0.0):
    """The moment at which a round is due after these looks, one a second."""
    for number, look in enumerate(looks):
        early.look(look, begin_s + number)
    return early.due_s


def test_nothing_is_due_where_nothing_is_held_back():
    assert looked(rounds(), seen(), seen(), seen()) == math.inf


def test_a_pair_that_is_held_back_at_two_looks_in_a_row_brings_a_round_forward():
    assert looked(rounds(), seen((0, 1))) == math.inf, "one interval may be a burst's"
    assert looked(rounds(), seen((0, 1)), seen(), seen((0, 1))) == math.inf
    assert looked(rounds(), seen((0, 1)), seen((0, 1))) == 1.0
    assert looked(rounds(), seen((0, 1)), seen((0, 1)), seen((0, 1))) == 1.0


def test_readings_that_are_late_bring_nothing_forward():
    late = seen((0, 1), unsure=np.ones((4, 4), dtype=bool))
    assert looked(rounds(), late, late, late) == math.inf


def test_what_the_last_round_knew_brings_none_forward():
    early = rounds()
    assert looked(early, seen((0, 1)), seen((0, 1))) == 1.0
    early.begin(seen((0, 1)), 1.0)
    early.end(1.0, 1.0)
    assert looked(early, seen((0, 1)), seen((0, 1)), begin_s=2.0) == math.inf
    more = seen((0, 1), (2, 3))
    assert looked(early, more, more, begin_s=4.0) == 5.0


def test_a_pair_that_comes_and_goes_brings_a_round_forward_once_in_an_epoch():
    early = rounds()
    due = []
    for second in range(0, 24, 3):
        if looked(early, seen((0, 1)), seen((0, 1)), begin_s=float(second)) < math.inf:
            due.append(early.due_s)
            early.begin(seen((0, 1)), due[-1])
            early.end(due[-1], due[-1])
        early.look(seen(), second + 2.0)
        early.begin(seen(), second + 2.0)  # a round at which nothing holds it back
    assert due == [1.0, 13.0]


def test_planning_that_takes_long_leaves_time_for_others():
    early = rounds()
    early.begin(seen(), 0.0)
    early.end(0.0, 0.5)
    assert looked(early, seen((0, 1)), seen((0, 1))) == 5.5


def test_circuits_that_went_to_guesses_are_looked_at_again_once_counters_tell():
    early = rounds()
    early.changed(seen((0, 1)), {(0, 1), (2, 3)}, 3.0)
    assert early.due_s == 5.0, "two polls later"
    early.begin(seen(), 4.9)
    assert early.due_s == 5.0, "a round before that does not know it yet"
    early.begin(seen(), 5.0)
    assert early.due_s == math.inf


def test_circuits_that_went_to_what_was_measured_are_not():
    early = rounds()
    early.changed(seen((0, 1)), {(2, 3)}, 3.0)
    assert early.due_s == math.inf
    early.changed(seen((3, 2)), {(2, 3)}, 3.0)
    assert early.due_s == 5.0, "one direction is enough"


def test_no_circuit_is_looked_at_again_before_it_may_be_taken_down():
    early = rounds(minimum_circuit_life_s=7.0)
    early.changed(seen((0, 1)), {(0, 1)}, 3.0)
    assert early.due_s == 10.0


@pytest.mark.parametrize(
    "policy",
    [
        {"mode": Mode.ON_REQUEST},
        {"sharing": Sharing.UNDIFFERENTIATED},
        {"sharing": Sharing.DIFFERENTIATED},
        {"sharing": Sharing.SLOTTED},
    ],
    ids=str,
)
def test_turns_and_slots_keep_their_time(policy):
    early = rounds(**policy)
    early.changed(seen((0, 1)), {(0, 1)}, -3.0)
    assert looked(early, seen((0, 1)), seen((0, 1))) == math.inf


@pytest.mark.parametrize("basis", [DemandBasis.RATE, DemandBasis.BACKLOG])
def test_plans_for_what_is_no_guess_wait_for_the_epoch(basis):
    early = rounds(demand=basis)
    held = seen((0, 1), basis=basis)
    early.changed(held, {(0, 1)}, -3.0)
    assert looked(early, held, held) == math.inf
