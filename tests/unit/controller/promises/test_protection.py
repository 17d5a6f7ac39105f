"""Protected reservations: placed with both paths, moved after a loss, and protected again."""

import pytest

from apps.controller.record.ledger import Ledger
from hydra.lifecycle import ReservationState as State
from hydra.reservations.reservation import Protect, ReservationRequest
from tests.unit.controller.runners import awaited
from tests.unit.core.fabrics import small_fabric

from .stage import Stage

WIDE = small_fabric(racks=4, planes=3)
PROTECTED = ReservationRequest("h11", "h21", 40.0, protect=Protect.DISJOINT)


@pytest.fixture
def wide(journal):
    return Stage(journal, WIDE)


def ends(path):
    return frozenset(end for circuit in path.circuits for end in circuit.ends)


def lose(stage, path):
    """The path's circuits are withdrawn, and their ports quarantined."""
    stage.blocked |= ends(path)
    stage.ledger.network.settle(
        stage.planning.without_circuits(stage.ledger.network.state, path.circuits)
    )
    stage.placement.restore()


@pytest.fixture
def made(wide):
    admitted = wide.reservations.reserve(PROTECTED)
    wide.conduct()
    return wide.ledger.bookings.get(admitted.id)


def test_both_paths_come_up_in_one_change(wide, made):
    assert made.state is State.ACTIVE
    assert set(wide.ledger.network.state.topology.paths) == set(made.paths)
    assert len(wide.ledger.log.reconfigurations()) == 1
    assert wide.ledger.network.unwanted([made.pair]) == {}
    again = Ledger(fabric=WIDE, journal=wide.journal)
    again.load()
    assert again.bookings.get(made.id) == made


def test_the_loss_of_the_working_path_leaves_the_second_one_in_place(wide, made):
    lose(wide, made.booked)
    now = wide.ledger.bookings.get(made.id)
    assert (now.state, now.booked, now.path) == (State.ACTIVE, made.protection, made.protection)
    assert now.protection not in (None, *made.paths)
    assert set(wide.ledger.network.state.topology.paths) == set(now.paths)


def test_a_lost_second_path_is_replaced_when_there_is_room(wide, made):
    spare = frozenset(port.id for port in WIDE.ports) - ends(made.booked) - ends(made.protection)
    wide.blocked = spare
    lose(wide, made.protection)
    now = wide.ledger.bookings.get(made.id)
    assert (now.state, now.booked, now.protection) == (State.ACTIVE, made.booked, None)
    assert wide.ledger.network.state.topology.paths == (made.booked,)
    news = [event.reservation for event in wide.ledger.events.after(0)[0] if event.reservation]
    assert news[-1] == now
    wide.blocked = frozenset()
    wide.care.keep_time()
    now = wide.ledger.bookings.get(made.id)
    assert now.protection is not None
    assert set(wide.ledger.network.state.topology.paths) == set(now.paths)


def test_a_second_path_that_does_not_come_up_fails_nothing(wide):
    admitted = wide.reservations.reserve(PROTECTED)
    (circuit,) = admitted.protection.circuits
    move = wide.move

    def without_standby(entry, target):
        return move(entry, wide.planning.reduced(target, [circuit], ()))

    wide.mover.move = awaited(without_standby)
    wide.conduct()
    now = wide.ledger.bookings.get(admitted.id)
    assert (now.state, now.path, now.protection) == (State.ACTIVE, admitted.booked, None)
    assert wide.ledger.network.state.topology.paths == (admitted.booked,)


def test_its_release_takes_both_paths_down(wide, made):
    wide.reservations.release(made.id)
    wide.conduct()
    assert wide.ledger.bookings.get(made.id).state is State.RELEASED
    assert wide.ledger.network.state.topology.paths == ()
    assert wide.ledger.bookings.leaving() == ()


def test_another_owner_s_reservation_keeps_off_both(wide, made):
    other = wide.reservations.reserve(ReservationRequest("h12", "h22", 90.0))
    assert other.booked not in made.paths
    wide.conduct()
    assert wide.ledger.bookings.get(made.id) == made
