"""The REST API with 10,000 reservations in the calendar, over HTTP as clients meet it.

``python -m benchmarks.rest``. The server runs with what a controller puts behind it (the ledger
with its journal on disk, the calendar, admission), on the reference fabric of 320 racks and 32
planes; only switches are missing. Clients are threads with a connection each, in a process of
their own. Beside each figure stands one for ``/healthz``, which does nothing, from the same run:
what the HTTP stack alone takes here.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx

from apps.configuration import load_configuration
from apps.ledger import Ledger
from apps.rest.app import create_app
from apps.rest.server import RestServer
from benchmarks._report import Result, report
from hydra.book import ReservationBook
from hydra.calendar import Ground
from hydra.journal import Journal
from hydra.model import Fabric
from hydra.reservations import Reservation, ReservationRequest

CONFIG = Path(__file__).parents[1] / "configs" / "reference.yaml"
RESERVATIONS = 10_000
CLIENTS = 4
SECONDS = 5.0
SPAN_S = 86_400.0
ADMISSIONS = 200


class LedgerService:
    """A ledger behind the REST API: admission and journal as in a controller, and no network."""

    def __init__(self, fabric: Fabric, ledger: Ledger) -> None:
        self.fabric = fabric
        self._ledger = ledger
        self.events = ledger.events

    def reserve(self, request: ReservationRequest) -> Reservation:
        with self._ledger.lock:
            reservation = self._ledger.add(request, Ground())
            self._ledger.keep([reservation])
        return reservation

    def reservations(self):
        return self._ledger.reservations()

    def reservation(self, reservation_id: str) -> Reservation:
        return self._ledger.reservation(reservation_id)

    def state(self):
        return self._ledger.state

    def port_rates_mbps(self) -> Mapping:
        return {}


def random_request(fabric: Fabric, rng: random.Random, now_s: float) -> ReservationRequest:
    src, dst = rng.sample(fabric.racks, 2)
    start_s = now_s + 3600 + rng.random() * SPAN_S
    mbps = rng.choice([100.0, 500.0, 1000.0, 4000.0])
    return ReservationRequest(src.name, dst.name, mbps, rng.uniform(60, 7200), start_s)


def fill(fabric: Fabric, add: Callable[[str, ReservationRequest], object], count: int) -> None:
    rng = random.Random(1)
    now_s = time.time()
    done = 0
    while done < count:
        try:
            add(f"b{done}", random_request(fabric, rng, now_s))
        except Exception as error:
            if "no path" not in str(error) and "too much" not in str(error):
                raise
            continue
        done += 1


def client(url: str, kind: str, racks: list[str], seconds: float, results) -> None:
    """Requests one after the other; their times in ms and how many were answered as hoped."""
    rng = random.Random(kind)
    ids = [r["id"] for r in httpx.get(f"{url}/v1/reservations?limit=100").json()["reservations"]]
    taken: list[list[float]] = [[] for _ in range(CLIENTS)]
    end_s = time.perf_counter() + seconds

    def one(http: httpx.Client) -> httpx.Response:
        if kind == "healthz":
            return http.get("/healthz")
        if kind == "read":
            return http.get(f"/v1/reservations/{rng.choice(ids)}")
        if kind == "page":
            return http.get("/v1/reservations?limit=100")
        src, dst = rng.sample(racks, 2)
        start_s = time.time() + 3600 + rng.random() * SPAN_S
        body = {"src": src, "dst": dst, "bandwidth_mbps": 100, "duration_s": 600}
        return http.post("/v1/reservations", json={**body, "start_unix_s": start_s})

    def run(times_ms: list[float]) -> None:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as http:
            while time.perf_counter() < end_s:
                started = time.perf_counter()
                answer = one(http)
                times_ms.append((time.perf_counter() - started) * 1000)
                if answer.status_code not in (200, 201, 409):
                    raise RuntimeError(answer.text)

    threads = [threading.Thread(target=run, args=(times,)) for times in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(json.dumps(taken))


def load(url: str, kind: str, racks: list[str]) -> tuple[float, float]:
    """(requests per second, p99 in ms)."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=client, args=(url, kind, racks, SECONDS, results))
    process.start()
    taken = [one for times in json.loads(results.get(timeout=120)) for one in times]
    process.join()
    return len(taken) / SECONDS, sorted(taken)[int(0.99 * len(taken))]


@contextmanager
def server(fabric: Fabric, directory: str) -> Iterator[RestServer]:
    ledger = Ledger(fabric, Journal(f"{directory}/journal.db"))
    ledger.load()
    held: list[Reservation] = []
    fill(fabric, lambda _, request: held.append(ledger.add(request, Ground())), RESERVATIONS)
    ledger.keep(held)
    running = RestServer(create_app(LedgerService(fabric, ledger)), "127.0.0.1", 0)
    running.start()
    try:
        yield running
    finally:
        running.stop()
        ledger.close()


def admission_ms(fabric: Fabric, booked: int) -> tuple[float, float]:
    """(median, p99) of one admission with so many reservations in the calendar."""
    book = ReservationBook(fabric)
    fill(fabric, lambda name, request: book.add(name, request, time.time()), booked)
    rng, times = random.Random(2), []
    for number in range(ADMISSIONS):
        request = random_request(fabric, rng, time.time())
        started = time.perf_counter()
        try:
            book.add(f"x{number}", request, time.time())
        except Exception as error:
            if "no path" not in str(error) and "too much" not in str(error):
                raise
        times.append((time.perf_counter() - started) * 1000)
    return median(times), sorted(times)[int(0.99 * len(times))]


def main() -> int:
    fabric = load_configuration(CONFIG).fabric
    racks = [rack.name for rack in fabric.racks]
    results = []
    empty, full = admission_ms(fabric, 0), admission_ms(fabric, RESERVATIONS)
    case = f"admission, 320 x 32, {RESERVATIONS} booked"
    for number, metric in enumerate(("median", "p99")):
        results.append(
            Result(case, metric, "ms", "lower", full[number], empty[number], "empty calendar")
        )
    with tempfile.TemporaryDirectory() as directory, server(fabric, directory) as running:
        idle = load(running.url, "healthz", racks)
        for kind, name in (("read", "GET one"), ("page", "GET 100"), ("reserve", "POST")):
            rate, p99_ms = load(running.url, kind, racks)
            case = f"{name}, {CLIENTS} clients"
            results += [
                Result(case, "requests", "/s", "higher", rate, idle[0], "/healthz"),
                Result(case, "p99", "ms", "lower", p99_ms, idle[1], "/healthz"),
            ]
    report("rest", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
