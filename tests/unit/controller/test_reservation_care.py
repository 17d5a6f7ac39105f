"""Admission beside changes under way: the ledger's lock is free while paths are checked."""

import os
import queue
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller.promises.admission import Admission
from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.record.ledger import Ledger
from apps.controller.rejoining import Rejoining
from apps.planning import engine
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.errors import (
    AdmissionError,
    Changed,
    DeviceMissing,
    DeviceUnavailable,
    LifecycleError,
    NoRoom,
    NotHitless,
    PlanError,
)
from hydra.forwarding.substrate import substrate_of
from hydra.journal import JournalError, Kind
from hydra.lifecycle import ReconfigurationState
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState, RackId
from hydra.policy import Policy
from hydra.reconfiguration.touched import Touched
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import ReservationRequest, RetryKey, ServiceClass
from tests.journals import SqliteJournal
from tests.unit.controller.runners import at_once, awaited, do
from tests.unit.core.fabrics import (
    circuit_between,
    parallel_paths,
    path_of,
    small_fabric,
    state_of,
)
from tests.unit.reservations.referee import SLACK_MBPS, Referee
from tests.waiting import HANGS_S, PATIENCE_S
from topology import algorithms
from topology.algorithms import ENTRIES, Entry

FABRIC = small_fabric(racks=4, planes=1)
POLICY = Policy(planning_budget_ms=300, planning_grace_ms=1700)
STANDING = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))
"""What nobody reserved, and TO_R3 needs the port of."""
TO_R3 = ReservationRequest("h11", "r3", 40.0)
SOON_S = HANGS_S
"""What waits for nobody takes milliseconds; what waits for a door, DOOR_S."""
DOOR_S = PATIENCE_S


class Door:
    """Whoever comes to it waits until it is open."""

    def __init__(self):
        self._open = threading.Event()
        self.reached = threading.Event()
        self.open, self.knocks = self._open.set, 0

    def pass_through(self):
        self.knocks += 1
        self.reached.set()
        assert self._open.wait(DOOR_S)


class Stage:
    """Reservations with their ledger, journal and planning; devices that do as they are told."""

    def __init__(self, journal, fabric=FABRIC, policy=POLICY, paths_per_pair=16):
        self.fabric, self.journal = fabric, journal
        self.ledger = Ledger(fabric=fabric, journal=journal)
        self.planning, self.planner = Planning(fabric, policy), Planner(fabric, policy)
        self.blocked = self.blocked_with_all_planes = frozenset()
        self.awaited = frozenset()
        self.refusal = ""
        """Why traffic of r1's reservations can't take its circuits."""
        self.jobs = queue.SimpleQueue()
        steering = substrate_of(fabric).steering
        switches = frozenset(one.datapath for rack in fabric.racks for one in steering(rack.id))
        self.upkeep = SimpleNamespace(
            hold_reserved=lambda: None,
            refuses=True,
            refusal=awaited(lambda reservation: self.refusal if reservation.src == "r1" else ""),
        )
        self.reach = SimpleNamespace(
            blocked_ports=lambda: self.blocked,
            absences=SimpleNamespace(at_risk=lambda _pairs: ()),
            blocked_with_all_planes=lambda: self.blocked_with_all_planes,
            down_planes=list,
            ready_switches=lambda: switches,
            awaited_racks=lambda: self.awaited,
        )
        panels = SimpleNamespace(awaited=lambda _path: False)
        self.mover = SimpleNamespace(
            move=awaited(self.move), beside=SimpleNamespace(touched=Touched())
        )
        limits = Limits(
            reach=self.reach,
            mover=self.mover,
            ledger=self.ledger,
            max_hops=policy.max_hops,
            paths_per_pair=paths_per_pair,
        )
        placement = Placement(
            planning=self.planning,
            planner=self.planner,
            mover=self.mover,
            upkeep=self.upkeep,
            reach=self.reach,
            panels=panels,
            ledger=self.ledger,
            limits=limits,
            enqueue=self.jobs.put,
        )
        care = ReservationCare(
            fabric=fabric,
            planning=self.planning,
            mover=self.mover,
            upkeep=self.upkeep,
            reach=self.reach,
            ledger=self.ledger,
            placement=placement,
            enqueue=self.jobs.put,
        )
        rejoining = Rejoining(
            fabric=fabric,
            planning=self.planning,
            mover=self.mover,
            reach=self.reach,
            ledger=self.ledger,
        )
        self.placement, self.care = at_once(placement), at_once(care)
        self.rejoining = at_once(rejoining)
        self.reservations = Admission(
            fabric=fabric,
            planning=self.planning,
            planner=self.planner,
            reach=self.reach,
            ledger=self.ledger,
            limits=limits,
            placement=placement,
            care=care,
            notice_s=policy.preemption_notice_s,
        )

    def move(self, entry, target):
        self.planning.diff(self.ledger.network.state, target)
        self.ledger.network.settle(target)
        self.ledger.reservations.save("reconfigured")
        self.ledger.log.update(entry.id, state=ReconfigurationState.DONE)
        return SimpleNamespace(reason="", failures={})

    def conduct(self):
        """The jobs that are waiting."""
        while not self.jobs.empty():
            do(self.jobs.get()())

    def told(self):
        """All that others see of reservations."""
        return self.ledger.bookings.all(), self.ledger.bookings.pins(), self.ledger.events.last

    def on_disk(self):
        return sorted(record["id"] for record in self.journal.records(Kind.RESERVATION))


class Disk(SqliteJournal):
    """A journal on a disk that can be full."""

    full = False

    def write(self, changes):
        if self.full:
            raise JournalError("database or disk is full")
        super().write(changes)


@pytest.fixture
def journal(tmp_path):
    journal = Disk(str(tmp_path / "journal.db"))
    yield journal
    journal.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def door(pool):
    """Opens at the end, so that the pool can close."""
    door = Door()
    yield door
    door.open()


@pytest.fixture
def stage(journal):
    stage = Stage(journal)
    stage.ledger.network.settle(STANDING)
    return stage


def shut_vlans(monkeypatch, door, failing=None):
    """Whoever chooses VLAN-IDs comes to the door, and is refused behind it if ``failing``."""
    real = engine.marks_of

    def marks_of(fabric):
        marks = real(fabric)

        def state(current, target):
            door.pass_through()
            if failing is not None:
                raise failing
            return marks.state(current, target)

        return SimpleNamespace(
            state=state,
            order=marks.order,
            problems=marks.problems,
            transit_problems=marks.transit_problems,
        )

    monkeypatch.setattr(engine, "marks_of", marks_of)


@pytest.fixture
def shut(monkeypatch, journal, door):
    """A stage on which the check of paths comes to the door."""
    shut_vlans(monkeypatch, door)
    stage = Stage(journal)
    stage.ledger.network.settle(STANDING)
    return stage


# --- the lock is free -----------------------------------------------------------------------


def change(stage, state):
    """What the end of a reconfiguration asks of the ledger."""
    stage.ledger.network.settle(state)
    stage.ledger.reservations.save("reconfigured")


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
    """One that never ends: what is reserved needs none, and nobody else's path is a promise."""
    endless = Entry(lambda *_arguments: door.pass_through(), "", "")
    monkeypatch.setattr(algorithms, "ENTRIES", {**ENTRIES, "endless": endless})
    stage = Stage(journal, policy=replace(POLICY, algorithm="endless"))
    stage.ledger.network.settle(STANDING)
    admission = pool.submit(stage.reservations.reserve, TO_R3)
    wait([admission], 1.0)  # timed: the change comes meanwhile, or after it
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
    """The first of a group is entered when the second is looked at, and found too much."""
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
    wait([seen], 0.5)  # timed: nobody sees anything meanwhile
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


# --- devices that are missing ---------------------------------------------------------------

DOWN = "OCS p2 is down (10.1.2.3:3083: connection refused)"


@pytest.fixture
def without_p2(journal):
    """r1 and r2 have 60 of 100 Mb/s for somebody, and one of three optical switches is down; r1 has
    no port on the last one, which is in quarantine.
    """
    stage = Stage(journal, small_fabric(racks=4, planes=3))
    out = {port.id for port in stage.fabric.ports_of(RackId(0)) if port.plane == 2}
    down = {port.id for port in stage.fabric.ports if port.plane == 1}
    stage.blocked, stage.blocked_with_all_planes = frozenset(out | down), frozenset(out)
    stage.reservations.reserve(ReservationRequest("r1", "r2", 60.0, owner="tina"))
    stage.reach.down_planes = lambda: [DOWN]
    return stage


@pytest.mark.parametrize("ask", ["reserve", "preview"])
def test_a_refusal_beside_a_switch_that_is_down_is_as_discreet_and_helpful_as_any(without_p2, ask):
    (theirs,) = without_p2.ledger.bookings.all()
    with pytest.raises(DeviceMissing) as refused:
        getattr(without_p2.reservations, ask)(ReservationRequest("r1", "r3", 50.0))
    assert DOWN in str(refused.value)
    assert theirs.id in str(refused.value)
    assert [one.bandwidth_mbps for one in refused.value.alternatives] == [40.0]
    told = refused.value.discreet()
    assert isinstance(told, DeviceMissing)
    assert told.alternatives == refused.value.alternatives
    assert str(told) == (
        "optical switches are down: a path with 50 Mb/s between r1 and r3 does not fit beside the "
        "promised reservations and ports out of use; ask for at most 40 Mb/s"
    )


def test_a_switch_that_is_down_is_not_blamed_where_it_would_give_no_room(without_p2):
    """A pair has one path, and r1 has no port on that switch but one in quarantine."""
    told = without_p2.told()
    request = ReservationRequest("r1", "r3", 50.0)
    with pytest.raises(NoRoom):
        without_p2.reservations.reserve(ReservationRequest("r1", "r2", 50.0))
    with pytest.raises(DeviceMissing, match="OCS p2 is down"):
        without_p2.reservations.reserve(request)
    without_p2.blocked_with_all_planes |= {p.id for p in without_p2.fabric.ports_of(RackId(0))}
    with pytest.raises(NoRoom) as refused:
        without_p2.reservations.reserve(request)
    assert "OCS" not in str(refused.value)
    assert without_p2.told() == told


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: ReservationRequest("r1", "r2", 5000.0),
        lambda: ReservationRequest("r1", "r2", 1.0, end_unix_s=time.time() - 1),
    ],
    ids=["beyond any circuit", "in the past"],
)
def test_a_switch_that_is_down_is_not_blamed_for_what_never_fits(without_p2, request_of):
    with pytest.raises(AdmissionError) as refused:
        without_p2.reservations.reserve(request_of())
    assert type(refused.value) is AdmissionError


def test_those_that_fit_are_admitted_while_an_optical_switch_is_down(without_p2):
    matrix = [ReservationRequest("r3", "r4", 80.0), ReservationRequest("r1", "r3", 50.0)]
    outcome = without_p2.reservations.reserve_all(matrix, all_or_nothing=False)
    assert [(one.src, one.dst) for one in outcome.admitted] == [("r3", "r4")]
    (refused,) = outcome.refused
    assert isinstance(refused.error, DeviceMissing)
    with pytest.raises(DeviceMissing, match="none of them fits: OCS p2 is down"):
        without_p2.reservations.reserve_all(matrix[1:], all_or_nothing=False)


def test_those_that_fit_are_admitted_while_a_switch_of_another_is_away(stage):
    away = FABRIC.server_by_name["h41"].vswitch.datapath_id
    ready = stage.reach.ready_switches()
    stage.reach.ready_switches = lambda: ready - {away}
    stage.reach.why_not_ready = lambda _switch: "switch vs-h41 is not connected"
    matrix = [ReservationRequest("h11", "h21", 9.0), ReservationRequest("h12", "h41", 9.0)]
    outcome = stage.reservations.reserve_all(matrix, all_or_nothing=False)
    assert [(one.src, one.dst) for one in outcome.admitted] == [("h11", "h21")]
    (refused,) = outcome.refused
    assert str(refused.error) == "h41: switch vs-h41 is not connected"
    assert "vs-h41" not in refused.error.in_public


# --- the planner's time ---------------------------------------------------------------------


@contextmanager
def planner_of(stage, *, stopped=False):
    """One that has begun; ``stopped``: and does not answer any more."""
    stage.planner.start()
    try:
        stage.planner.for_pins(NetworkState(), (), (), urgent=True)
        if stopped:
            os.kill(stage.planner.pid, signal.SIGSTOP)
        yield
    finally:
        stage.planner.close()


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
    """The pair that gives way stays electrical then."""
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


def test_a_reservation_waits_for_a_rack_that_is_about_to_be_in_reach(journal):
    """Its circuit is dead, and until its ToR has its rules no port of the rack is free."""
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    reservation = stage.reservations.reserve(TO_R3)
    stage.conduct()
    (dead,) = stage.ledger.bookings.get(reservation.id).booked.circuits
    stage.ledger.network.settle(NetworkState())
    rack = [port.id for port in stage.fabric.ports if port.rack == RackId(0)]
    stage.blocked, stage.awaited = frozenset(rack), frozenset({RackId(0)})
    stage.placement.restore()
    assert stage.ledger.bookings.get(reservation.id).state is State.ACTIVE
    assert stage.placement.awaits_racks
    stage.blocked, stage.awaited = frozenset(dead.ends), frozenset()
    stage.placement.restore()
    (circuit,) = stage.ledger.bookings.get(reservation.id).path.circuits
    assert circuit.plane != dead.plane
    assert not stage.placement.awaits_racks


# --- what changes meanwhile -----------------------------------------------------------------


def test_what_was_checked_on_other_ground_is_decided_again(monkeypatch, journal, door, pool):
    """The port that it was to have goes out of use: it has the other one."""
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


# --- what gave way --------------------------------------------------------------------------


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


# --- the same request twice, and groups -----------------------------------------------------


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

    def hold_reserved():  # between the network's move and what the ledger is told of it
        stage.upkeep.hold_reserved = lambda: None
        stage.reservations.release(gone.id)

    stage.upkeep.hold_reserved = hold_reserved
    stage.conduct()
    assert stage.ledger.bookings.get(stays.id).state is State.ACTIVE
    assert stage.ledger.bookings.get(gone.id).state is State.RELEASED
    assert stage.ledger.network.state.topology.paths == (stays.booked,)


# --- a leader that ends ---------------------------------------------------------------------


def test_a_leader_that_ends_leaves_what_it_has_not_begun_to_the_next_one(journal):
    """It breaks off between two reservations of one job, and begins no other job."""
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
        State.ACTIVATING,
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


# --- many at once ---------------------------------------------------------------------------


def test_one_that_is_let_go_before_the_start_has_resumed_it_is_released_once(journal):
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    (reservation,) = stage.reservations.reserve_all([TO_R3], all_or_nothing=True).admitted
    stage.conduct()
    stage.reservations.release(reservation.id)
    stage.care.resume()
    stage.conduct()
    assert stage.ledger.bookings.get(reservation.id).state is State.RELEASED


def test_a_thousand_requests_at_once_promise_nothing_twice(journal, pool):
    """While a conductor brings up and takes down what is promised, and the referee looks on."""
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
            except (AdmissionError, DeviceUnavailable, PlanError) as error:
                outcomes.append(type(error))
            else:
                outcomes.append(None)
            if len(mine) > 2 or (mine and rng.random() < 0.3):
                gone = mine.pop(rng.randrange(len(mine)))
                with suppress(LifecycleError):  # it gave way to another client's
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
    assert outcomes.count(AdmissionError) > 100
    again = Ledger(fabric=fabric, journal=journal)
    again.load()
    live = {one.id: one for one in stage.ledger.bookings.all() if one.is_booked}
    assert {one.id: one for one in again.bookings.all() if one.is_booked} == live


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


# --- switches that refuse rules -------------------------------------------------------------

REFUSAL = "h11 refuses the rules of r1 - r3 (no room for a further rule, table 5 (circuits))"


def test_a_reservation_whose_rules_a_switch_refuses_fails_and_leaves_no_path(stage):
    stage.ledger.network.settle(NetworkState())
    stage.refusal = REFUSAL
    reservation = stage.reservations.reserve(replace(TO_R3, src="r1"))
    stage.conduct()
    failed = stage.ledger.bookings.get(reservation.id)
    assert (failed.state, failed.reason) == (State.FAILED, REFUSAL)
    stage.care.keep_time()
    assert path_of(FABRIC, 0, 2) not in stage.ledger.network.state.topology.paths


def test_an_active_reservation_fails_where_a_switch_comes_to_refuse_its_rules(stage):
    """It has connected anew, and has less room than before."""
    stage.ledger.network.settle(NetworkState())
    requests = (replace(TO_R3, src="r1"), replace(TO_R3, src="r2", dst="r4"))
    refused, other = map(stage.reservations.reserve, requests)
    stage.conduct()
    assert stage.ledger.bookings.get(refused.id).state is State.ACTIVE
    stage.refusal = REFUSAL
    stage.care.keep_time()
    failed = stage.ledger.bookings.get(refused.id)
    assert (failed.state, failed.reason) == (State.FAILED, REFUSAL)
    assert stage.ledger.bookings.get(other.id).state is State.ACTIVE
    stage.care.keep_time()
    assert path_of(FABRIC, 0, 2) not in stage.ledger.network.state.topology.paths


# --- a pair with several paths ------------------------------------------------------------------

WIDE = small_fabric(racks=4, planes=2)
FIRST, SECOND = parallel_paths(WIDE)
ONE = ReservationRequest("h11", "h21", 90.0)
OTHER = ReservationRequest("h12", "h22", 90.0)


@pytest.fixture
def wide(journal):
    return Stage(journal, WIDE)


def test_server_pairs_of_two_racks_come_up_on_circuits_of_their_own_and_go_one_by_one(wide):
    one = wide.reservations.reserve(ONE)
    wide.conduct()
    preview = wide.reservations.preview(OTHER)
    assert (preview.connect, preview.disconnect) == (set(SECOND.circuits), set())
    other = wide.reservations.reserve(OTHER)
    wide.conduct()
    both = [wide.ledger.bookings.get(reservation.id) for reservation in (one, other)]
    assert [reservation.state for reservation in both] == [State.ACTIVE] * 2
    assert [reservation.path for reservation in both] == [FIRST, SECOND]
    assert wide.ledger.network.state.topology.paths == (FIRST, SECOND)
    wide.reservations.release(one.id)
    wide.conduct()
    assert wide.ledger.bookings.get(one.id).state is State.RELEASED
    assert wide.ledger.network.state.topology.paths == (SECOND,)
    assert wide.ledger.bookings.get(other.id) == both[1]
    wide.reservations.release(other.id)
    wide.conduct()
    assert wide.ledger.network.state.topology.paths == ()
    assert wide.ledger.bookings.leaving() == ()


def test_asked_for_together_they_come_up_in_one_change(wide):
    group = wide.reservations.reserve_all([ONE, OTHER], all_or_nothing=True)
    wide.conduct()
    states = [wide.ledger.bookings.get(one.id).state for one in group.admitted]
    assert states == [State.ACTIVE] * 2
    assert len(wide.ledger.log.reconfigurations()) == 1


def test_of_a_pair_s_circuits_one_fails_and_the_other_stays(wide):
    group = wide.reservations.reserve_all([ONE, OTHER], all_or_nothing=True).admitted
    wide.conduct()
    wide.blocked = frozenset(FIRST.circuits[0].ends)
    wide.ledger.network.settle(
        wide.planning.without_circuits(wide.ledger.network.state, FIRST.circuits)
    )
    wide.placement.restore()
    lost, kept = (wide.ledger.bookings.get(one.id) for one in group)
    assert (lost.state, kept.state) == (State.FAILED, State.ACTIVE)
    assert "no other path" in lost.reason
    assert wide.ledger.network.state.topology.paths == (SECOND,)


def test_a_pair_whose_circuit_was_asked_for_by_itself_keeps_that_and_no_other(wide):
    wide.ledger.network.settle(state_of(WIDE, NetworkState(), FIRST))
    wide.ledger.reservations.keep_standing()
    group = wide.reservations.reserve_all([ONE, OTHER], all_or_nothing=True).admitted
    wide.conduct()
    by_path = {wide.ledger.bookings.get(one.id).path: one.id for one in group}
    wide.reservations.release(by_path[SECOND])
    wide.conduct()
    assert wide.ledger.network.state.topology.paths == (FIRST,)
    wide.reservations.release(by_path[FIRST])
    wide.conduct()
    assert wide.ledger.network.state.topology.paths == (FIRST,)


# --- bundles ------------------------------------------------------------------------------------

RACKS = ReservationRequest("r1", "r2", 150.0)


def test_what_no_circuit_carries_is_one_reservation_of_parts(wide):
    admitted = wide.reservations.reserve(RACKS)
    assert (admitted.src, admitted.dst, admitted.bandwidth_mbps) == ("r1", "r2", 150.0)
    assert wide.reservations.reservation(admitted.id) == admitted
    wide.conduct()
    assert len(wide.ledger.log.reconfigurations()) == 1
    up = wide.reservations.reservation(admitted.id)
    assert up.state is State.ACTIVE
    assert [(one.src, one.dst, one.bandwidth_mbps, one.path) for one in up.parts] == [
        ("h11", "r2", 75.0, FIRST),
        ("h12", "r2", 75.0, SECOND),
    ]
    with pytest.raises(LifecycleError, match=f"is a part of reservation {up.id}: name that one"):
        wide.reservations.release(up.parts[0].id)
    with pytest.raises(NotHitless, match="parts of a bundle are promised separately"):
        wide.reservations.modify(up.id, Modification(10.0))
    with pytest.raises(Changed):
        wide.reservations.release(up.id, admitted)
    again = Ledger(fabric=WIDE, journal=wide.journal)
    again.load()
    assert again.bookings.parts(up.id) == up.parts
    wide.reservations.release(up.id, up)
    wide.conduct()
    assert wide.reservations.reservation(up.id).state is State.RELEASED
    assert wide.ledger.network.state.topology.paths == ()
    with pytest.raises(LifecycleError):
        wide.reservations.release(up.id)


def test_a_repeated_request_is_given_the_same_bundle(wide):
    request = replace(RACKS, retry=RetryKey("k", "digest"))
    one = wide.reservations.reserve(request)
    assert wide.reservations.reserve(request) == one
    assert len(wide.ledger.bookings.all()) == 2


def test_a_held_bundle_is_committed_whole(wide):
    held = wide.reservations.reserve(replace(RACKS, hold_s=60.0))
    assert held.state is State.HELD
    assert wide.reservations.commit(held.id).state is State.ACTIVATING
    wide.conduct()
    assert wide.reservations.reservation(held.id).state is State.ACTIVE
    with pytest.raises(LifecycleError):
        wide.reservations.commit(held.id)


def test_a_preview_of_a_bundle_has_all_of_its_circuits_and_leaves_nothing(wide):
    before = wide.told()
    for start_unix_s in (None, time.time() + 1000):
        preview = wide.reservations.preview(replace(RACKS, start_unix_s=start_unix_s))
        assert preview.connect == {*FIRST.circuits, *SECOND.circuits}
        assert preview.reservation.bandwidth_mbps == 150.0
    assert wide.told() == before


@pytest.mark.parametrize(
    ("request_of", "words", "fitting"),
    [
        (("h11", "h21", 150.0), "a server pair never has more than one circuit", [100.0]),
        (("r1", "r2", 250.0), "for 200 Mb/s, which fit in parts", [200.0, 100.0]),
        (
            ("h11", "r2", 150.0),
            "no division among separate servers fits.*h11: the uplink carries 100 Mb/s",
            [100.0],
        ),
    ],
)
def test_what_no_parts_carry_is_refused_and_nothing_is_left_of_them(
    wide, request_of, words, fitting
):
    before = wide.told()
    with pytest.raises(AdmissionError, match=words) as refused:
        wide.reservations.reserve(ReservationRequest(*request_of))
    assert [one.bandwidth_mbps for one in refused.value.alternatives] == fitting
    assert wide.told() == before


def test_a_refused_bundle_names_the_port_that_a_part_lacks(wide):
    theirs = wide.reservations.reserve(ReservationRequest("r1", "r3", 60.0, owner="tina"))
    before = wide.told()
    with pytest.raises(AdmissionError) as refused:
        wide.reservations.reserve(RACKS)
    words = f"is held by {theirs.id} (r1-r3, 60 of 100 Mb/s)"
    assert "no division among separate servers fits either" in str(refused.value)
    assert words in str(refused.value)
    assert theirs.id not in refused.value.in_public
    assert wide.told() == before


def test_where_a_pair_may_have_one_path_there_are_no_bundles(journal):
    stage = Stage(journal, WIDE, paths_per_pair=1)
    with pytest.raises(AdmissionError, match="fastest circuit carries 100 Mb/s"):
        stage.reservations.reserve(RACKS)


def test_a_bundle_of_which_a_circuit_is_lost_has_failed_and_goes_whole(wide):
    one = wide.reservations.reserve(RACKS)
    wide.conduct()
    wide.blocked = frozenset(FIRST.circuits[0].ends)
    wide.ledger.network.settle(
        wide.planning.without_circuits(wide.ledger.network.state, FIRST.circuits)
    )
    wide.placement.restore()
    lost = wide.reservations.reservation(one.id)
    assert lost.state is State.FAILED
    assert "h11-r2: " in lost.reason
    assert [part.state for part in lost.parts] == [State.FAILED, State.ACTIVE]
    wide.reservations.release(one.id)
    wide.conduct()
    assert wide.reservations.reservation(one.id).state is State.RELEASED
    assert wide.ledger.network.state.topology.paths == ()
