"""Changes of promises: in service, without an interruption or not at all."""

import random
from contextlib import suppress

import pytest

from apps.controller.record.ledger import Ledger
from hydra.errors import (
    AdmissionError,
    Changed,
    LifecycleError,
    NotHitless,
    QuotaExceeded,
    WrongRequest,
)
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Quota
from hydra.reservations.reservation import ReservationRequest, ServiceClass
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import small_fabric

from .test_calendar import over_committed
from .test_preemption import booking

NOW = 10.0


def request(mbps=40.0, src="h11", dst="h21", **more):
    return ReservationRequest(src, dst, mbps, **more)


@pytest.fixture
def book(fabric):
    """h11-h21 in service with 40 Mb/s, and r1-r2 with 30 Mb/s beside it."""
    book = ReservationBook(fabric)
    book.add("a", request(duration_s=100.0), 0.0)
    book.add("b", request(30.0, "r1", "r2"), 0.0)
    for name in "ab":
        book.transition(name, State.ACTIVE)
    return book


def test_the_rate_changes_within_what_its_circuits_have_left(book):
    before = book.get("a")
    after = book.modify("a", Modification(bandwidth_mbps=70.0), NOW)
    assert (after.bandwidth_mbps, after.state) == (70.0, State.ACTIVE)
    assert (after.booked, after.expires_unix_s) == (before.booked, before.expires_unix_s)
    (pin,) = book.pinned()
    assert pin.bandwidth_mbps == 100.0
    assert book.modify("a", Modification(bandwidth_mbps=10.0), NOW).bandwidth_mbps == 10.0


def test_what_needs_other_circuits_is_refused_and_says_what_there_is(book):
    before = list(book)
    with pytest.raises(NotHitless, match=r"hitless modification not possible.*70 Mb/s") as refusal:
        book.modify("a", Modification(bandwidth_mbps=80.0), NOW)
    assert [one.bandwidth_mbps for one in refusal.value.alternatives] == [70.0]
    with pytest.raises(NotHitless, match="ends can only move within these racks"):
        book.modify("a", Modification(dst="h31"), NOW)
    assert list(book) == before
    assert len(book.pinned()) == 1


def test_a_refusal_names_the_end_of_what_has_one(book):
    with pytest.raises(NotHitless, match="have room for 70 Mb/s until 1970-01-01T00:01:40Z; ask"):
        book.modify("a", Modification(bandwidth_mbps=80.0), NOW)
    with pytest.raises(NotHitless, match="have room for 60 Mb/s; ask"):
        book.modify("b", Modification(bandwidth_mbps=80.0), NOW)


def test_what_no_circuit_carries_is_refused_as_ever(book):
    with pytest.raises(AdmissionError, match="fastest circuit") as refusal:
        book.modify("a", Modification(bandwidth_mbps=1000.0), NOW)
    assert not isinstance(refusal.value, NotHitless)


def test_an_end_moves_to_another_server_of_its_rack(book):
    moved = book.modify("a", Modification(src="h12", dst="r2"), NOW)
    assert (moved.src, moved.dst) == ("h12", "r2")
    book.add("c", request(30.0, "h11", "h22"), NOW)
    with pytest.raises(NotHitless):
        book.modify("c", Modification(src="h12", bandwidth_mbps=70.0), NOW)


def test_its_time_ends_later_or_earlier(book):
    assert book.modify("a", Modification(end_unix_s=50.0), NOW).duration_s == 50.0
    assert book.expired(50.0) == ("a",)
    later = book.modify("a", Modification(end_unix_s=500.0), NOW)
    assert (later.expires_unix_s, book.expired(100.0)) == (500.0, ())
    for end in (NOW, 5.0):
        with pytest.raises(WrongRequest, match="has passed: give a later end"):
            book.modify("a", Modification(end_unix_s=end), NOW)


def test_a_reservation_whose_time_is_over_is_extended_and_not_changed_otherwise(book):
    for change in (Modification(bandwidth_mbps=5.0), Modification(src="h12"), Modification()):
        with pytest.raises(LifecycleError, match="ended at 1970-01-01T00:01:40Z and can't be"):
            book.modify("a", change, 100.0)
    assert book.modify("a", Modification(end_unix_s=150.0), 100.0).expires_unix_s == 150.0


def test_it_does_not_last_into_what_is_promised_to_others(book):
    book.add("later", request(70.0, "r1", "r2", start_unix_s=200.0, duration_s=50.0), NOW)
    assert book.modify("a", Modification(end_unix_s=200.0), NOW).expires_unix_s == 200.0
    with pytest.raises(NotHitless, match="other reservations hold the circuits"):
        book.modify("a", Modification(end_unix_s=201.0), NOW)


@pytest.mark.parametrize("service", [ServiceClass.SHARED, ServiceClass.GUARANTEED])
@pytest.mark.parametrize("theirs", [("r1", "r3", 100.0), ("r1", "r2", 70.0), ("r1", "r2", 99.5)])
def test_what_is_offered_instead_is_to_be_had(service, theirs):
    book = ReservationBook(small_fabric(racks=4, planes=1))
    book.add("a", ReservationRequest("r1", "r2", 40.0, 600.0, service=service), 0.0)
    book.add("later", ReservationRequest(*theirs, 600.0, start_unix_s=600.0), 0.0)
    with pytest.raises(NotHitless) as refusal:
        book.modify("a", Modification(end_unix_s=900.0), NOW)
    there_is = service is ServiceClass.SHARED and theirs[1] == "r2"
    assert ("ask for at most" in str(refusal.value)) == there_is
    assert len(refusal.value.alternatives) == there_is
    for one in refusal.value.alternatives:
        assert book.modify("a", Modification(one.bandwidth_mbps, end_unix_s=900.0), NOW)


def test_one_that_is_scheduled_is_offered_no_other_start():
    book = ReservationBook(small_fabric(racks=4, planes=1))
    book.add("a", ReservationRequest("r1", "r2", 40.0, 50.0, start_unix_s=100.0), 0.0)
    book.add("b", ReservationRequest("r1", "r3", 90.0, 50.0, start_unix_s=150.0), 0.0)
    with pytest.raises(AdmissionError) as refusal:
        book.modify("a", Modification(end_unix_s=180.0), NOW)
    assert refusal.value.alternatives == ()
    assert "start at" not in str(refusal.value)


def test_what_has_no_circuits_yet_gets_others(fabric):
    book = ReservationBook(fabric)
    first = book.add("a", request(40.0, "r1", "r2", start_unix_s=100.0, duration_s=50.0), 0.0)
    book.add("b", request(90.0, "r1", "r3", start_unix_s=150.0, duration_s=50.0), 0.0)
    book.add("c", request(10.0, "r2", "r4", start_unix_s=150.0, duration_s=50.0), 0.0)
    moved = book.modify("a", Modification(end_unix_s=180.0), NOW)
    assert moved.state is State.SCHEDULED
    assert moved.booked is not None
    assert over_committed(fabric, [booking(one) for one in book]) == ""
    assert first.expires_unix_s == 150.0


def test_what_is_over_or_gives_way_stays_as_it_is(book):
    book.add("c", request(90.0, "r1", "r2", priority=5), NOW, notice_s=30.0)
    with pytest.raises(LifecycleError, match="gives way"):
        book.modify("a", Modification(end_unix_s=500.0), NOW)
    book.transition("b", State.RELEASING)
    with pytest.raises(LifecycleError, match="is releasing and can't be changed"):
        book.modify("b", Modification(bandwidth_mbps=1.0), NOW)


def test_a_quota_counts_without_what_it_was(fabric):
    book, quota = ReservationBook(fabric), Quota(max_reservations=1, max_mbps=50.0)
    book.add("a", request(40.0, owner="t", quota=quota), 0.0)
    assert book.modify("a", Modification(bandwidth_mbps=50.0, quota=quota), NOW)
    with pytest.raises(QuotaExceeded):
        book.modify("a", Modification(bandwidth_mbps=51.0, quota=quota), NOW)
    assert book.usage("t", NOW).peak_mbps == 50.0


def test_less_is_within_a_quota_that_was_lowered(fabric):
    book = ReservationBook(fabric)
    for name in "abc":
        book.add(name, request(20.0, owner="t", duration_s=100.0), 0.0)
    lower = Quota(max_reservations=2, max_mbps=50.0)
    assert book.modify("a", Modification(5.0, quota=lower), NOW).bandwidth_mbps == 5.0
    assert book.modify("b", Modification(end_unix_s=50.0, quota=lower), NOW).duration_s == 50.0
    assert book.modify("a", Modification(10.0, quota=lower), NOW).bandwidth_mbps == 10.0
    for change in (Modification(11.0, quota=lower), Modification(40.0, quota=lower)):
        with pytest.raises(QuotaExceeded, match="of 50 Mb/s at a time"):
            book.modify("a", change, NOW)


def test_best_effort_and_guaranteed_ones_change_too(fabric):
    book = ReservationBook(fabric)
    book.add("g", request(10.0, service=ServiceClass.GUARANTEED), 0.0)
    book.add("b", request(10.0, "r3", "r4", service=ServiceClass.BEST_EFFORT), 0.0)
    for name in "gb":
        book.transition(name, State.ACTIVE)
        assert book.modify(name, Modification(bandwidth_mbps=100.0), NOW).bandwidth_mbps == 100.0


def test_a_change_is_in_the_journal_and_only_of_what_was_seen(fabric, tmp_path):
    ledger = Ledger(fabric=fabric, journal=SqliteJournal(tmp_path / "journal.db"))
    old = ledger.bookings.add(request(), AdmissionLimits())
    ledger.reservations.keep([old])
    place = ledger.events.last
    new = ledger.reservations.modify(
        old.id, Modification(bandwidth_mbps=50.0), AdmissionLimits(), old
    )
    with pytest.raises(Changed):
        ledger.reservations.modify(
            old.id, Modification(bandwidth_mbps=60.0), AdmissionLimits(), old
        )
    assert ledger.events.last != place, "its owner is told"
    ledger.close()
    again = Ledger(fabric=fabric, journal=SqliteJournal(tmp_path / "journal.db"))
    again.load()
    assert list(again.bookings.all()) == [new]
    again.close()


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_promised_twice_whatever_is_changed(fabric, seed):
    rng, book = random.Random(seed), ReservationBook(fabric)
    names = [server.name for server in fabric.servers] + [rack.name for rack in fabric.racks]
    for number in range(40):
        now = float(number)
        src, dst = rng.sample(names, 2)
        start = rng.choice([None, now + rng.randrange(1, 20)])
        asked = request(
            rng.choice([10.0, 40.0, 90.0]),
            src,
            dst,
            start_unix_s=start,
            duration_s=rng.choice([None, 5.0, 30.0]),
            service=rng.choice(list(ServiceClass)),
        )
        with suppress(AdmissionError, WrongRequest):
            book.add(f"{number}", asked, now)
        for one in list(book):
            if not one.is_booked or rng.random() < 0.7:
                continue
            change = Modification(
                rng.choice([None, 5.0, 50.0, 100.0]),
                end_unix_s=rng.choice([None, now + rng.randrange(1, 40)]),
            )
            before = list(book)
            try:
                after = book.modify(one.id, change, now)
            except (AdmissionError, LifecycleError, WrongRequest):
                assert list(book) == before
            else:
                assert after.booked == one.booked or not one.holds_capacity
        for name in book.expired(now):
            book.transition(name, State.EXPIRED)
        booked = [booking(one) for one in book if one.is_booked]
        assert over_committed(fabric, booked) == "", (seed, number)
