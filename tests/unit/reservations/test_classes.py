"""Guaranteed, shared and best-effort reservations beside each other."""

import pytest

from apps.controller.record.ledger import Ledger
from hydra.errors import AdmissionError, QuotaExceeded, WrongRequest
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.quotas import Quota
from hydra.reservations.reservation import ReservationRequest, ServiceClass
from tests.journals import SqliteJournal

GUARANTEED, SHARED, BEST_EFFORT = ServiceClass


def request(service, mbps=40.0, src="r1", dst="r2", **more):
    return ReservationRequest(src, dst, mbps, service=service, **more)


@pytest.fixture
def book(fabric):
    return ReservationBook(fabric)


def circuits(book, one):
    return set(book.get(one).booked.circuits)


def test_a_guaranteed_one_shares_its_circuits_with_nobody(book):
    book.add("a", request(GUARANTEED), 0.0)
    with pytest.raises(AdmissionError, match="are exclusive to a"):
        book.add("b", request(SHARED, 10.0), 0.0)
    with pytest.raises(AdmissionError, match="are exclusive to a"):
        book.add("c", request(BEST_EFFORT), 0.0)
    later = book.add("d", request(SHARED, 10.0, dst="r3"), 0.0)
    assert not set(later.booked.circuits) & circuits(book, "a")


def test_a_guaranteed_one_does_not_join_others(book):
    book.add("a", request(SHARED, 10.0), 0.0)
    with pytest.raises(AdmissionError, match=r"have other users \(a\)"):
        book.add("b", request(GUARANTEED, 10.0), 0.0)


def test_the_planner_may_put_nothing_beside_a_guaranteed_one(book):
    book.add("a", request(GUARANTEED, 10.0), 0.0)
    (pin,) = book.pinned()
    assert pin.bandwidth_mbps == 100.0


def test_best_effort_takes_no_bandwidth(book):
    one = book.add("a", request(BEST_EFFORT, 80.0), 0.0)
    assert (one.bandwidth_mbps, one.promised_mbps) == (80.0, 0.0)
    book.add("b", request(SHARED, 100.0), 0.0)
    book.add("c", request(BEST_EFFORT, 80.0), 0.0)
    (pin,) = book.pinned()
    assert pin.bandwidth_mbps == 100.0
    assert circuits(book, "a") == circuits(book, "b") == circuits(book, "c")


def fill(book, service):
    """r1 has a path to r3, and a path to r4: both its ports are in use."""
    book.add("a", request(service, dst="r3"), 0.0)
    book.add("b", request(service, dst="r4"), 0.0)
    for one in "ab":
        book.transition(one, State.ACTIVE)


@pytest.mark.parametrize("service", [GUARANTEED, SHARED])
def test_best_effort_gives_way_at_once_and_no_more_of_it_than_it_takes(book, service):
    fill(book, BEST_EFFORT)
    new = book.add("c", request(service, 100.0), 5.0, AdmissionLimits(max_hops=1))
    assert (new.state, new.starts_unix_s) == (State.ACTIVATING, 5.0)
    (gone,) = book.displaced("c")
    assert (gone.state, gone.preempted_by) == (State.PREEMPTED, "c")
    assert "gives way, as best effort" in gone.reason
    assert [one.state for one in book].count(State.ACTIVE) == 1
    book.remove("c")
    assert [one.state for one in book] == [State.ACTIVE] * 2, "as if it had not been asked for"


def test_best_effort_makes_nobody_give_way(book):
    fill(book, BEST_EFFORT)
    with pytest.raises(AdmissionError, match="no path to spare between r1 and r2"):
        book.add("c", request(BEST_EFFORT), 5.0, AdmissionLimits(max_hops=1))
    fill_other = ReservationBook(book._fabric)
    fill(fill_other, SHARED)
    with pytest.raises(AdmissionError):
        fill_other.add("c", request(BEST_EFFORT, priority=9), 5.0, AdmissionLimits(max_hops=1))


def test_what_is_only_held_makes_nobody_give_way(book):
    fill(book, BEST_EFFORT)
    with pytest.raises(AdmissionError):
        book.add("c", request(SHARED, hold_s=10.0), 5.0, AdmissionLimits(max_hops=1))
    assert book.displaced("c") == ()


def test_best_effort_goes_before_what_has_a_priority(book):
    """A promise stays in place if displacing best effort is enough."""
    book.add("a", request(SHARED, dst="r3"), 0.0)
    book.add("b", request(BEST_EFFORT, dst="r4"), 0.0)
    for one in "ab":
        book.transition(one, State.ACTIVE)
    new = book.add("c", request(SHARED, priority=5), 5.0, AdmissionLimits(max_hops=1))
    assert new.starts_unix_s == 5.0
    assert [one.id for one in book.displaced("c")] == ["b"]


@pytest.mark.parametrize("service", [GUARANTEED, BEST_EFFORT])
def test_a_range_is_for_shared_ones(book, service):
    with pytest.raises(WrongRequest, match="minimum_mbps goes with shared"):
        book.add("a", request(service, minimum_mbps=10.0), 0.0)


def test_best_effort_counts_for_the_number_of_a_quota_alone(book):
    quota = Quota(max_reservations=2, max_mbps=10.0)
    for one in "ab":
        book.add(one, request(BEST_EFFORT, 80.0, owner="t", quota=quota), 0.0)
    assert book.usage("t", 0.0).peak_mbps == 0.0
    with pytest.raises(QuotaExceeded, match="2 reservations at a time"):
        book.add("c", request(BEST_EFFORT, owner="t", quota=quota), 0.0)


def test_a_dead_circuit_moves_best_effort_as_it_was(book, fabric):
    one = book.add("a", request(BEST_EFFORT, 80.0), 0.0)
    (circuit,) = one.booked.circuits
    (moved,), refused = book.reroute(one.pair, 1.0, AdmissionLimits(blocked=frozenset({circuit.a})))
    assert not refused
    assert moved.bandwidth_mbps == 80.0
    assert circuit not in moved.booked.circuits


def test_classes_survive_a_restart(fabric, tmp_path):
    path = tmp_path / "journal.db"
    ledger = Ledger(fabric=fabric, journal=SqliteJournal(path))
    kept = [
        ledger.bookings.add(request(service, dst=dst), AdmissionLimits(), None)
        for service, dst in ((GUARANTEED, "r2"), (BEST_EFFORT, "r3"))
    ]
    ledger.reservations.keep(kept)
    ledger.close()
    again = Ledger(fabric=fabric, journal=SqliteJournal(path))
    again.load()
    assert [one.service for one in again.bookings.all()] == [GUARANTEED, BEST_EFFORT]
    again.close()


def test_best_effort_goes_on_until_what_it_gives_way_to_begins(book):
    fill(book, BEST_EFFORT)
    later = request(SHARED, 100.0, start_unix_s=60.0)
    book.add("c", later, 5.0, AdmissionLimits(max_hops=1))
    (one,) = book.displaced("c")
    assert (one.state, one.expires_unix_s, one.preempted_by) == (State.ACTIVE, 60.0, "c")
    assert book.expired(59.0) == ()
    assert book.expired(60.0) == (one.id,)
