"""Lines of history: their order, their pages, and the lines not yet in the journal."""

import pytest

from hydra.history import Happening, HappeningKind, History

KIND = HappeningKind.QUARANTINE


@pytest.fixture
def history():
    history = History()
    for second in range(5):
        history.add(100.0 + second, KIND, f"line {second}", [("r1", f"r{second + 2}")])
    return history


def texts(lines):
    return [line.text for line in lines]


def test_the_newest_come_first_and_times_bound_them(history):
    assert texts(history.between(most=2)) == ["line 4", "line 3"]
    assert texts(history.between(101.0, 103.0)) == ["line 2", "line 1"]
    assert history.between(kinds=[HappeningKind.POLICY]) == ()


def test_lines_of_one_moment_are_on_one_page_or_another_and_on_none_twice():
    history = History()
    for number in range(7):
        history.add(100.0, KIND, str(number))
    seen, before_s = [], float("inf")
    while page := history.between(before_unix_s=before_s, most=3):
        seen += texts(page)
        before_s = page[-1].unix_s
    assert seen == ["6", "5", "4", "3", "2", "1", "0"]


def test_no_page_leaves_out_a_line_after_the_clock_was_set_back(history):
    for number in range(3):
        history.add(50.0 + number, KIND, f"set back {number}")
    seen, before_s = [], float("inf")
    while page := history.between(before_unix_s=before_s, most=2):
        seen += texts(page)
        before_s = page[-1].unix_s
    assert sorted(seen) == sorted(
        [f"line {n}" for n in range(5)] + [f"set back {n}" for n in range(3)]
    )


def test_two_racks_have_a_history_of_their_own_whichever_is_named_first(history):
    assert texts(history.concerning("r3", "r1", 9)) == ["line 1"]


def test_what_is_much_is_written_by_and_by(history):
    for number in range(1200):
        history.add(200.0 + number, KIND, str(number))
    sizes = []
    while lines := history.unwritten:
        sizes.append(len(lines))
        history.written(lines)
    assert sum(sizes) == 1205
    assert max(sizes) < 1000


def test_what_was_written_is_read_back_and_not_written_again(history):
    records = [change.record for change in history.unwritten]
    again = History(map(Happening.from_record, records))
    assert again.between() == history.between()
    assert again.unwritten == []
    history.written(history.unwritten[:5])
    history.add(200.0, KIND, "new")
    assert [change.record["text"] for change in history.unwritten] == ["new"]
