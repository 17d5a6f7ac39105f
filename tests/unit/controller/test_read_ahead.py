"""A ledger with read-ahead behaves like a ledger without, and has less to read: with a journal in
etcd.
"""

import random
import time
import uuid
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from apps.controller.record import read_ahead as room
from apps.controller.record.ledger import Ledger
from apps.controller.record.read_ahead import ReadBook, ReadOnce
from apps.journal.copy import Copying
from apps.journal.etcd import EtcdJournal
from hydra.errors import AdmissionError, HydraError, LifecycleError
from hydra.journal import Kind
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.records import read_reservation, reservation_record
from hydra.reservations.reservation import ReservationRequest, RetryKey
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=2, servers=2)
LIMITS = AdmissionLimits(3)
STANDING = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/")


def noting(reads, name, read):
    def noted(*arguments):
        reads.append(name)
        return read(*arguments)

    return noted


@pytest.fixture
def reads(monkeypatch):
    """Kinds of the read records, as the ledger's objects."""
    reads = []
    for name in ("read_event", "read_reservation"):
        monkeypatch.setattr(room, name, noting(reads, name, getattr(room, name)))
    return reads


def act(ledger, rng):
    """Actions of a customer, or of the clock."""
    known = [one.id for one in ledger.bookings.all()]
    with suppress(AdmissionError, LifecycleError):
        match rng.randrange(5):
            case 0 | 1:
                src, dst = rng.sample(["h11", "h21", "h31", "r4"], 2)
                later_s = rng.choice((None, time.time() + 1000.0))
                request = ReservationRequest(
                    src,
                    dst,
                    rng.choice((5.0, 20.0)),
                    start_unix_s=later_s,
                    owner=rng.choice((None, "tina")),
                    retry=RetryKey(f"{rng.random()}", "digest"),
                )
                with ledger.bookings.trial():
                    ledger.reservations.keep([ledger.bookings.add(request, LIMITS)])
            case 2 if known:
                ledger.reservations.let_go(rng.choice(known))
            case 3 if known:
                state = rng.choice((State.ACTIVE, State.RELEASED, State.FAILED, State.EXPIRED))
                ledger.reservations.change(rng.choice(known), state, "so be it")
            case 4 if known:
                change = Modification(bandwidth_mbps=rng.choice((3.0, 30.0)))
                ledger.reservations.modify(rng.choice(known), change, LIMITS, None)


def told(ledger):
    """All parts of the ledger that other rooms see."""
    with ledger.bookings.trial():
        path = ledger.bookings.add(ReservationRequest("h21", "r3", 1.0), LIMITS).booked
    pins = ledger.bookings.pins()
    events, forgotten = ledger.events.after(0, 10_000)
    return {
        "state": ledger.network.state,
        "reservations": ledger.bookings.all(),
        "active": set(
            ledger.bookings.active()
        ),  # in the order in which they became so, also for the leader
        "pins": {replace(one, reservations=tuple(sorted(one.reservations))) for one in pins},
        "due": ledger.bookings.due(),
        "usage": ledger.bookings.usage("tina"),
        "admits": path,
        "history": [line.text for line in ledger.log.history(0.0, time.time() + 1000, (), 10_000)],
        "events": (ledger.events.run, events, forgotten, ledger.events.last),
    }


def loaded_plainly(settings):
    """A ledger from the same records, in a separate file."""
    journal = SqliteJournal(":memory:")
    with closing(EtcdJournal(settings, read_only=True)) as etcd:
        journal.write([one for kind in Kind for one in etcd.changes(kind)])
    ledger = Ledger(fabric=FABRIC, journal=journal, stored_events=True)
    ledger.load()
    return ledger


def test_who_has_read_ahead_goes_on_as_who_has_not(settings, reads, monkeypatch):
    monkeypatch.setattr("apps.controller.record.reservation_news._KEPT_RESERVATIONS", 8)
    rng = random.Random(3)
    with closing(Copying(settings)) as copies:
        journal = EtcdJournal(settings, later=True)
        following = Ledger(fabric=FABRIC, journal=journal, stored_events=True)
        leading = Ledger(fabric=FABRIC, journal=EtcdJournal(settings), stored_events=True)
        leading.load()
        leading.network.settle(STANDING)
        leading.reservations.save("test")
        for _ in range(40):
            for _ in range(rng.randrange(6)):
                act(leading, rng)
            following.look_ahead(copies.look())
        assert len(leading.bookings.all()) > 12
        with leading.bookings.trial():
            last = leading.bookings.add(ReservationRequest("h11", "r2", 1.0), LIMITS)
            leading.reservations.keep([last])
        leading.close()
        reads.clear()
        journal.open(known=copies.hand_over())
        following.load()
        read = sorted(reads)
        expected = loaded_plainly(settings)
        try:
            assert last.id in {one.id for one in following.bookings.all()}
            assert told(following) == told(expected)
        finally:
            following.close()
            expected.close()
    assert read == ["read_event", "read_reservation"], "the last one alone"


def test_what_is_looked_at_once_it_leads_changes_nothing(settings):
    with closing(Copying(settings)) as copies:
        journal = EtcdJournal(settings, later=True)
        following = Ledger(fabric=FABRIC, journal=journal)
        with closing(EtcdJournal(settings)) as before:
            leading = Ledger(fabric=FABRIC, journal=before)
            with leading.bookings.trial():
                leading.reservations.keep(
                    [leading.bookings.add(ReservationRequest("h11", "r2", 1.0), LIMITS)]
                )
        following.look_ahead(old := copies.look())
        journal.open(known=copies.hand_over())
        following.load()
        (one,) = following.bookings.all()
        following.reservations.change(one.id, State.ACTIVE)
        following.look_ahead(Copies(old, {}))
        assert [one.state for one in following.bookings.all()] == [State.ACTIVE]
        following.close()


class Copies:
    def __init__(self, copy, kinds):
        self.as_of_unix_s, self._kinds = copy.as_of_unix_s, kinds

    def records(self, kind):
        return self._kinds.get(kind, {})


def records_of(*states):
    book = ReservationBook(FABRIC)
    for number, state in enumerate(states):
        book.add(f"one{number}", ReservationRequest("h11", "r2", 1.0), 0.0)
        if state is not State.ACTIVATING:
            book.transition(f"one{number}", state, now=1.0)
    return [reservation_record(FABRIC, one) for one in book]


def test_the_book_is_in_the_order_of_the_records_whatever_comes_back():
    records = records_of(State.ACTIVE, State.ACTIVATING, State.FAILED)
    book = ReadBook(FABRIC)
    for some in (records[:2], [records[1]], records, [], records[1:]):
        assert list(book.of(some)) == [read_reservation(FABRIC, one) for one in some]


def test_a_record_that_can_not_be_read_is_told_of_when_it_is_loaded():
    """And earlier reads are repeated: no result depends on a half-made book."""
    good, bad = records_of(State.ACTIVE)[0], {"id": "bad"}
    book = ReadBook(FABRIC)
    book.of([good])
    for _ in range(2):
        with pytest.raises(HydraError, match="not a reservation record"):
            book.of([bad, good])
    assert [one.id for one in book.of([good])] == ["one0"]


def test_one_that_has_failed_since_it_was_written_is_read_when_it_is_loaded():
    """The reservation failed at that time, not at the time of the read: a start may be days
    later.
    """
    (record,) = records_of(State.ACTIVE)
    record = {**record, "src_rack": "gone"}
    book = ReadBook(FABRIC)
    (before,) = book.of([record])
    (now,) = book.of([record])
    assert (before.state, now.state) == (State.FAILED, State.FAILED)
    assert now.since_unix_s > before.since_unix_s


def test_a_record_is_read_once_as_long_as_it_is_the_same_object():
    read = []
    records = [{"n": 1}, {"n": 1}, {"n": "x"}]

    def number(record):
        read.append(record)
        return int(record["n"])

    known = ReadOnce(number)
    known.see(records)
    known.see(records[:2])
    assert [known.of(one) for one in records[:2]] == [1, 1]
    assert read == records
    assert known.of({"n": 7}) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        known.of(records[2])
