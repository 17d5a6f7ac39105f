"""A draft refuses the requests that a book refuses, and leaves the book as it was."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from hydra.errors import AdmissionError
from hydra.reservations.book import ReservationBook
from hydra.reservations.constraints import Constraints
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import Protect, ReservationRequest, ServiceClass, Transfer
from tests.unit.core.fabrics import small_fabric

NOW = 0.0


def request(rng, fabric, mbps, **others):
    src, dst = rng.sample(fabric.racks, 2)
    return ReservationRequest(src.name, dst.name, mbps, **others)


def filled(rng, fabric):
    """A book with reservations before, during and after the time of the requests."""
    book = ReservationBook(fabric)
    for number in range(rng.randrange(12)):
        service = rng.choice([ServiceClass.SHARED, ServiceClass.SHARED, ServiceClass.GUARANTEED])
        start, length = rng.choice([0.0, 50.0, 100.0]), rng.choice([30.0, 70.0, 500.0])
        times = {"start_unix_s": start, "duration_s": length}
        with suppress(AdmissionError):
            book.add(f"b{number}", request(rng, fabric, 30.0, service=service, **times), NOW)
    return book


def limits_of(rng, fabric):
    """Limits with blocked and moving ports, and standing paths."""
    ports = [port.id for port in fabric.ports]
    other = ReservationBook(fabric)
    for number in range(3):
        with suppress(AdmissionError):
            other.add(f"s{number}", request(rng, fabric, 1.0), NOW)
    standing = {path for reservation in other for path in reservation.paths}
    return AdmissionLimits(
        max_hops=rng.choice([1, 2, 3]),
        blocked=frozenset(rng.sample(ports, rng.randrange(3))),
        moving=frozenset(rng.sample(ports, rng.randrange(3))),
        standing=tuple(sorted(standing)) if rng.random() < 0.5 else (),
        paths_per_pair=rng.choice([1, 2, 16]),
        brief=True,
    )


def refused_by(book, requests, limits, most, missing):
    """Places refused as the requests are added one by one; the book is as before afterwards."""
    places, entered = [], []
    for place, asked in enumerate(requests):
        try:
            if not missing.isdisjoint((asked.src, asked.dst)):
                raise AdmissionError("missing")
            entered.append(book.add(f"t{place}", asked, NOW, limits).id)
        except AdmissionError:
            places.append(place)
            if len(places) == most:
                break
    for name in reversed(entered):
        book.remove(name)
    return places


@pytest.mark.parametrize("seed", range(60))
def test_a_draft_refuses_as_the_book_does(seed):
    rng = random.Random(seed)
    fabric = small_fabric(racks=rng.choice([4, 5, 6]), planes=rng.choice([1, 2, 3]))
    book, limits = filled(rng, fabric), limits_of(rng, fabric)
    shared = {
        "start_unix_s": rng.choice([None, 100.0]),
        "duration_s": rng.choice([None, 60.0]),
        "constraints": rng.choice([Constraints(), Constraints(max_hops=2)]),
    }
    asked = [request(rng, fabric, rng.choice([5.0, 30.0, 70.0]), **shared) for _ in range(25)]
    missing = {rng.choice(fabric.racks).name} if rng.random() < 0.3 else set()
    most = rng.choice([2, 8, 100])
    before = list(book), list(book._calendar)
    drafted = book.draft_refused(asked, NOW, limits, most, missing)
    assert (list(book), list(book._calendar)) == before
    assert drafted == refused_by(book, asked, limits, most, missing)
    assert drafted == book.draft_refused(asked, NOW, limits, most, missing)


def test_drafts_refuse_and_admit():
    """The requests above meet both answers."""
    rng, fabric = random.Random(1), small_fabric(racks=4, planes=2)
    asked = [request(rng, fabric, 60.0) for _ in range(30)]
    refused = ReservationBook(fabric).draft_refused(asked, NOW, AdmissionLimits(), 100, set())
    assert 0 < len(refused) < len(asked)


@pytest.mark.parametrize(
    "others",
    [
        {"service": ServiceClass.GUARANTEED},
        {"priority": 1},
        {"minimum_mbps": 5.0},
        {"transfer": Transfer(100.0, 500.0)},
        {"protect": Protect.DISJOINT},
        {"bandwidth_mbps": 1e6},
        {"src": "h11"},
    ],
)
def test_other_requests_have_no_draft(others):
    fabric = small_fabric(racks=4, planes=2)
    plain = ReservationRequest("r1", "r2", 10.0)
    book, limits = ReservationBook(fabric), AdmissionLimits()
    assert book.draft_refused([plain], NOW, limits, 8, set()) == []
    assert book.draft_refused([replace(plain, **others)], NOW, limits, 8, set()) is None


def test_best_effort_may_give_way_and_no_draft_tells():
    fabric = small_fabric(racks=4, planes=2)
    book = ReservationBook(fabric)
    book.add("b", ReservationRequest("r1", "r2", 10.0, service=ServiceClass.BEST_EFFORT), NOW)
    plain = ReservationRequest("r3", "r4", 10.0)
    assert book.draft_refused([plain], NOW, AdmissionLimits(), 8, set()) is None
