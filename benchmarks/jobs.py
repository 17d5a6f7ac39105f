"""Shapes, transfers and availability at 320 racks and 8 planes, with and without reservations.

``python -m benchmarks.jobs [RUNS]``. The controller of the reference fabric, with 8 planes, a
journal in memory and no network, admits shapes of 64 racks, shapes of racks that it chooses, and
bytes by a deadline, and tells what is available: with an empty calendar, and beside 1,000
reservations. Figures are medians of processor time. First, threads ask for more than there is, and
the calendar must have nothing promised twice.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from statistics import median
from typing import Final

from apps.controller.controller import Controller
from apps.controller.rooms import Rooms
from apps.process.configuration import load_configuration
from benchmarks._report import Result, report, run_benchmark
from hydra.errors import AdmissionError
from hydra.model import Circuit
from hydra.reservations.calendar import ROUNDING_MBPS, Booking, peak_mbps
from hydra.reservations.calendar_entries import bookings_of
from hydra.reservations.reservation import ReservationRequest, Transfer
from hydra.reservations.shapes import ShapeRequest, chosen_request, pattern_request
from tests.journals import SqliteJournal

CONFIG: Final = Path(__file__).parents[1] / "configs" / "reference.yaml"
RACKS, PLANES, RUNS = 64, 8, 3
BOOKED, SINGLE, QUESTIONS = 1_000, 200, 2_000
REQUESTS, THREADS = 1_000, 16
SHAPE_MS, AVAILABILITY_PER_S = 200.0, 1_000.0
HOUR_S, MONTH_S = 3_600.0, 30 * 86_400.0
PATTERNS: Final = ("ring", "torus:4x4x4", "tree", "pairs", "all-to-all")
_HOURS: Final = count(2)


def controller() -> Rooms:
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
    ).rooms


def wish(mbps: float = 0.0, length_s: float | None = None) -> ReservationRequest:
    """An hour of its own, later than now: no switch is connected."""
    start = time.time() + next(_HOURS) * HOUR_S
    return ReservationRequest("", "", mbps, length_s, start)


def hour(mbps: float = 0.0) -> ReservationRequest:
    return wish(mbps, HOUR_S - 60)


def filled() -> Rooms:
    """A controller with reservations for a month, of racks beyond the first 64."""
    rooms, rng, done = controller(), random.Random(1), 0
    others = [rack.name for rack in rooms.fabric.racks[RACKS:]]
    month = replace(hour(500.0), duration_s=MONTH_S)
    while done < BOOKED:
        src, dst = rng.sample(others, 2)
        with suppress(AdmissionError):
            rooms.promises.admission.reserve(replace(month, src=src, dst=dst))
            done += 1
    return rooms


def cpu_ms(ask: Callable[[], object], runs: int) -> float:
    """Median processor time."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        with suppress(AdmissionError):
            ask()
        times.append((time.process_time() - started) * 1000)
    return median(times)


def shapes(empty: Rooms, full: Rooms, runs: int) -> list[Result]:
    """Shapes of 64 racks."""
    names = [rack.name for rack in empty.fabric.racks[:RACKS]]
    circuit_mbps = empty.fabric.ports[0].rate_mbps

    def asked(pattern: str, rate: float | None) -> Callable[[], ShapeRequest]:
        return lambda: pattern_request(pattern, names, rate, hour())

    cases: dict[str, Callable[[], ShapeRequest]] = {}
    for pattern in PATTERNS:
        rate = circuit_mbps / (200 if pattern == "all-to-all" else 4)
        cases[f"{pattern}, {rate:g} Mb/s"] = asked(pattern, rate)
        cases[f"{pattern}, most"] = asked(pattern, None)
    cases["ring, any 64, 2500 Mb/s"] = lambda: chosen_request("ring", 64, (), 2500.0, hour())
    results = []
    for case, made in cases.items():
        ours, baseline = (cpu_ms(partial(_reserve, rooms, made), runs) for rooms in (full, empty))
        results.append(
            Result(case, "CPU time", "ms", "lower", ours, baseline, "empty calendar", SHAPE_MS)
        )
    return results


def _reserve(rooms: Rooms, made: Callable[[], ShapeRequest]) -> None:
    rooms.promises.shapes.reserve(made())


def questions(rooms: Rooms) -> list[Result]:
    """Availability and transfers, beside single reservations."""
    rng, names = random.Random(2), [rack.name for rack in rooms.fabric.racks]
    day = ReservationRequest("", "", rooms.fabric.ports[0].rate_mbps, duration_s=86_400.0)

    def between(asked: ReservationRequest) -> ReservationRequest:
        src, dst = rng.sample(names, 2)
        return replace(asked, src=src, dst=dst)

    def reserve(asked: Callable[[], ReservationRequest]) -> Callable[[], object]:
        return lambda: rooms.promises.admission.reserve(between(asked()))

    told = cpu_ms(lambda: rooms.promises.admission.availability(between(day)), QUESTIONS)
    single = cpu_ms(reserve(lambda: hour(10.0)), SINGLE)
    transfer = cpu_ms(reserve(lambda: by_deadline(1_000.0)), SINGLE)
    rate, usual = 1000 / told, 1000 / single
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


def promised_twice(rooms: Rooms) -> Result:
    """Circuits with more promises than capacity, after requests in parallel for one hour."""
    rng, names = random.Random(3), [rack.name for rack in rooms.fabric.racks[:8]]
    at, by = hour(), by_deadline(900_000.0)
    cases = [(number, rng.sample(names, 4)) for number in range(REQUESTS)]

    def ask(case: tuple[int, Sequence[str]]) -> bool:
        number, racks = case
        one = replace(at if number % 2 else by, src=racks[0], dst=racks[1])
        try:
            if number % 10 == 0:
                ring = pattern_request("ring", racks, 3000.0, at)
                rooms.promises.shapes.reserve(ring)
            else:
                rate = 4000.0 if number % 2 else 0.0
                rooms.promises.admission.reserve(replace(one, bandwidth_mbps=rate))
        except AdmissionError:
            return False
        return True

    with ThreadPoolExecutor(THREADS) as asking:
        admitted = sum(asking.map(ask, cases))
    case = f"{REQUESTS} requests, {THREADS} threads, {admitted} admitted"
    return Result(case, "promised twice", "circuits", "lower", overfull(rooms), target=0)


def overfull(rooms: Rooms) -> int:
    """Number of circuits with more promises than capacity at some moment."""
    booked: dict[Circuit, list[Booking]] = defaultdict(list)
    for one in rooms.ledger.bookings.all():
        for booking in bookings_of(rooms.fabric, one) if one.is_booked else ():
            for circuit in booking.path.circuits:
                booked[circuit].append(booking)
    return sum(
        peak_mbps(bookings, 0.0, inf) > rooms.fabric.rate_of(circuit) + ROUNDING_MBPS
        for circuit, bookings in booked.items()
    )


def main(arguments: Sequence[str] = ()) -> int:
    runs = int(arguments[0]) if arguments else RUNS
    empty, full = controller(), filled()
    results = [promised_twice(controller()), *questions(full), *shapes(empty, full, runs)]
    return report("jobs", results)


if __name__ == "__main__":
    run_benchmark(main)
