"""The journal that a configuration names: in a file, or in etcd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from types import ModuleType

from apps.journal.sqlite import SqliteJournal
from hydra.errors import HydraError
from hydra.journal import Journal
from hydra.policy import ControllerSettings


def needs_etcd(module: str) -> ModuleType:
    """A module that needs the client of etcd, which is an extra. Raises HydraError without it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise HydraError(
            f"controller.store names etcd, but {error.name} is not installed: pip install "
            "'hydra-hybrid-network[etcd]', or leave the store out"
        ) from error


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
