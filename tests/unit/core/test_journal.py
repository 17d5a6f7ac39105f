"""The journal on a real file."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hydra.journal import SCHEMA_VERSION, Journal, JournalError

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "deep" / "journal.db")


def reopened(path):
    return Journal(path)


def test_a_missing_directory_is_made(path):
    Journal(path).close()
    assert Path(path).is_file()


def test_entries_come_back_in_order_after_reopening(path):
    journal = Journal(path)
    for number in range(3):
        journal.record(1000.5 + number, f"entry {number}", {"number": number, "list": [1, "x"]})
    journal.close()
    assert reopened(path).entries() == [
        (1000.5 + number, f"entry {number}", {"number": number, "list": [1, "x"]})
        for number in range(3)
    ]


def test_the_oldest_entries_go(path, monkeypatch):
    monkeypatch.setattr("hydra.journal._KEPT_ENTRIES", 5)
    journal = Journal(path)
    for number in range(12):
        journal.record(0.0, str(number), {})
    assert [what for _, what, _ in journal.entries()] == ["7", "8", "9", "10", "11"]


def test_the_last_state_is_kept(path):
    journal = Journal(path)
    assert journal.load_state("demo") is None
    journal.save_state("demo", {"epoch": 1})
    journal.save_state("demo", {"epoch": 2})
    journal.close()
    assert reopened(path).load_state("demo") == {"epoch": 2}


def test_another_fabrics_journal_is_refused(path):
    Journal(path).save_state("demo", {"epoch": 1})
    with pytest.raises(JournalError) as raised:
        reopened(path).load_state("campus")
    assert str(raised.value) == (
        f"journal {path} belongs to fabric 'demo', not 'campus': "
        "set controller.journal to a file of its own"
    )


def test_a_reservation_is_replaced_by_its_id(path):
    journal = Journal(path)
    journal.save_reservation("a", {"id": "a", "state": "activating"})
    journal.save_reservation("b", {"id": "b"})
    journal.save_reservation("a", {"id": "a", "state": "active"})
    journal.close()
    records = {record["id"]: record for record in reopened(path).load_reservations()}
    assert records == {"a": {"id": "a", "state": "active"}, "b": {"id": "b"}}


def test_a_journal_of_another_release_is_refused_and_left_alone(path):
    Journal(path).close()
    other = SCHEMA_VERSION + 1
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={other}")
    db.close()
    with pytest.raises(JournalError) as raised:
        Journal(path)
    assert str(raised.value) == (
        f"journal {path} has schema {other}, this release reads {SCHEMA_VERSION}: "
        "start the release that wrote it, or move the file away"
    )
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (other,)
    db.close()


def test_a_path_that_cannot_be_written_names_itself_and_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "journal.db")
    with pytest.raises(JournalError) as raised:
        Journal(path)
    assert f"can't open the journal {path} (" in str(raised.value)
    assert "check the directory, its permissions and the free disk space" in str(raised.value)


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and longer than the header of one\n" * 40)
    with pytest.raises(JournalError, match="file is not a database"):
        Journal(str(path))
    assert path.read_text().startswith("not a database")


def test_a_write_that_fails_is_told_and_leaves_nothing_behind(path):
    journal = Journal(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    journal._db.execute("PRAGMA busy_timeout=10")
    with pytest.raises(JournalError, match=r"can't write the journal .*locked"):
        journal.record(0.0, "lost", {})
    blocker.execute("ROLLBACK")
    blocker.close()
    journal.record(0.0, "kept", {})
    assert [what for _, what, _ in journal.entries()] == ["kept"]


def test_a_closed_journal_says_so(path):
    journal = Journal(path)
    journal.close()
    with pytest.raises(JournalError, match="can't read the journal"):
        journal.entries()
    with pytest.raises(JournalError, match="can't write the journal"):
        journal.record(0.0, "late", {})


def test_threads_may_share_it(path):
    journal = Journal(path)

    def write(name):
        for number in range(20):
            journal.record(float(number), name, {"number": number})

    threads = [threading.Thread(target=write, args=(f"t{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = journal.entries()
    assert len(entries) == 80
    assert [d["number"] for _, what, d in entries if what == "t2"] == list(range(20))


_CHILD = """
import sys
from hydra.journal import Journal
journal = Journal(sys.argv[1])
number = 0
while True:
    journal.record(0.0, "entry", {"number": number})
    print(number, flush=True)
    number += 1
"""


def test_what_was_acknowledged_survives_a_kill(path):
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, path],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as child:
        acknowledged = [int(child.stdout.readline()) for _ in range(25)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL
    numbers = [details["number"] for _, _, details in reopened(path).entries()]
    assert numbers[: len(acknowledged)] == acknowledged
    assert len(numbers) <= len(acknowledged) + 1


def test_memory_keeps_nothing_and_makes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Journal(":memory:").record(0.0, "gone", {})
    assert Journal(":memory:").entries() == []
    assert list(tmp_path.iterdir()) == []


def test_a_reader_beside_the_writer(path):
    """Sees what is written, and changes nothing."""
    writer = Journal(path)
    reader = Journal(path, read_only=True)
    assert reader.last_entry() is None
    writer.record(1.0, "first", {"number": 1})
    writer.record(2.0, "second", {"number": 2})
    writer.save_state("demo", {"epoch": 1})
    assert reader.last_entry() == ("second", {"number": 2})
    assert reader.load_state("demo") == {"epoch": 1}
    with pytest.raises(JournalError, match=r"can't write the journal .*readonly"):
        reader.record(3.0, "third", {})
    reader.close()
    assert writer.last_entry() == ("second", {"number": 2})


def test_a_reader_makes_no_file(path):
    with pytest.raises(JournalError, match="can't open the journal"):
        Journal(path, read_only=True)
    assert not Path(path).exists()


FIRST_SCHEMA = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, unix_s REAL NOT NULL, what TEXT NOT NULL, details TEXT NOT NULL
);
CREATE TABLE network_state (
    id INTEGER PRIMARY KEY CHECK (id = 1), fabric TEXT NOT NULL, state TEXT NOT NULL
);
CREATE TABLE reservations (id TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE quarantine (id INTEGER PRIMARY KEY, record TEXT NOT NULL);
INSERT INTO entries VALUES (1, 1000.5, 'start', '{}');
INSERT INTO network_state VALUES (1, 'demo', '{"epoch": 7}');
INSERT INTO reservations VALUES ('v0', '{"id": "v0"}');
PRAGMA user_version = 1;
"""


@pytest.fixture
def first(path):
    """A journal as the first release wrote it."""
    Path(path).parent.mkdir()
    db = sqlite3.connect(path)
    db.executescript(FIRST_SCHEMA)
    db.close()
    return path


def test_an_earlier_schema_is_upgraded_with_all_that_it_holds(first):
    journal = Journal(first)
    assert journal.entries() == [(1000.5, "start", {})]
    assert journal.load_state("demo") == {"epoch": 7}
    assert journal.load_reservations() == [{"id": "v0"}]
    journal.close()
    db = sqlite3.connect(first)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    indices = db.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    assert ("entries_by_time",) in indices
    db.close()


def test_the_release_that_wrote_it_finds_a_copy(first):
    Journal(first).close()
    db = sqlite3.connect(f"{first}.schema-1")
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert db.execute("SELECT what FROM entries").fetchall() == [("start",)]
    db.close()
    Journal(first).close()
    assert len(list(Path(first).parent.glob("*.schema-*"))) == 1


def test_an_upgrade_that_fails_changes_nothing(first, monkeypatch):
    monkeypatch.setattr("hydra.journal._UPGRADES", {1: ("DROP TABLE entries", "nonsense")})
    with pytest.raises(JournalError, match="can't open the journal"):
        Journal(first)
    db = sqlite3.connect(first)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert db.execute("SELECT what FROM entries").fetchall() == [("start",)]
    db.close()


def test_looking_upgrades_nothing(first):
    journal = Journal(first, read_only=True)
    assert journal.load_state("demo") == {"epoch": 7}
    journal.close()
    assert list(Path(first).parent.glob("*.schema-*")) == []


def test_entries_go_with_age(path):
    journal = Journal(path, kept_days=2)
    day_s = 86_400
    for day in range(5):
        journal.record(day * day_s, f"day {day}", {})
    assert [what for _, what, _ in journal.entries()] == ["day 2", "day 3", "day 4"]
