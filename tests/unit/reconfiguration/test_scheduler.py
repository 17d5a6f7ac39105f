"""Simultaneous courses: their order, and their outcomes."""

from contextvars import ContextVar

import pytest

from hydra.reconfiguration.commands import Batch, Outcome, Pause
from hydra.reconfiguration.scheduler import (
    INTENT,
    Scheduler,
    carried_out,
    drive,
    others_ended,
    outcomes_of,
    performed,
)

WRITES = Batch(INTENT, ())
MOVES = Batch("move", (Pause(0.0),))
NAME = ContextVar("name", default="nobody")


async def batches(*some):
    return [await performed(one) for one in some]


def moves():
    return (yield MOVES)


class Devices:
    """Carries out the batches of courses on request of a test."""

    def __init__(self):
        self.scheduler = Scheduler()
        self.moved = []

    def begin(self, course, *, beside=False):
        running = self.scheduler.begin(course, beside=beside)
        self.moved += self.scheduler.moved()
        return running

    def answer(self, running, value=None):
        self.scheduler.outcome(running, lambda: [Outcome(value)])
        self.moved += self.scheduler.moved()

    def fail(self, running, error):
        def outcomes():
            raise error

        self.scheduler.outcome(running, outcomes)


@pytest.fixture
def devices():
    return Devices()


def test_each_goes_on_with_its_own_outcomes(devices):
    one, other = devices.begin(batches(MOVES)), devices.begin(batches(MOVES, WRITES), beside=True)
    devices.answer(other, "b")
    assert (other.batch, one.batch) == (WRITES, MOVES)
    devices.answer(one, "a")
    assert not one.over, "the other one's intent is being written"
    devices.answer(other, "c")
    assert other.over
    assert one.over
    assert [outcome.value for (outcome,) in other.result] == ["b", "c"]
    assert [outcome.value for (outcome,) in one.result] == ["a"]
    assert devices.moved == [one, other, other, other, one]


def test_no_course_goes_on_before_all_intents_are_written(devices):
    one, other = devices.begin(batches(WRITES)), devices.begin(batches(WRITES), beside=True)
    devices.answer(one)
    assert not one.over
    devices.answer(other)
    assert one.over
    assert other.over


def test_a_course_that_waits_for_others_goes_on_with_the_last_of_them(devices):
    async def first():
        await performed(MOVES)
        await others_ended()
        return "ended"

    one = devices.begin(first())
    others = [devices.begin(batches(MOVES), beside=True) for _ in range(2)]
    devices.answer(one)
    assert (one.batch, one.over) == (None, False)
    devices.answer(others[0])
    assert not one.over
    assert devices.scheduler.others
    devices.answer(others[1])
    assert one.result == "ended"
    assert not devices.scheduler.others


def test_without_others_nobody_waits():
    assert drive(others_ended(), lambda _batch: []) is None


def test_errors_reach_the_course_whose_batch_has_failed(devices):
    async def mends():
        try:
            await carried_out(moves())
        except ZeroDivisionError:
            return "mended"

    one, other = devices.begin(mends()), devices.begin(batches(MOVES), beside=True)
    devices.fail(one, ZeroDivisionError())
    devices.fail(other, ZeroDivisionError())
    assert (one.result, one.error) == ("mended", None)
    assert isinstance(other.error, ZeroDivisionError)
    assert other.over
    assert not devices.scheduler.others


def test_what_a_batch_came_to_can_be_told_to_another_course():
    async def both(outcomes):
        return (await outcomes_of(MOVES))() == outcomes

    assert drive(both(["said"]), lambda _batch: ["said"])

    def fails(_batch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(both([]), fails)


def test_each_keeps_the_context_in_which_it_was_begun(devices):
    def course():
        NAME.set(f"{NAME.get()}'s")
        yield MOVES
        return NAME.get()

    token = NAME.set("somebody")
    one = devices.begin(course())
    NAME.reset(token)
    devices.answer(one)
    assert one.result == "somebody's"
    assert NAME.get() == "nobody"


def test_a_course_that_is_closed_is_over(devices):
    ended = []

    def course():
        try:
            yield MOVES
        finally:
            ended.append(True)

    one = devices.begin(course())
    one.close()
    assert (one.over, one.batch, ended) == (True, None, [True])
    one.close()
