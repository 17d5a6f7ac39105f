"""What is promised is in the journal or is not promised; what has happened is written late."""

import logging

import pytest

from apps.controller import ledger as ledger_module
from apps.controller.ledger import Ledger
from apps.process.metrics import Metrics
from hydra.journal import JournalError, JournalTaken
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState
from hydra.reservations.calendar import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import ReservationRequest
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import path_of, small_fabric, state_of

FABRIC = small_fabric(racks=3, planes=2, servers=2)
LIMITS = AdmissionLimits(3)
STANDING = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))


class Disk(SqliteJournal):
    """A journal on a disk that can be full."""

    full = False

    def write(self, changes):
        if self.full:
            raise JournalError("can't write the journal: database or disk is full")
        super().write(changes)


@pytest.fixture
def disk(tmp_path):
    return Disk(str(tmp_path / "journal.db"))


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def ledger(disk, metrics, monkeypatch):
    monkeypatch.setattr(ledger_module, "_TRY_AGAIN_S", 0.0)
    return Ledger(FABRIC, disk, metrics)


def reserve(ledger, mbps=30.0, **more):
    request = ReservationRequest("h11", "r2", mbps, **more)
    reservation = ledger.add(request, LIMITS)
    ledger.keep([reservation])
    return reservation


def restarted(disk):
    disk.full = False
    other = Ledger(FABRIC, disk)
    other.load()
    return other


def everything(ledger):
    return ledger.reservations(), ledger.pins(), ledger.usage("tina")


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger, one, _held: ledger.let_go(one.id),
        lambda ledger, _one, held: ledger.let_go(held.id),
        lambda ledger, _one, held: ledger.commit(held.id, None),
        lambda ledger, one, _held: ledger.modify(one.id, Modification(20.0), LIMITS, None),
    ],
    ids=["release", "cancel", "commit", "modify"],
)
def test_what_is_asked_for_is_kept_or_not_done(ledger, disk, act):
    one = reserve(ledger, owner="tina")
    held = reserve(ledger, hold_s=1000.0, owner="tina")
    ledger.change(one.id, State.ACTIVE)
    before = everything(ledger)
    disk.full = True
    with pytest.raises(JournalError, match="database or disk is full"):
        act(ledger, one, held)
    assert everything(ledger) == before
    assert not ledger.behind
    disk.full = False
    act(ledger, one, held)
    assert everything(ledger) != before


def test_a_reservation_that_can_not_be_kept_leaves_nothing(ledger, disk):
    disk.full = True
    with pytest.raises(JournalError), ledger.trial():
        reservation = ledger.add(ReservationRequest("h11", "r2", 30.0), LIMITS)
        ledger.keep([reservation])
    assert ledger.reservations() == ()
    assert restarted(disk).reservations() == ()


def test_what_has_happened_is_written_once_that_can_be(ledger, disk, metrics, caplog):
    one, other = reserve(ledger), reserve(ledger)
    disk.full = True
    ledger.settle(STANDING)
    with caplog.at_level(logging.INFO, "hydra.ledger"):
        ledger.save("reconfigured")
        ledger.change(one.id, State.ACTIVE)
        ledger.change(other.id, State.FAILED, "no path came up")
        ledger.change(one.id, State.RELEASING)
        ledger.catch_up()
        assert ledger.behind
        errors = [line for line in caplog.messages if "disk is full" in line]
        assert len(errors) == 1, "an outage is told of once"
        disk.full = False
        ledger.catch_up()
    assert not ledger.behind
    assert caplog.messages[-1] == "the journal can be written again, and is up to date"
    assert metrics.registry.get_sample_value("hydra_journal_failures_total") >= 5
    again = restarted(disk)
    assert again.reservation(one.id).state is State.RELEASING
    assert again.reservation(other.id).reason == "no path came up"
    assert again.state == STANDING


def test_the_next_promise_takes_along_what_is_late(ledger, disk):
    one = reserve(ledger)
    disk.full = True
    ledger.change(one.id, State.FAILED, "no path came up")
    disk.full = False
    reserve(ledger)
    assert not ledger.behind
    assert restarted(disk).reservation(one.id).state is State.FAILED


def test_old_ones_that_are_forgotten_meanwhile_do_not_come_back(ledger, disk, monkeypatch):
    monkeypatch.setattr(ledger_module, "_KEPT_RESERVATIONS", 1)
    one, other = reserve(ledger), reserve(ledger)
    disk.full = True
    ledger.change(one.id, State.FAILED)
    ledger.change(other.id, State.FAILED)
    assert [r.id for r in ledger.reservations()] == [other.id]
    disk.full = False
    ledger.catch_up()
    assert [r.id for r in restarted(disk).reservations()] == [other.id]


def test_who_has_lost_the_journal_promises_nothing(ledger, tmp_path):
    one = reserve(ledger)
    successor = Ledger(FABRIC, SqliteJournal(tmp_path / "journal.db"))
    successor.load()
    with pytest.raises(JournalTaken, match="another controller has taken over the journal"):
        reserve(ledger)
    with pytest.raises(JournalTaken):
        ledger.let_go(one.id)
    ledger.change(one.id, State.FAILED, "as it sees it")
    ledger.catch_up()
    assert ledger.behind
    assert [r.state for r in restarted(SqliteJournal(tmp_path / "journal.db")).reservations()] == [
        State.ACTIVATING
    ]
