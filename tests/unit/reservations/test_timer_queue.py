"""Names due at a moment, and no other names."""

from hypothesis import given
from hypothesis import strategies as st

from hydra.reservations.timer_queue import TimerQueue

notes = st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 20))
steps = st.lists(notes | st.sampled_from("abcdef") | st.integers(0, 20), max_size=60)


@given(steps=steps)
def test_those_whose_moment_has_come_and_nobody_else(steps):
    timers, wanted, latest = TimerQueue(), {}, -1
    for step in steps:
        match step:
            case (name, moment):
                timers.note(name, moment)
                wanted[name] = moment
            case str(name):
                timers.drop(name)
                wanted.pop(name, None)
            case now:
                latest = max(latest, now)
                due = {name for name, at in wanted.items() if at is not None and at <= now}
                reached = set(timers.reached(now))
                assert due <= reached
                assert {wanted[name] <= latest for name in reached} <= {True}


def test_what_is_outdated_does_not_pile_up():
    timers = TimerQueue()
    for moment in range(10_000):
        timers.note("a", float(moment))
    assert len(timers._moments) < 2000
    assert timers.reached(9998.0) == ()
    assert timers.reached(9999.0) == ("a",)
