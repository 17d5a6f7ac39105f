"""The journal named in a configuration: in a file, or in etcd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from apps.journal.sqlite import SqliteJournal, restored_path
from apps.process.single_instance import beside, check_private, check_writable, journal_held
from hydra.errors import HydraError
from hydra.journal import Journal
from hydra.settings import ControllerSettings


def needs_etcd(module: str) -> ModuleType:
    """Import a module in need of the etcd client. Raises HydraError without this extra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise HydraError(
            f"controller.store names etcd, but {error.name} is not installed: pip install "
            "'hydra-hybrid-network[etcd]', or leave the store out"
        ) from error


def check_journal(journal: str) -> None:
    """Raise HydraError if a start would refuse the file; a controller may be at work on the file.

    The steps of a start are tried on a temporary journal beside the file.
    """
    check_private(journal)
    check_writable(f"{journal}.lock")
    file = Path(journal).resolve()
    parts = [part for end in ("", "-wal", "-shm") if (part := Path(f"{file}{end}")).exists()]
    for part in parts:
        check_writable(str(part))
    if parts or restored_path(file).exists():
        with closing(SqliteJournal(journal, read_only=True)) as found:
            found.check()
    with beside(file) as trial:
        try:
            with journal_held(str(trial)):
                SqliteJournal(trial).close()
        except HydraError as error:
            raise HydraError(str(error).replace(str(trial), journal)) from error


@contextmanager
def looked_into(settings: ControllerSettings) -> Iterator[Journal]:
    """The journal, to be read; a controller may be running. Raises JournalError."""
    if settings.etcd is None:
        journal: Journal = SqliteJournal(settings.journal, read_only=True)
    else:
        etcd = needs_etcd("apps.journal.etcd")
        journal = etcd.EtcdJournal(settings.etcd, read_only=True)
    with closing(journal):
        yield journal
