"""An ending controller leaves work to another controller only if there may be another."""

import time
from pathlib import Path

import pytest

from apps.controller.controller import Controller
from apps.process.configuration import load_configuration
from apps.process.term import Alone
from hydra.lifecycle import ReservationState
from hydra.reservations.reservation import ReservationRequest
from tests.journals import SqliteJournal
from tests.unit.controller.runners import awaited
from tests.waiting import PATIENCE_S

LOADED = load_configuration(Path(__file__).parents[3] / "configs" / "demo.yaml")


class Followed(Alone):
    """The term of a leader that may have successors."""

    is_shared = True


@pytest.mark.parametrize("term", [Alone(), Followed()])
def test_the_next_leader_goes_on_where_there_may_be_one(term, pass_time):
    controller = Controller(
        loaded=LOADED,
        journal=SqliteJournal(":memory:"),
        post=lambda job: job(),
        read_file=lambda: LOADED,
        term=term,
    )
    ledger, conductor, admission = (
        controller.rooms.ledger,
        controller.rooms.conductor,
        controller.rooms.admission,
    )
    soon_s = time.time() + PATIENCE_S
    with ledger.bookings.trial():
        (one,) = admission.add(
            ReservationRequest("r1", "r2", 10.0, start_unix_s=soon_s), admission._limits.now(), None
        )
        ledger.reservations.keep([one])
    pass_time(2 * PATIENCE_S)
    conductor.duty("reservations", controller.rooms.reservation_care.keep_time, lambda: 0.0)
    controller.end_soon()
    conductor.start()
    for _ in range(2):
        conductor.ask(awaited(lambda: None))
    ended = ledger.bookings.get(one.id).state
    controller.stop()
    assert (ended is ReservationState.SCHEDULED) == term.is_shared
