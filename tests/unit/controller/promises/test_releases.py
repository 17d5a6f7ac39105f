"""Ends of reservations: by the clock, by users, and by a leader that ends or starts again."""

import time
from dataclasses import replace

import pytest

from hydra.errors import (
    DeviceUnavailable,
)
from hydra.journal import JournalError, Kind
from hydra.lifecycle import ReservationState as State
from hydra.reservations.modification import Modification
from tests.unit.controller.runners import awaited
from tests.unit.core.fabrics import (
    small_fabric,
)
from tests.waiting import PATIENCE_S

from .stage import TO_R3, Stage


def test_a_leader_that_ends_leaves_what_it_has_not_begun_to_the_next_one(journal):
    """The controller ends the job under way, whose reservations begin together, and begins no other
    job.
    """
    fabric = small_fabric(racks=4, planes=2)
    stage = Stage(journal, fabric)
    several = [TO_R3, replace(TO_R3, src="h21", dst="r4"), replace(TO_R3, src="h31", dst="r4")]
    kept, taken_back, late = (
        stage.reservations.reserve_all([one], all_or_nothing=True).admitted[0] for one in several
    )
    stage.conduct()
    group = stage.reservations.reserve_all(
        [replace(TO_R3, bandwidth_mbps=mbps) for mbps in (20.0, 10.0)], all_or_nothing=True
    ).admitted
    held = []

    def hold_reserved():
        held.append(stage.ledger.bookings.active())
        stage.placement.end_soon()

    stage.upkeep.hold_reserved = hold_reserved
    stage.conduct()
    assert len(held) == 1
    stage.reservations.release(taken_back.id)
    stage.reservations.modify(late.id, Modification(bandwidth_mbps=50.0))
    last = stage.reservations.reserve(replace(TO_R3, bandwidth_mbps=5.0))
    stage.conduct()
    stage.care.keep_time()
    assert len(held) == 1
    assert [stage.ledger.bookings.get(one.id).state for one in (*group, taken_back, last)] == [
        State.ACTIVE,
        State.ACTIVE,
        State.RELEASING,
        State.ACTIVATING,
    ]

    following = Stage(journal, fabric)
    following.ledger.load()
    following.care.resume()
    states = {one.id: one.state for one in following.ledger.bookings.all()}
    assert states.pop(taken_back.id) is State.RELEASED
    assert states == dict.fromkeys(
        (kept.id, late.id, last.id, *(one.id for one in group)), State.ACTIVE
    )
    assert following.ledger.bookings.get(late.id).bandwidth_mbps == 50.0


def test_a_leader_that_ends_begins_and_ends_no_more_by_the_clock(journal, pass_time):
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    soon_s = time.time() + PATIENCE_S
    due = [
        stage.reservations.reserve(replace(TO_R3, bandwidth_mbps=10.0, start_unix_s=soon_s))
        for _ in range(2)
    ]
    over = stage.reservations.reserve(replace(TO_R3, src="h21", dst="r4", duration_s=PATIENCE_S))
    stage.conduct()
    pass_time(2 * PATIENCE_S)
    stage.placement.end_soon()
    stage.care.keep_time()
    states = [stage.ledger.bookings.get(one.id).state for one in (*due, over)]
    assert states == [State.SCHEDULED, State.SCHEDULED, State.ACTIVE]


def test_one_that_is_let_go_before_the_start_has_resumed_it_is_released_once(journal):
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    (reservation,) = stage.reservations.reserve_all([TO_R3], all_or_nothing=True).admitted
    stage.conduct()
    stage.reservations.release(reservation.id)
    stage.care.resume()
    stage.conduct()
    assert stage.ledger.bookings.get(reservation.id).state is State.RELEASED


def test_a_path_goes_whose_reservation_was_let_go_before_a_restart(journal):
    stage = Stage(journal)
    one = stage.reservations.reserve(TO_R3)
    stage.conduct()
    stage.placement.end_soon()
    stage.reservations.release(one.id)
    stage.conduct()
    new = Stage(journal)
    new.ledger.load()
    assert new.ledger.bookings.get(one.id).state is State.RELEASING
    new.care.resume()
    assert new.ledger.bookings.get(one.id).state is State.RELEASED
    assert new.ledger.network.state.topology.paths == (), "nobody wants it"


def test_the_end_of_a_release_is_written_once(journal, monkeypatch):
    stage = Stage(journal)
    one = stage.reservations.reserve(TO_R3)
    stage.conduct()
    written, write = [], journal.write

    def note(changes):
        changes = list(changes)
        written.extend(change.record for change in changes if change.key == one.id)
        write(changes)

    monkeypatch.setattr(journal, "write", note)
    stage.reservations.release(one.id)
    stage.conduct()
    assert [record["state"] for record in written] == ["releasing", "released"]
    assert stage.ledger.bookings.leaving() == ()
    assert journal.records(Kind.RESERVATION) == written[-1:]


def test_a_group_is_released_by_one_write_and_one_change(journal, monkeypatch):
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    wishes = [TO_R3, replace(TO_R3, src="h21", dst="r4"), replace(TO_R3, bandwidth_mbps=5.0)]
    group = stage.reservations.reserve_all(wishes, all_or_nothing=True)
    stage.conduct()
    later = replace(TO_R3, start_unix_s=time.time() + PATIENCE_S)
    other = stage.reservations.reserve(later)
    changes = len(stage.ledger.log.reconfigurations())
    written, write = [], journal.write

    def note(changes):
        changes = list(changes)
        written.append([one.record["state"] for one in changes if one.kind is Kind.RESERVATION])
        write(changes)

    monkeypatch.setattr(journal, "write", note)
    told = stage.reservations.release_group(group.group)
    assert {one.state for one in told} == {State.RELEASING}
    stage.conduct()
    assert [states for states in written if states] == [["releasing"] * 3, ["released"] * 3]
    assert len(stage.ledger.log.reconfigurations()) == changes + 1
    assert stage.ledger.network.state.topology.paths == ()
    assert stage.ledger.bookings.leaving() == ()
    assert stage.reservations.release_group(group.group) == stage.ledger.bookings.group(group.group)
    assert stage.ledger.bookings.get(other.id).state is State.SCHEDULED


def test_a_group_stays_if_its_release_can_not_be_written(journal, monkeypatch):
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    wishes = [TO_R3, replace(TO_R3, bandwidth_mbps=5.0)]
    group = stage.reservations.reserve_all(wishes, all_or_nothing=True)
    stage.conduct()
    before = stage.ledger.bookings.all()

    def fails(_changes):
        raise JournalError("full")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "write", fails)
        with pytest.raises(JournalError):
            stage.reservations.release_group(group.group)
    assert stage.ledger.bookings.all() == before
    assert len(stage.ledger.bookings.pins()) == 1


@pytest.mark.parametrize("lasts_s", [None, PATIENCE_S], ids=["released", "expired"])
def test_a_path_that_could_not_be_taken_down_goes_after_a_restart(journal, lasts_s, pass_time):
    stage = Stage(journal)
    one = stage.reservations.reserve(replace(TO_R3, duration_s=lasts_s))
    stage.conduct()

    @awaited
    def fails(*_):
        raise DeviceUnavailable("vs1", "not connected")

    stage.mover.move = fails
    if lasts_s is None:
        stage.reservations.release(one.id)
        stage.conduct()
    else:
        pass_time(2 * PATIENCE_S)
        stage.care.keep_time()
    over = State.RELEASED if lasts_s is None else State.EXPIRED
    assert stage.ledger.bookings.get(one.id).state is over
    new = Stage(journal)
    new.ledger.load()
    new.care.resume()
    new.care.keep_time()
    assert new.ledger.network.state.topology.paths == (), "nobody wants it"
    assert new.ledger.bookings.leaving() == ()


@pytest.mark.parametrize("more", [{}, {"hold_s": PATIENCE_S}], ids=["put off", "committed"])
def test_what_is_kept_while_another_one_ends_goes_on(journal, more, pass_time):
    stage = Stage(journal, small_fabric(racks=6, planes=1))
    end = time.time() + PATIENCE_S
    ends = [("r1", "r2"), ("r3", "r4")]
    asks = [replace(TO_R3, src=src, dst=dst, end_unix_s=end) for src, dst in ends]
    if more:
        asks[1] = replace(asks[1], end_unix_s=None, **more)
    ids = {stage.reservations.reserve(ask).id for ask in asks}
    stage.conduct()
    move, kept = stage.move, []

    @awaited
    def moved(entry, target):
        for one in sorted(ids - set(kept)):
            reservation = stage.ledger.bookings.get(one)
            if not kept and reservation.ends_by(time.time()) and reservation.is_booked:
                kept.append(one)
                if reservation.state is State.HELD:
                    stage.reservations.commit(one)
                else:
                    stage.reservations.modify(one, Modification(end_unix_s=end + 3600))
        return move(entry, target)

    stage.mover.move = moved
    pass_time(2 * PATIENCE_S)
    stage.care.keep_time()
    stage.conduct()
    (other,) = ids - set(kept)
    assert stage.ledger.bookings.get(other).state is State.EXPIRED
    assert stage.ledger.bookings.get(kept[0]).state is State.ACTIVE
