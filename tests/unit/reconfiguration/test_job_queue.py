"""The order of turns: urgent jobs, due duties, one job a round; no turn lasts for ever."""

import pytest

from hydra.reconfiguration.job_queue import MOST_URGENT, Duty, JobQueue


class Thread:
    """Does turns; time passes only during duties and jobs with a duration."""

    def __init__(self):
        self.queue, self.now_s, self.done = JobQueue(), 100.0, []

    def duty(self, name, every_s, *, at_once=False, takes_s=0.0):
        def act():
            self.done.append((name, self.now_s))
            self.now_s += takes_s

        last_s = float("-inf") if at_once else self.now_s
        self.queue.add_duty(Duty(stage=name, action=act, every_s=every_s, last_s=last_s))
        return self.queue._duties[-1]

    def put(self, name, *, first=False, then=()):
        def do():
            self.done.append(name)
            for other in then:
                self.put(other, first=True)

        self.queue.put(do, first=first)

    def turns(self, *times):
        """Whatever is to do at these times."""
        for now_s in times or (self.now_s,):
            self.now_s = now_s
            while (turn := self.queue.next(self.now_s)) is not None:
                turn.job()
                self.queue.over(turn, self.now_s)


@pytest.fixture
def thread():
    return Thread()


def test_a_duty_comes_once_a_period_and_at_once_if_asked(thread):
    thread.duty("a", lambda: 2.0, at_once=True)
    thread.duty("b", lambda: 2.0)
    thread.turns(100.0, 101.0, 102.0, 103.9, 104.1, 105.0)
    assert thread.done == [("a", 100.0), ("a", 102.0), ("b", 102.0), ("a", 104.1), ("b", 104.1)]


def test_one_that_takes_longer_than_its_period_leaves_time_for_others(thread):
    thread.duty("slow", lambda: 2.0, at_once=True, takes_s=5.0)
    thread.turns(100.0)
    thread.turns(105.0, 106.9, 107.0)
    assert thread.done == [("slow", 100.0), ("slow", 107.0)]


def test_one_that_is_off_begins_a_period_after_it_is_on(thread):
    period = [None]
    thread.duty("a", lambda: period[0])
    thread.turns(100.0, 110.0)
    period[0] = 5.0
    thread.turns(112.0, 114.9, 115.0)
    assert thread.done == [("a", 115.0)]


def test_a_part_of_a_duty_is_due_once_a_period_and_the_duty_itself_no_later(thread):
    period = [10.0]
    duty = thread.duty("all", lambda: period[0])
    due = []
    for now_s in (105.0, 110.0, 112.0, 119.9, 121.0):
        if thread.queue.part_is_due(duty, now_s):
            duty.in_part_s = now_s
            due.append(now_s)
    assert due == [110.0, 121.0]
    thread.turns(122.0)
    assert thread.done == [("all", 122.0)]
    assert not thread.queue.part_is_due(duty, 123.0)
    period[0] = None
    assert not thread.queue.part_is_due(duty, 200.0)


def test_without_duties_jobs_go_on_and_no_part_is_due(thread):
    duty = thread.duty("a", lambda: 1.0, at_once=True)
    thread.queue.end_duties()
    thread.put("job")
    thread.turns(105.0)
    assert thread.done == ["job"]
    assert not thread.queue.part_is_due(duty, 105.0)


def test_each_round_has_a_turn_for_every_duty_and_one_job(thread):
    thread.duty("a", lambda: 0.0, at_once=True, takes_s=1.0)
    for name in ("one", "two"):
        thread.put(name)
    for _ in range(5):
        turn = thread.queue.next(thread.now_s)
        turn.job()
        thread.queue.over(turn, thread.now_s)
    assert thread.done == [("a", 100.0), "one", ("a", 101.0), "two", ("a", 102.0)]


def test_a_job_put_while_nothing_is_due_comes_before_the_next_round(thread):
    thread.duty("a", lambda: 2.0, at_once=True)
    thread.turns(100.0)
    thread.put("job")
    thread.turns(102.0)
    assert thread.done == [("a", 100.0), "job", ("a", 102.0)]


def test_each_round_without_a_job_ends_in_a_rest(thread):
    thread.duty("always due", lambda: 0.0, at_once=True)
    thread.turns(100.0, 100.0)
    assert thread.done == [("always due", 100.0)] * 2


def test_urgent_jobs_that_never_end_leave_turns_to_others(thread):
    def again():
        thread.done.append("urgent")
        thread.queue.put_once(again, first=True)

    thread.put("asked")
    thread.queue.put_once(again, first=True)
    for _ in range(MOST_URGENT + 2):
        thread.queue.next(thread.now_s).job()
    assert thread.done == ["urgent"] * MOST_URGENT + ["asked", "urgent"]


def test_what_was_put_before_the_end_is_done_and_urgent_jobs_too(thread):
    thread.put("asked", then=[f"urgent {number}" for number in range(MOST_URGENT + 1)])
    thread.queue.close()
    thread.put("too late")
    thread.turns()
    assert thread.queue.closed
    assert thread.done == ["asked", *(f"urgent {number}" for number in range(MOST_URGENT + 1))]


def test_parts_are_done_once_and_not_after_their_jobs(thread):
    def part():
        """Never called here."""

    thread.queue.put(lambda: None, first=True, meanwhile=part)
    thread.queue.put(lambda: None, first=True, meanwhile=part)
    assert thread.queue.next_part() is part
    assert thread.queue.next_part() is None
    thread.queue.put(lambda: None, first=True, meanwhile=part)
    thread.turns()
    assert thread.queue.next_part() is None


def test_a_job_that_begins_covers_its_part(thread):
    """Otherwise the conductor would send switches the rules of a switch-over twice."""

    def part():
        raise AssertionError

    thread.queue.put_once(part, first=True, meanwhile=part)
    assert thread.queue.next(0.0) is not None
    assert thread.queue.next_part() is None
    for _ in range(2):
        thread.queue.put(lambda: None, first=True, meanwhile=part)
    assert thread.queue.next(0.0) is not None
    assert thread.queue.next_part() is part, "the part of the other job"
