"""Requests over many connections of the REST server at once: no double bookings."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import httpx

from apps.controller.controller import Controller
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.reservations.booking import peak_mbps
from tests.journals import SqliteJournal
from tests.waiting import PATIENCE_S

LOADED = load_configuration(Path(__file__).parents[4] / "configs" / "demo.yaml")
CREATED, REFUSED = 201, 409


def bodies(start):
    """Shapes, rates and bytes for the same time, far beyond the circuits' capacity."""
    rng = random.Random(57)
    at = {"start_unix_s": start, "end_unix_s": start + 100}
    for number in range(120):
        src, dst, *_ = racks = rng.sample(["r1", "r2", "r3", "r4"], 4)
        if number % 3 == 0:
            yield "/v1/shapes", {"pattern": "ring", "racks": racks, "bandwidth_mbps": 15, **at}
        elif number % 3 == 1:
            yield "/v1/reservations", {"src": src, "dst": dst, "bandwidth_mbps": 40, **at}
        else:
            yield "/v1/reservations", {"src": src, "dst": dst, "megabytes": 300, **at}


def test_no_circuit_is_promised_beyond_its_rate():
    controller = Controller(
        loaded=LOADED,
        journal=SqliteJournal(":memory:"),
        post=lambda job: job(),
        read_file=lambda: LOADED,
    )
    server = RestServer(create_app(controller.desk), "127.0.0.1", 0)
    server.start()
    start = time.time() + 100 * PATIENCE_S
    try:
        with (
            httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client,
            ThreadPoolExecutor(12) as asking,
        ):
            sent = [asking.submit(client.post, path, json=body) for path, body in bodies(start)]
            answers = [one.result().status_code for one in sent]
    finally:
        server.stop()
    assert set(answers) == {CREATED, REFUSED}
    bookings = list(controller.rooms.ledger.bookings._book._calendar)
    assert len(bookings) > answers.count(CREATED), "shapes have several"
    for circuit in {circuit for booking in bookings for circuit in booking.path.circuits}:
        mine = [booking for booking in bookings if circuit in booking.path.circuits]
        assert peak_mbps(mine, 0.0, inf) <= LOADED.fabric.rate_of(circuit) + 1e-6
        ends = set(circuit.ends)
        sharing = {c for b in bookings for c in b.path.circuits if not ends.isdisjoint(c.ends)}
        assert sharing == {circuit}, "a port ends one circuit"
