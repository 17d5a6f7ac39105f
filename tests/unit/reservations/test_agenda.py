"""What a moment concerns, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from hydra.reservations.agenda import Agenda

notes = st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 20))
steps = st.lists(notes | st.sampled_from("abcdef") | st.integers(0, 20), max_size=60)


@given(steps=steps)
def test_those_whose_moment_has_come_and_nobody_else(steps):
    agenda, wanted, latest = Agenda(), {}, -1
    for step in steps:
        match step:
            case (name, moment):
                agenda.note(name, moment)
                wanted[name] = moment
            case str(name):
                agenda.drop(name)
                wanted.pop(name, None)
            case now:
                latest = max(latest, now)
                due = {name for name, at in wanted.items() if at is not None and at <= now}
                reached = set(agenda.reached(now))
                assert due <= reached
                assert {wanted[name] <= latest for name in reached} <= {True}


def test_what_is_outdated_does_not_pile_up():
    agenda = Agenda()
    for moment in range(10_000):
        agenda.note("a", float(moment))
    assert len(agenda._moments) < 2000
    assert agenda.reached(9998.0) == ()
    assert agenda.reached(9999.0) == ("a",)
