"""Requirements for every implementation of the journal, by :mod:`hydra.journal`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apps.etcd.gateway import Etcd
from apps.journal.etcd import EtcdJournal
from hydra.journal import (
    KEPT,
    Change,
    Journal,
    JournalError,
    JournalTaken,
    Kind,
    entry,
)
from mininet_scenarios.stage.etcd_members import EtcdMembers
from tests.journals import SqliteJournal
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.takes(10)

REPOSITORY = Path(__file__).parents[2]
DAY_S = 86_400.0
HOUR_S = 3_600.0


class SqliteStore:
    """A journal that can be opened repeatedly, and faults for a test to inject."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "deep" / "journal.db")
        opening = f"journal = SqliteJournal({self._path!r})"
        self.program = f"from apps.journal.sqlite import SqliteJournal\n{opening}"
        """Python code that opens the journal as ``journal``, for writing."""

    def open(self, kept_days: float | None = None) -> SqliteJournal:
        return SqliteJournal(self._path, kept_days=kept_days)

    def look(self) -> SqliteJournal:
        return SqliteJournal(self._path, read_only=True)

    @contextmanager
    def full(self, journal: SqliteJournal) -> Iterator[None]:
        """The journal's disk has room for a few bytes only."""
        (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
        journal._db.execute(f"PRAGMA max_page_count={pages}")
        yield
        journal._db.execute("PRAGMA max_page_count=1000000000")


class EtcdStore:
    """As SqliteStore, in a real etcd; each test has a separate prefix."""

    def __init__(self, etcd: EtcdMembers) -> None:
        self._settings = etcd.settings(f"/test/{uuid.uuid4().hex}/")
        self.program = (
            "from apps.journal.etcd import EtcdJournal\n"
            "from hydra.settings import EtcdSettings\n"
            f"journal = EtcdJournal({self._settings!r})"
        )

    def open(self, kept_days: float | None = None) -> EtcdJournal:
        return EtcdJournal(self._settings, kept_days=kept_days)

    def look(self) -> EtcdJournal:
        return EtcdJournal(self._settings, read_only=True)

    @contextmanager
    def full(self, _journal: EtcdJournal) -> Iterator[None]:
        """etcd raises this alarm itself when its disk is full, and then refuses writes."""
        alarm = {"memberID": 0, "alarm": "NOSPACE"}
        etcd = Etcd(self._settings)
        etcd.ask("/maintenance/alarm", {**alarm, "action": "ACTIVATE"})
        try:
            yield
        finally:
            etcd.ask("/maintenance/alarm", {**alarm, "action": "DEACTIVATE"})
            etcd.close()


@pytest.fixture(params=["sqlite", "etcd"])
def store(request, tmp_path):
    if request.param == "sqlite":
        return SqliteStore(tmp_path)
    return EtcdStore(request.getfixturevalue("etcd"))


@pytest.fixture
def journal(store):
    opened = store.open()
    yield opened
    opened.close()


def webhook(key: str, **record: object) -> Change:
    return Change(Kind.WEBHOOK, key, {"id": key, **record})


def ids(journal: Journal, kind: Kind = Kind.WEBHOOK) -> list[str]:
    return [record["id"] for record in journal.records(kind)]


def everything(journal: Journal) -> dict[Kind, list[dict[str, object]]]:
    return {kind: journal.records(kind) for kind in Kind}


# --- records ------------------------------------------------------------------------------------


def test_a_new_one_holds_nothing(journal):
    assert everything(journal) == {kind: [] for kind in Kind}


def test_records_come_in_the_order_of_their_first_writing(journal):
    journal.write([webhook("b"), webhook("a"), webhook("c")])
    journal.write([webhook("a", url="new")])
    assert journal.records(Kind.WEBHOOK) == [{"id": "b"}, {"id": "a", "url": "new"}, {"id": "c"}]
    journal.write([Change(Kind.WEBHOOK, "b", None), webhook("b")])
    assert ids(journal) == ["a", "c", "b"]


def test_a_key_is_one_of_its_kind(journal):
    journal.write([webhook("a"), Change(Kind.RESERVATION, "a", {"id": "other"})])
    journal.write([Change(Kind.WEBHOOK, "a", None), Change(Kind.WEBHOOK, "never there", None)])
    assert (ids(journal), ids(journal, Kind.RESERVATION)) == ([], ["other"])


def test_changes_are_made_in_their_order(journal):
    journal.write(
        [webhook("a"), Change(Kind.WEBHOOK, "a", None), webhook("b"), webhook("b", url="x")]
    )
    assert journal.records(Kind.WEBHOOK) == [{"id": "b", "url": "x"}]


def test_what_is_appended_stays_beside_its_equal(journal):
    for number in (1, 2, 2):
        journal.write([entry(1700000000.123456, f'"{number}"', {"list": [number, None, "ü"]})])
    journal.write([Change(Kind.DECISION, None, {"id": "apart"})])
    assert journal.records(Kind.ENTRY) == [
        {
            "unix_s": 1700000000.123456,
            "what": f'"{number}"',
            "details": {"list": [number, None, "ü"]},
        }
        for number in (1, 2, 2)
    ]


def test_the_newest_are_the_last_ones(journal):
    assert journal.records(Kind.ENTRY, newest=1) == []
    journal.write([entry(float(number), str(number), {}) for number in (3, 1, 2)])
    assert [one["what"] for one in journal.records(Kind.ENTRY, newest=2)] == ["1", "2"]
    assert [one["what"] for one in journal.records(Kind.ENTRY, newest=9)] == ["3", "1", "2"]


def test_the_oldest_that_were_appended_go(journal):
    most = KEPT[Kind.DECISION]
    journal.write([webhook("a"), entry(0.0, "stays", {})])
    for first in range(0, most + 4, 4):
        numbers = range(first, first + 4)
        journal.write([Change(Kind.DECISION, None, {"id": number}) for number in numbers])
    assert ids(journal, Kind.DECISION) == list(range(4, most + 4))
    assert len(journal.records(Kind.WEBHOOK) + journal.records(Kind.ENTRY)) == 2


def test_entries_go_with_age(store):
    journal = store.open(kept_days=2)
    journal.write([Change(Kind.DECISION, None, {"unix_s": 0.0})])
    for day in range(6):
        journal.write([entry(day * DAY_S, f"day {day}", {})])
    kept = ["day 2", "day 3", "day 4", "day 5"]  # as on day 4: day 5 may be wrong
    assert [one["what"] for one in journal.records(Kind.ENTRY)] == kept
    assert journal.records(Kind.DECISION) == [{"unix_s": 0.0}]


@pytest.mark.parametrize("days", [1.5, 30.0, 10_000.0])
def test_a_clock_that_jumps_ahead_and_is_set_right_makes_nothing_old(store, days):
    journal = store.open(kept_days=2)
    for hour in range(0, 48, 12):
        journal.write([entry(hour * HOUR_S, f"hour {hour}", {})])
    before = journal.records(Kind.ENTRY)
    for hour in (40, 41, 42):
        journal.write([entry(hour * HOUR_S + days * DAY_S, "in the future", {})])
    journal.close()
    journal = store.open(kept_days=2)
    journal.write([entry(43 * HOUR_S, "set right", {})])
    assert journal.records(Kind.ENTRY)[: len(before)] == before


def test_what_is_there_from_before_a_long_pause_goes_a_day_after_it(store):
    journal = store.open(kept_days=2)
    told = []
    for day in (0, 100, 100.9, 101.1):
        journal.write([entry(day * DAY_S, f"day {day}", {})])
        told.append(len(journal.records(Kind.ENTRY)))
    assert told == [1, 2, 3, 3]


def random_change(rng: random.Random) -> Change:
    keyed = [kind for kind in Kind if kind not in KEPT]
    record = {"id": rng.randrange(1000), "deep": {"list": [rng.random(), None, "é"]}}
    return rng.choice(
        (
            Change(rng.choice(keyed), rng.choice("abcd"), record),
            Change(rng.choice(keyed), rng.choice("abcd"), None),
            Change(rng.choice(tuple(KEPT)), None, record | {"unix_s": rng.random()}),
        )
    )


@pytest.mark.parametrize("seed", range(5))
def test_it_holds_what_was_written_over_many_openings(store, seed):
    rng = random.Random(seed)
    keyed: dict[Kind, dict[str, object]] = {kind: {} for kind in Kind if kind not in KEPT}
    appended: dict[Kind, list[object]] = {kind: [] for kind in KEPT}
    journal = store.open()
    for _ in range(60):
        changes = [random_change(rng) for _ in range(rng.randrange(4))]
        journal.write(changes)
        for change in changes:
            if change.key is None:
                appended[change.kind].append(change.record)
            elif change.record is None:
                keyed[change.kind].pop(change.key, None)
            else:
                keyed[change.kind][change.key] = change.record
        if rng.random() < 0.1:
            if rng.random() < 0.5:  # otherwise the process ends silently, like a killed process
                journal.close()
            journal = store.open()
    expected = {kind: list(records.values()) for kind, records in keyed.items()}
    assert everything(journal) == expected | appended


def test_its_changes_make_it_again(store, tmp_path):
    journal = store.open()
    journal.write([webhook("b"), entry(1.0, "one", {}), webhook("a"), webhook("b", url="new")])
    journal.write([Change(Kind.STATE, "network", {"epoch": 3}), entry(1.0, "one", {})])
    other = SqliteJournal(tmp_path / "copy.db")
    other.write([change for kind in Kind for change in journal.changes(kind)])
    assert everything(other) == everything(journal)
    other.write([webhook("a", url="known by its key")])
    assert [one.get("url") for one in other.records(Kind.WEBHOOK)] == ["new", "known by its key"]


@pytest.mark.parametrize("number", [1, 150])
def test_writes_may_be_large(store, number):
    """Larger than etcd's limits for a transaction: the size of a record, and the number of
    records.
    """
    journal = store.open()
    large = {"text": "x" * (2_000_000 // number)}
    journal.write([webhook("kept"), webhook("0", **large)])
    many = [webhook(str(one), **large) for one in range(number)]
    journal.write([webhook("first"), *many, Change(Kind.WEBHOOK, "kept", None)])
    assert journal.records(Kind.WEBHOOK)[:1] == [{"id": "0", **large}]
    assert ids(journal) == ["0", "first", *(str(one) for one in range(1, number))]
    journal.write([webhook(str(one)) for one in range(number)])
    assert store.look().records(Kind.WEBHOOK)[0] == {"id": "0"}
    journal.write([Change(Kind.WEBHOOK, str(one), None) for one in range(number)])
    assert ids(journal) == ids(store.open()) == ["first"]


# --- all or nothing -----------------------------------------------------------------------------


def test_a_change_that_can_not_be_written_takes_the_others_along(journal):
    journal.write([webhook("a")])
    with pytest.raises(TypeError):
        journal.write([Change(Kind.WEBHOOK, "a", None), webhook("b"), webhook("c", url=object())])
    assert ids(journal) == ["a"]
    journal.write([webhook("d")])
    assert ids(journal) == ["a", "d"]


def test_without_room_nothing_has_changed(store, journal):
    journal.write([webhook("a"), entry(0.0, "kept", {})])
    before = everything(journal)
    large = "x" * 100_000
    with store.full(journal):
        with pytest.raises(JournalError, match=r"can't write the journal .*full.*disk space"):
            journal.write([Change(Kind.WEBHOOK, "a", None), webhook("b"), webhook("c", url=large)])
        assert everything(journal) == before
    journal.write([webhook("c", url=large)])
    assert ids(journal) == ["a", "c"]


def test_closed_it_says_so(journal):
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="can't read the journal"):
        journal.records(Kind.ENTRY)
    with pytest.raises(JournalError, match="can't write the journal"):
        journal.write([webhook("late")])


_WRITE_FOR_EVER = """
from hydra.journal import Change, Kind, entry
number = 0
while True:
    pair = [Change(Kind.WEBHOOK, key, {"number": number}) for key in "ab"]
    journal.write([*pair, entry(0.0, "entry", {"number": number})])
    print(number, flush=True)
    number += 1
"""


def test_what_was_acknowledged_survives_a_kill(store):
    with subprocess.Popen(
        [sys.executable, "-c", store.program + _WRITE_FOR_EVER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as child:
        acknowledged = [int(child.stdout.readline()) for _ in range(25)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL
    journal = store.open()
    numbers = [one["details"]["number"] for one in journal.records(Kind.ENTRY)]
    assert numbers[: len(acknowledged)] == acknowledged
    assert len(numbers) <= len(acknowledged) + 1
    assert journal.records(Kind.WEBHOOK) == [{"number": numbers[-1]}] * 2


# --- who owns it --------------------------------------------------------------------------------


def test_who_opened_it_last_owns_it_and_the_others_are_refused(store):
    first = store.open()
    first.write([webhook("a")])
    second = store.open()
    with pytest.raises(JournalTaken) as raised:
        first.write([Change(Kind.WEBHOOK, "a", None), webhook("b")])
    assert str(raised.value) == (
        f"another controller has taken over the journal {first.name}: nothing is written from "
        "here any more, end this controller"
    )
    assert ids(second) == ids(first) == ["a"], "it can still look"
    second.write([webhook("c")])
    with pytest.raises(JournalTaken):
        first.write([webhook("d")])
    assert ids(second) == ["a", "c"]
    third = store.open()
    third.write([webhook("e")])
    with pytest.raises(JournalTaken):
        second.write([])
    assert ids(third) == ["a", "c", "e"]


def test_nothing_of_an_owner_comes_after_it_was_taken_over(store):
    first = store.open()
    written, refused, over = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        try:
            while not over.wait(0.001):  # a process without pauses may keep SQLite's lock for ever
                first.write([entry(0.0, "first", {})])
                written.set()
        except JournalTaken:
            refused.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert written.wait(PATIENCE_S)
    second = store.open()
    seen = len(second.records(Kind.ENTRY))
    second.write([entry(0.0, "second", {})])
    found = refused.wait(PATIENCE_S)
    over.set()
    writer.join()
    assert found
    whats = [one["what"] for one in second.records(Kind.ENTRY)]
    assert whats == ["first"] * seen + ["second"]


def test_looking_takes_nothing_over_and_changes_nothing(store, journal):
    reader = store.look()
    assert everything(reader) == everything(journal)
    journal.write([webhook("a")])
    assert ids(reader) == ["a"]
    with pytest.raises(JournalError, match="can't write the journal"):
        reader.write([webhook("b")])
    reader.close()
    journal.write([webhook("c")])
    assert ids(journal) == ["a", "c"]


# --- several at a time --------------------------------------------------------------------------


def test_threads_may_share_it(journal):
    def write(name: str) -> None:
        for number in range(20):
            journal.write([entry(float(number), name, {"number": number})])

    threads = [threading.Thread(target=write, args=(f"t{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = journal.records(Kind.ENTRY)
    assert len(entries) == 80
    numbers = [one["details"]["number"] for one in entries if one["what"] == "t2"]
    assert numbers == list(range(20))


def test_readers_see_all_of_a_write_or_nothing(store, journal):
    """Processes that share the journal, and processes that read the journal from another
    directory.
    """
    journal.write([webhook("a", number=0), webhook("b", number=0)])
    ended = threading.Event()
    seen: list[list[tuple[int, ...]]] = []

    def read(reader: Journal) -> None:
        mine: list[tuple[int, ...]] = []
        seen.append(mine)
        while not ended.is_set():
            mine.append(tuple(one["number"] for one in reader.records(Kind.WEBHOOK)))

    readers = [store.look(), store.look(), journal]
    threads = [threading.Thread(target=read, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    for number in range(1, 40):
        journal.write([webhook("a", number=number), webhook("b", number=number)])
    ended.set()
    for thread in threads:
        thread.join()
    for mine in seen:
        assert all(one == other for one, other in mine)
        assert mine == sorted(mine)
    for reader in readers[:2]:
        assert [one["number"] for one in reader.records(Kind.WEBHOOK)] == [39, 39]
        reader.close()
