"""Availability: bandwidth between two racks over time."""

import random

import pytest

from hydra.errors import AdmissionError, UnknownName, WrongRequest
from hydra.reservations.book import ReservationBook
from hydra.reservations.reservation import ReservationRequest
from tests.unit.core.fabrics import small_fabric


@pytest.fixture
def book():
    return ReservationBook(small_fabric(racks=2, planes=1))


def spans(book, end=100.0, src="r1", dst="r2"):
    request = ReservationRequest(src, dst, 100.0, end_unix_s=end)
    return [(one.start_unix_s, one.end_unix_s, one.mbps) for one in book.availability(request, 0.0)]


def hold(book, mbps, start, end, src="r1", dst="r2"):
    wish = ReservationRequest(src, dst, mbps, start_unix_s=start, end_unix_s=end)
    return book.add(f"v{len(book)}", wish, 0.0)


def test_all_of_a_circuit_on_an_empty_calendar(book):
    assert spans(book) == [(0.0, 100.0, 100.0)]


def test_spans_end_where_reservations_begin_and_end(book):
    hold(book, 60.0, 20.0, 50.0)
    hold(book, 40.0, 30.0, 40.0)
    hold(book, 10.0, 300.0, 400.0)
    assert spans(book) == [
        (0.0, 20.0, 100.0),
        (20.0, 30.0, 40.0),
        (30.0, 40.0, 0.0),
        (40.0, 50.0, 40.0),
        (50.0, 100.0, 100.0),
    ]


def test_many_spans_are_put_together_without_promising_too_much(book):
    for number in range(200):
        hold(book, 1.0 + number % 50, 10.0 * number, 10.0 * number + 5)
    found = spans(book, end=2000.0)
    assert len(found) <= 97
    assert [one[0] for one in found[1:]] == [one[1] for one in found[:-1]], "no gaps"
    for start, end, mbps in random.Random(1).sample(found, 20):
        if mbps:
            book.remove(hold(book, mbps, start, end).id)


def test_what_is_told_can_be_reserved_and_no_more():
    rng, told = random.Random(57), 0
    for _ in range(30):
        book = ReservationBook(small_fabric(racks=4, planes=2))
        racks = [rack.name for rack in book._fabric.racks]
        for _ in range(12):
            src, dst = rng.sample(racks, 2)
            start = float(rng.randrange(90))
            try:
                hold(book, rng.choice([20.0, 50.0, 90.0]), start, start + 30, src, dst)
            except AdmissionError:
                continue
        for start, end, mbps in spans(book, src="r1", dst="r3"):
            if mbps:
                book.remove(hold(book, mbps, start, end, "r1", "r3").id)
                told += 1
            if mbps < 100:
                with pytest.raises(AdmissionError):
                    hold(book, mbps + 0.01, start, end, "r1", "r3")
    assert told > 50


def test_ends_that_cannot_be_joined(book):
    with pytest.raises(UnknownName):
        spans(book, dst="r9")
    with pytest.raises(WrongRequest, match="inside a rack"):
        spans(book, dst="h11")
