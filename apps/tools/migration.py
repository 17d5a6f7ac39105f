"""Copies of a journal from store to store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

from apps.journal.opening import needs_etcd
from apps.journal.sqlite import SqliteJournal
from apps.process.files import give_to
from apps.process.single_instance import check_private, journal_held
from hydra.errors import HydraError
from hydra.journal import Journal, Kind
from hydra.settings import ControllerSettings, EtcdSettings


class MigrationError(HydraError):
    """Nothing was moved."""


def to_etcd(settings: ControllerSettings) -> int:
    """Copy the journal's file into etcd, without a journal so far; returns the number of records.

    The file stays. No controller may use either store. Raises HydraError.
    """
    path = Path(settings.journal)
    if not path.is_file():
        raise MigrationError(f"there is no journal {path}: run this where the controller ran")
    with (
        journal_held(settings.journal),
        closing(SqliteJournal(path, read_only=True)) as source,
        etcd_journal(settings) as target,
    ):
        return copy(source, target)


def to_file(settings: ControllerSettings) -> int:
    """Copy the journal in etcd into a new file; returns the number of records.

    The journal in etcd stays. No controller may be at work. Raises HydraError.
    """
    path = Path(settings.journal)
    if path.exists():
        raise MigrationError(
            f"{path} is there already: move it away with {path.name}-wal, or name another file as "
            "controller.journal"
        )
    with (
        journal_held(settings.journal),
        etcd_journal(settings) as source,
        closing(SqliteJournal(path)) as target,
    ):
        number = copy(source, target)
        place = path.resolve()
        parts = [file for end in ("", "-wal", "-shm") if (file := Path(f"{place}{end}")).exists()]
        # The controller may run as another user.
        give_to(place.parent.stat(), *parts, Path(f"{path}.lock"))
    check_private(settings.journal)
    return number


@contextmanager
def etcd_journal(settings: ControllerSettings) -> Iterator[Journal]:
    """The journal in etcd, opened for writing. Raises HydraError while a controller leads."""
    etcd = needs_etcd("apps.journal.etcd")
    roster = needs_etcd("apps.etcd.roster")
    where = settings.etcd
    if where is None:
        raise MigrationError(
            "the configuration names no etcd: write controller.store with its endpoints first"
        )
    check_nobody_leads(roster.leader_name(where), where)
    with closing(etcd.EtcdJournal(where)) as journal:
        yield cast(Journal, journal)


def check_nobody_leads(leader: str | None, where: EtcdSettings) -> None:
    """Raise MigrationError if a controller leads."""
    if leader is not None:
        raise MigrationError(
            f"{leader} leads on {', '.join(where.endpoints)} {where.prefix}: stop all controllers "
            "first"
        )


def copy(source: Journal, target: Journal) -> int:
    """Write all records of ``source`` to ``target``, or nothing; returns the number of records.

    Raises MigrationError if ``target`` is not empty, and JournalError.
    """
    if any(target.records(kind, newest=1) for kind in Kind):
        raise MigrationError(f"{target.name} holds a journal already, left untouched")
    changes = [change for kind in Kind for change in source.changes(kind)]
    target.write(changes)
    return len(changes)
