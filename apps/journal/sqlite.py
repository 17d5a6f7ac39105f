"""The journal as an SQLite file, in WAL mode with full synchronisation.

A single table holds the records of all kinds. The file has a generation, which grows at each
opening for writing; each transaction checks that the generation is unchanged.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from hydra.journal import AGEING, KEPT, TRUSTED_S, Change, JournalError, JournalTaken, Kind

SCHEMA_VERSION: Final = 1
"""Increased with every change of tables or records that earlier releases can't read."""
_SCHEMA: Final = (
    "CREATE TABLE owner (generation INTEGER NOT NULL)",
    "INSERT INTO owner VALUES (0)",
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key TEXT,
        unix_s REAL,
        record TEXT NOT NULL,
        UNIQUE (kind, key)
    )""",
    "CREATE INDEX records_in_order ON records (kind)",
    "CREATE INDEX records_by_time ON records (kind, unix_s) WHERE unix_s IS NOT NULL",
)
_DAY_S: Final = 86_400.0
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class SqliteJournal:
    """A :class:`hydra.journal.Journal`. ``":memory:"`` as the path keeps nothing (tests).

    ``read_only`` looks into the file of a controller that may be running, and changes nothing.

    A file of another schema is refused. A damaged or cut file is refused: it may have held
    promises. Entries and history older than ``kept_days``, as :data:`hydra.journal.AGEING` counts,
    go when a new entry comes; None: only their number counts.
    """

    def __init__(
        self, path: str | Path, *, read_only: bool = False, kept_days: float | None = None
    ) -> None:
        self.name = str(path)
        self._kept_s = float("inf") if kept_days is None else kept_days * _DAY_S
        self._lock = threading.Lock()
        self._generation = 0
        try:
            self._db = self._look() if read_only else self._open()
        except (OSError, ValueError, RuntimeError, sqlite3.Error) as error:
            # RuntimeError: a link to itself, before Python 3.13.
            raise self._error("open", error) from error

    def _look(self) -> sqlite3.Connection:
        self._is_there()
        with ExitStack() as stack:
            db = stack.enter_context(closing(_connect(_to_read(self.name), uri=True)))
            self._check_version(db)
            db.execute("PRAGMA query_only=ON")
            self._generation = _generation(db)
            stack.pop_all()  # no failure: the connection stays open
            return db

    def _open(self) -> sqlite3.Connection:
        if self.name != ":memory:" and not self._is_there():
            self._create()
        with ExitStack() as stack:
            db = stack.enter_context(closing(_connect(self.name)))
            if self.name == ":memory:":
                _make_tables(db)
            self._check_version(db)
            self._read_all(db)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            self._take(db)
            stack.pop_all()  # no failure: the connection stays open
            return db

    def _is_there(self) -> bool:
        """Raises JournalError if only the write-ahead log or an unfinished restoration is there."""
        path = Path(self.name).resolve()
        if path.exists():
            return True
        if Path(f"{path}-wal").exists():
            raise self._damaged("the write-ahead log exists without the file")
        if (restored := restored_path(path)).exists():
            raise JournalError(
                f"the journal {self.name} is away, since its restoration was interrupted: give "
                f"`hydra restore --config FILE BACKUP` again{self._copies()}; or, to start without "
                f"reservations, circuits and quarantine, move {restored} away"
            )
        return False

    def _create(self) -> None:
        """Create the file atomically, as a file without a schema counts as damaged.

        If the name is a link, the file is created at the link's target.
        """
        path = Path(self.name).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = f"{path}.new"
        for end in ("", "-wal", "-shm"):
            Path(f"{fresh}{end}").unlink(missing_ok=True)
        _own(fresh)  # SQLite gives the write-ahead log the same mode
        with closing(_connect(fresh)) as db:
            db.execute("PRAGMA synchronous=FULL")
            _make_tables(db)
        Path(fresh).replace(path)

    def _damaged(self, what: str) -> JournalError:
        return JournalError(
            f"the journal {self.name} is damaged ({what}), and with it what was promised: put a "
            f"backup in its place with `hydra restore --config FILE BACKUP`{self._copies()}; or, "
            f"to start without reservations, circuits and quarantine, move {self.name} and "
            f"{Path(self.name).name}-wal away"
        )

    def _copies(self) -> str:
        """Other copies of the journal, for people: words in brackets, or nothing."""
        path = Path(self.name)
        beside = (
            file for file in path.parent.iterdir() if not file.name.endswith(("-wal", "-shm"))
        )
        copies = sorted(
            str(file) for file in beside if file.name.startswith(f"{path.name}.before-")
        )
        return f" (copies beside it: {', '.join(copies)})" if copies else ""

    def _error(self, verb: str, error: Exception) -> JournalError:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            return self._damaged(str(error))
        return JournalError(
            f"can't {verb} the journal {self.name} ({error}): "
            "check the directory, its permissions and the free disk space"
        )

    def _check_version(self, db: sqlite3.Connection) -> None:
        """Raises JournalError if the file has another schema, none, or only part of a page."""
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        if self.name != ":memory:" and (version == 0 or self._lacks_part_of_a_page(db)):
            raise self._damaged(f"{Path(self.name).stat().st_size} bytes are left of it")
        if version != SCHEMA_VERSION:
            raise JournalError(
                f"journal {self.name} has schema {version}, this release reads {SCHEMA_VERSION}: "
                "start the release that wrote the journal, or move the file away"
            )

    def _read_all(self, db: sqlite3.Connection) -> None:
        """Raises JournalError at the first damage."""
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise self._damaged(found)

    def check(self) -> None:
        """Raises JournalError for any damage in the file; only a part was read on opening."""
        with self._lock:
            try:
                self._read_all(self._db)
            except sqlite3.Error as error:
                raise self._error("read", error) from error

    def _lacks_part_of_a_page(self, db: sqlite3.Connection) -> bool:
        """True if the last page is cut, as SQLite would read missing bytes as zeros.

        If the last run left a write-ahead log, the log has the page.
        """
        path = Path(self.name).resolve()
        log = Path(f"{path}-wal")
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        cut = path.stat().st_size % page_bytes != 0
        return cut and not (log.exists() and log.stat().st_size)

    def _take(self, db: sqlite3.Connection) -> None:
        """Own the file from now on."""
        with db:  # commits, or rolls back
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE owner SET generation = generation + 1")
            self._generation = _generation(db)

    def write(self, changes: Iterable[Change]) -> None:
        with self._lock:
            try:
                with self._db:  # commits, or rolls back
                    self._db.execute("BEGIN IMMEDIATE")
                    if _generation(self._db) != self._generation:
                        raise JournalTaken(
                            f"another controller has taken over the journal {self.name}: nothing "
                            "is written from here any more, end this controller"
                        )
                    appended: dict[Kind, float | None] = {}
                    for change in changes:
                        _make(self._db, change)
                        if change.key is None and change.record is not None:
                            appended[change.kind] = change.record.get("unix_s")
                    for kind, unix_s in appended.items():
                        self._forget_old(kind, unix_s)
            except sqlite3.Error as error:
                raise self._error("write", error) from error

    def _forget_old(self, kind: Kind, unix_s: float | None) -> None:
        """Delete old records of a kind, after an append with the last record at ``unix_s``."""
        self._db.execute(
            "DELETE FROM records WHERE kind = ?1 AND id <= "
            "(SELECT id FROM records WHERE kind = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            (kind, KEPT[kind]),
        )
        if kind in AGEING and unix_s is not None:
            self._db.execute(
                "DELETE FROM records WHERE kind = ?1 AND unix_s < "
                "(SELECT MAX(unix_s) FROM records WHERE kind = ?1 AND unix_s <= ?2) - ?3",
                (kind, unix_s - TRUSTED_S, self._kept_s),
            )

    def records(self, kind: Kind, newest: int | None = None) -> list[dict[str, Any]]:
        return [record for _, record in self._rows(kind, newest)]

    def changes(self, kind: Kind) -> list[Change]:
        return [Change(kind, key, record) for key, record in self._rows(kind, None)]

    def _rows(self, kind: Kind, newest: int | None) -> list[tuple[str | None, dict[str, Any]]]:
        """(key, record) of each record, in the order of first writing."""
        query = "SELECT key, record FROM records WHERE kind = ? ORDER BY id DESC LIMIT ?"
        with self._lock:
            try:
                with closing(self._db.cursor()) as cursor:
                    rows = cursor.execute(query, (kind, -1 if newest is None else newest))
                    return [(key, json.loads(record)) for key, record in rows][::-1]
            except sqlite3.Error as error:
                raise self._error("read", error) from error
            except ValueError as error:
                raise self._damaged(f"a record of kind {kind} is no JSON: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._db.close()


def copy_journal(source: Path, target: Path) -> None:
    """Copy a journal as of a single moment; a controller may be writing. Raises JournalError."""
    try:
        with (
            closing(_connect(_to_read(source), uri=True)) as before,
            closing(_connect(target)) as after,
        ):
            before.backup(after)
    except sqlite3.Error as error:
        raise JournalError(f"the journal {source} can't be copied ({error})") from error


def restored_path(path: Path) -> Path:
    """Path of a restored journal, complete, while the former journal is moved away."""
    return path.with_name(f"{path.name}.restored")


def set_aside(path: Path) -> Path | None:
    """Move an unused journal, with its write-ahead log; returns the new name.

    The log goes last: no start creates a new file while a log without a file is there.
    """
    kept = path.with_name(f"{path.name}.before-{time.strftime('%Y%m%dT%H%M%S')}")
    parts = [end for end in ("", "-shm", "-wal") if Path(f"{path}{end}").exists()]
    for end in parts:
        Path(f"{path}{end}").replace(f"{kept}{end}")
    return kept if parts else None


def _to_read(path: str | Path) -> str:
    return f"{Path(path).absolute().as_uri()}?mode=ro"


def _own(path: str) -> None:
    """Create the file, if missing, private to this user, as it holds webhooks' keys."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _connect(database: str | Path, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(database, uri=uri, check_same_thread=False, isolation_level=None)


def _generation(db: sqlite3.Connection) -> int:
    generation: int = db.execute("SELECT generation FROM owner").fetchone()[0]
    return generation


def _make_tables(db: sqlite3.Connection) -> None:
    with db:  # commits, or rolls back
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            db.execute(statement)
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _make(db: sqlite3.Connection, change: Change) -> None:
    kind, key, record = change.kind, change.key, change.record
    if record is None:
        db.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))
        return
    db.execute(  # keys of NULL never conflict
        "INSERT INTO records (kind, key, unix_s, record) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (kind, key) DO UPDATE SET record = excluded.record",
        (kind, key, record.get("unix_s"), json.dumps(record)),
    )
