"""The journal's file: its schemas, its copies, and what can't be one."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import hydra
from apps.journal import sqlite as sqlite_journal
from apps.journal.sqlite import SCHEMA_VERSION, copy_journal, set_aside
from hydra.journal import Change, JournalError, Kind, entry
from tests.journals import SqliteJournal

WEBHOOK = Change(Kind.WEBHOOK, "w", {"id": "w"})


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "deep" / "journal.db")


def whats(journal):
    return [one["what"] for one in journal.records(Kind.ENTRY)]


def asked(path, query):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def schema_of(path):
    return asked(path, "PRAGMA user_version")[0][0]


def test_a_missing_directory_is_made(path):
    SqliteJournal(path).close()
    assert Path(path).is_file()


def test_a_link_leads_to_the_file(path, tmp_path):
    link = tmp_path / "journal.db"
    link.symlink_to(path)
    SqliteJournal(link).close()
    assert link.is_symlink()
    assert Path(path).is_file()
    SqliteJournal(link).close()


def test_a_journal_of_another_release_is_refused_and_left_alone(path):
    SqliteJournal(path).close()
    other = SCHEMA_VERSION + 1
    asked(path, f"PRAGMA user_version={other}")
    with pytest.raises(JournalError) as raised:
        SqliteJournal(path)
    assert str(raised.value) == (
        f"journal {path} has schema {other}, this release reads {SCHEMA_VERSION}: "
        "start the release that wrote it, or move the file away"
    )
    assert schema_of(path) == other


def test_a_path_that_cannot_be_written_names_itself_and_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "journal.db")
    with pytest.raises(JournalError) as raised:
        SqliteJournal(path)
    assert f"can't open the journal {path} (" in str(raised.value)
    assert "check the directory, its permissions and the free disk space" in str(raised.value)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_link_that_leads_to_itself_is_refused_in_words(tmp_path, read_only):
    path = tmp_path / "journal.db"
    path.symlink_to(path)
    with pytest.raises(JournalError, match="can't open the journal"):
        SqliteJournal(path, read_only=read_only)
    assert path.is_symlink()


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and longer than the header of one\n" * 40)
    with pytest.raises(JournalError, match="file is not a database") as raised:
        SqliteJournal(path)
    assert_names_the_remedy(raised.value, path)
    assert path.read_text().startswith("not a database")


def assert_names_the_remedy(error, path):
    assert "permissions" not in str(error)
    assert f"the journal {path} is damaged (" in str(error)
    assert "put a backup in its place with `hydra restore --config FILE BACKUP`" in str(error)
    assert f"to start without reservations, circuits and quarantine, move {path} and" in str(error)


@pytest.fixture
def full(path):
    """A closed journal with a reservation and some history, of several pages."""
    journal = SqliteJournal(path)
    journal.write([Change(Kind.RESERVATION, "v1", {"id": "v1"})])
    journal.write([entry(0.0, "note", {"text": "x" * 900}) for _ in range(50)])
    journal.close()
    return Path(path)


@pytest.mark.parametrize("left", [0, 1, 99, 100, 1024, 2047, 2048, 4095, 4096, 10_000])
def test_a_journal_that_was_cut_is_refused_and_left_as_it_is(full, left):
    """What it had promised is gone: nobody starts without it unasked."""
    copy = full.with_name(f"{full.name}.before-20260101T000000")
    copy.write_bytes(cut := full.read_bytes()[:left])
    full.write_bytes(cut)
    for read_only in (False, True):
        with pytest.raises(JournalError) as raised:
            SqliteJournal(full, read_only=read_only).records(Kind.ENTRY)
        assert_names_the_remedy(raised.value, full)
        assert f"(copies beside it: {copy})" in str(raised.value)
    assert full.read_bytes() == cut
    set_aside(full)
    assert SqliteJournal(full).records(Kind.RESERVATION) == []


@pytest.mark.parametrize("lost", [1, 2048, 4095])
def test_a_journal_whose_last_page_was_cut_is_refused(path, lost):
    """SQLite finds nothing wrong with zeros in the place of what is missing."""
    SqliteJournal(path).close()
    Path(path).write_bytes(Path(path).read_bytes()[:-lost])
    for read_only in (False, True):
        with pytest.raises(JournalError, match="bytes are left of it"):
            SqliteJournal(path, read_only=read_only).records(Kind.ENTRY)


@pytest.mark.parametrize("page", range(1, 8))
def test_a_journal_with_a_page_of_nonsense_is_refused(full, page):
    content = bytearray(full.read_bytes())
    content[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    full.write_bytes(content)
    with pytest.raises(JournalError) as raised:
        SqliteJournal(full)
    assert_names_the_remedy(raised.value, full)


def test_a_write_ahead_log_without_its_journal_is_no_new_journal(full):
    SqliteJournal(full).write([WEBHOOK])
    full.unlink()
    with pytest.raises(JournalError, match="its write-ahead log is there"):
        SqliteJournal(full)


def test_a_record_that_is_no_json_is_told(path):
    journal = SqliteJournal(path)
    journal.write([WEBHOOK])
    journal._db.execute("UPDATE records SET record = '{'")
    with pytest.raises(JournalError, match="a record of kind webhook is no JSON"):
        journal.records(Kind.WEBHOOK)


def test_one_that_died_while_it_made_its_journal_is_no_obstacle(path):
    Path(path).parent.mkdir()
    Path(f"{path}.new").write_bytes(b"SQLite format 3")
    SqliteJournal(path).write([WEBHOOK])
    assert [file.name for file in Path(path).parent.glob("*.new*")] == []


def test_a_write_that_fails_is_told_and_leaves_nothing_behind(path):
    journal = SqliteJournal(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    journal._db.execute("PRAGMA busy_timeout=10")
    with pytest.raises(JournalError, match=r"can't write the journal .*locked"):
        journal.write([entry(0.0, "lost", {})])
    blocker.execute("ROLLBACK")
    blocker.close()
    journal.write([entry(0.0, "kept", {})])
    assert whats(journal) == ["kept"]


def test_memory_keeps_nothing_and_makes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SqliteJournal(":memory:").write([entry(0.0, "gone", {})])
    assert whats(SqliteJournal(":memory:")) == []
    assert list(tmp_path.iterdir()) == []


def test_a_reader_makes_no_file(path):
    with pytest.raises(JournalError, match="can't open the journal"):
        SqliteJournal(path, read_only=True)
    assert not Path(path).exists()


def test_a_copy_has_what_is_in_the_write_ahead_log_only(path, tmp_path):
    journal = SqliteJournal(path)
    journal.write([WEBHOOK])
    copy_journal(Path(path), tmp_path / "copy.db")
    journal.write([entry(0.0, "later", {})])
    copy = SqliteJournal(tmp_path / "copy.db", read_only=True)
    assert (copy.records(Kind.WEBHOOK), whats(copy)) == ([WEBHOOK.record], [])
    with pytest.raises(JournalError, match="can't be copied"):
        copy_journal(tmp_path / "missing.db", tmp_path / "other.db")


def test_what_is_set_aside_takes_its_write_ahead_log_along(path):
    assert set_aside(Path(path)) is None
    SqliteJournal(path).write([WEBHOOK])
    kept = set_aside(Path(path))
    assert [file.name for file in Path(path).parent.iterdir() if file.name == "journal.db"] == []
    assert SqliteJournal(kept).records(Kind.WEBHOOK) == [WEBHOOK.record]


# --- earlier schemas ------------------------------------------------------------------------------

FIRST_SCHEMA = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, unix_s REAL NOT NULL, what TEXT NOT NULL, details TEXT NOT NULL
);
CREATE TABLE network_state (
    id INTEGER PRIMARY KEY CHECK (id = 1), fabric TEXT NOT NULL, state TEXT NOT NULL
);
CREATE TABLE reservations (id TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE quarantine (id INTEGER PRIMARY KEY, record TEXT NOT NULL);
INSERT INTO entries VALUES (1, 1700000000.123456, 'said "so"', '{"rate": NaN}');
INSERT INTO entries VALUES (2, 1000.5, 'start', '{"list": [1, "x"]}');
INSERT INTO network_state VALUES (1, 'demo', '{"epoch": 7}');
INSERT INTO reservations VALUES ('v1', '{"id": "v1"}');
INSERT INTO reservations VALUES ('v0', '{"id": "v0"}');
INSERT INTO quarantine VALUES (1, '{"rack": "r1", "port": "o1"}');
INSERT INTO quarantine VALUES (2, '{"rack": "r2", "port": "o1"}');
PRAGMA user_version = 1;
"""
SECOND_SCHEMA = (
    FIRST_SCHEMA
    + """
CREATE INDEX entries_by_time ON entries (unix_s);
CREATE TABLE webhooks (id TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE decisions (id INTEGER PRIMARY KEY, record TEXT NOT NULL);
INSERT INTO webhooks VALUES ('w9', '{"id": "w9"}');
INSERT INTO webhooks VALUES ('w1', '{"id": "w1"}');
INSERT INTO decisions VALUES (7, '{"unix_s": 1.5}');
INSERT INTO decisions VALUES (8, '{"unix_s": 2.5}');
PRAGMA user_version = 2;
"""
)
SCHEMAS = {1: FIRST_SCHEMA, 2: SECOND_SCHEMA}


@pytest.fixture(params=[1, 2])
def schema(request):
    return request.param


@pytest.fixture
def earlier(path, schema):
    """A journal as an earlier release wrote it."""
    Path(path).parent.mkdir()
    db = sqlite3.connect(path)
    db.executescript(SCHEMAS[schema])
    db.close()
    return path


def check_contents(journal, schema):
    first, second = journal.records(Kind.ENTRY)
    assert (first["unix_s"], first["what"]) == (1700000000.123456, 'said "so"')
    assert json.dumps(first["details"]) == '{"rate": NaN}'
    assert second == {"unix_s": 1000.5, "what": "start", "details": {"list": [1, "x"]}}
    assert journal.records(Kind.STATE) == [{"fabric": "demo", "state": {"epoch": 7}}]
    assert journal.records(Kind.RESERVATION) == [{"id": "v1"}, {"id": "v0"}]
    ports = [{"rack": "r1", "port": "o1"}, {"rack": "r2", "port": "o1"}]
    assert journal.records(Kind.QUARANTINE) == [{"ports": ports}]
    later = schema > 1
    assert journal.records(Kind.WEBHOOK) == [{"id": "w9"}, {"id": "w1"}] * later
    assert journal.records(Kind.DECISION) == [{"unix_s": 1.5}, {"unix_s": 2.5}] * later


def test_an_earlier_schema_is_upgraded_with_all_that_it_holds(earlier, schema):
    journal = SqliteJournal(earlier)
    check_contents(journal, schema)
    journal.write([Change(Kind.RESERVATION, "v1", {"id": "v1", "new": True})])
    journal.close()
    assert schema_of(earlier) == SCHEMA_VERSION
    tables = asked(earlier, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    assert tables == [("owner",), ("records",)]
    again = SqliteJournal(earlier)
    assert again.records(Kind.RESERVATION) == [{"id": "v1", "new": True}, {"id": "v0"}]


def test_the_release_that_wrote_it_finds_a_copy(earlier, schema):
    SqliteJournal(earlier).close()
    copy = f"{earlier}.schema-{schema}"
    assert schema_of(copy) == schema
    assert asked(copy, "SELECT what FROM entries") == [('said "so"',), ("start",)]
    SqliteJournal(earlier).close()
    assert len(list(Path(earlier).parent.glob("*.schema-*"))) == 1


def test_an_upgrade_that_fails_changes_nothing(earlier, schema):
    with closing(sqlite3.connect(earlier)) as db, db:
        db.execute("INSERT INTO quarantine VALUES (3, 'no JSON')")
    with pytest.raises(JournalError, match="can't open the journal"):
        SqliteJournal(earlier)
    assert schema_of(earlier) == schema
    assert asked(earlier, "SELECT what FROM entries") == [('said "so"',), ("start",)]
    assert asked(earlier, "SELECT COUNT(*) FROM quarantine") == [(3,)]


def test_the_guide_says_what_is_read():
    guide = (Path(__file__).parents[3] / "docs" / "operators-guide.md").read_text()
    said = f"this release, {hydra.__version__}, writes schema {SCHEMA_VERSION} and reads 1 to "
    assert f"{said}{SCHEMA_VERSION - 1}." in " ".join(guide.split())


def test_looking_upgrades_nothing(earlier, schema):
    journal = SqliteJournal(earlier, read_only=True)
    check_contents(journal, schema)
    with pytest.raises(JournalError, match=r"can't write the journal .*readonly"):
        journal.write([WEBHOOK])
    journal.close()
    assert schema_of(earlier) == schema
    assert list(Path(earlier).parent.glob("*.schema-*")) == []


THIRD_SCHEMA = """
CREATE TABLE owner (generation INTEGER NOT NULL);
INSERT INTO owner VALUES (8);
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT,
    unix_s REAL,
    record TEXT NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX records_in_order ON records (kind);
CREATE INDEX records_by_time ON records (kind, unix_s) WHERE unix_s IS NOT NULL;
INSERT INTO records VALUES (4, 'reservation', 'v1', NULL, '{"id": "v1"}');
INSERT INTO records VALUES (7, 'entry', NULL, 1000.5, '{"unix_s": 1000.5, "what": "start"}');
PRAGMA user_version = 3;
"""


@pytest.fixture
def third(path):
    Path(path).parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(THIRD_SCHEMA)
    return path


def test_the_third_schema_is_upgraded_and_its_release_finds_a_copy(third):
    for journal in (SqliteJournal(third, read_only=True), SqliteJournal(third)):
        assert journal.records(Kind.RESERVATION) == [{"id": "v1"}]
        assert journal.records(Kind.ENTRY) == [{"unix_s": 1000.5, "what": "start"}]
    assert schema_of(third) == SCHEMA_VERSION
    assert asked(third, "SELECT generation FROM owner") == [(9,)]
    assert schema_of(f"{third}.schema-3") == 3
    assert asked(f"{third}.schema-3", "SELECT key FROM records ORDER BY id") == [("v1",), (None,)]


def test_the_release_of_the_third_schema_refuses_what_this_one_writes(third, monkeypatch):
    SqliteJournal(third).close()
    with monkeypatch.context() as earlier:
        earlier.setattr(sqlite_journal, "SCHEMA_VERSION", 3)
        with pytest.raises(JournalError, match="has schema 4, this release reads 3: start the"):
            SqliteJournal(third)
        assert SqliteJournal(f"{third}.schema-3").records(Kind.RESERVATION) == [{"id": "v1"}]
