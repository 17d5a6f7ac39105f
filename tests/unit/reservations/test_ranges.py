"""A bandwidth as a range: admitted with the highest rate that fits."""

import random
from dataclasses import replace

import pytest

from hydra.errors import AdmissionError, Alternative, QuotaExceeded, WrongRequest
from hydra.model import RackId
from hydra.reservations.admission import Ask, admit_most
from hydra.reservations.book import ReservationBook
from hydra.reservations.booking import ROUNDING_MBPS, Booking, Need
from hydra.reservations.calendar import Calendar
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.quotas import Quota
from hydra.reservations.requests import check
from hydra.reservations.reservation import ReservationRequest
from tests.unit.core.fabrics import reread

from .test_calendar import fabric_of


def request(most, least, src="r1", dst="r2", **more):
    return ReservationRequest(src, dst, most, minimum_mbps=least, **more)


def test_all_of_it_where_that_fits_and_else_the_most(fabric):
    book = ReservationBook(fabric)
    first = book.add("a", request(80.0, 10.0), 0.0)
    assert (first.bandwidth_mbps, first.wanted_mbps, first.minimum_mbps) == (80.0, 80.0, 10.0)
    second = book.add("b", request(80.0, 10.0), 0.0)
    assert second.bandwidth_mbps == 20.0
    assert second.booked == first.booked
    with pytest.raises(AdmissionError, match=r"10 Mb/s between r1 and r2 is too much"):
        book.add("c", request(80.0, 10.0), 0.0)
    assert reread(book, fabric).get("b") == second


def test_a_rate_beyond_any_circuit_is_told_what_others_leave(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(40.0, None), 0.0)
    why = "carries 100 Mb/s, of which other reservations and servers' uplinks leave 60 Mb/s; ask "
    with pytest.raises(AdmissionError, match=why):
        book.add("b", request(4000.0, None), 0.0)


def test_more_than_any_circuit_is_cut_to_a_circuit(fabric):
    book = ReservationBook(fabric)
    assert book.add("a", request(500.0, 60.0), 0.0).bandwidth_mbps == 100.0
    why = "the fastest circuit carries 100 Mb/s; ask for at most 100 Mb/s"
    with pytest.raises(AdmissionError, match=why) as refusal:
        ReservationBook(fabric).add("b", request(500.0, 101.0), 0.0)
    assert refusal.value.in_public == str(refusal.value)
    assert refusal.value.alternatives == (Alternative(100.0, None),)


def test_a_servers_uplink_bounds_it(fabric):
    book = ReservationBook(replace(fabric, server_rate_mbps=50.0))
    book.add("a", request(30.0, None, "h11", "r2"), 0.0)
    assert book.add("b", request(30.0, 5.0, "r3", "h11"), 0.0).bandwidth_mbps == 20.0


def test_the_quota_bounds_it(fabric):
    book = ReservationBook(fabric)
    mine = {"owner": "tina", "quota": Quota(max_mbps=50.0)}
    assert book.add("a", request(80.0, 10.0, **mine), 0.0).bandwidth_mbps == 50.0
    with pytest.raises(QuotaExceeded, match="10 Mb/s exceed"):
        book.add("b", request(80.0, 10.0, **mine), 0.0)


def test_less_than_one_mbps_of_a_quota_is_no_more_than_that(fabric):
    book = ReservationBook(fabric)
    mine = {"owner": "tina", "quota": Quota(max_mbps=50.5)}
    book.add("a", request(50.0, None, **mine), 0.0)
    with pytest.raises(QuotaExceeded, match=r"0\.75 Mb/s exceed .* 0\.5 Mb/s are left"):
        book.add("b", request(0.75, None, **mine), 0.0)
    assert book.add("c", request(0.75, 0.25, **mine), 0.0).bandwidth_mbps == 0.5


def test_a_quota_counts_no_later_time_than_is_asked_for(fabric):
    book = ReservationBook(fabric)
    mine = {"owner": "tina", "quota": Quota(max_mbps=50.0)}
    book.add("later", request(40.0, None, start_unix_s=60.0, **mine), 0.0)
    assert book.add("a", request(50.0, None, duration_s=60.0, **mine), 0.0).bandwidth_mbps == 50.0
    with pytest.raises(QuotaExceeded, match=" 0 Mb/s are left"):
        book.add("b", request(1.0, None, duration_s=60.0, **mine), 0.0)
    assert book.add("c", request(50.0, 5.0, start_unix_s=60.0, **mine), 0.0).bandwidth_mbps == 10.0


@pytest.mark.parametrize("least", [81.0, 0.0, -1.0, float("nan")])
def test_minima_that_are_none(fabric, least):
    with pytest.raises(WrongRequest, match="minimum_mbps"):
        check(fabric, request(80.0, least))


def test_on_another_path_it_may_have_less(fabric):
    """r1 and r2 are joined on p1; 70 Mb/s are promised on p2, the only other plane."""
    book = ReservationBook(fabric)
    kept = book.add("range", request(80.0, 20.0), 0.0)
    book.add("fixed", request(10.0, None), 0.0)
    blocked = frozenset({kept.booked.circuits[0].a})
    slow = tuple(
        replace(p, rate_mbps=60.0) if p.plane != kept.booked.circuits[0].plane else p
        for p in fabric.ports
    )
    other = ReservationBook(replace(fabric, ports=slow), book)
    changed, refused = other.reroute(kept.pair, 1.0, AdmissionLimits(3, blocked))
    assert not set(refused) & {"range"}
    (moved,) = [one for one in changed if one.id == "range"]
    assert moved.bandwidth_mbps == 60.0
    assert moved.booked != kept.booked
    assert "10 Mb/s" in str(refused["fixed"])


@pytest.mark.parametrize("seed", range(150))
def test_nothing_above_what_was_granted_fits(seed):
    chance = random.Random(seed)
    fabric = fabric_of(4, 2)
    calendar = Calendar(fabric)
    for number in range(12):
        src, dst = sorted(chance.sample(range(4), 2))
        start = float(chance.randrange(8))
        most = chance.uniform(1, 110)
        least = most * chance.uniform(0.05, 1.0)
        ask = Ask("a", "b", (RackId(src), RackId(dst)), most, start, start + 4, frozenset())
        window = calendar.window(ask.start_unix_s, ask.end_unix_s, AdmissionLimits())
        try:
            granted, path = admit_most(calendar, ask, least, AdmissionLimits())
        except AdmissionError:
            assert window.find(ask.pair, Need(least)) is None
            continue
        assert least - ROUNDING_MBPS <= granted <= most
        if granted < most:
            assert window.find(ask.pair, Need(granted + 10 * ROUNDING_MBPS)) is None
        assert all(window.spare_mbps(c) >= granted - 2 * ROUNDING_MBPS for c in path.circuits)
        calendar.add(Booking(str(number), path, granted, start, start + 4))
