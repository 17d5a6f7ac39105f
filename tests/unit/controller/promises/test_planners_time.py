"""Previews and starts of reservations, with a late or silent planner."""

import os
import signal
import time
from concurrent.futures import wait
from dataclasses import replace

import pytest

from hydra.errors import (
    DeviceUnavailable,
)
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState
from tests.unit.controller.runners import awaited
from tests.unit.core.fabrics import (
    circuit_between,
    path_of,
    small_fabric,
    state_of,
)
from tests.waiting import PATIENCE_S

from .stage import FABRIC, POLICY, SOON_S, STANDING, TO_R3, Stage, change, planner_of


def test_a_preview_that_waits_for_the_planner_holds_nothing(journal, pool):
    stage = Stage(journal, policy=replace(POLICY, planning_grace_ms=1000 * PATIENCE_S))
    stage.ledger.network.settle(STANDING)
    with planner_of(stage, stopped=True):
        preview = pool.submit(stage.reservations.preview, TO_R3)
        wait([preview], 0.3)  # timed: the planner stands still
        assert not preview.done()
        pool.submit(change, stage, STANDING).result(SOON_S)
        assert pool.submit(stage.reservations.reserve, TO_R3).result(SOON_S)
        assert not preview.done()
        os.kill(stage.planner.pid, signal.SIGCONT)
        wait([preview], SOON_S)
        assert preview.done()


def test_a_preview_ends_with_the_planners_time(stage, pool):
    with planner_of(stage, stopped=True):
        asked_s = time.monotonic()
        preview = pool.submit(stage.reservations.preview, TO_R3)
        with pytest.raises(DeviceUnavailable, match=r"ask again \(no plan came within 2 s"):
            preview.result(SOON_S)
        assert time.monotonic() - asked_s > 1.9


def test_a_preview_says_what_else_would_move(journal):
    fabric = small_fabric(racks=4, planes=1, ports_per_plane=2)
    stage = Stage(journal, fabric)
    first, second = path_of(fabric, 0, 1), path_of(fabric, 2, 3)
    stage.ledger.network.settle(state_of(fabric, NetworkState(), first, second))
    stage.blocked = frozenset(range(1, 8, 2))  # the second port of each rack
    with planner_of(stage):
        preview = stage.reservations.preview(TO_R3)
    assert preview.disconnect == {*first.circuits, *second.circuits}
    assert preview.connect >= {circuit_between(fabric, 0, 2)}
    assert stage.told()[0] == ()


def test_what_begins_does_so_without_an_answer_of_the_planner(stage):
    """The displaced pair stays electrical then."""
    reservation = stage.reservations.reserve(TO_R3)
    with planner_of(stage, stopped=True):
        stage.conduct()
    assert stage.ledger.bookings.get(reservation.id).state is State.ACTIVE
    assert stage.ledger.network.state.topology.paths == (path_of(FABRIC, 0, 2),)


def test_paths_that_give_way_get_others_where_there_is_room(journal):
    fabric = small_fabric(racks=3, planes=2)
    stage = Stage(journal, fabric)
    standing = path_of(fabric, 0, 1)
    stage.ledger.network.settle(state_of(fabric, NetworkState(), standing))
    stage.blocked = frozenset({circuit_between(fabric, 0, 2, 1).b})  # r3 on the second plane
    reservation = stage.reservations.reserve(TO_R3)
    with planner_of(stage):
        stage.conduct()
    assert stage.ledger.bookings.get(reservation.id).booked == path_of(fabric, 0, 2)
    assert set(stage.ledger.network.state.topology.paths) == {
        path_of(fabric, 0, 2),
        path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, 1)),
    }


def test_pairs_that_lost_their_paths_get_others_in_one_move(journal, caplog):
    fabric = small_fabric(racks=4, planes=1)
    stage, moves = Stage(journal, fabric), []
    stage.mover.go = awaited(lambda target, *_: moves.append(target))
    stage.blocked = frozenset(port.id for port in fabric.ports if fabric.racks[port.rack].id == 3)
    stage.rejoining.rejoin({(0, 1), (1, 0), (2, 3), (3, 2)})
    stage.blocked = frozenset()
    stage.rejoining.rejoin({(0, 1), (1, 0), (2, 3), (3, 2)})
    assert [set(target.topology.paths) for target in moves] == [
        {path_of(fabric, 0, 1)},
        {path_of(fabric, 0, 1), path_of(fabric, 2, 3)},
    ]
    assert [message for message in caplog.messages if "electrical" in message] == [
        "stay electrical, since there is no room: r3 - r4"
    ]
