"""The journal: what was intended and what came of it, on disk before anything moves.

SQLite in WAL mode with full synchronisation, so that an entry which was acknowledged survives a
power cut. One file; :meth:`Journal.close` is optional.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from hydra.errors import HydraError

SCHEMA_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY,
    unix_s REAL NOT NULL,
    what TEXT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_by_time ON entries (unix_s);
CREATE TABLE IF NOT EXISTS network_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    fabric TEXT NOT NULL,
    state TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS reservations (
    id TEXT PRIMARY KEY,
    record TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS webhooks (
    id TEXT PRIMARY KEY,
    record TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS quarantine (
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL
);
"""
_UPGRADES: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("CREATE INDEX IF NOT EXISTS entries_by_time ON entries (unix_s)",),
}
"""What makes the next schema of each earlier one."""
_KEPT_ENTRIES: Final = 10_000
_DAY_S: Final = 86_400.0


class JournalError(HydraError):
    """The journal can't be read or written; nothing that depends on it may go ahead."""


class Journal:
    """Usable from any thread. ``":memory:"`` as the path keeps nothing (tests).

    ``read_only`` looks into the file of a controller that may be running, and changes nothing.
    A file of an earlier schema is copied to ``PATH.schema-N`` and then upgraded. Entries older than
    ``kept_days`` go when a new one comes; None: only their number counts.
    """

    def __init__(
        self, path: str, *, read_only: bool = False, kept_days: float | None = None
    ) -> None:
        self._path = path
        self._kept_s = float("inf") if kept_days is None else kept_days * _DAY_S
        self._lock = threading.Lock()
        try:
            if read_only:
                self._db = _connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
                self._check_version()
                return
            if path != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._db = _connect(path)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._upgrade(self._check_version())
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise self._error("open", error) from error

    def _error(self, verb: str, error: Exception) -> JournalError:
        return JournalError(
            f"can't {verb} the journal {self._path} ({error}): "
            "check the directory, its permissions and the free disk space"
        )

    def _check_version(self) -> int:
        """The file's schema; 0 if there is none yet."""
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        if not 0 <= version <= SCHEMA_VERSION:
            self._db.close()
            raise JournalError(
                f"journal {self._path} has schema {version}, this release reads {SCHEMA_VERSION}: "
                "start the release that wrote it, or move the file away"
            )
        return version

    def _upgrade(self, version: int) -> None:
        """All steps in one transaction, after a copy for the release that wrote the file."""
        if version in _UPGRADES:
            with closing(_connect(f"{self._path}.schema-{version}")) as copy:
                self._db.backup(copy)
        with self._db:  # commits, or rolls back
            self._db.execute("BEGIN IMMEDIATE")
            for step in range(version or SCHEMA_VERSION, SCHEMA_VERSION):
                for statement in _UPGRADES[step]:
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def _write(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        """One transaction."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                for statement, values in statements:
                    self._db.execute(statement, values)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                with suppress(sqlite3.Error):  # the first error is the one to tell
                    self._db.execute("ROLLBACK")
                raise self._error("write", error) from error

    def _read(self, query: str) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                with closing(self._db.cursor()) as cursor:
                    return cursor.execute(query).fetchall()
            except sqlite3.Error as error:
                raise self._error("read", error) from error

    def record(self, unix_s: float, what: str, details: Mapping[str, Any]) -> None:
        """Append an entry; old ones beyond the last 10,000 or ``kept_days`` go."""
        self._write(
            [
                (
                    "INSERT INTO entries (unix_s, what, details) VALUES (?, ?, ?)",
                    (unix_s, what, json.dumps(details)),
                ),
                (
                    "DELETE FROM entries WHERE id <= (SELECT MAX(id) FROM entries) - ?",
                    (_KEPT_ENTRIES,),
                ),
                ("DELETE FROM entries WHERE unix_s < ?", (unix_s - self._kept_s,)),
            ]
        )

    def entries(self) -> list[tuple[float, str, dict[str, Any]]]:
        """Oldest first: (unix time in s, what, details)."""
        rows = self._read("SELECT unix_s, what, details FROM entries ORDER BY id")
        return [(unix_s, what, json.loads(details)) for unix_s, what, details in rows]

    def last_entry(self) -> tuple[str, dict[str, Any]] | None:
        """(what, details) of the newest entry; None if there is none."""
        rows = self._read("SELECT what, details FROM entries ORDER BY id DESC LIMIT 1")
        return (rows[0][0], json.loads(rows[0][1])) if rows else None

    def save_state(self, fabric_name: str, state: Mapping[str, Any]) -> None:
        """The state that the network is meant to be in from now on."""
        self._write(
            [
                (
                    "INSERT INTO network_state (id, fabric, state) VALUES (1, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET fabric = excluded.fabric, "
                    "state = excluded.state",
                    (fabric_name, json.dumps(state)),
                )
            ]
        )

    def load_state(self, fabric_name: str) -> dict[str, Any] | None:
        """The last saved state; None if there is none. Another fabric's journal is refused."""
        rows = self._read("SELECT fabric, state FROM network_state")
        if not rows:
            return None
        ((fabric, state),) = rows
        if fabric != fabric_name:
            raise JournalError(
                f"journal {self._path} belongs to fabric {fabric!r}, not {fabric_name!r}: "
                "set controller.journal to a file of its own"
            )
        record: dict[str, Any] = json.loads(state)
        return record

    def save_reservation(self, reservation_id: str, record: Mapping[str, Any]) -> None:
        self.save_reservations({reservation_id: record})

    def save_reservations(
        self, records: Mapping[str, Mapping[str, Any]], forgotten: Collection[str] = ()
    ) -> None:
        """Write records by id, and delete those of forgotten reservations: all or nothing."""
        saves = [
            (
                "INSERT INTO reservations (id, record) VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET record = excluded.record",
                (reservation_id, json.dumps(record)),
            )
            for reservation_id, record in records.items()
        ]
        deletions = [("DELETE FROM reservations WHERE id = ?", (gone,)) for gone in forgotten]
        self._write([*saves, *deletions])

    def load_reservations(self) -> list[dict[str, Any]]:
        """In the order in which they were first saved."""
        rows = self._read("SELECT record FROM reservations ORDER BY rowid")
        return [json.loads(record) for (record,) in rows]

    def save_quarantine(self, records: Sequence[Mapping[str, Any]]) -> None:
        """All ports in quarantine; what was saved before goes."""
        insert = "INSERT INTO quarantine (record) VALUES (?)"
        rows = [(insert, (json.dumps(record),)) for record in records]
        self._write([("DELETE FROM quarantine", ()), *rows])

    def load_quarantine(self) -> list[dict[str, Any]]:
        return [json.loads(record) for (record,) in self._read("SELECT record FROM quarantine")]

    def save_decision(self, record: Mapping[str, Any], kept: int) -> None:
        """Append one; those before the last ``kept`` go."""
        self._write(
            [
                ("INSERT INTO decisions (record) VALUES (?)", (json.dumps(record),)),
                ("DELETE FROM decisions WHERE id <= (SELECT MAX(id) FROM decisions) - ?", (kept,)),
            ]
        )

    def load_decisions(self) -> list[dict[str, Any]]:
        """Oldest first."""
        rows = self._read("SELECT record FROM decisions ORDER BY id")
        return [json.loads(record) for (record,) in rows]

    def save_webhook(self, webhook_id: str, record: Mapping[str, Any]) -> None:
        upsert = (
            "INSERT INTO webhooks (id, record) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET record = excluded.record"
        )
        self._write([(upsert, (webhook_id, json.dumps(record)))])

    def delete_webhook(self, webhook_id: str) -> None:
        self._write([("DELETE FROM webhooks WHERE id = ?", (webhook_id,))])

    def load_webhooks(self) -> list[dict[str, Any]]:
        """In the order in which they were made."""
        rows = self._read("SELECT record FROM webhooks ORDER BY rowid")
        return [json.loads(record) for (record,) in rows]

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _connect(database: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(database, uri=uri, check_same_thread=False, isolation_level=None)
