"""Spills: begun while circuits stay full, judged, kept, enlarged, undone."""

import numpy as np
import pytest

from hydra.sharing.spill import PairRates, Spills
from topology.estimator import CLEAR, FULL

HORIZON_S, SETTLE_S = 10.0, 3.0
PAIR = 0, 1
CIRCUIT_MBPS, FREE_MBPS = 100.0, 20.0


class Played:
    """Four racks, with a circuit for one pair; a reading per second."""

    def __init__(self):
        self.spills = Spills(4)
        self.now_s = 0.0

    def look(self, carried_mbps, sent_mbps=None, *, free=1.0, pairs=(PAIR,), times=1):
        """The spill after this number of equal readings."""
        for _ in range(times):
            sent, circuits, carried, free_mbps, free_part = np.zeros((5, 4, 4))
            for pair in pairs:
                sent[pair] = carried_mbps if sent_mbps is None else sent_mbps
                circuits[pair], carried[pair] = CIRCUIT_MBPS, carried_mbps
                free_mbps[pair], free_part[pair] = FREE_MBPS, free
            known, used = circuits > 0, carried / CIRCUIT_MBPS
            room = PairRates(
                sent,
                circuits,
                carried,
                full=known & (used >= FULL),
                slack=known & (used < CLEAR),
                fits=sent < CLEAR * circuits,
                free_mbps=free_mbps,
                free=free_part,
            )
            self.now_s += 1
            self.spills.decide(room, self.now_s, HORIZON_S, SETTLE_S)
        return dict(self.spills.parts)

    def begin(self):
        assert self.look(95.0, times=11) == {PAIR: 6}, "100 of 120 Mb/s stay: five parts of six"
        return self


@pytest.fixture
def played():
    return Played()


def test_circuits_have_to_be_full_for_the_whole_horizon(played):
    assert not played.look(95.0, times=10)
    assert not played.look(60.0)
    assert not played.look(95.0, times=10)
    assert played.look(95.0) == {PAIR: 6}
    assert played.spills.shares()[PAIR] == pytest.approx(1 / 6)
    assert np.count_nonzero(played.spills.shares()) == 1


def test_circuits_that_come_back_have_to_be_full_for_the_whole_horizon_again(played):
    assert not played.look(95.0, times=10)
    assert not played.look(0.0, pairs=(), times=100)
    assert not played.look(95.0, times=10)
    assert played.look(95.0)


def test_a_dip_that_leaves_circuits_nearly_full_is_none(played):
    played.look(95.0, times=5)
    played.look(80.0)
    assert played.look(95.0, times=5)


def test_nothing_begins_where_others_need_the_electrical_network(played):
    assert not played.look(95.0, free=0.4, times=30)


def test_it_ends_as_soon_as_others_need_it_and_begins_a_horizon_later_at_the_soonest(played):
    played.begin()
    assert played.look(95.0, 114.0, free=0.3, times=20), "less than at the start is enough"
    assert not played.look(95.0, 114.0, free=0.2)
    assert not played.look(95.0, times=10)
    assert played.look(95.0)


def test_it_stays_as_long_as_it_brings_something(played):
    played.begin()
    assert played.look(95.0, 114.0, times=600) == {PAIR: 6}


def test_it_ends_once_everything_would_fit_on_the_circuit(played):
    played.begin()
    assert played.look(95.0, 69.0, times=10)
    assert not played.look(95.0, 69.0, times=1)


@pytest.mark.parametrize(
    ("carried_mbps", "sent_mbps"),
    [(0.0, 100.0), (10.0, 20.0), (75.0, 105.0)],
    ids=["the only flow", "the largest", "more than there is room for"],
)
def test_flows_that_were_too_large_to_spill_come_back_and_are_tried_ever_more_rarely(
    played, carried_mbps, sent_mbps
):
    played.begin()
    assert played.look(carried_mbps, sent_mbps, times=2), "readings are of before"
    assert not played.look(carried_mbps, sent_mbps)
    pauses = []
    for _ in range(4):
        began_s = played.now_s
        while not played.look(95.0, 105.0):
            assert played.now_s - began_s < 1000
        pauses.append(played.now_s - began_s)
        assert not played.look(carried_mbps, sent_mbps, times=3)
    assert pauses == [20, 30, 50, 90], "a horizon that is full after 10, 20, 40, 80 s"


def test_what_has_been_good_for_a_while_is_tried_again_soon(played):
    for _ in range(4):
        played.begin()
        played.look(95.0, 114.0, times=60)
        assert not played.look(20.0)
        played.look(20.0, times=10)


def test_a_part_of_which_hardly_anything_comes_is_made_larger(played):
    played.begin()
    assert played.look(95.0, 96.0, times=3) == {PAIR: 3}
    assert played.look(95.0, 96.0, times=3) == {PAIR: 2}
    assert played.look(95.0, 96.0, times=60) == {PAIR: 2}


def test_pairs_do_not_spill_into_each_others_room(played):
    three = (PAIR, (0, 2), (3, 1), (2, 3))
    assert played.look(95.0, 99.0, pairs=three, times=11) == {PAIR: 6, (2, 3): 6}


def test_a_pair_without_circuits_and_a_policy_without_spills_end_it(played):
    played.begin()
    assert not played.look(95.0, pairs=[(2, 3)])
    played = Played().begin()
    played.spills.decide(None, 20.0, HORIZON_S, SETTLE_S)
    assert not played.spills.parts
    assert not played.look(95.0, times=10)
