"""Admission beside changes under way: the ledger's lock is free while paths are checked."""

import random
import threading
import time
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace

import pytest

from apps.controller.record.ledger import Ledger
from hydra.errors import (
    AdmissionError,
    DeviceUnavailable,
    LifecycleError,
    NoRoom,
    PlanError,
    WrongRequest,
)
from hydra.journal import JournalError, Kind
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import ReservationRequest, RetryKey, ServiceClass
from tests.unit.core.fabrics import (
    circuit_between,
    parallel_paths,
    path_of,
    small_fabric,
    state_of,
)
from tests.unit.reservations.referee import SLACK_MBPS, Referee
from topology import algorithms
from topology.algorithms import ENTRIES, Entry

from .stage import FABRIC, POLICY, SOON_S, STANDING, TO_R3, Stage, change, planner_of, shut_vlans


def test_a_change_under_way_does_not_wait_for_an_admission(shut, door, pool):
    before = shut.told()
    admission = pool.submit(shut.reservations.reserve, TO_R3)
    assert door.reached.wait(SOON_S)
    elsewhere = state_of(FABRIC, STANDING, path_of(FABRIC, 1, 3))
    pool.submit(change, shut, elsewhere).result(SOON_S)
    assert pool.submit(shut.told).result(SOON_S)[:2] == before[:2], "nothing is promised yet"
    assert shut.on_disk() == []
    assert not admission.done()
    door.open()
    reservation = admission.result(SOON_S)
    assert shut.on_disk() == [reservation.id]
    shut.conduct()
    assert shut.ledger.bookings.get(reservation.id).state is State.ACTIVE
    assert shut.ledger.network.state.topology.paths == (
        path_of(FABRIC, 0, 2),
        path_of(FABRIC, 1, 3),
    )


def test_no_algorithm_holds_up_an_admission_or_a_change(monkeypatch, journal, door, pool):
    """An endless path choice: reserved paths need no choice, and other pairs' paths are no
    promise.
    """
    endless = Entry(lambda *_arguments: door.pass_through(), "", "")
    monkeypatch.setattr(algorithms, "ENTRIES", {**ENTRIES, "endless": endless})
    stage = Stage(journal, policy=replace(POLICY, algorithm="endless"))
    stage.ledger.network.settle(STANDING)
    admission = pool.submit(stage.reservations.reserve, TO_R3)
    wait([admission], 1.0)  # timed: the change comes during or after the check
    pool.submit(change, stage, STANDING).result(SOON_S)
    assert admission.result(SOON_S).state is State.ACTIVATING


def test_a_preview_waits_for_nobody_and_leaves_no_trace(shut, door, pool, journal):
    pool.submit(shut.reservations.reserve, TO_R3)
    assert door.reached.wait(SOON_S)
    before = pool.submit(shut.told).result(SOON_S)
    later = replace(TO_R3, start_unix_s=time.time() + 1000)
    preview = pool.submit(shut.reservations.preview, later).result(SOON_S)
    assert preview.reservation.state is State.SCHEDULED
    assert preview.connect == {circuit_between(FABRIC, 0, 2)}
    assert shut.told() == before
    assert journal.records(Kind.RESERVATION) == []


def test_nobody_sees_what_may_be_refused_yet(stage, door, pool):
    """The first entry of a group is booked when the second is checked, and refused."""
    ready, asked = stage.reach.ready_switches(), []

    def ready_switches():
        asked.append(None)
        if len(asked) == 2:
            door.pass_through()
        return ready

    stage.reach.ready_switches = ready_switches
    before = stage.told()
    group = [TO_R3, replace(TO_R3, bandwidth_mbps=70.0)]
    admission = pool.submit(stage.reservations.reserve_all, group, all_or_nothing=True)
    assert door.reached.wait(SOON_S)
    seen = pool.submit(stage.told)
    wait([seen], 0.5)  # timed: no reservation is visible meanwhile
    door.open()
    assert seen.result(SOON_S) == before
    with pytest.raises(AdmissionError, match="and 70 Mb/s are reserved already"):
        admission.result(SOON_S)
    assert stage.told() == before


def test_a_refused_group_names_no_reservation_that_never_was(stage):
    group = [ReservationRequest("r1", "r3", mbps) for mbps in (40.0, 70.0)]
    with pytest.raises(NoRoom) as refused:
        stage.reservations.reserve_all(group, all_or_nothing=True)
    assert "70 Mb/s are reserved already (by r1-r3 of this request)" in str(refused.value)
    assert [one.bandwidth_mbps for one in refused.value.alternatives] == [30.0]
    assert "of this request" not in refused.value.in_public


def test_what_was_checked_on_other_ground_is_decided_again(monkeypatch, journal, door, pool):
    """The chosen port goes out of use: the reservation gets the other port."""
    shut_vlans(monkeypatch, door)
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    admission = pool.submit(stage.reservations.reserve, TO_R3)
    assert door.reached.wait(SOON_S)
    first, second = (circuit_between(stage.fabric, 0, 2, plane) for plane in (0, 1))
    stage.blocked = frozenset({first.a})
    door.open()
    reservation = admission.result(SOON_S)
    assert reservation.booked.circuits == (second,)
    assert door.knocks == 2


def test_room_that_is_taken_meanwhile_is_not_promised_again(stage, monkeypatch, door, pool):
    other = stage.reservations.reserve(replace(TO_R3, src="h12", bandwidth_mbps=30.0))
    shut_vlans(monkeypatch, door)
    shut = Stage(stage.journal)
    shut.ledger.load()
    admission = pool.submit(shut.reservations.reserve, replace(TO_R3, bandwidth_mbps=60.0))
    assert door.reached.wait(SOON_S)
    growing = pool.submit(shut.reservations.modify, other.id, Modification(50.0))
    assert growing.result(SOON_S).bandwidth_mbps == 50.0
    door.open()
    with pytest.raises(AdmissionError, match="50 of 100 Mb/s"):
        admission.result(SOON_S)
    assert shut.on_disk() == [other.id]


def test_a_network_that_does_not_stand_still_is_told_of(stage, monkeypatch):
    real, seen = stage.planning.with_pins, []

    def with_pins(*basis):
        found = real(*basis)
        stage.ledger.network.settle(
            replace(stage.ledger.network.state, epoch=stage.ledger.network.state.epoch + 1)
        )
        seen.append(basis[0].epoch)
        return found

    monkeypatch.setattr(stage.planning, "with_pins", with_pins)
    before = stage.told()
    with pytest.raises(
        DeviceUnavailable, match=r"changed 3 times .* nothing is reserved: ask again"
    ):
        stage.reservations.reserve(TO_R3)
    assert len(seen) == len(set(seen)) == 3
    assert stage.told() == before
    assert stage.jobs.empty()
    monkeypatch.undo()
    assert stage.reservations.reserve(TO_R3).state is State.ACTIVATING


@pytest.mark.parametrize("end", ["no VLANs", "full disk"])
def test_what_gave_way_comes_back_if_it_need_not(journal, monkeypatch, door, pool, end):
    stage = Stage(journal)
    low = stage.reservations.reserve(replace(TO_R3, service=ServiceClass.BEST_EFFORT))
    stage.conduct()
    refusal = PlanError("the VLAN range does not suffice") if end == "no VLANs" else None
    shut_vlans(monkeypatch, door, refusal)
    shut = Stage(journal)
    shut.ledger.load()
    before, disk = shut.told(), journal.records(Kind.RESERVATION)
    assert before[0] == stage.told()[0]
    other = replace(TO_R3, dst="r4")
    admission = pool.submit(shut.reservations.reserve, other)
    assert door.reached.wait(SOON_S)
    assert pool.submit(shut.told).result(SOON_S) == before, "nothing gives way to a maybe"
    journal.full = end == "full disk"
    door.open()
    with pytest.raises((PlanError, JournalError), match=r"does not suffice|disk is full"):
        admission.result(SOON_S)
    journal.full = False
    assert shut.told() == before
    assert journal.records(Kind.RESERVATION) == disk
    assert shut.jobs.empty()
    new = stage.reservations.reserve(other)
    assert stage.ledger.bookings.get(low.id).preempted_by == new.id


@pytest.mark.parametrize("grouped", [False, True])
def test_two_retries_at_once_make_one_reservation(shut, door, pool, grouped):
    request = replace(TO_R3, owner="tina", retry=RetryKey("k", "d"))

    def reserve():
        if grouped:
            return shut.reservations.reserve_all([request], all_or_nothing=True).admitted
        return (shut.reservations.reserve(request),)

    retries = [pool.submit(reserve) for _ in range(2)]
    assert door.reached.wait(SOON_S)
    wait(retries, 0.2)
    door.open()
    (first,), (second,) = (retry.result(SOON_S) for retry in retries)
    assert first == second
    assert shut.on_disk() == [first.id]
    assert shut.jobs.qsize() == 1


def test_a_group_is_checked_at_once_and_entered_whole_or_not_at_all(shut, door, pool):
    fits, too_much = TO_R3, replace(TO_R3, src="h12", bandwidth_mbps=70.0)
    door.open()
    before = shut.told()
    with pytest.raises(AdmissionError):
        shut.reservations.reserve_all([fits, too_much], all_or_nothing=True)
    assert (shut.told(), door.knocks) == (before, 0)
    some = shut.reservations.reserve_all([fits, too_much], all_or_nothing=False)
    assert [one.bandwidth_mbps for one in some.admitted] == [70.0]
    assert [one.request for one in some.refused] == [fits]
    assert door.knocks == 1
    assert shut.on_disk() == [one.id for one in some.admitted]
    assert shut.ledger.bookings.group(some.group) == some.admitted


def test_one_that_is_let_go_as_it_is_brought_up_keeps_no_other_from_it(journal):
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    group = stage.reservations.reserve_all(
        [TO_R3, replace(TO_R3, src="h21", dst="r4")], all_or_nothing=True
    )
    gone, stays = group.admitted

    def hold_reserved():  # between the network's move and the ledger's update
        stage.upkeep.hold_reserved = lambda: None
        stage.reservations.release(gone.id)

    stage.upkeep.hold_reserved = hold_reserved
    stage.conduct()
    assert stage.ledger.bookings.get(stays.id).state is State.ACTIVE
    assert stage.ledger.bookings.get(gone.id).state is State.RELEASED
    assert stage.ledger.network.state.topology.paths == (stays.booked,)


def test_a_thousand_requests_at_once_promise_nothing_twice(journal, pool):
    """While a conductor brings paths up and down, and the referee checks."""
    fabric = small_fabric(racks=4, planes=2)
    stage = Stage(journal, fabric)
    stage.ledger.network.settle(state_of(fabric, NetworkState(), *parallel_paths(fabric)[:1]))
    referee, ended = Referee(fabric, POLICY.max_hops), threading.Event()
    names = [one.name for one in (*fabric.racks, *fabric.servers)]
    outcomes = []

    def client(seed):
        rng, mine = random.Random(seed), []
        for _ in range(125):
            src, dst = rng.sample(names, 2)
            request = ReservationRequest(
                src,
                dst,
                rng.choice((5.0, 20.0, 50.0, 90.0)),
                start_unix_s=rng.choice((None, None, time.time() + rng.choice((500, 900)))),
                end_unix_s=rng.choice((None, time.time() + 1000)),
                priority=rng.choice((0, 0, 0, 1, 2)),
            )
            try:
                mine.append(stage.reservations.reserve(request).id)
            except (AdmissionError, DeviceUnavailable, PlanError, WrongRequest) as error:
                outcomes.append(type(error))
            else:
                outcomes.append(None)
            if len(mine) > 2 or (mine and rng.random() < 0.3):
                gone = mine.pop(rng.randrange(len(mine)))
                with suppress(LifecycleError):  # preempted by another client's reservation
                    stage.reservations.release(gone)

    def look():
        booked = [one for one in stage.ledger.bookings.all() if one.is_booked]
        promises = [referee.promise(one) for one in booked]
        for one in promises:
            others = [other for other in promises if other is not one]
            assert referee.most_mbps(one, others) >= one.mbps - SLACK_MBPS, one

    def conductor():
        while not ended.is_set() or not stage.jobs.empty():
            stage.conduct()
            look()

    with planner_of(stage):
        conducting = pool.submit(conductor)
        try:
            for one in [pool.submit(client, seed) for seed in range(7)]:
                one.result(300)
            client(7)
        finally:
            ended.set()
        conducting.result(60)
    assert len(outcomes) == 1000
    assert outcomes.count(None) > 100
    assert outcomes.count(NoRoom) > 100
    assert outcomes.count(WrongRequest) > 100, "both ends in a rack"
    again = Ledger(fabric=fabric, journal=journal)
    again.load()
    live = {one.id: one for one in stage.ledger.bookings.all() if one.is_booked}
    assert {one.id: one for one in again.bookings.all() if one.is_booked} == live
