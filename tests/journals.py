"""Journals that a test need not close."""

from pathlib import Path
from typing import Any

from apps.journal import sqlite

_OPEN: list[sqlite.SqliteJournal] = []


class SqliteJournal(sqlite.SqliteJournal):
    """The controller's journal; :func:`close_all` closes it at the end of the test."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        _OPEN.append(self)


def close_all() -> None:
    while _OPEN:
        _OPEN.pop().close()
