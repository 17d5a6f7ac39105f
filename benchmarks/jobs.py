"""Shapes, transfers and availability at 320 racks and 8 planes, with and without reservations.

``python -m benchmarks.jobs [RUNS]``. The controller of the reference fabric, with 8 planes, its
REST server, a journal in memory and no network, admits shapes of 64 racks, shapes of racks that it
chooses, and transfers by a deadline, and answers queries of availability: with an empty calendar,
and with 1,000 reservations. Shapes are reserved and released over HTTP. Figures are medians of
processor time. First, clients send requests in parallel beyond the capacity, and the calendar must
have no double bookings.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection
from itertools import count
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

from apps.controller.controller import Controller
from apps.controller.wiring import Rooms
from apps.process.configuration import load_configuration
from apps.process.garbage import exempt_present_objects
from apps.rest.app import create_app
from apps.rest.server import RestServer
from benchmarks._report import Result, report, run_benchmark
from hydra.errors import AdmissionError
from hydra.model import Circuit
from hydra.reservations.booking import ROUNDING_MBPS, Booking, peak_mbps
from hydra.reservations.calendar_entries import bookings_of
from hydra.reservations.reservation import ReservationRequest, Transfer
from tests.journals import SqliteJournal

CONFIG: Final = Path(__file__).parents[1] / "configs" / "reference.yaml"
RACKS, PLANES, RUNS = 64, 8, 3
BOOKED, SINGLE, QUESTIONS = 1_000, 200, 2_000
REQUESTS, THREADS = 1_000, 16
SHAPE_MS, AVAILABILITY_PER_S = 200.0, 1_000.0
HOUR_S, MONTH_S = 3_600.0, 30 * 86_400.0
CREATED, REFUSED = 201, 409
PATTERNS: Final = ("ring", "torus:4x4x4", "tree", "pairs", "all-to-all")
_HOURS: Final = count(2)


def controller() -> Controller:
    """A controller of the reference fabric with 8 planes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "eight.yaml"
        path.write_text(CONFIG.read_text().replace("p[1-32]", f"p[1-{PLANES}]"))
        loaded = load_configuration(path)
    return Controller(
        loaded=loaded,
        journal=SqliteJournal(":memory:"),
        post=lambda job: job(),
        read_file=lambda: loaded,
    )


def wish(mbps: float = 0.0, length_s: float | None = None) -> ReservationRequest:
    """A separate hour in the future: no switch is connected."""
    start = time.time() + next(_HOURS) * HOUR_S
    return ReservationRequest("", "", mbps, length_s, start)


def hour(mbps: float = 0.0) -> ReservationRequest:
    return wish(mbps, HOUR_S - 60)


def filled() -> Controller:
    """A controller with reservations for a month, between neighbouring racks beyond the first 64;
    each rack has idle ports left.
    """
    full, rng = controller(), random.Random(1)
    others = [rack.name for rack in full.rooms.fabric.racks[RACKS:]]
    month = replace(hour(500.0), duration_s=MONTH_S)
    for _ in range(BOOKED):
        place = rng.randrange(len(others))
        far = others[(place + rng.randint(1, 3)) % len(others)]
        full.rooms.admission.reserve(replace(month, src=others[place], dst=far))
    return full


class Client:
    """Sends requests to a REST server, each over a new connection. For any thread."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and document of the answer."""
        with closing(HTTPConnection("127.0.0.1", self._port)) as connection:
            headers = {"Content-Type": "application/json", "Connection": "close"}
            connection.request(method, path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@contextmanager
def served(controller: Controller) -> Iterator[Client]:
    server = RestServer(create_app(controller.desk), "127.0.0.1", 0)
    server.start()
    try:
        yield Client(server.port)
    finally:
        server.stop()


def cpu_ms(ask: Callable[[], object], runs: int) -> float:
    """Median processor time."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        with suppress(AdmissionError):
            ask()
        times.append((time.process_time() - started) * 1000)
    return median(times)


def shapes(
    empty: Client, full: Client, names: Sequence[str], circuit_mbps: float, runs: int
) -> list[Result]:
    """Results for shapes of 64 racks, from the request to the answer, and for their release."""
    cases: dict[str, tuple[str, object, float | str]] = {}
    for pattern in PATTERNS:
        rate = circuit_mbps / (200 if pattern == "all-to-all" else 4)
        cases[f"{pattern}, {rate:g} Mb/s"] = pattern, names, rate
        cases[f"{pattern}, most"] = pattern, names, "most"
    cases["ring, any 64, 2500 Mb/s"] = "ring", {"any": RACKS}, 2500.0
    results, releases = [], {}
    for case, (pattern, racks, rate) in cases.items():
        ours, baseline = (
            [_shape_ms(client, pattern, racks, rate) for _ in range(runs)]
            for client in (full, empty)
        )
        made, was = (median(ms for ms, _, _ in times) for times in (ours, baseline))
        releases[ours[0][2]] = [median(ms for _, ms, _ in times) for times in (ours, baseline)]
        of = "empty calendar"
        measured = f"{case}, {ours[0][2]} reservations"
        results.append(Result(measured, "CPU time", "ms", "lower", made, was, of, SHAPE_MS))
    most = max(releases)
    measured = f"release of {most} reservations"
    return [
        *results,
        Result(measured, "CPU time", "ms", "lower", *releases[most], "empty calendar"),
    ]


def _shape_ms(
    client: Client, pattern: str, racks: object, rate: float | str
) -> tuple[float, float, int]:
    """Processor time of a shape and of its release, and the number of reservations."""
    body = {"pattern": pattern, "racks": racks, "bandwidth_mbps": rate, **span(hour())}
    began = time.process_time()
    status, shape = client("POST", "/v1/shapes", body)
    made = time.process_time()
    if status != CREATED:
        raise SystemExit(f"{pattern} of {RACKS} racks is refused: {shape}")
    group = client("GET", f"/v1/groups/{shape['id']}")[1]
    asked = time.process_time()
    client("DELETE", f"/v1/shapes/{shape['id']}")
    released_s = time.process_time() - asked
    return (made - began) * 1000, released_s * 1000, len(group["reservations"])


def span(wish: ReservationRequest) -> Mapping[str, float | None]:
    return {"start_unix_s": wish.start_unix_s, "duration_s": wish.duration_s}


def questions(rooms: Rooms) -> list[Result]:
    """Results for availability and transfers, with single reservations in the calendar."""
    rng, names = random.Random(2), [rack.name for rack in rooms.fabric.racks]
    day = ReservationRequest("", "", rooms.fabric.ports[0].rate_mbps, duration_s=86_400.0)

    def between(asked: ReservationRequest) -> ReservationRequest:
        src, dst = rng.sample(names, 2)
        return replace(asked, src=src, dst=dst)

    def reserve(asked: Callable[[], ReservationRequest]) -> Callable[[], object]:
        return lambda: rooms.admission.reserve(between(asked()))

    question_ms = cpu_ms(lambda: rooms.admission.availability(between(day)), QUESTIONS)
    single = cpu_ms(reserve(lambda: hour(10.0)), SINGLE)
    transfer = cpu_ms(reserve(lambda: by_deadline(1_000.0)), SINGLE)
    rate, usual = 1000 / question_ms, 1000 / single
    of = "single reservation"
    return [
        Result(
            *("availability of a day", "questions", "/s", "higher", rate, usual, of),
            AVAILABILITY_PER_S,
        ),
        Result("1,000 MB by a deadline", "CPU time", "ms", "lower", transfer, single, of),
    ]


def by_deadline(megabytes: float) -> ReservationRequest:
    asked = wish()
    deadline = (asked.start_unix_s or 0.0) + HOUR_S
    return replace(asked, transfer=Transfer(megabytes, deadline))


def promised_twice() -> Result:
    """Number of circuits with promises beyond the capacity, after parallel requests for the same
    hour.
    """
    asked = controller()
    rng, names = random.Random(3), [rack.name for rack in asked.rooms.fabric.racks[:8]]
    at = span(hour())
    start_s = at["start_unix_s"] or 0.0
    cases = [(number, rng.sample(names, 4)) for number in range(REQUESTS)]

    def ask(case: tuple[int, Sequence[str]]) -> bool:
        number, racks = case
        pair = {"src": racks[0], "dst": racks[1]}
        if number % 10 == 0:
            body = {"pattern": "ring", "racks": racks, "bandwidth_mbps": 3000.0, **at}
            status, answer = client("POST", "/v1/shapes", body)
        elif number % 2:
            body = {**pair, "bandwidth_mbps": 4000.0, **at}
            status, answer = client("POST", "/v1/reservations", body)
        else:
            by_deadline = {"megabytes": 900_000.0, "end_unix_s": start_s + HOUR_S}
            body = {**pair, **by_deadline, "start_unix_s": start_s}
            status, answer = client("POST", "/v1/reservations", body)
        if status not in {CREATED, REFUSED}:
            raise SystemExit(f"{body} is answered by {status}: {answer}")
        return status == CREATED

    with served(asked) as client, ThreadPoolExecutor(THREADS) as asking:
        admitted = sum(asking.map(ask, cases))
    case = f"{REQUESTS} requests to REST, {THREADS} clients, {admitted} admitted"
    over = overfull(asked.rooms)
    return Result(case, "promised twice", "circuits", "lower", over, target=0)


def overfull(rooms: Rooms) -> int:
    """Number of circuits with promises beyond the capacity at some moment."""
    booked: dict[Circuit, list[Booking]] = defaultdict(list)
    for reservation in rooms.ledger.bookings.all():
        for booking in bookings_of(rooms.fabric, reservation) if reservation.is_booked else ():
            for circuit in booking.path.circuits:
                booked[circuit].append(booking)
    return sum(
        peak_mbps(bookings, 0.0, inf) > rooms.fabric.rate_of(circuit) + ROUNDING_MBPS
        for circuit, bookings in booked.items()
    )


def main(arguments: Sequence[str] = ()) -> int:
    runs = int(arguments[0]) if arguments else RUNS
    twice, empty, full = promised_twice(), controller(), filled()
    racks = full.rooms.fabric.racks[:RACKS]
    circuit_mbps = full.rooms.fabric.ports[0].rate_mbps
    asked = questions(full.rooms)
    exempt_present_objects()  # as in a controller at its start
    with served(empty) as of_empty, served(full) as of_full:
        names = [rack.name for rack in racks]
        answered = shapes(of_empty, of_full, names, circuit_mbps, runs)
    results = [twice, *asked, *answered]
    return report("jobs", results)


if __name__ == "__main__":
    run_benchmark(main)
