"""The REST API with 10,000 reservations in the calendar, over HTTP as clients use the API.

``python -m benchmarks.rest``. The server runs with a controller's parts (the ledger with its
journal on disk, the calendar, admission), on the reference fabric of 320 racks and 32 planes; only
switches are missing (see :mod:`benchmarks.undisturbed`). wrk keeps four connections busy. The
baseline of each figure is ``/healthz``, which does nothing, in the same run: the time of the HTTP
stack alone.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from apps.controller.record.ledger import Ledger
from apps.journal.sqlite import SqliteJournal
from apps.process.configuration import load_configuration
from apps.process.garbage import exempt_present_objects
from apps.rest.app import create_app
from apps.rest.server import RestServer
from benchmarks._report import Result, report, run_benchmark
from benchmarks._wrk import CLIENTS, check_wrk, load
from hydra.errors import AdmissionError
from hydra.model import Fabric
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import Reservation, ReservationRequest

CONFIG = Path(__file__).parents[1] / "configs" / "reference.yaml"
RESERVATIONS = 10_000
SPAN_S = 86_400.0
ADMISSIONS = 200


class LedgerService:
    """A ledger for the REST API: admission and journal as in a controller, and no network."""

    def __init__(self, fabric: Fabric, ledger: Ledger) -> None:
        self.fabric = fabric
        self._ledger = ledger
        self.events = ledger.events

    def reserve(self, request: ReservationRequest) -> Reservation:
        with self._ledger.bookings.trial():
            reservation = self._ledger.bookings.add(request, AdmissionLimits())
            self._ledger.reservations.keep([reservation])
        return reservation

    def reservations(self):
        return self._ledger.bookings.all()

    def reservation(self, reservation_id: str) -> Reservation:
        return self._ledger.bookings.get(reservation_id)

    def state(self):
        return self._ledger.network.state

    def port_rates_mbps(self) -> Mapping:
        return {}

    def note_login(self, operator: str, address: str) -> None:
        pass


def random_request(
    fabric: Fabric, rng: random.Random, now_s: float, span_s: float
) -> ReservationRequest:
    src, dst = rng.sample(fabric.racks, 2)
    start_s = now_s + 3600 + rng.random() * span_s
    mbps = fabric.ports[0].rate_mbps * rng.choice([0.01, 0.05, 0.1, 0.4])
    return ReservationRequest(src.name, dst.name, mbps, rng.uniform(60, 7200), start_s)


def fill(
    fabric: Fabric,
    add: Callable[[str, ReservationRequest], object],
    count: int,
    span_s: float = SPAN_S,
) -> None:
    rng = random.Random(1)
    now_s = time.time()
    done = 0
    while done < count:
        try:
            add(f"b{done}", random_request(fabric, rng, now_s, span_s))
        except AdmissionError:
            continue
        done += 1


def filled_ledger(fabric: Fabric, journal: str, span_s: float) -> Ledger:
    """A ledger and journal with ``RESERVATIONS`` that begin within ``span_s``."""
    ledger = Ledger(fabric=fabric, journal=SqliteJournal(journal))
    ledger.load()
    held: list[Reservation] = []
    fill(
        fabric,
        lambda _, reservation: held.append(ledger.bookings.add(reservation, AdmissionLimits())),
        RESERVATIONS,
        span_s,
    )
    ledger.reservations.keep(held)
    return ledger


@contextmanager
def server(fabric: Fabric, directory: str) -> Iterator[tuple[RestServer, list[str]]]:
    """A running server, with the ids of its reservations."""
    ledger = filled_ledger(fabric, f"{directory}/journal.db", SPAN_S)
    known = [reservation.id for reservation in ledger.bookings.all()]
    running = RestServer(create_app(LedgerService(fabric, ledger)), "127.0.0.1", 0)
    running.start()
    exempt_present_objects()
    try:
        yield running, known
    finally:
        running.stop()
        ledger.close()


def admission_ms(fabric: Fabric, booked: int) -> tuple[float, float]:
    """(Median, p99) of an admission with ``booked`` reservations in the calendar."""
    book = ReservationBook(fabric)
    fill(fabric, lambda name, request: book.add(name, request, time.time()), booked)
    rng, times = random.Random(2), []
    for number in range(ADMISSIONS):
        request = random_request(fabric, rng, time.time(), SPAN_S)
        started = time.perf_counter()
        with suppress(AdmissionError):
            book.add(f"x{number}", request, time.time())
        times.append((time.perf_counter() - started) * 1000)
    return median(times), sorted(times)[int(0.99 * len(times))]


def main() -> int:
    check_wrk()
    fabric = load_configuration(CONFIG).fabric
    racks = [rack.name for rack in fabric.racks]
    results = []
    empty, full = admission_ms(fabric, 0), admission_ms(fabric, RESERVATIONS)
    case = f"admission, 320 x 32, {RESERVATIONS} booked"
    for number, metric in enumerate(("median", "p99")):
        results.append(
            Result(case, metric, "ms", "lower", full[number], empty[number], "empty calendar")
        )
    with tempfile.TemporaryDirectory() as directory, server(fabric, directory) as (running, known):
        idle = load(running.url, "healthz", racks, SPAN_S)
        for kind, name in (("read", "GET one"), ("page", "GET 100"), ("reserve", "POST")):
            seen = load(running.url, kind, known if kind == "read" else racks, SPAN_S)
            case = f"{name}, {CLIENTS} connections"
            results += [
                Result(case, "requests", "/s", "higher", seen.rate, idle.rate, "/healthz"),
                Result(case, "p99", "ms", "lower", seen.p99_ms, idle.p99_ms, "/healthz"),
            ]
    return report("rest", results)


if __name__ == "__main__":
    run_benchmark(main)
