"""Entries of a window, compared with a full scan."""

from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from hydra.reservations.interval_index import IntervalIndex


@dataclass(frozen=True)
class Span:
    key: str
    start_unix_s: float
    end_unix_s: float


moments = st.integers(0, 30).map(float)
lengths = st.integers(1, 12).map(float) | st.just(inf)
steps = st.lists(
    st.tuples(moments, lengths) | st.integers(0, 40), max_size=80
)  # a new entry, or the number of an entry to remove


@given(steps=steps, start=moments, length=lengths)
def test_whatever_meets_a_window_is_found(steps, start, length):
    index, present = IntervalIndex(), {}
    for number, step in enumerate(steps):
        if isinstance(step, int):
            if present.pop(str(step), None) is not None:
                index.remove(str(step))
        else:
            span = Span(str(number), step[0], step[0] + step[1])
            index.add(span)
            present[span.key] = span
    assert list(index) == list(present.values())
    end = start + length
    meeting = {one for one in present.values() if one.start_unix_s < end and start < one.end_unix_s}
    found = index.meeting(start, end)
    assert set(found) == meeting
    assert len(found) == len(meeting)
    assert index.meeting(start, start) == []


def test_among_many_what_ends_as_a_window_begins_is_outside():
    index = IntervalIndex()
    for number in range(40):
        index.add(Span(str(number), float(number), number + 1.0))
    assert {one.key for one in index.meeting(10.0, 12.0)} == {"10", "11"}
