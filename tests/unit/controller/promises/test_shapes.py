"""The controller's admission of shapes: with bundles, and without traces of failed trials."""

import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from apps.controller.controller import Controller
from apps.process.configuration import load_configuration
from hydra.errors import AdmissionError, DeviceMissing, WrongRequest
from hydra.lifecycle import ReservationState
from hydra.reservations.book import ReservationBook
from hydra.reservations.constraints import Constraints
from hydra.reservations.reservation import Protect, ReservationRequest, RetryKey, ServiceClass
from hydra.reservations.shapes import chosen_request, pattern_request, shape_of
from tests.journals import SqliteJournal
from tests.waiting import HANGS_S, PATIENCE_S

LOADED = load_configuration(Path(__file__).parents[4] / "configs" / "demo.yaml")
FOUR = ("r1", "r2", "r3", "r4")


@pytest.fixture
def rooms():
    return Controller(
        loaded=LOADED,
        journal=SqliteJournal(":memory:"),
        post=lambda job: job(),
        read_file=lambda: LOADED,
    ).rooms


def admit(rooms, pattern, mbps, **more):
    """Request a shape with a later start: no switch is connected now."""
    wish = ReservationRequest("", "", 0.0, start_unix_s=time.time() + PATIENCE_S, **more)
    made = rooms.shapes.reserve(pattern_request(pattern, FOUR, mbps, wish))
    return shape_of(LOADED.fabric, made.admitted)


def test_the_most_of_pairs_are_all_circuits_of_their_racks(rooms):
    shape = admit(rooms, "pairs", None)
    assert [(one.src, one.dst, one.bandwidth_mbps) for one in shape.edges] == [
        ("r1", "r2", 200.0),
        ("r3", "r4", 200.0),
    ]
    assert [len(one.parts) for one in shape.edges] == [2, 2]


def test_a_refusal_leaves_nothing_and_names_nothing_that_was_only_tried(rooms):
    with pytest.raises(AdmissionError, match="of this request") as refused:
        admit(rooms, "all-to-all", 60.0)
    assert rooms.ledger.bookings.all() == ()
    assert not re.search(r"\b[0-9a-f]{12}\b", str(refused.value))
    assert refused.value.alternatives


def test_a_repeated_request_is_not_planned_again(rooms):
    retry = RetryKey("k", "digest")
    first, again = (admit(rooms, "ring", None, retry=retry) for _ in range(2))
    assert first == again
    assert len(rooms.ledger.bookings.all()) == 4


def test_racks_are_chosen_where_there_is_room(rooms):
    start = time.time() + PATIENCE_S
    wish = ReservationRequest("r1", "r2", 60.0, start_unix_s=start)
    rooms.admission.reserve(wish)
    pair = replace(wish, src="", dst="", bandwidth_mbps=0.0)
    made = rooms.shapes.reserve(chosen_request("pairs", 2, (), None, pair))
    shape = rooms.shapes.shape(made.group)
    assert (shape.racks, shape.edges[0].bandwidth_mbps) == (("r3", "r4"), 200.0)
    assert shape.choice.startswith("2 of 4 racks, by most free Mb/s")


def test_racks_for_a_lost_pair_are_tried_first(rooms):
    shape = admit(rooms, "pairs", 80.0)
    lost = shape.edges[0]
    rooms.ledger.bookings._book.transition(lost.id, ReservationState.FAILED, "no light at r2")
    shape = rooms.shapes.shape(shape.id)
    assert shape.instead == FOUR
    alone = ReservationRequest(
        "r1", "r2", 80.0, start_unix_s=lost.starts_unix_s, service=ServiceClass.GUARANTEED
    )
    rooms.admission.reserve(alone)
    before = rooms.ledger.bookings.all()
    assert rooms.shapes.shape(shape.id).instead == ("r3", "r4")
    assert rooms.ledger.bookings.all() == before, "a trial leaves nothing"


def test_racks_for_a_lost_pair_meet_its_constraints(rooms):
    shape = admit(rooms, "pairs", 80.0, constraints=Constraints(avoid_planes=("p1",)))
    lost = shape.edges[0]
    rooms.ledger.bookings._book.transition(lost.id, ReservationState.FAILED, "no light at r2")
    assert rooms.shapes.shape(shape.id).instead == FOUR
    other = ReservationRequest(
        *("r1", "r2", 80.0),
        start_unix_s=lost.starts_unix_s,
        service=ServiceClass.GUARANTEED,
        constraints=Constraints(require_planes=("p2",)),
    )
    rooms.admission.reserve(other)
    assert rooms.shapes.shape(shape.id).instead == ("r3", "r4")


def test_most_of_protected_pairs(rooms):
    shape = admit(rooms, "pairs", None, protect=Protect.DISJOINT)
    assert [one.bandwidth_mbps for one in shape.edges] == [100.0, 100.0]
    assert all(len(one.paths) == 2 for one in shape.edges)


def test_others_get_answers_while_racks_for_a_lost_pair_are_tried(rooms, monkeypatch):
    shape = admit(rooms, "pairs", 80.0)
    rooms.ledger.bookings._book.transition(shape.edges[0].id, ReservationState.FAILED, "dark")
    draft, answered = ReservationBook.draft_refused, []

    def ask_meanwhile(book, *asked):
        other = threading.Thread(target=rooms.ledger.bookings.all)
        other.start()
        other.join(HANGS_S)
        answered.append(not other.is_alive())
        return draft(book, *asked)

    monkeypatch.setattr(ReservationBook, "draft_refused", ask_meanwhile)
    assert rooms.shapes.shape(shape.id).instead == FOUR
    assert answered
    assert all(answered)


def test_a_wrong_request_is_wrong_even_if_no_switch_is_ready(rooms):
    """No remedy of a device would help."""
    wrong = ReservationRequest("r1", "h11", 10.0)
    with pytest.raises(WrongRequest, match="inside a rack never leaves its ToR"):
        rooms.admission.reserve(wrong)
    with pytest.raises(WrongRequest, match="duration_s must be a finite number above 0"):
        rooms.admission.reserve(ReservationRequest("r1", "r2", 10.0, duration_s=-1.0))
    with pytest.raises(WrongRequest, match="inside a rack never leaves its ToR"):
        rooms.shapes._trial([replace(wrong, dst="r1")], 8, brief=True)
    with pytest.raises(DeviceMissing):
        rooms.admission.reserve(replace(wrong, dst="r2"))
