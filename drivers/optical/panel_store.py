"""State of a patch panel: plugged cross-connects, and tasks for people.

One SQLite file per panel. Each call opens the file and is one transaction, so the controller and
commands beside it may use the file at once, and no program overwrites entries of other programs.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from hydra.errors import LifecycleError, UnknownName
from hydra.model import CrossConnect
from hydra.roles import Task, TaskState

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS plugged (
    ingress INTEGER PRIMARY KEY,
    egress INTEGER NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created_unix_s REAL NOT NULL,
    disconnect TEXT NOT NULL,
    connect TEXT NOT NULL,
    state TEXT NOT NULL,
    settled_unix_s REAL,
    note TEXT NOT NULL
);
"""
_VERSION: Final = 1
_KEPT_TASKS: Final = 200
_BUSY_S: Final = 5.0
_SELECT_TASKS: Final = (
    "SELECT id, created_unix_s, disconnect, connect, state, settled_unix_s, note FROM tasks"
)

_Row = tuple[int, float, str, str, str, float | None, str]


class PanelError(Exception):
    """The file can't be used; nothing has been written."""


class PendingError(Exception):
    """A port is part of an unsettled task."""

    def __init__(self, task: Task, port: int) -> None:
        self.task = task
        super().__init__(
            f"task {task.id} is about port {port}, and the outcome is not confirmed: "
            "confirm the task first"
        )


class TakenError(Exception):
    """A port that is to be connected has another connection by now."""

    def __init__(self, plugged: CrossConnect) -> None:
        super().__init__(
            f"{plugged.ingress} is connected to {plugged.egress} by now, by a report just received"
        )


class PanelStore:
    """The file at ``path``; a missing file is made, with nothing plugged."""

    def __init__(self, path: str) -> None:
        self._path = path

    def cross_connects(self) -> frozenset[CrossConnect]:
        """Cross-connects confirmed as plugged."""
        with self._open() as db:
            return _plugged(db)

    def tasks(self) -> tuple[Task, ...]:
        """All pending tasks and the latest settled tasks, oldest first."""
        with self._open() as db:
            return _tasks(db)

    def task(self, task_id: int) -> Task:
        """The task of this number. Raises UnknownName if there is none."""
        with self._open() as db:
            return self._task(db, task_id)

    def ask(
        self,
        disconnect: Collection[CrossConnect],
        connect: Collection[CrossConnect],
        unix_s: float,
    ) -> Task | None:
        """Enter a task, or find the pending task with the same content.

        The task holds the remaining work. Returns None if nothing remains: a person has just
        confirmed the change.

        Raises PendingError if a pending task is about one of the ports, TakenError if one is in
        use.
        """
        with self._open() as db:
            plugged = _plugged(db)
            wanted = (
                tuple(sorted(plugged.intersection(disconnect))),
                tuple(sorted(frozenset(connect) - plugged)),
            )
            if not any(wanted):
                return None
            ports = _ports(*wanted)
            for task in _tasks(db):
                if task.state is not TaskState.PENDING:
                    continue
                if (task.disconnect, task.connect) == wanted:
                    return task
                if shared := sorted(ports & _ports(task.disconnect, task.connect)):
                    raise PendingError(task, shared[0])
            for cross_connect in sorted(plugged.difference(disconnect)):
                if not _ports([cross_connect]).isdisjoint(_ports(wanted[1])):
                    raise TakenError(cross_connect)
            cursor = db.execute(
                "INSERT INTO tasks (created_unix_s, disconnect, connect, state, note) "
                "VALUES (?, ?, ?, ?, '')",
                (unix_s, *map(_dump, wanted), TaskState.PENDING.value),
            )
            db.execute(
                "DELETE FROM tasks WHERE state != ? AND id <= ?",
                (TaskState.PENDING.value, (cursor.lastrowid or 0) - _KEPT_TASKS),
            )
            return Task(cursor.lastrowid or 0, unix_s, *wanted)

    def settle(self, task_id: int, state: TaskState, note: str, unix_s: float) -> Task:
        """Settle a task; DONE updates the plugged cross-connects.

        Raises UnknownName, and LifecycleError if the task already has the opposite outcome.
        """
        if state is TaskState.PENDING:
            raise LifecycleError(f"task {task_id} ends as done or failed, not as pending")
        with self._open() as db:
            task = self._task(db, task_id)
            if task.state is state:
                return task
            if task.state is not TaskState.PENDING:
                raise LifecycleError(f"task {task_id} is {task.state.value} already")
            if state is TaskState.DONE:
                db.executemany(
                    "DELETE FROM plugged WHERE ingress = ? AND egress = ?",
                    [(c.ingress, c.egress) for c in task.disconnect],
                )
                db.executemany(
                    "INSERT INTO plugged (ingress, egress) VALUES (?, ?)",
                    [(c.ingress, c.egress) for c in task.connect],
                )
            db.execute(
                "UPDATE tasks SET state = ?, settled_unix_s = ?, note = ? WHERE id = ?",
                (state.value, unix_s, note, task_id),
            )
            return self._task(db, task_id)

    def _task(self, db: sqlite3.Connection, task_id: int) -> Task:
        row = db.execute(f"{_SELECT_TASKS} WHERE id = ?", (task_id,)).fetchone()
        if row is None:
            raise UnknownName(
                f"there is no task {task_id}: the number is wrong, or the task was settled long ago"
            )
        return _read(row)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction. Raises PanelError if the file can't be used."""
        try:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous=FULL")
                with db:  # commits, or rolls back
                    db.execute("BEGIN IMMEDIATE")
                    self._prepare(db)
                    yield db
        except (OSError, sqlite3.Error) as error:
            raise PanelError(
                f"can't use the file {self._path} ({error}): check the directory, its permissions "
                "and the free disk space"
            ) from error

    def _prepare(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == _VERSION:
            return
        if version != 0:
            raise PanelError(
                f"{self._path} has version {version}, this release reads {_VERSION}: start the "
                "newer release"
            )
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version={_VERSION}")


def _plugged(db: sqlite3.Connection) -> frozenset[CrossConnect]:
    return frozenset(
        CrossConnect(*row) for row in db.execute("SELECT ingress, egress FROM plugged")
    )


def _tasks(db: sqlite3.Connection) -> tuple[Task, ...]:
    return tuple(map(_read, db.execute(f"{_SELECT_TASKS} ORDER BY id")))


def _read(row: _Row) -> Task:
    number, created, disconnect, connect, state, settled, note = row
    return Task(number, created, _load(disconnect), _load(connect), TaskState(state), settled, note)


def _dump(pairs: Sequence[CrossConnect]) -> str:
    return json.dumps([(pair.ingress, pair.egress) for pair in pairs])


def _load(text: str) -> tuple[CrossConnect, ...]:
    return tuple(CrossConnect(ingress, egress) for ingress, egress in json.loads(text))


def _ports(*changes: Sequence[CrossConnect]) -> set[int]:
    return {port for pairs in changes for pair in pairs for port in (pair.ingress, pair.egress)}
