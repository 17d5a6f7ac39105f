"""Megabytes by a deadline: rate and times, new plans after a loss, and refusals."""

from dataclasses import replace

import pytest

from hydra.errors import AdmissionError, NoRoom, QuotaExceeded, WrongRequest
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Quota
from hydra.reservations.records import read_reservation, reservation_record
from hydra.reservations.reservation import (
    Profile,
    ReservationRequest,
    ServiceClass,
    Transfer,
)
from hydra.reservations.transfers import missing_megabytes, remaining_megabytes
from tests.unit.core.fabrics import small_fabric


@pytest.fixture
def book():
    """Two racks, one circuit of 100 Mb/s: 12.5 MB a second."""
    return ReservationBook(small_fabric(racks=2, planes=1))


def ask(megabytes, deadline, profile=Profile.EARLIEST, **more):
    return ReservationRequest(
        "r1", "r2", 0.0, transfer=Transfer(megabytes, deadline, profile), **more
    )


def span(reservation):
    return reservation.starts_unix_s, reservation.expires_unix_s, reservation.bandwidth_mbps


def held(book, mbps, start, end):
    request = ReservationRequest("r1", "r2", mbps, start_unix_s=start, end_unix_s=end)
    return book.add(f"held{len(book)}", request, 0.0)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (Profile.EARLIEST, (0.0, 10.0, 100.0)),
        (Profile.LATEST, (90.0, 100.0, 100.0)),
        (Profile.CHEAPEST, (0.0, 100.0, 10.0)),
    ],
)
def test_rate_and_times_on_an_empty_calendar(book, profile, expected):
    made = book.add("t", ask(125.0, 100.0, profile), 0.0)
    assert span(made) == pytest.approx(expected)
    assert made.state is (State.SCHEDULED if expected[0] else State.ACTIVATING)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        # 40 Mb/s are left until 50; 1,000 Mb need 25 s at that rate, or 10 s from 50 on.
        (Profile.EARLIEST, (0.0, 25.0, 40.0)),
        (Profile.LATEST, (90.0, 100.0, 100.0)),
        (Profile.CHEAPEST, (0.0, 100.0, 10.0)),
    ],
)
def test_rate_and_times_beside_a_reservation(book, profile, expected):
    held(book, 60.0, 0.0, 50.0)
    assert span(book.add("t", ask(125.0, 100.0, profile), 0.0)) == pytest.approx(expected)


def test_the_earliest_end_may_begin_later(book):
    held(book, 95.0, 0.0, 50.0)
    assert span(book.add("t", ask(125.0, 100.0), 0.0)) == pytest.approx((50.0, 60.0, 100.0))


def test_the_latest_start_is_before_a_reservation_at_the_deadline(book):
    held(book, 100.0, 80.0, 200.0)
    made = book.add("t", ask(125.0, 100.0, Profile.LATEST), 0.0)
    assert span(made) == pytest.approx((70.0, 80.0, 100.0))


def test_the_cheapest_falls_back_to_the_earliest(book):
    held(book, 95.0, 0.0, 50.0)
    made = book.add("t", ask(125.0, 100.0, Profile.CHEAPEST), 0.0)
    assert span(made) == pytest.approx((50.0, 60.0, 100.0))


def test_a_deadline_that_is_too_early_is_refused_with_the_earliest_end(book):
    held(book, 100.0, 0.0, 50.0)
    with pytest.raises(
        AdmissionError, match="earliest end that fits is 1970-01-01T00:01:00Z"
    ) as no:
        book.add("t", ask(125.0, 55.0), 0.0)
    (offer,) = no.value.alternatives
    assert (offer.start_unix_s, offer.end_unix_s, offer.bandwidth_mbps) == (50.0, 60.0, 100.0)
    assert len(book) == 1
    assert span(book.add("t", ask(125.0, offer.end_unix_s), 0.0)) == (50.0, 60.0, 100.0)


def test_more_than_any_circuit_carries_is_refused_with_the_earliest_end(book):
    with pytest.raises(AdmissionError, match=r"2000 MB from r1 to r2 do not arrive by .*00:02:40Z"):
        book.add("t", ask(2000.0, 100.0), 0.0)


def test_what_never_fits_is_refused_with_the_obstacle(book):
    alone = ReservationRequest("r1", "r2", 1.0, service=ServiceClass.GUARANTEED)
    book.add("alone", alone, 0.0)
    with pytest.raises(NoRoom, match="exclusive to alone"):
        book.add("t", ask(125.0, 100.0), 0.0)


def test_wrong_requests(book):
    for request, told in (
        (ask(125.0, 5.0, start_unix_s=10.0), "is not after the start"),
        (ask(-1.0, 5.0), "megabytes must be a finite number above 0"),
        (ask(1.0, 5.0, service=ServiceClass.BEST_EFFORT), "best-effort reservations hold no"),
    ):
        with pytest.raises(WrongRequest, match=told):
            book.add("t", request, 0.0)
    assert len(book) == 0


def test_a_quota_bounds_the_rate(book):
    made = book.add("t", ask(125.0, 100.0, owner="tina", quota=Quota(max_mbps=25.0)), 0.0)
    assert span(made) == pytest.approx((0.0, 40.0, 25.0))
    with pytest.raises(QuotaExceeded):
        book.add("u", ask(125.0, 30.0, owner="tina", quota=Quota(max_mbps=25.0)), 0.0)


def test_promises_are_not_made_twice(book):
    rates = [book.add(f"t{number}", ask(125.0, 60.0), 0.0) for number in range(6)]
    assert max(one.expires_unix_s for one in rates) == pytest.approx(60.0)
    with pytest.raises(AdmissionError, match="earliest end that fits is 1970-01-01T00:01:10Z"):
        book.add("t6", ask(125.0, 60.0), 0.0)


# --- after a loss ---------------------------------------------------------------------------------


def running(book, megabytes, deadline):
    """A transfer between servers, active."""
    made = book.add("t", replace(ask(megabytes, deadline), src="h11", dst="h21"), 0.0)
    book.place(made.booked, 100)
    return book.transition("t", State.ACTIVE)


def lose_path(book, now):
    """The ports of the transfer are out of use."""
    ports = {end for circuit in book.get("t").booked.circuits for end in circuit.ends}
    limits = AdmissionLimits(blocked=frozenset(ports))
    return book.reroute((0, 1), now, limits)


def test_the_bytes_left_are_planned_again():
    book = ReservationBook(small_fabric(racks=2, planes=2))
    running(book, 500.0, 100.0)  # 40 s at 100 Mb/s
    other = ReservationRequest("h12", "h22", 60.0)
    book.add("other", other, 0.0)
    assert book.get("other").booked != book.get("t").booked
    changed, refused = lose_path(book, 10.0)
    assert not refused
    (moved,) = (one for one in changed if one.id == "t")
    assert remaining_megabytes(moved, 10.0) == pytest.approx(375.0)
    assert moved.bandwidth_mbps == pytest.approx(40.0)
    assert moved.expires_unix_s == pytest.approx(85.0)  # 3,000 Mb at 40 Mb/s
    assert moved.starts_unix_s + moved.duration_s == pytest.approx(85.0)
    assert missing_megabytes(moved) == 0
    assert moved.reason.startswith("lost its path, and was planned again: 375 MB at 40 Mb/s")


def test_what_does_not_arrive_in_time_is_at_risk():
    book = ReservationBook(small_fabric(racks=2, planes=2))
    running(book, 500.0, 50.0)
    book.add("other", ReservationRequest("h12", "h22", 60.0), 0.0)
    (moved,) = lose_path(book, 10.0)[0]
    assert span(moved) == pytest.approx((0.0, 50.0, 40.0))
    assert missing_megabytes(moved) == pytest.approx(375.0 - 40 * 40 / 8)


@pytest.mark.parametrize("owner", [None, "tina"])
def test_the_rate_of_a_tenant_does_not_rise(owner):
    """The other path is free until 70, which is only enough for a higher rate."""
    book = ReservationBook(small_fabric(racks=3, planes=2))
    wish = replace(ask(250.0, 100.0, Profile.CHEAPEST, owner=owner), src="h11", dst="h21")
    made = book.add("t", wish, 0.0)
    assert span(made) == (0.0, 100.0, 20.0)
    book.place(made.booked, 100)
    book.transition("t", State.ACTIVE)
    other = ReservationRequest("r2", "r3", 90.0, start_unix_s=70.0, end_unix_s=100.0)
    assert book.add("other", other, 0.0).booked.circuits[0].plane != made.booked.circuits[0].plane
    changed, refused = lose_path(book, 10.0)
    if owner is None:
        assert span(changed[0]) == pytest.approx((0.0, 28.0, 100.0))
    else:
        assert list(refused) == ["t"]


def test_a_transfer_without_any_path_is_lost(book):
    running(book, 500.0, 50.0)
    _, refused = lose_path(book, 10.0)
    assert list(refused) == ["t"]


def test_rate_and_end_of_a_transfer_are_not_changed_by_hand(book):
    running(book, 500.0, 100.0)
    with pytest.raises(AdmissionError, match="follow from its 500 MB"):
        book.modify("t", Modification(bandwidth_mbps=5.0), 1.0)


def test_the_journal_keeps_transfers(book):
    made = running(book, 500.0, 100.0)
    made = replace(made, transfer=replace(made.transfer, left_megabytes=3.0, planned_unix_s=7.0))
    fabric = small_fabric(racks=2, planes=1)
    assert read_reservation(fabric, reservation_record(fabric, made)) == made
    plain = book.add("p", ReservationRequest("r1", "r2", 1.0, start_unix_s=200.0), 0.0)
    assert "transfer" not in reservation_record(fabric, plain)
