"""A new leader does not wait for parts that it knew to be missing as a standby."""

import time
from pathlib import Path

import pytest

from apps.controller.controller import Controller
from apps.process.configuration import load_configuration
from tests.journals import SqliteJournal
from tests.unit.controller.runners import do

LOADED = load_configuration(Path(__file__).parents[3] / "configs" / "demo.yaml")
LONG_S = 3600.0


@pytest.fixture
def controller():
    """A new leader that has read the present devices, without any connected switch."""
    one = Controller(
        loaded=LOADED,
        journal=SqliteJournal(":memory:"),
        post=lambda job: job(),
        read_file=lambda: LOADED,
    )
    one._began_s = time.monotonic()
    one.rooms.courses.recovery.done = True
    yield one
    one.stop()


def test_what_was_missing_before_it_began_to_lead_keeps_nobody_from_it(controller):
    controller.fleet.note_listening()
    controller.fleet._listening_s -= LONG_S
    assert controller.rooms.reach.absences.missing()
    do(controller._resume())
    assert not controller.rooms.reach.starting
    assert controller.rooms.reach.not_ready() == []


def test_after_a_start_what_is_missing_has_its_time(controller):
    controller.fleet.note_listening()
    controller._began_s = controller.fleet._listening_s = time.monotonic() + LONG_S
    do(controller._resume())
    assert controller.rooms.reach.starting
