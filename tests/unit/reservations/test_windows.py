"""Windows kept by a calendar equal new windows, for any changes."""

import random
from itertools import combinations

import pytest

from hydra.errors import AdmissionError
from hydra.reservations.book import ReservationBook
from hydra.reservations.booking import Need
from hydra.reservations.calendar import Window
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import ReservationRequest, ServiceClass
from tests.unit.core.fabrics import small_fabric


def test_a_kept_window_is_as_a_new_one(monkeypatch):
    monkeypatch.setattr("hydra.reservations.calendar._WINDOWS", 1000)
    rng = random.Random(57)
    fabric = small_fabric(racks=5, planes=3)
    limits = AdmissionLimits()
    compared = 0
    for _ in range(40):
        book = ReservationBook(fabric)
        calendar = book._calendar
        kept = calendar.window(100.0, 200.0, limits)
        for number in range(30):
            if rng.random() < 0.3 and len(book):
                book.remove(rng.choice(list(book)).id)
            else:
                src, dst = rng.sample(fabric.racks, 2)
                start = rng.choice([50.0, 100.0, 120.0])
                service = rng.choice([ServiceClass.SHARED, ServiceClass.GUARANTEED])
                request = ReservationRequest(
                    src.name,
                    dst.name,
                    rng.choice([10.0, 30.0, 60.0]),
                    duration_s=rng.choice([20.0, 70.0, 500.0]),
                    start_unix_s=start,
                    service=service,
                )
                try:
                    book.add(f"v{number}", request, 0.0)
                except AdmissionError:
                    continue
            new = Window(calendar, 100.0, 200.0, limits)
            for port in fabric.ports:
                assert kept.users(port.id) == new.users(port.id)
                for circuit in new.users(port.id):
                    assert abs(kept.load_mbps(circuit) - new.load_mbps(circuit)) < 1e-9 or (
                        kept.load_mbps(circuit) == new.load_mbps(circuit)
                    )
            need = Need(rng.choice([0.0, 20.0, 60.0]), rng.random() < 0.3)
            for pair in combinations(range(len(fabric.racks)), 2):
                assert kept.find(pair, need) == new.find(pair, need)
                assert kept.booked_paths(pair) == new.booked_paths(pair)
                assert kept.has_all_paths(pair) == new.has_all_paths(pair)
            for rack in fabric.racks:
                assert kept.room_mbps(rack.id) == pytest.approx(new.room_mbps(rack.id))
            assert calendar.window(100.0, 200.0, limits) is kept
            compared += 1
    assert compared > 500
