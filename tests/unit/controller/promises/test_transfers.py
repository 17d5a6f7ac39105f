"""The controller's admission of bytes by a deadline."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from apps.controller.controller import Controller
from apps.process.configuration import load_configuration
from hydra.errors import AdmissionError
from hydra.reservations.booking import peak_mbps
from hydra.reservations.reservation import Profile, ReservationRequest, Transfer
from hydra.reservations.transfers import missing_megabytes
from tests.journals import SqliteJournal

LOADED = load_configuration(Path(__file__).parents[4] / "configs" / "demo.yaml")


@pytest.fixture
def rooms():
    return Controller(
        loaded=LOADED,
        journal=SqliteJournal(":memory:"),
        post=lambda job: job(),
        read_file=lambda: LOADED,
    ).rooms


def transfer(start, megabytes, length_s):
    return ReservationRequest(
        "r1", "r2", 0.0, start_unix_s=start, transfer=Transfer(megabytes, start + length_s)
    )


def test_parallel_requests_get_the_circuit_once(rooms):
    start = time.time() + 10_000

    def ask(_):
        try:
            return rooms.admission.reserve(transfer(start, 125.0, 100.0))
        except AdmissionError:
            return None

    with ThreadPoolExecutor(8) as asking:
        made = [one for one in asking.map(ask, range(30)) if one is not None]
    # Ten times 1,000 Mb fill a circuit of 100 Mb/s for 100 s; a server pair has one path.
    assert len(made) == 10
    booked = list(rooms.ledger.bookings._book._calendar)
    assert peak_mbps(booked, start, start + 100) <= 100.000001


def test_a_refusal_leaves_nothing(rooms):
    with pytest.raises(AdmissionError, match="the earliest end that fits is"):
        rooms.admission.reserve(transfer(time.time() + 10_000, 125.0, 4.0))
    assert rooms.ledger.bookings.all() == ()


@pytest.mark.parametrize("profile", Profile)
def test_bytes_beyond_a_circuit_go_over_several(rooms, profile):
    """200 Mb/s until the deadline, between racks of two servers: two circuits of 100 Mb/s."""
    start = time.time() + 10_000
    asked = transfer(start, 125.0, 5.0)
    asked = replace(asked, transfer=replace(asked.transfer, profile=profile))
    made = rooms.admission.reserve(asked)
    assert [(one.bandwidth_mbps, one.transfer.megabytes) for one in made.parts] == [
        (pytest.approx(100.0), 62.5)
    ] * 2
    assert len({one.booked for one in made.parts}) == 2
    assert (made.transfer.megabytes, missing_megabytes(made)) == (125.0, 0.0)
    assert made.bandwidth_mbps == pytest.approx(200.0)
    assert made.expires_unix_s == pytest.approx(start + 5)
    with pytest.raises(AdmissionError, match="the earliest end that fits is"):
        rooms.admission.reserve(asked)


def test_a_refusal_has_the_earliest_end_over_several_circuits(rooms):
    """500 MB at 400 Mb/s, of which two circuits carry 200 Mb/s."""
    start = time.time() + 10_000
    with pytest.raises(AdmissionError, match="which fits in parts") as refused:
        rooms.admission.reserve(transfer(start, 500.0, 10.0))
    assert rooms.ledger.bookings.all() == ()
    best, single = refused.value.alternatives
    assert best.end_unix_s == pytest.approx(start + 20, abs=0.01)
    assert single.end_unix_s == pytest.approx(start + 40)
    length_s = best.end_unix_s - start
    assert rooms.admission.reserve(transfer(start, 500.0, length_s)).parts


def test_a_preview_tells_rate_and_end(rooms):
    start = time.time() + 10_000
    preview = rooms.admission.preview(transfer(start, 125.0, 100.0))
    assert preview.reservation.bandwidth_mbps == 100
    assert preview.reservation.expires_unix_s == pytest.approx(start + 10)
    assert rooms.ledger.bookings.all() == ()
