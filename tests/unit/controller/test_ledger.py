"""A promise is written to the journal before it counts; past events are written later."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller.record import (
    event_writer,
    journal_writer,
    network,
    reconfigurations,
    reservation_news,
)
from apps.controller.record.ledger import Ledger
from apps.process.metrics import Metrics
from hydra.errors import LifecycleError
from hydra.events import DeviceAlarm, Progress
from hydra.failures import Failure, FailureKind
from hydra.journal import Change, JournalError, JournalTaken, Kind
from hydra.journal_format import INTENDED, state_record
from hydra.lifecycle import ReconfigurationState
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import ReservationRequest
from hydra.roles import Alarm, Severity
from hydra.service import CircuitFailure
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import path_of, small_fabric, state_of
from tests.waiting import PATIENCE_S, wait_until

FABRIC = small_fabric(racks=3, planes=2, servers=2)
LIMITS = AdmissionLimits(3)
STANDING = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))


ELSEWHERE = path_of(FABRIC, 1, 2)
REST_S = 5.0


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
    monkeypatch.setattr(journal_writer, "TRY_AGAIN_S", 0.0)
    return Ledger(fabric=FABRIC, journal=disk, metrics=metrics)


def reserve(ledger, mbps=30.0, **more):
    request = ReservationRequest("h11", "r2", mbps, **more)
    reservation = ledger.bookings.add(request, LIMITS)
    ledger.reservations.keep([reservation])
    return reservation


def restarted(disk):
    disk.full = False
    other = Ledger(fabric=FABRIC, journal=disk)
    other.load()
    return other


def everything(ledger):
    return ledger.bookings.all(), ledger.bookings.pins(), ledger.bookings.usage("tina")


def test_a_failure_is_acknowledged_by_letting_it_go(ledger, disk):
    one = reserve(ledger)
    ledger.reservations.change(one.id, State.FAILED, "no path came up")
    gone = ledger.reservations.let_go(one.id)
    assert gone.state is State.RELEASED
    assert gone.reason == "released on request, after the failure: no path came up"
    assert restarted(disk).bookings.get(one.id) == gone
    with pytest.raises(LifecycleError):
        ledger.reservations.let_go(one.id)


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger, one, _held: ledger.reservations.let_go(one.id),
        lambda ledger, _one, held: ledger.reservations.let_go(held.id),
        lambda ledger, _one, held: ledger.reservations.commit(held.id, None),
        lambda ledger, one, _held: ledger.reservations.modify(
            one.id, Modification(20.0), LIMITS, None
        ),
    ],
    ids=["release", "cancel", "commit", "modify"],
)
def test_what_is_asked_for_is_kept_or_not_done(ledger, disk, act):
    one = reserve(ledger, owner="tina")
    held = reserve(ledger, hold_s=1000.0, owner="tina")
    ledger.reservations.change(one.id, State.ACTIVE)
    before = everything(ledger)
    disk.full = True
    with pytest.raises(JournalError, match="database or disk is full"):
        act(ledger, one, held)
    assert everything(ledger) == before
    assert not ledger.writer.behind
    disk.full = False
    act(ledger, one, held)
    assert everything(ledger) != before


@pytest.mark.parametrize("cancelled", [True, False])
def test_what_was_to_give_way_stays_over_a_restart(ledger, disk, cancelled):
    old = reserve(ledger, 80.0)
    ledger.reservations.change(old.id, State.ACTIVE)
    new = reserve(ledger, 80.0, priority=1, start_unix_s=time.time() + 600)
    before = everything(ledger)
    assert ledger.bookings.get(old.id).preempted_by == new.id
    disk.full = cancelled
    if cancelled:
        with pytest.raises(JournalError):
            ledger.reservations.let_go(new.id)
        assert everything(ledger) == before
        disk.full = False
    told = ledger.events.last
    if cancelled:
        ledger.reservations.let_go(new.id)
    else:
        ledger.reservations.change(new.id, State.FAILED, "no other path")
    stays = ledger.bookings.get(old.id)
    assert (stays.state, stays.expires_unix_s, stays.preempted_by) == (State.ACTIVE, None, None)
    events, _ = ledger.events.after(told)
    assert [one.reservation.id for one in events] == [new.id, old.id]
    lines = ledger.log.history(0, time.time() + 1000, (), 10)
    assert any("does not give way any more" in one.text for one in lines)
    assert restarted(disk).bookings.get(old.id) == stays


def test_what_was_to_give_way_to_one_that_itself_gives_way_stays(ledger, disk):
    old = reserve(ledger, 60.0, duration_s=2000.0)
    ledger.reservations.change(old.id, State.ACTIVE)
    now = time.time()
    second = reserve(ledger, 80.0, priority=5, start_unix_s=now + 100, duration_s=5000.0)
    assert ledger.bookings.get(old.id).preempted_by == second.id
    reserve(ledger, 90.0, priority=9, start_unix_s=now + 3000, duration_s=100.0)
    assert ledger.bookings.get(second.id).state is State.PREEMPTED
    stays = ledger.bookings.get(old.id)
    assert stays.preempted_by is None
    assert stays.expires_unix_s == pytest.approx(old.expires_unix_s)
    assert restarted(disk).bookings.get(old.id) == stays


def test_a_reservation_that_can_not_be_kept_leaves_nothing(ledger, disk):
    disk.full = True
    with pytest.raises(JournalError), ledger.bookings.trial():
        reservation = ledger.bookings.add(ReservationRequest("h11", "r2", 30.0), LIMITS)
        ledger.reservations.keep([reservation])
    assert ledger.bookings.all() == ()
    assert restarted(disk).bookings.all() == ()


def test_what_has_happened_is_written_once_that_can_be(ledger, disk, metrics, caplog):
    one, other = reserve(ledger), reserve(ledger)
    disk.full = True
    ledger.network.settle(STANDING)
    with caplog.at_level(logging.INFO, "hydra.ledger"):
        ledger.reservations.save("reconfigured")
        ledger.reservations.change(one.id, State.ACTIVE)
        ledger.reservations.change(other.id, State.FAILED, "no path came up")
        ledger.reservations.change(one.id, State.RELEASING)
        ledger.writer.catch_up()
        assert ledger.writer.behind
        errors = [line for line in caplog.messages if "disk is full" in line]
        assert len(errors) == 1, "an outage is told of once"
        disk.full = False
        ledger.writer.catch_up()
    assert not ledger.writer.behind
    assert caplog.messages[-1] == "the journal can be written again, and is up to date"
    assert metrics.registry.get_sample_value("hydra_journal_failures_total") >= 5
    again = restarted(disk)
    assert again.bookings.get(one.id).state is State.RELEASING
    assert again.bookings.get(other.id).reason == "no path came up"
    assert again.network.state == STANDING


def test_an_outage_right_after_the_machine_has_started_is_logged(disk, monkeypatch, caplog):
    monkeypatch.setattr(network.time, "monotonic", lambda: 3.0)
    ledger = Ledger(fabric=FABRIC, journal=disk)
    disk.full = True
    with pytest.raises(JournalError):
        reserve(ledger)
    assert [line for line in caplog.messages if "disk is full" in line]


def told(ledger):
    return [line.text for line in reversed(ledger.log.history(0.0, float("inf"), (), 100))]


def test_the_history_survives_a_restart(ledger, disk):
    one = reserve(ledger)
    ledger.reservations.change(one.id, State.FAILED, "no other path")
    entry = ledger.log.enter("circuit lost", "carrier lost at r1:o1.1")
    ledger.log.update(
        entry.id, state=ReconfigurationState.DONE, disconnected=STANDING.topology.circuits
    )
    ledger.close()
    again = restarted(SqliteJournal(disk.name))
    assert told(again)[:-1] == [
        f"reservation {one.id} (h11 to r2, 30 Mb/s) is activating",
        f"reservation {one.id} (h11 to r2, 30 Mb/s) is failed: no other path",
        f"{entry.id}, asked for by circuit lost, is done: 0 circuits up, 1 down; "
        "carrier lost at r1:o1.1",
        "stopped",
    ]
    assert told(again)[-1].endswith("started")
    (pair,) = {line.pairs for line in again.log.history_of(*one.pair, 9)}
    assert pair == (("r1", "r2"),)


def asked_for(ledger, disk, how):
    """A reconfiguration in this step when its controller is killed."""
    entry = ledger.log.enter("operator")
    ledger.log.write_entered()
    if how == "under way":
        ledger.writer.record(INTENDED, {"target": state_record(FABRIC, STANDING)})
    elif how == "done":
        ledger.network.settle(STANDING)
        ledger.reservations.finish(entry.id, state=ReconfigurationState.DONE, rules_pushed=12)
    elif how == "refused":
        ledger.log.refuse(entry, "no gain")
    return entry


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("queued", "failed", "the controller that carried it out has ended"),
        ("under way", "failed", "the controller that carried it out has ended"),
        ("done", "done", ""),
        ("refused", "refused", "no gain"),
    ],
)
def test_what_became_of_a_change_is_told_after_the_controller_was_killed(
    ledger, disk, how, state, reason
):
    ledger.load()
    entry = asked_for(ledger, disk, how)
    again = restarted(SqliteJournal(disk.name))
    told_of = again.log.reconfiguration(entry.id)
    assert (told_of.state.value, told_of.reason) == (state, reason)
    assert (told_of.trigger, told_of.created_unix_s) == ("operator", entry.created_unix_s)
    assert told_of.rules_pushed == 12 * (how == "done")
    ends = [line for line in told(again) if line.startswith(entry.id)]
    assert len(ends) == 1, "in the history, too"
    assert again.log.reconfigurations() == (told_of,)


def test_of_the_reconfigurations_the_journal_keeps_the_latest(ledger, disk, monkeypatch):
    monkeypatch.setattr(reconfigurations, "_KEPT", 2)
    ids = []
    for _ in range(4):
        entry = ledger.log.enter("operator")
        ids.append(entry.id)
        ledger.log.update(entry.id, state=ReconfigurationState.DONE)
    again = restarted(SqliteJournal(disk.name))
    assert [one.id for one in again.log.reconfigurations()] == ids[:1:-1]


def test_reconfigurations_that_another_release_wrote_are_left_out(ledger, disk, caplog):
    disk.write([Change(Kind.RECONFIGURATION, "a", {"id": "a"})])
    assert restarted(disk).log.reconfigurations() == ()
    assert "a reconfiguration of another release is left out" in caplog.text


def test_what_set_a_circuit_up_survives_restarts_as_long_as_the_circuit_stands(ledger, disk):
    (circuit,) = STANDING.topology.circuits
    for trigger in ("operator", "periodic"):
        entry = ledger.log.enter(trigger)
        ledger.network.settle(STANDING)
        ledger.reservations.save("reconfigured")
        ledger.log.update(entry.id, state=ReconfigurationState.DONE, connected={circuit})
    ledger.close()
    again = restarted(SqliteJournal(disk.name))
    (by,) = again.network.builders().values()
    assert (by.reconfiguration, by.trigger, by.unix_s) == (
        entry.id,
        "periodic",
        ledger.log.reconfiguration(entry.id).created_unix_s,
    )
    again.network.settle(NetworkState())
    again.reservations.save("reconfigured")
    assert again.network.builders() == {}
    assert SqliteJournal(disk.name).records(Kind.BUILDER) == []


def test_what_another_release_wrote_of_builders_is_left_out(ledger, disk, caplog):
    disk.write([Change(Kind.BUILDER, "a", {"by": "another release"})])
    assert restarted(disk).network.builders() == {}
    assert "origin of circuits, by another release, is left out" in caplog.text


def test_a_path_is_told_of_once(ledger):
    one = reserve(ledger)
    ledger.network.settle(state_of(FABRIC, NetworkState(), one.booked))
    ledger.reservations.save("reconfigured")
    assert ledger.reservations.place([one.booked]) == {one.booked}
    ledger.reservations.change(one.id, State.ACTIVE)
    states = [
        line.removeprefix(f"reservation {one.id} (h11 to r2, 30 Mb/s) ") for line in told(ledger)
    ]
    assert states == ["is activating", "has its path", "is active"]


def test_a_failure_that_is_the_reason_is_told_of_once(ledger):
    (circuit,) = STANDING.topology.circuits
    refused = CircuitFailure(circuit, Failure("move", "p1", FailureKind.REFUSED, "p1 refuses"))
    for reason in ("p1 refuses", "the journal is full"):
        entry = ledger.log.enter("operator")
        partial = ReconfigurationState.PARTIAL
        ledger.log.update(entry.id, state=partial, failures=(refused,), reason=reason)
    ends = [line.partition(" is partial: ")[2] for line in told(ledger)]
    assert ends == [
        "0 circuits up, 0 down; p1 refuses",
        "0 circuits up, 0 down; p1 refuses; the journal is full",
    ]


@pytest.mark.parametrize("owner", ["tina", None])
def test_the_reason_of_a_tenants_failure_names_nobody_elses(ledger, caplog, owner):
    mine = reserve(ledger, owner=owner)
    theirs = ledger.bookings.add(ReservationRequest("r1", "r3", 1.0), LIMITS)
    ledger.reservations.keep([theirs])
    ledger.reservations.reroute(
        mine.pair, AdmissionLimits(3, frozenset({mine.booked.circuits[0].b}))
    )
    failed = ledger.bookings.get(mine.id)
    assert failed.state is State.FAILED
    assert (theirs.id in failed.reason) == (owner is None)
    assert "no other path: " in failed.reason
    assert "out of use" in failed.reason
    assert theirs.id in caplog.text


def test_an_outage_of_the_journal_is_in_the_history_once_it_is_over(ledger, disk):
    disk.full = True
    with pytest.raises(JournalError):
        reserve(ledger)
    since_s, error = ledger.writer.failure
    assert "disk is full" in str(error)
    ledger.writer._next_try_s = 0.0
    ledger.writer.catch_up()
    assert ledger.writer.failure[0] == since_s
    disk.full = False
    ledger.writer._next_try_s = 0.0
    ledger.writer.catch_up()
    assert ledger.writer.failure is None
    ledger.writer.catch_up()
    assert told(restarted(disk))[-3:-1] == [str(error), "the journal can be written again"]


def test_the_next_promise_takes_along_what_is_late(ledger, disk):
    one = reserve(ledger)
    disk.full = True
    ledger.reservations.change(one.id, State.FAILED, "no path came up")
    disk.full = False
    reserve(ledger)
    assert not ledger.writer.behind
    assert restarted(disk).bookings.get(one.id).state is State.FAILED


def test_old_ones_that_are_forgotten_meanwhile_do_not_come_back(ledger, disk, monkeypatch):
    monkeypatch.setattr(reservation_news, "_KEPT_RESERVATIONS", 1)
    one, other = reserve(ledger), reserve(ledger)
    disk.full = True
    ledger.reservations.change(one.id, State.FAILED)
    ledger.reservations.change(other.id, State.FAILED)
    assert [r.id for r in ledger.bookings.all()] == [other.id]
    disk.full = False
    ledger.writer.catch_up()
    assert [r.id for r in restarted(disk).bookings.all()] == [other.id]


def test_of_changes_with_one_key_the_last_counts_but_a_deletion_outweighs_all():
    def change(key, record):
        return Change(Kind.RESERVATION, key, record)

    first, second, gone = change("a", {"n": 1}), change("a", {"n": 2}), change("b", None)
    appended = Change(Kind.ENTRY, None, {})
    given = [first, gone, second, change("b", {"n": 3}), appended]
    keyed, rest = journal_writer._sorted_out(given)
    assert (list(keyed.values()), rest) == ([second, gone], [appended])


def test_what_stands_is_told_while_a_slow_disk_is_written(ledger, disk, monkeypatch):
    begun, goes_on, write = threading.Event(), threading.Event(), disk.write

    def slow(changes):
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        write(changes)

    ledger.network.settle(STANDING)
    monkeypatch.setattr(disk, "write", slow)
    reserving = threading.Thread(target=lambda: reserve(ledger))
    reserving.start()
    assert begun.wait(PATIENCE_S)
    with ThreadPoolExecutor(1) as another:
        asked = another.submit(ledger.network.standing)
        try:
            state, moving = asked.result(PATIENCE_S)
        finally:
            goes_on.set()
    reserving.join()
    assert (state.topology, moving) == (STANDING.topology, frozenset())


def test_who_has_lost_the_journal_promises_nothing(ledger, tmp_path):
    one = reserve(ledger)
    successor = Ledger(fabric=FABRIC, journal=SqliteJournal(tmp_path / "journal.db"))
    successor.load()
    with pytest.raises(JournalTaken, match="another controller has taken over the journal"):
        reserve(ledger)
    with pytest.raises(JournalTaken):
        ledger.reservations.let_go(one.id)
    ledger.reservations.change(one.id, State.FAILED, "as it sees it")
    ledger.writer.catch_up()
    assert ledger.writer.behind
    assert isinstance(ledger.writer.failure[1], JournalTaken)
    assert [r.state for r in restarted(SqliteJournal(tmp_path / "journal.db")).bookings.all()] == [
        State.ACTIVATING
    ]


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(network.time, "monotonic", lambda: clock.now_s)
    return clock


def taken(before, *paths):
    """A state in which these paths have the VLAN-ID used by :data:`STANDING`."""
    (vlan,) = STANDING.vlans.values()
    return replace(state_of(FABRIC, before, *paths), vlans=dict.fromkeys(paths, vlan))


def test_a_vlan_id_that_a_path_has_lost_rests(ledger, clock):
    ledger.network.settle(STANDING)
    empty = state_of(FABRIC, STANDING)
    assert ledger.network.rest_s(taken(empty, ELSEWHERE), REST_S) == 0.0, "its path has it still"
    ledger.network.settle(empty)
    clock.now_s += 2.0
    assert ledger.network.rest_s(taken(empty, ELSEWHERE), REST_S) == 3.0
    assert ledger.network.rest_s(taken(empty, *STANDING.topology.paths), REST_S) == 0.0, (
        "it gets it back"
    )
    assert ledger.network.rest_s(state_of(FABRIC, empty, ELSEWHERE), REST_S) == 0.0, (
        "others are free"
    )
    clock.now_s += 3.0
    assert ledger.network.rest_s(taken(empty, ELSEWHERE), REST_S) == 0.0


def test_a_vlan_id_that_a_change_tried_rests_too(ledger, clock):
    empty = NetworkState()
    tried = SimpleNamespace(wanted=STANDING, result=empty)
    ledger.network.begin(tried)
    ledger.network.end(tried)
    assert ledger.network.rest_s(taken(empty, ELSEWHERE), REST_S) == REST_S


def test_the_next_change_takes_other_vlan_ids_than_one_that_only_tried_them(ledger, clock):
    empty = NetworkState()
    tried = SimpleNamespace(wanted=STANDING, result=empty)
    ledger.network.begin(tried)
    ledger.network.end(tried)
    assert ledger.network.rest_s(state_of(FABRIC, ledger.network.state, ELSEWHERE), REST_S) == 0.0


def test_labels_that_one_path_has_lost_and_another_has_are_handed_out_last(ledger, clock):
    both = taken(NetworkState(), *STANDING.topology.paths, ELSEWHERE)
    ledger.network.settle(both)
    ledger.network.settle(taken(NetworkState(), ELSEWHERE))
    (vlan,) = STANDING.vlans.values()
    assert ledger.network.state.pool.in_turn(FABRIC.circuit_vlans)[-1] == vlan


def test_what_a_change_that_was_cut_off_has_tried_rests_at_the_next_start(disk, clock):
    first = Ledger(fabric=FABRIC, journal=disk)
    first.load()
    first.reservations.save("reconfigured")
    empty, target = (state_record(FABRIC, one) for one in (NetworkState(), STANDING))
    first.writer.record(INTENDED, {"current": empty, "target": target})
    other = restarted(disk)
    assert other.network.state.pool.resting == frozenset(STANDING.vlans.values())
    assert other.network.rest_s(taken(other.network.state, ELSEWHERE), REST_S) == REST_S


@pytest.fixture
def shared(disk, monkeypatch):
    monkeypatch.setattr(journal_writer, "TRY_AGAIN_S", 0.0)
    return Ledger(fabric=FABRIC, journal=disk, stored_events=True)


def events_of(ledger, after=0):
    return [(one.number, one.kind.value) for one in ledger.events.after(after)[0]]


def complain(ledger):
    ledger.log.report_alarm(DeviceAlarm("p1", Alarm(Severity.MAJOR, 3, "LOS", "no light")))


def test_events_are_told_once_they_are_in_the_store(shared, disk):
    complain(shared)
    assert (events_of(shared), shared.events.last) == ([], 0)
    disk.full = True
    with pytest.raises(JournalError), shared.bookings.trial():
        reserve(shared)
    assert events_of(shared) == []
    disk.full = False
    kept = reserve(shared)
    assert events_of(shared) == [(1, "alarm"), (2, "reservation")]
    disk.full = True
    shared.reservations.change(kept.id, State.ACTIVE)
    assert shared.events.last == 2
    disk.full = False
    shared.writer.catch_up()
    assert events_of(shared, 2) == [(3, "reservation")]


def writes_of(disk, monkeypatch):
    """Kinds of the records written from now on, by write."""
    writes, write = [], disk.write

    def noted(changes):
        changes = list(changes)
        write(changes)
        writes.append(sorted({change.kind for change in changes}))

    monkeypatch.setattr(disk, "write", noted)
    return writes


def test_the_end_of_a_change_is_one_write(shared, disk, monkeypatch):
    """State, reservations in it, circuits' builders, history and events; a write takes SQLite a
    moment, and etcd milliseconds of all members.
    """
    kept = reserve(shared)
    entry = shared.log.enter("operator")
    shared.writer.record(INTENDED, {})
    shared.network.settle(state_of(FABRIC, NetworkState(), kept.booked))
    writes = writes_of(disk, monkeypatch)
    circuits = shared.network.state.topology.circuits
    shared.reservations.finish(entry.id, state=ReconfigurationState.DONE, connected=circuits)
    every = [Kind.BUILDER, Kind.ENTRY, Kind.EVENT, Kind.HISTORY, Kind.RESERVATION, Kind.STATE]
    assert writes == [sorted([*every, Kind.RECONFIGURATION])]
    assert not shared.events.waiting
    told = shared.events.after(0)[0]
    assert Progress(entry.id, ReconfigurationState.DONE) in [one.progress for one in told]
    assert restarted(disk).network.state == shared.network.state


def test_an_end_that_can_not_be_written_is_told_once_it_can(shared, disk):
    kept = reserve(shared)
    entry = shared.log.enter("operator")
    shared.network.settle(state_of(FABRIC, NetworkState(), kept.booked))
    disk.full = True
    shared.reservations.finish(entry.id, state=ReconfigurationState.DONE)
    assert shared.writer.behind
    assert len(shared.events.after(0)[0]) == 1, "that the reservation begins"
    with pytest.raises(JournalError):
        shared.writer.record(INTENDED, {})
    disk.full = False
    shared.writer.record(
        INTENDED, dict.fromkeys(("current", "target"), state_record(FABRIC, STANDING))
    )
    assert not shared.writer.behind
    assert restarted(disk).network.state.topology == shared.network.state.topology
    last, before = disk.records(Kind.ENTRY, newest=2)[::-1]
    assert (last["what"], before["what"]) == (INTENDED, "reconfigured")


def test_what_waits_to_be_told_goes_with_an_intent(shared, disk, monkeypatch):
    """Moving circuits are announced before any command."""
    shared.network.foretell(STANDING.topology.circuits, "it moves")
    writes = writes_of(disk, monkeypatch)
    shared.writer.record(INTENDED, {})
    assert writes == [[Kind.ENTRY, Kind.EVENT]]
    assert events_of(shared) == [(1, "circuit-moving")]
    shared.writer.notify_waiting()
    assert len(writes) == 1


@pytest.fixture
def led(shared, monkeypatch):
    """A ledger that publishes events by itself; a change's own writes always come in time."""
    monkeypatch.setattr(event_writer, "_PATIENCE_S", 60.0)
    shared.load()
    yield shared
    monkeypatch.setattr(event_writer, "_PATIENCE_S", 0.0)
    shared.close()


def test_the_course_of_a_change_is_told_by_its_own_writes(led, disk, monkeypatch):
    """A separate write for every substep would hold up the writes that the change waits for."""
    writes = writes_of(disk, monkeypatch)
    entry = led.log.enter("operator")
    time.sleep(4 * event_writer._TOGETHER_S)
    led.writer.record(INTENDED, {})
    for state in (ReconfigurationState.DRAINING, ReconfigurationState.MOVING):
        led.log.update(entry.id, state=state)
        time.sleep(4 * event_writer._TOGETHER_S)
    led.reservations.finish(entry.id, state=ReconfigurationState.DONE)
    assert len(writes) == 2
    told = [one.progress.state for one in led.events.after(0)[0]]
    assert told == [
        ReconfigurationState.QUEUED,
        ReconfigurationState.DRAINING,
        ReconfigurationState.MOVING,
        ReconfigurationState.DONE,
    ]


@pytest.mark.parametrize("news", ["alarm", "end"])
def test_what_no_other_write_tells_is_told_at_once(led, news):
    entry = led.log.enter("operator")
    if news == "alarm":
        complain(led)
    else:
        led.log.update(entry.id, state=ReconfigurationState.DONE)
    wait_until(lambda: not led.events.waiting)
    assert len(events_of(led)) == 2


def test_a_change_that_writes_nothing_is_told_of_all_the_same(shared, monkeypatch):
    monkeypatch.setattr(event_writer, "_PATIENCE_S", 0.2)
    shared.load()
    shared.log.enter("operator")
    wait_until(lambda: not shared.events.waiting)
    shared.close()


def test_what_another_write_has_told_is_not_written_again(shared, disk, monkeypatch):
    """The event writer finds a waiting event, and has to wait for that write."""
    complain(shared)
    writing = shared.events.writing

    @contextmanager
    def after_another():
        with writing() as events:
            disk.write(shared.writer._event_changes(events))
        writes.clear()
        with writing() as events:
            yield events

    writes = writes_of(disk, monkeypatch)
    monkeypatch.setattr(shared.events, "writing", after_another)
    shared.writer.notify_waiting()
    assert writes == []


def test_whoever_leads_next_goes_on_with_the_events(shared, disk):
    """A broken-off change is reported as failed; without an end, its followers would wait for
    ever.
    """
    shared.load()
    reserve(shared)
    shared.network.settle(STANDING)
    shared.network.foretell(STANDING.topology.circuits, "it moves")
    ended, broken_off = shared.log.enter("operator"), shared.log.enter("operator")
    shared.log.update(ended.id, state=ReconfigurationState.DONE)
    complain(shared)
    shared.close()
    first = shared.events.after(0)[0]
    kinds = {"reservation", "circuit-up", "circuit-moving", "reconfiguration", "alarm"}
    assert {one.kind.value for one in first} == kinds
    again = Ledger(fabric=FABRIC, journal=SqliteJournal(disk.name), stored_events=True)
    again.load()
    again.close()
    assert again.events.run == shared.events.run
    *before, last = again.events.after(0)[0]
    assert before == first
    assert last.progress == Progress(broken_off.id, ReconfigurationState.FAILED)
    known = {one.id: one for one in again.log.reconfigurations()}
    assert {name: one.state for name, one in known.items()} == {
        ended.id: ReconfigurationState.DONE,
        broken_off.id: ReconfigurationState.FAILED,
    }
    assert known[broken_off.id].reason == "the controller that carried it out has ended"
    assert known[ended.id].created_unix_s == pytest.approx(ended.created_unix_s, abs=60.0)
    assert again.log.reconfiguration(ended.id).trigger == "operator"
    of_others = {"run": again.events.run, "number": last.number + 1, "kind": "of another release"}
    journal = SqliteJournal(disk.name)
    journal.write([Change(Kind.EVENT, None, of_others)])
    later = Ledger(fabric=FABRIC, journal=journal, stored_events=True)
    later.load()
    later.close()
    assert (events_of(later), later.events.last) == ([], last.number + 1)
