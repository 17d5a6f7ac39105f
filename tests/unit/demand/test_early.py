"""Rounds before their epoch is over: what shows, when, and how often."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hydra.demand.early import FELL, EarlyRounds, Look
from hydra.policy import CurrentPolicy, DemandBasis, EarlyRound, Mode, Policy, Sharing

POLICY = Policy(
    mode=Mode.PERIODIC,
    poll_interval_s=1.0,
    epoch_s=10.0,
    minimum_circuit_life_s=0.0,
    minimum_gain_mbps=5.0,
)
RACKS = 4
A, B = (0, 1), (0, 2)
GUESS_MBPS = 100.0


def flags(pairs):
    found = np.zeros((RACKS, RACKS), dtype=bool)
    for pair in pairs:
        found[pair] = True
    return found


class Rounds:
    """Pairs that want something, and rounds as the conductor makes them."""

    def __init__(self, **policy):
        self.policy = CurrentPolicy(replace(POLICY, **policy))
        self.early = EarlyRounds(self.policy, RACKS)
        self.changed_s = np.full((RACKS, RACKS), -math.inf)
        self.joined = ()

    def look(self, now_s, measured=(), held_back=(), unsure=(), read_s=None):
        """``measured`` are (pair, Mb/s); those that something holds back are guessed alike."""
        mbps = np.zeros((RACKS, RACKS))
        for pair, wanted in measured:
            mbps[pair] = wanted
        mbps[flags(held_back)] = GUESS_MBPS
        read = np.where(mbps > 0, now_s if read_s is None else read_s, -math.inf)
        return Look(
            mbps, flags(held_back), flags(unsure), flags(self.joined), read, self.changed_s.copy()
        )

    def due(self, *seconds, **what):
        """The moment at which a round is due after a look at each of these seconds."""
        for now_s in seconds:
            self.early.look(self.look(now_s, **what), now_s)
        return self.early.due_s

    def round(self, now_s, planning_s=0.0, **what):
        self.early.attempt(now_s)
        self.early.begin(self.look(now_s, **what), now_s)
        self.early.end(now_s + planning_s, planning_s)

    def join(self, *pairs, now_s):
        """Circuits for these pairs, and no others; all pairs of their racks are touched."""
        for pair in {*pairs, *self.joined}:
            self.changed_s[list(pair), :] = self.changed_s[:, list(pair)] = now_s
        self.joined = pairs


def test_nothing_is_due_where_nothing_is_held_back():
    assert Rounds().due(0, 1, 2, measured=[(A, 50.0)]) == math.inf


def test_a_pair_that_is_held_back_in_two_readings_brings_a_round_forward():
    rounds = Rounds()
    assert rounds.due(0, held_back=[A]) == math.inf, "one interval may be a burst's"
    assert rounds.due(1, measured=[(A, 50.0)]) == math.inf
    assert rounds.due(2, held_back=[A]) == math.inf
    assert rounds.due(3, 4, held_back=[A]) == 3.0


def test_two_looks_at_one_reading_show_no_more_than_one():
    rounds = Rounds()
    assert rounds.due(0, 0.5, 0.9, held_back=[A], read_s=0.0) == math.inf
    assert rounds.due(1, held_back=[A], read_s=1.0) == 1.0


def test_what_begins_with_it_is_given_its_second_reading_and_no_more():
    rounds = Rounds()
    assert rounds.due(0, held_back=[A]) == math.inf
    assert rounds.due(1, held_back=[A, B]) == 2.0
    assert rounds.due(1.5, held_back=[A, B]) == 1.5
    late = Rounds()
    late.due(0, held_back=[A])
    for second, newest in enumerate([(0, 2), (0, 3), (1, 2), (1, 3)], start=1):
        assert late.due(second, held_back=[A, newest]) == 2.0, "others may begin all the time"


def test_readings_that_are_late_bring_nothing_forward():
    assert Rounds().due(0, 1, 2, held_back=[A], unsure=[A]) == math.inf


def test_what_the_last_round_knew_brings_none_forward():
    rounds = Rounds()
    assert rounds.due(0, 1, held_back=[A]) == 1.0
    rounds.round(1, held_back=[A])
    assert rounds.due(2, 3, 4, held_back=[A]) == math.inf
    assert rounds.due(5, 6, held_back=[A, B]) == 6.0


def test_a_pair_that_comes_and_goes_brings_a_round_forward_once_in_an_epoch():
    rounds = Rounds()
    due = []
    for second in range(0, 24, 3):
        if rounds.due(second, second + 1, held_back=[A]) < math.inf:
            due.append(second + 1)
            rounds.round(second + 1, held_back=[A])
        rounds.round(second + 2, measured=[(A, 5.0)])  # at which nothing holds it back
    assert due == [1, 13]


def given(rounds, mbps, now_s=0.0):
    """A guess got a circuit, a change of three seconds later; then it shows what it wants."""
    rounds.round(now_s, held_back=[A, B])
    rounds.join(A, now_s=now_s + 3)
    looks = [now_s + 3 + second for second in range(7)]
    for second in looks[:2]:  # its readings are not of the circuit alone
        assert rounds.due(second, held_back=[A, B]) == math.inf
    return rounds.due(*looks[2:], measured=[(A, mbps)], held_back=[B])


def test_a_guess_that_was_wrong_brings_a_round_forward():
    assert given(Rounds(), FELL * GUESS_MBPS) == 6.0, "at the second reading of the circuit alone"


def test_a_guess_that_was_not_far_off_brings_none_forward():
    assert given(Rounds(), FELL * GUESS_MBPS + 1) == math.inf


def test_two_pairs_that_are_alike_do_not_take_turns_for_what_circuits_show():
    """Each was guessed to want more than both turn out to want."""
    rounds = Rounds()
    assert given(rounds, GUESS_MBPS / 10) == 6.0
    rounds.round(6, measured=[(A, GUESS_MBPS / 10)], held_back=[B])
    rounds.join(B, now_s=6)
    rounds.due(8, 9, measured=[(A, GUESS_MBPS / 10), (B, GUESS_MBPS / 10)])
    rounds.round(10, measured=[(A, GUESS_MBPS / 10), (B, GUESS_MBPS / 10)])
    more = [(A, GUESS_MBPS / 10), (B, GUESS_MBPS / 10 * 0.9)]
    assert rounds.due(11, 12, 13, 14, measured=more) == math.inf


def test_what_becomes_smaller_by_less_than_a_change_must_gain_is_no_news():
    rounds = Rounds(minimum_gain_mbps=60.0)
    assert given(rounds, 45.0) == math.inf
    assert given(Rounds(minimum_gain_mbps=50.0), 45.0) == 6.0


def test_a_circuit_that_may_not_go_yet_brings_none_forward():
    assert given(Rounds(minimum_circuit_life_s=4.5), 10.0) == 9.0


def test_a_circuit_that_is_used_less_brings_a_round_forward():
    rounds = Rounds()
    rounds.join(A, now_s=-20)
    rounds.round(0, measured=[(A, 90.0)])
    assert rounds.due(1, 2, 3, measured=[(A, 60.0)]) == math.inf
    assert rounds.due(4, 5, measured=[(A, 45.0)]) == 5.0


def test_readings_that_a_change_falls_into_show_nothing():
    """Its pair stood still meanwhile, and was read twice since."""
    rounds = Rounds()
    rounds.round(0, measured=[(A, 90.0)])
    rounds.join(A, now_s=3)
    assert rounds.due(3.3, 3.9, measured=[(A, 10.0)]) == math.inf
    assert rounds.due(4.1, 4.7, measured=[(A, 10.0)]) == 4.7, "these are of its circuit alone"


def test_own_changes_are_no_news():
    """The pair that has lost its circuit is held back, and one that shares an uplink with it."""
    rounds = Rounds()
    rounds.join(A, now_s=-20)
    rounds.round(0, measured=[(A, 60.0), ((0, 3), 2.0)], held_back=[B])
    rounds.join(B, now_s=0.5)
    what = {"measured": [(B, 90.0)], "held_back": [A, (0, 3)]}
    assert rounds.due(1, 1.6, 2.2, **what) == math.inf
    assert rounds.due(3, 4, 5, 6, **what) == math.inf
    what["held_back"] += [(1, 2)]
    assert rounds.due(7, 8, **what) == 8.0, "that is of somebody else"


def test_a_change_that_did_not_come_about_brings_none_forward():
    """A plane that fails: what was planned for it is held back as it was."""
    rounds = Rounds()
    rounds.round(0, held_back=[A])
    assert rounds.due(*range(1, 12), held_back=[A]) == math.inf
    rounds.join(A, now_s=-20)
    rounds.round(12, measured=[(A, 60.0)], held_back=[B])
    rounds.join(now_s=13)  # A's has gone, B's has not come
    assert rounds.due(*range(14, 22), held_back=[A, B]) == math.inf


def test_how_long_a_change_took_puts_nothing_off():
    """Planning took 0.2 s, the change half a minute."""
    rounds = Rounds()
    rounds.early.attempt(0.0)
    rounds.early.begin(rounds.look(0.0), 0.0)
    rounds.early.end(30.0, 0.2)
    assert rounds.due(30, 31, held_back=[A]) == 32.0, "two readings after the last round"


def test_planning_that_takes_long_leaves_time_for_others():
    rounds = Rounds()
    rounds.round(0, planning_s=0.5)
    assert rounds.due(0, 1, held_back=[A]) == 5.5


def test_a_round_that_breaks_off_is_not_tried_again_before_its_epoch_is_over():
    """What was shown is due once more, and not at once."""
    rounds = Rounds()
    assert rounds.due(0, 1, held_back=[A]) == 1.0
    rounds.early.attempt(1.0)
    assert rounds.due(2, 3, held_back=[A]) == 11.0


def test_what_was_shown_stays_shown_until_a_round_goes_by_it():
    rounds = Rounds()
    assert rounds.due(0, 1, held_back=[A]) == 1.0
    assert rounds.due(*range(2, 60), held_back=[A]) == 1.0
    rounds.round(60, held_back=[A])
    assert rounds.early.due_s == math.inf


@pytest.mark.parametrize(
    "policy",
    [
        {"early_rounds": EarlyRound.OFF},
        {"mode": Mode.ON_REQUEST},
        {"sharing": Sharing.UNDIFFERENTIATED},
        {"sharing": Sharing.DIFFERENTIATED},
        {"sharing": Sharing.SLOTTED},
        {"demand": DemandBasis.RATE},
        {"demand": DemandBasis.BACKLOG},
    ],
    ids=str,
)
def test_where_none_comes_early_until_the_policy_is_another(policy):
    rounds = Rounds(**policy)
    assert rounds.due(0, 1, held_back=[A]) == math.inf
    rounds.policy.now = POLICY
    assert rounds.early.due_s == 1.0
