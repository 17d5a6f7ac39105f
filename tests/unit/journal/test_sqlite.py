"""The journal's file: its schemas, its copies, and invalid files."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import hydra
from apps.journal.layout import FORMAT
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
        "start the release that wrote the journal, or move the file away"
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
    """Its promises are lost: no controller starts without the journal unless asked to."""
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
    """SQLite finds no error in zeros in place of missing data."""
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
    with pytest.raises(JournalError, match="the write-ahead log exists without the file"):
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


def test_the_page_about_upgrades_names_the_schema():
    guide = (Path(__file__).parents[3] / "docs" / "install.md").read_text()
    assert str(SCHEMA_VERSION) == FORMAT, "the page says that both are the same"
    said = f"both are {SCHEMA_VERSION} in this release, {hydra.__version__}"
    assert said in " ".join(guide.split())
