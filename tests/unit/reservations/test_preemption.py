"""Higher priorities displace lower priorities: with notice, and no more of them than necessary."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.controller.record.ledger import Ledger
from hydra.errors import AdmissionError, QuotaExceeded
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.booking import Booking
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Quota
from hydra.reservations.reservation import HOLDING_STATES, ReservationRequest, ServiceClass
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import reread

from .test_calendar import over_committed


def request(mbps, priority=0, dst="r2", **more):
    return ReservationRequest("r1", dst, mbps, priority=priority, **more)


def test_what_fits_disturbs_nobody(fabric):
    book = ReservationBook(fabric)
    kept = book.add("a", request(60.0), 0.0)
    book.add("b", request(40.0, 9), 0.0)
    assert book.get("a") == kept
    assert book.displaced("b") == ()


def test_the_running_keep_their_circuits_until_the_notice_is_over(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(60.0), 0.0)
    book.transition("a", State.ACTIVE)
    new = book.add("b", request(80.0, 5, duration_s=100.0), 10.0, notice_s=30.0)
    assert (new.state, new.starts_unix_s, new.expires_unix_s) == (State.SCHEDULED, 40.0, 140.0)
    (old,) = book.displaced("b")
    assert (old.state, old.expires_unix_s, old.preempted_by) == (State.ACTIVE, 40.0, "b")
    assert "gives way to a reservation of priority 5" in old.reason
    assert book.expired(39.0) == ()
    assert book.expired(40.0) == ("a",)
    book.transition("a", State.PREEMPTED)
    assert book.due(40.0) == ("b",)
    again = reread(book, fabric)
    assert list(again) == list(book)


def test_what_has_not_begun_goes_at_once(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(60.0, start_unix_s=100.0), 0.0)
    book.add("h", request(30.0, start_unix_s=100.0, hold_s=50.0), 0.0)
    new = book.add("b", request(100.0, 1, start_unix_s=150.0), 0.0)
    assert new.starts_unix_s == 150.0
    assert {one.id: one.state for one in book.displaced("b")} == {
        "a": State.PREEMPTED,
        "h": State.PREEMPTED,
    }


def test_no_more_give_way_than_it_takes_and_the_lowest_first(fabric):
    book = ReservationBook(fabric)
    for name, mbps, priority in (("low", 30.0, 1), ("mid", 40.0, 2), ("high", 30.0, 3)):
        book.add(name, request(mbps, priority), 0.0)
    book.add("new", request(20.0, 4), 0.0)
    assert [one.id for one in book.displaced("new")] == ["low"]


def test_equals_do_not_give_way(fabric):
    book = ReservationBook(fabric)
    before = book.add("a", request(80.0, 3), 0.0)
    with pytest.raises(AdmissionError, match="by a"):
        book.add("b", request(80.0, 3), 0.0)
    assert book.get("a") == before


def test_a_hold_makes_nobody_give_way(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(80.0), 0.0)
    with pytest.raises(AdmissionError):
        book.add("b", request(80.0, 9, hold_s=10.0), 0.0)


def test_what_is_taken_back_leaves_no_trace(fabric):
    """A dry run, or a group with another member refused."""
    book = ReservationBook(fabric)
    book.add("a", request(60.0), 0.0)
    book.add("s", request(40.0, start_unix_s=500.0), 0.0)
    before = list(book)
    book.add("b", request(80.0, 5), 10.0, notice_s=30.0)
    book.remove("b")
    assert list(book) == before
    assert book.expired(1000.0) == ()
    with pytest.raises(AdmissionError):
        book.add("c", request(80.0), 100.0)


def test_a_tenant_has_the_priority_of_its_quota(fabric):
    mine = {"owner": "tina", "quota": Quota(max_priority=3)}
    book = ReservationBook(fabric)
    book.add("a", request(80.0), 0.0)
    with pytest.raises(QuotaExceeded, match="priority 4 exceeds the quota of 3"):
        book.add("b", request(80.0, 4, **mine), 0.0)
    assert book.add("b", request(80.0, 3, **mine), 0.0).state is State.SCHEDULED


def test_the_journal_has_both_or_neither_and_both_are_told_of(fabric, tmp_path):
    path = str(tmp_path / "journal.db")
    ledger = Ledger(fabric=fabric, journal=SqliteJournal(path))
    old = ledger.bookings.add(request(80.0), AdmissionLimits())
    ledger.reservations.keep([old])
    ledger.reservations.change(old.id, State.ACTIVE)
    with ledger.bookings.trial():
        dry = ledger.bookings.add(request(80.0, 1), AdmissionLimits())
        assert ledger.bookings.get(old.id).preempted_by == dry.id
    assert ledger.bookings.get(old.id).preempted_by is None
    told = ledger.events.last
    new = ledger.bookings.add(request(80.0, 1), AdmissionLimits())
    ledger.reservations.keep([new])
    events, _ = ledger.events.after(told)
    assert [event.reservation.id for event in events] == [old.id, new.id]
    assert "gives way" in events[0].reason
    ledger.close()
    again = Ledger(fabric=fabric, journal=SqliteJournal(path))
    again.load()
    assert again.bookings.get(old.id).preempted_by == new.id
    assert again.bookings.get(old.id).expires_unix_s == again.bookings.get(new.id).starts_unix_s
    again.close()


def test_one_that_comes_up_is_still_said_to_give_way(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(60.0), 0.0)
    book.add("b", request(80.0, 5), 10.0)
    old = book.transition("a", State.ACTIVE)
    assert "gives way to a reservation of priority 5" in old.reason
    assert book.transition("a", State.RELEASING, "asked for").reason == "asked for"


@pytest.fixture
def yielding(fabric):
    """a is active until 500 s, and is displaced by b at 100 s; c has no end, and is displaced by no
    reservation.
    """
    book = ReservationBook(fabric)
    book.add("a", request(60.0, duration_s=500.0), 0.0)
    book.add("c", ReservationRequest("r3", "r4", 50.0), 0.0)
    for name in "ac":
        book.transition(name, State.ACTIVE)
    book.add("b", request(80.0, 5, start_unix_s=100.0, duration_s=100.0), 10.0)
    book.settle("b")
    assert book.get("a").expires_unix_s == 100.0
    return book


@pytest.mark.parametrize("state", [State.CANCELLED, State.FAILED, State.EXPIRED])
def test_it_stays_if_what_it_gives_way_to_does_not_begin(yielding, fabric, state):
    assert yielding.let_stay("b", 20.0) == ()
    yielding.transition("b", state)
    (old,) = yielding.let_stay("b", 20.0)
    assert old == yielding.get("a")
    assert (old.state, old.expires_unix_s, old.preempted_by) == (State.ACTIVE, 500.0, None)
    assert old.reason == ""
    assert yielding.expired(499.0) == ()
    assert yielding.expired(500.0) == ("a",)
    assert yielding.modify("a", Modification(10.0), 30.0).bandwidth_mbps == 10.0
    assert yielding.let_stay("b", 20.0) == ()
    assert list(reread(yielding, fabric)) == list(yielding)


def test_it_goes_all_the_same_if_somebody_else_has_its_circuits_then(yielding, fabric):
    yielding.add("d", request(70.0, start_unix_s=300.0), 20.0)
    yielding.transition("b", State.CANCELLED)
    assert yielding.let_stay("b", 30.0) == ()
    old = yielding.get("a")
    assert (old.expires_unix_s, old.preempted_by) == (100.0, "b")
    assert over_committed(fabric, [booking(one) for one in yielding if one.is_booked]) == ""


def play(fabric, seed):
    """A book in random use, checked after each step."""
    chance = random.Random(seed)
    book = ReservationBook(fabric)
    for now in range(25):
        for one in book.expired(float(now)):
            over = State.PREEMPTED if book.get(one).preempted_by else State.EXPIRED
            book.transition(one, over)
        for one in book.due(float(now)):
            book.transition(one, State.ACTIVATING)
        ahead = [one.id for one in book if one.state is State.SCHEDULED]
        if ahead and chance.random() < 0.3:
            over = chance.choice(ahead)
            book.transition(over, State.CANCELLED)
            for one in book.let_stay(over, float(now)):
                assert one.duration_s is None or one.expires_unix_s > now
        src, dst = chance.sample(["r1", "r2", "r3", "r4"], 2)
        asked = ReservationRequest(
            src,
            dst,
            chance.choice([20.0, 50.0, 90.0]),
            duration_s=chance.choice([None, 3.0, 8.0]),
            start_unix_s=chance.choice([None, now + 4.0]),
            priority=chance.randrange(4),
        )
        before = {one.id: one for one in book}
        try:
            new = book.add(f"n{now}", asked, float(now), notice_s=2.0)
        except AdmissionError:
            assert {one.id: one for one in book} == before
            continue
        check_displaced(book, before, new, earliest=now + 2.0)
        if chance.random() < 0.2:
            book.remove(new.id)
            assert {one.id: one for one in book} == before
        else:
            book.settle(new.id)
        assert over_committed(fabric, [booking(one) for one in book if one.is_booked]) == ""


def check_displaced(book, before, new, earliest):
    for one in book.displaced(new.id):
        old = before[one.id]
        assert old.priority < new.priority
        if old.state in HOLDING_STATES:
            assert one.expires_unix_s == new.starts_unix_s >= earliest
        else:
            assert one.state is State.PREEMPTED


def booking(one):
    end = math.inf if one.expires_unix_s is None else one.expires_unix_s
    own = one.service is ServiceClass.GUARANTEED
    mbps = one.promised_mbps
    servers = frozenset(name for name in (one.src, one.dst) if name.startswith("h"))
    return Booking(one.id, one.booked, mbps, one.starts_unix_s, end, servers, own)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_promised_twice_and_no_equal_gives_way(fabric, seed):
    play(fabric, seed)
