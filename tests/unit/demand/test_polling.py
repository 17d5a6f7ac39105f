import math
from itertools import chain

import pytest

from hydra.demand.polling import PollSchedule
from hydra.model import DatapathId


def schedule(count=4, interval_s=1.0, timeout_s=0.5, window=100):  # timed: on the test's clock
    made = PollSchedule(
        tuple(DatapathId(number) for number in range(count)), interval_s, timeout_s, window
    )
    made.start(10.0)
    return made


def run(polls, until_s, answers_in_s):
    """(Time, switch) of every request; ``answers_in_s``: delay of each reply."""
    now_s, asked, under_way = 10.0, [], []
    while now_s <= until_s:
        for at_s, switch in [one for one in under_way if one[0] <= now_s]:
            under_way.remove((at_s, switch))
            polls.settled(switch)
        polls.overdue(now_s)
        for switch in polls.due(now_s):
            asked.append((round(now_s, 6), switch))
            under_way.append((now_s + answers_in_s(switch), switch))
        now_s += min([polls.next_s(now_s), *(at_s - now_s for at_s, _ in under_way)]) + 1e-9
    return asked


def test_questions_are_spread_evenly_and_keep_their_moments():
    asked = run(schedule(), 11.99, lambda _: 0.01)
    assert asked == [(pytest.approx(10 + n / 4, abs=1e-6), n % 4) for n in range(8)]


def test_ten_thousand_switches_are_asked_once_an_interval_without_a_burst():
    polls = schedule(10_000, interval_s=5.0, window=10_000)
    batches = []
    for tick in range(1000):
        batches.append(polls.due(10 + tick * 0.01))
        for switch in batches[-1]:
            polls.settled(switch)
    assert max(map(len, batches)) <= 21
    assert list(chain(*batches))[:10_000] == list(range(10_000))
    assert polls.missed == 0


def test_one_that_does_not_answer_is_asked_again_after_its_time_is_up():
    # timed: on the test's clock
    asked = run(schedule(timeout_s=0.5), 13.9, lambda switch: math.inf if switch == 1 else 0.01)
    assert [at_s for at_s, switch in asked if switch == 1] == pytest.approx(
        [10.25, 11.25, 12.25, 13.25], abs=1e-6
    )


def test_one_whose_answer_takes_longer_than_an_interval_misses_moments():
    polls = schedule(timeout_s=9.0)  # timed: on the test's clock
    asked = run(polls, 13.9, lambda switch: 1.5 if switch == 1 else 0.01)
    assert [round(at_s, 2) for at_s, switch in asked if switch == 1] == [10.25, 12.25]
    assert polls.missed == 2


def test_no_more_are_asked_at_once_than_there_are_places():
    polls = schedule(10, window=3)
    assert polls.due(10.95) == [0, 1, 2]
    assert polls.due(10.95) == []
    polls.settled(DatapathId(1))
    assert polls.due(10.95) == [3]
    assert polls.next_s(10.95) == pytest.approx(0.5)
    assert polls.overdue(11.45) == [0, 2, 3]
    assert polls.due(11.45) == [4, 5, 6]


def test_after_a_pause_nothing_is_asked_twice():
    polls = schedule(4)
    assert sorted(polls.due(60.0)) == [0, 1, 2, 3]
    assert polls.missed == 197
    assert polls.next_s(60.0) == pytest.approx(0.25)


def test_without_switches_there_is_nothing_to_wait_for():
    polls = schedule(0)
    assert polls.due(10.0) == []
    assert polls.next_s(10.0) == math.inf


@pytest.mark.parametrize("wrong", [{"interval_s": 0}, {"timeout_s": -1.0}, {"window": 0}])
def test_what_can_not_be_kept_is_refused(wrong):
    with pytest.raises(ValueError, match="must be positive"):
        schedule(**wrong)
