"""The journal: intents and what came of them, and all promises, before they count.

A protocol, since the core opens no files. :mod:`apps.journal.sqlite` and
:mod:`apps.journal.etcd` implement it;
``tests/conformance/test_journal.py`` holds every implementation to the same contract.
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
    """Kinds of records; the values are on disk."""

    ENTRY = "entry"
    """Appended, see :func:`entry`."""
    DECISION = "decision"
    """Appended."""
    HISTORY = "history"
    """Appended, see :mod:`hydra.history`."""
    STATE = "state"
    RESERVATION = "reservation"
    CHANGE = "change"
    """A change in stages that is not over, by its id: see
    :func:`hydra.journal_format.unfinished_record`."""
    RECONFIGURATION = "reconfiguration"
    """One of the latest reconfigurations, by its id: what became of it."""
    QUARANTINE = "quarantine"
    BUILDER = "builder"
    """See :mod:`hydra.decisions.builders`."""
    WEBHOOK = "webhook"
    DELIVERY = "delivery"
    """How far a webhook has been told of the events that are kept, by its id."""
    EVENT = "event"
    """Appended, where controllers share a store, see :func:`hydra.events.event_record`."""


KEPT: Final[Mapping[Kind, int]] = {
    Kind.ENTRY: 10_000,
    Kind.DECISION: 200,
    Kind.HISTORY: 10_000,
    Kind.EVENT: 2_000,
}
"""Number of the appended records that stay: the newest of each kind."""
AGEING: Final = frozenset({Kind.ENTRY, Kind.HISTORY})
"""Kinds whose records go with age, too. Age is counted back from the newest record that is at least
:data:`TRUSTED_S` old, not from now: a clock that jumps ahead, and is set right within that time,
makes nothing old, however far it jumps.
"""
TRUSTED_S: Final = 86_400.0
"""Seconds until what the clock said when a record came counts as true."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record to be written, in the place of the one that has its key already."""

    kind: Kind
    key: str | None
    """None: it is appended, after all others of its kind, which has to be in ``KEPT``."""
    record: Record | None
    """None: the record with this key is deleted, if there is one."""


def entry(unix_s: float, what: str, details: Record) -> Change:
    """A step of a change of the network, for recovery: what was done, or is about to be."""
    return Change(Kind.ENTRY, None, {"unix_s": unix_s, "what": what, "details": details})


class JournalCopy(Protocol):
    """A journal that another controller owns, as it was at a moment."""

    @property
    def as_of_unix_s(self) -> float:
        """The last moment at which it is known to have been like this."""
        ...

    def records(self, kind: Kind) -> Mapping[int, Record]:
        """Records of a kind, by their places, in the order of their first writing.

        The same mapping as in an earlier copy if none has changed since, and of the others the same
        objects. Whoever owns the journal later and has changed nothing yet reads the same ones.
        """
        ...


class JournalError(HydraError):
    """The journal can't be read or written; nothing that depends on it may go ahead."""

    to_do: ClassVar[str] = "free the disk; what has happened is written then"
    """The next step for people, in words."""
    command: ClassVar[str] = "df -h"
    """The command for that, or the one that shows more."""


class JournalTaken(JournalError):
    """Another controller has opened the journal for writing since, and owns it now."""

    to_do = "end this controller, or the other one and start this one again"
    command = "pgrep -af hydra"


class JournalOfAnotherFormat(JournalError):
    """A release that writes the journal otherwise holds it, and only that may lead beside it."""

    to_do = "start the release that wrote the journal, or name another place for one"
    command = "hydra replicas"


class Journal(Protocol):
    """Usable from any thread. Who opens it for writing owns it, until somebody else does."""

    @property
    def name(self) -> str:
        """The journal's place, for messages."""
        ...

    def write(self, changes: Iterable[Change]) -> None:
        """Make all changes, in this order, or none; those made survive a power cut.

        Raises JournalTaken if another one owns it by now, and JournalError.
        """
        ...

    def records(self, kind: Kind, newest: int | None = None) -> list[dict[str, Any]]:
        """All records of a kind, or the ``newest`` of them, in the order of their first writing.

        Raises JournalError.
        """
        ...

    def changes(self, kind: Kind) -> list[Change]:
        """Changes that make all records of a kind again, with their keys, in an empty journal.

        Raises JournalError.
        """
        ...

    def close(self) -> None:
        """Close; optional, and repeatable. The other methods raise JournalError afterwards."""
        ...
