"""Changes and paths that outlive other changes: paused, waiting for hours, refused, released,
lost.
"""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from apps.controller.record import reservation_news
from hydra.decisions.decision import Action
from hydra.errors import HydraError, UnknownName
from hydra.faults.surveillance import LostPath
from hydra.journal import JournalError
from hydra.lifecycle import ReconfigurationState
from hydra.lifecycle import ReservationState as State
from hydra.model import RackId, Topology
from hydra.policy import Beyond, Mode
from hydra.reconfiguration.plan import pair_of
from hydra.reservations.reservation import ReservationRequest, ServiceClass
from hydra.service import PlanRequest
from hydra.worth import no_plan
from tests.unit.controller.test_staging import AFTER, EMPTY, FABRIC, Staged, joined
from tests.waiting import PATIENCE_S

NOON, NIGHT = 12 * 60, 3 * 60


def others(staged, number):
    """Number of reconfigurations in a day: one for each begin and end of a reservation."""
    for one in range(number):
        entry = staged.ledger.log.enter(f"reservation {one}")
        staged.ledger.log.update(entry.id, state=ReconfigurationState.DONE)


def at_hours(staged, minute):
    staged.staging.headroom._minute_of_day = lambda: minute[0]
    staged.policy(beyond_room=Beyond.AT_HOURS)


def go_on(staged):
    staged.staging.keep_time()
    while staged.queue:
        staged.next()


# -- changes with stages ahead ------------------------------------------------------------------


def test_a_paused_change_is_told_resumed_and_stopped_after_hundreds_of_others():
    staged = Staged()
    entry, loop = staged.begin(), staged.rooms.loop
    loop.pause(entry, True)
    staged.next()
    others(staged, 300)
    assert loop.changes_of(0, 2), "GET /v1/explain of its racks"
    assert loop.pause(entry, False).id == entry
    loop.stop(entry, "operator")
    go_on(staged)
    assert staged.entry(entry).is_over


def test_a_change_that_waits_for_its_hours_is_made_after_hundreds_of_others():
    staged, minute = Staged(to_r1=0.9, to_r4=0.9), [NOON]
    at_hours(staged, minute)
    entry = staged.begin()
    assert "waits for 02:00-05:00" in staged.entry(entry).reason
    others(staged, 300)
    minute[0] = NIGHT
    go_on(staged)
    assert staged.ledger.network.state.topology == AFTER.topology


def test_those_that_are_over_are_forgotten_the_oldest_first():
    staged = Staged()
    others(staged, 300)
    triggers = [one.trigger for one in staged.ledger.log.reconfigurations()]
    assert triggers == [f"reservation {one}" for one in range(299, 99, -1)]


def test_a_change_that_waits_for_its_hours_is_made_then_after_a_restart():
    staged, minute = Staged(to_r1=0.9, to_r4=0.9), [NOON]
    at_hours(staged, minute)
    entry = staged.begin()
    (unfinished,) = staged.ledger.log.unfinished()
    new = Staged(before=staged.ledger.network.state)
    at_hours(new, minute)
    new.rooms.monitor.sent_mbps = staged.sent_mbps.copy
    new.rooms.loop.take_over([unfinished])
    new.rooms.loop.resume()
    go_on(new)
    assert "waits for 02:00-05:00" in new.entry(entry).reason
    minute[0] = NIGHT
    go_on(new)
    assert new.ledger.network.state.topology == AFTER.topology


def test_a_pause_that_comes_as_a_change_ends_leaves_nothing_to_go_on_with():
    staged = Staged()
    entry, loop, ledger = staged.begin(), staged.rooms.loop, staged.ledger
    loop.stop(entry, "operator")
    waits, goes, write = threading.Event(), threading.Event(), ledger.log.note_unfinished

    def note_unfinished(change):
        waits.set()
        assert goes.wait(PATIENCE_S)
        write(change)

    ledger.log.note_unfinished = note_unfinished
    rest = threading.Thread(target=lambda: loop.pause(entry, True))
    rest.start()
    assert waits.wait(PATIENCE_S)
    while staged.queue:
        staged.next()
    assert staged.entry(entry).is_over
    goes.set()
    rest.join()
    assert ledger.log.unfinished() == []


@pytest.mark.parametrize("beyond", [Beyond.REFUSE, Beyond.AT_HOURS])
def test_a_periodic_change_for_which_there_is_no_room_is_told_as_refused(beyond):
    staged = Staged(to_r1=0.9, to_r4=0.9)
    staged.staging.headroom._minute_of_day = lambda: NOON
    staged.policy(beyond_room=beyond, mode=Mode.PERIODIC)
    loop = staged.rooms.loop
    staged.rooms.monitor.sent_mbps = staged.sent_mbps.copy
    loop._wanted = lambda _request: staged.sent_mbps.copy()
    staged.rooms.monitor.demand = lambda: SimpleNamespace(planned_mbps=staged.sent_mbps)
    kept = no_plan("", frozenset(), (), "periodic", time.time())
    done = SimpleNamespace(
        request=PlanRequest(),
        report=SimpleNamespace(plan=staged.plan_to(AFTER)),
        decision=replace(kept, action=Action.CHANGE, reason="gains 40 Mb/s"),
    )
    loop._rounds.periodic = lambda *_: done
    with suppress(HydraError):
        staged.rooms.choosing.periodic()
    newest = staged.ledger.log.reconfigurations()[0]
    assert newest.trigger == "periodic"
    assert newest.state is ReconfigurationState.REFUSED
    assert "no room" in newest.reason


# -- paths whose reservation ends ---------------------------------------------------------------


class Reserved:
    """The rooms, with a reservation between r1 and r2 on its circuit."""

    def __init__(self):
        self.staged, self.jobs = Staged(before=EMPTY), []
        self.rooms = rooms = self.staged.rooms
        self.care, self.ledger = rooms.reservation_care, rooms.ledger
        self.admission = rooms.admission
        self.care._enqueue = rooms.placement._enqueue = self.jobs.append
        rooms.upkeep.hold_reserved = lambda: None
        rooms.fleet.mute = frozenset
        rooms.fleet.connected = lambda: frozenset(self.network.connected)
        rooms.courses.recovery.done = rooms.upkeep.in_command = True
        rooms.reach.starting = False
        self.ledger.network.rest_s = lambda *_: 0.0
        self.id = self.admission.reserve(ReservationRequest("r1", "r2", 5.0)).id
        self.work()
        assert self.ledger.bookings.get(self.id).state is State.ACTIVE

    @property
    def network(self):
        return self.staged.stage.network

    def work(self):
        while self.jobs:
            self.staged.stage.do(self.jobs.pop(0)())

    def released_while_one_is_away(self):
        """Release the reservation while a vswitch needed for its end is away; returns the vswitch's
        datapath.
        """
        datapath = FABRIC.servers[0].vswitch.datapath_id
        self.network.connected.discard(datapath)
        self.admission.release(self.id)
        self.work()
        return datapath

    def join_others(self):
        """A circuit between r3 and r4, requested for its own sake."""
        standing = self.ledger.network.state.topology
        more = joined(self.ledger.network.state, (2, 3, 0)).topology
        paths = tuple(sorted({*standing.paths, *more.paths}))
        goal = Topology(standing.circuits | more.circuits, paths)
        target = self.staged.staging._planning.toward(self.ledger.network.state, goal)
        self.rooms.mover.go(target, "operator", "")
        self.ledger.reservations.keep_standing()

    def is_back(self, datapath):
        self.network.connected.add(datapath)
        self.rooms.courses.switches.renewed(datapath)
        self.staged.stage.controller._look_after()
        self.rooms.events.synchronise()


def demand_between(src, dst):
    demand = np.zeros((len(FABRIC.racks),) * 2)
    demand[src, dst] = 50.0
    return demand


def test_a_path_that_could_not_be_taken_down_goes_once_its_vswitch_is_back():
    reserved = Reserved()
    datapath = reserved.released_while_one_is_away()
    assert reserved.ledger.bookings.get(reserved.id).state is State.RELEASED
    assert reserved.staged.pairs == {(0, 1)}, "held: a vswitch could not be diverted"
    now_s = [0.0]
    reserved.care._retries._clock = lambda: now_s[0]
    reserved.care._retries._waits.clear()
    asked_for = len(reserved.ledger.log.reconfigurations())
    for _ in range(5):
        now_s[0] += 1000.0
        reserved.care.keep_time()
    assert len(reserved.ledger.log.reconfigurations()) == asked_for, "it is not there"
    reserved.is_back(datapath)
    now_s[0] += 1000.0
    reserved.care.keep_time()
    assert reserved.staged.pairs == set(), "nobody wants it"
    asked_for = len(reserved.ledger.log.reconfigurations())
    now_s[0] = 1e6
    reserved.care.keep_time()
    assert len(reserved.ledger.log.reconfigurations()) == asked_for, "and nobody asks again"


def test_a_path_that_is_to_go_goes_though_another_one_is_lost_meanwhile():
    reserved = Reserved()
    staged, ledger = reserved.staged, reserved.ledger
    reserved.join_others()
    datapath = reserved.released_while_one_is_away()
    assert staged.pairs == {(0, 1), (2, 3)}
    (other,) = (path for path in ledger.network.state.topology.paths if pair_of(path) == (2, 3))
    lost = LostPath(other, ledger.network.state.vlans[other], frozenset(), "3 probes lost")
    reserved.rooms.withdrawals.of_lost_paths([lost])
    reserved.is_back(datapath)
    reserved.care._retries._waits.clear()
    reserved.care.keep_time()
    assert staged.pairs == {(2, 3)}


def lose_path(reserved):
    (path,) = reserved.ledger.network.state.topology.paths
    lost = LostPath(path, reserved.ledger.network.state.vlans[path], frozenset(), "3 probes lost")
    reserved.rooms.withdrawals.of_lost_paths([lost])


def test_a_path_that_is_to_go_and_is_lost_is_not_made_again():
    reserved = Reserved()
    datapath = reserved.released_while_one_is_away()
    lose_path(reserved)
    assert reserved.staged.pairs == {(0, 1)}, "held: a vswitch could not be diverted"
    reserved.is_back(datapath)
    reserved.rooms.withdrawals._retry_s = 0.0
    reserved.rooms.withdrawals.of_dead_circuits()
    assert reserved.staged.pairs == set()
    assert not reserved.rooms.withdrawals.due


@pytest.mark.parametrize("is_released", [False, True])
def test_a_pair_released_while_it_waits_for_another_path_gets_none(is_released):
    reserved = Reserved()
    reserved.rooms.reach.awaited_racks = lambda: frozenset({RackId(0)})
    lose_path(reserved)
    assert reserved.staged.pairs == set()
    assert reserved.rooms.withdrawals.due
    if is_released:
        reserved.admission.release(reserved.id)
        reserved.work()
    reserved.rooms.reach.awaited_racks = frozenset
    while reserved.rooms.withdrawals.due:
        reserved.rooms.withdrawals.of_dead_circuits()
    assert reserved.staged.pairs == (set() if is_released else {(0, 1)})


def test_a_path_that_is_to_go_stays_where_it_is_planned_for():
    reserved = Reserved()
    datapath = reserved.released_while_one_is_away()
    assert reserved.ledger.network.unwanted([(0, 1)])
    loop, entry = reserved.rooms.loop, reserved.ledger.log.enter("operator")
    state = reserved.ledger.network.state
    course = SimpleNamespace(asked_planes=frozenset(), wanted=state, result=state)
    made = SimpleNamespace(courses=[course], wanted=state)
    elsewhere = PlanRequest(demand=demand_between(0, 1), racks=frozenset({0, 2}))
    loop._asker(entry, elsewhere).moved(made, False)
    assert reserved.ledger.network.unwanted([(0, 1)]), "the change was for other racks"
    loop._asker(entry, PlanRequest(demand=demand_between(2, 3))).moved(made, False)
    assert reserved.ledger.network.unwanted([(0, 1)]), "the path stood in the plan, held"
    loop._asker(entry, PlanRequest(demand=demand_between(1, 0))).moved(made, False)
    assert not reserved.ledger.network.unwanted([(0, 1)])
    reserved.is_back(datapath)
    reserved.care._retries._waits.clear()
    reserved.care.keep_time()
    assert reserved.staged.pairs == {(0, 1)}


def test_a_path_goes_whose_reservation_is_let_go_during_a_change():
    reserved = Reserved()
    staged, rooms, ledger = reserved.staged, reserved.rooms, reserved.ledger
    standing, more = ledger.network.state.topology, joined(ledger.network.state, (2, 3, 0)).topology
    goal = Topology(
        standing.circuits | more.circuits, tuple(sorted({*standing.paths, *more.paths}))
    )
    plan = staged.plan_to(staged.staging._planning.toward(ledger.network.state, goal))

    def release_in_the_middle(batch):
        if batch.step == "move":
            reserved.admission.release(reserved.id)

    staged.stage.doer.look = release_in_the_middle
    rooms.monitor.sent_mbps = lambda: None
    entry = ledger.log.enter("operator")
    request = PlanRequest(demand=demand_between(2, 3))
    staged.staging.carry_out(entry, plan, rooms.loop._asker(entry, request))
    staged.stage.doer.look = lambda _batch: None
    assert staged.pairs == {(0, 1), (2, 3)}
    reserved.work()
    assert staged.pairs == {(2, 3)}, "nobody wants the other"


def test_a_group_begins_though_one_of_it_is_over_and_forgotten_before_its_turn(monkeypatch):
    """The change gave way during a long change, and a thousand other changes have ended since."""
    reserved = Reserved()
    admission, ledger = reserved.admission, reserved.ledger
    monkeypatch.setattr(reservation_news, "_KEPT_RESERVATIONS", 0)
    others = [
        ReservationRequest("r3", "r4", 5.0, service=ServiceClass.BEST_EFFORT),
        ReservationRequest("r3", "r4", 4.0),
    ]
    group = admission.reserve_all(others, all_or_nothing=True)
    first, second = (one.id for one in group.admitted)
    ledger.reservations.change(first, State.PREEMPTED, "gives way")
    with pytest.raises(UnknownName):
        ledger.bookings.get(first)
    reserved.work()
    assert ledger.bookings.get(second).state is State.ACTIVE


# -- paths that are lost ------------------------------------------------------------------------


def test_a_path_that_was_set_up_anew_is_left_in_peace():
    reserved = Reserved()
    ledger, withdrawals, now_s = reserved.ledger, reserved.rooms.withdrawals, [0.0]
    withdrawals._clock_s = lambda: now_s[0]
    path = ledger.bookings.get(reserved.id).booked
    lost = LostPath(path, ledger.network.state.vlans[path], frozenset(), "3 probes in a row lost")
    withdrawals.of_lost_paths([lost])
    assert path in ledger.network.state.vlans, "it passed its gate"
    before = len(ledger.log.reconfigurations())
    while now_s[0] < 600.0:
        now_s[0] += 2.0
        if withdrawals.due:
            withdrawals.of_dead_circuits()
    assert len(ledger.log.reconfigurations()) == before


@pytest.mark.parametrize("fails", [False, True])
def test_a_pair_gets_another_path_once_the_journal_can_be_written_again(fails):
    staged = Staged(before=joined(EMPTY, (0, 1, 0)))
    rooms, intents = staged.rooms, []
    rooms.ledger.reservations.keep_standing()
    rooms.courses.recovery.done = True
    (circuit,) = rooms.ledger.network.state.topology.circuits

    def journal(batch):
        if batch.step == "intent":
            intents.append(batch)
            if fails and len(intents) == 2:
                raise JournalError("etcd does not answer")

    staged.stage.doer.look = journal
    rooms.quarantine.put(set(circuit.ends), "no light", rooms.ledger.network.state.topology.paths)
    withdraw = rooms.withdrawals._withdraw
    with suppress(JournalError):
        withdraw([circuit], "carrier lost")
    if rooms.withdrawals.due:
        rooms.withdrawals.of_dead_circuits()
    assert {pair_of(path) for path in rooms.ledger.network.state.topology.paths} == {(0, 1)}


def test_a_pair_that_is_let_go_after_a_failure_of_the_journal_does_not_come_back():
    reserved = Reserved()
    staged, rooms, ledger = reserved.staged, reserved.rooms, reserved.ledger
    reserved.join_others()
    (lost,) = (path for path in ledger.network.state.topology.paths if pair_of(path) == (2, 3))
    intents = []

    def journal(batch):
        if batch.step == "intent":
            intents.append(batch)
            if len(intents) == 2:
                raise JournalError("etcd does not answer")

    staged.stage.doer.look = journal
    (circuit,) = lost.circuits
    rooms.quarantine.put(set(circuit.ends), "no light", ledger.network.state.topology.paths)
    withdraw = rooms.withdrawals._withdraw
    with suppress(JournalError):
        withdraw([circuit], "carrier lost")
    ledger.network.rest_s = lambda *_: 0.05  # as usual, no change is made beside another
    reserved.admission.release(reserved.id)
    reserved.work()
    while rooms.withdrawals.due:
        rooms.withdrawals.of_dead_circuits()
    assert staged.pairs == {(2, 3)}
