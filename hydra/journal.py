"""The journal: intents and their outcomes, and all promises, written before they take effect.

A protocol, since the core opens no files. :mod:`apps.journal.sqlite` and :mod:`apps.journal.etcd`
implement the protocol; ``tests/conformance/test_journal.py`` tests every implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol

from hydra.errors import HydraError

Record = Mapping[str, Any]
"""A JSON object."""


class Kind(StrEnum):
    """Kinds of records; the values are stored on disk."""

    ENTRY = "entry"
    """Appended, see :func:`entry`."""
    DECISION = "decision"
    """Appended."""
    HISTORY = "history"
    """Appended, see :mod:`hydra.history`."""
    STATE = "state"
    RESERVATION = "reservation"
    CHANGE = "change"
    """An unfinished staged change, by id: see :func:`hydra.journal_format.unfinished_record`."""
    RECONFIGURATION = "reconfiguration"
    """Outcome of a recent reconfiguration, by id."""
    QUARANTINE = "quarantine"
    BUILDER = "builder"
    """See :mod:`hydra.decisions.builders`."""
    WEBHOOK = "webhook"
    DELIVERY = "delivery"
    """Delivery position of a webhook in the stored events, by id."""
    EVENT = "event"
    """Appended, if controllers share a store; see :func:`hydra.events.event_record`."""


KEPT: Final[Mapping[Kind, int]] = {
    Kind.ENTRY: 10_000,
    Kind.DECISION: 200,
    Kind.HISTORY: 10_000,
    Kind.EVENT: 2_000,
}
"""Number of appended records to keep: the newest of each kind."""
AGEING: Final = frozenset({Kind.ENTRY, Kind.HISTORY})
"""Kinds whose records also expire by age. The reference time is the newest record that is at least
:data:`TRUSTED_S` old, not the present time. So a clock that jumps ahead, and is corrected within
that time, expires nothing, however far the jump.
"""
TRUSTED_S: Final = 86_400.0
"""Seconds after which the recorded time of a record counts as correct."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record to be written; replaces the record with the same key."""

    kind: Kind
    key: str | None
    """None: append after all records of the kind, which must be in ``KEPT``."""
    record: Record | None
    """None: delete the record with the key, if present."""


def entry(unix_s: float, what: str, details: Record) -> Change:
    """A completed or intended step of a network change, for recovery."""
    return Change(Kind.ENTRY, None, {"unix_s": unix_s, "what": what, "details": details})


class JournalCopy(Protocol):
    """A snapshot of a journal that another controller owns."""

    @property
    def as_of_unix_s(self) -> float:
        """Latest time at which the snapshot was known to be current."""
        ...

    def records(self, kind: Kind) -> Mapping[int, Record]:
        """Records of a kind by position, in the order of the first write.

        If no record of the kind has changed since an earlier snapshot, the mapping is the same
        object; otherwise, unchanged records are the same objects. A later owner reads the same
        objects until its first change.
        """
        ...


class JournalError(HydraError):
    """The journal cannot be read or written; dependent actions must not proceed."""

    to_do: ClassVar[str] = "free disk space; the controller writes the missing records then"
    """Remedy, in words."""
    command: ClassVar[str] = "df -h"
    """Command for the remedy, or for more information."""


class JournalTaken(JournalError):
    """Another controller has opened the journal for writing, and owns the journal now."""

    to_do = "end this controller, or end the other controller and restart this controller"
    command = "pgrep -af hydra"


class JournalOfAnotherFormat(JournalError):
    """A release with a different format wrote the journal; only the same release may lead."""

    to_do = "start the release that wrote the journal, or configure a new journal"
    command = "hydra replicas"


class Journal(Protocol):
    """Usable from any thread. Opening for writing takes the ownership from the former owner."""

    @property
    def name(self) -> str:
        """The location of the journal, for messages."""
        ...

    def write(self, changes: Iterable[Change]) -> None:
        """Make all changes in the given order, or none; completed changes survive a power cut.

        Raises JournalTaken if another controller owns the journal, and JournalError.
        """
        ...

    def records(self, kind: Kind, newest: int | None = None) -> list[dict[str, Any]]:
        """All records of a kind, or the ``newest``, in the order of the first write.

        Raises JournalError.
        """
        ...

    def changes(self, kind: Kind) -> list[Change]:
        """Changes that recreate all records of a kind, with keys, in an empty journal.

        Raises JournalError.
        """
        ...

    def close(self) -> None:
        """Close; optional and repeatable. The other methods raise JournalError afterwards."""
        ...
