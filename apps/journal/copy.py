"""A copy of the records in etcd, for standbys."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from apps.etcd.gateway import Answer, Etcd, EtcdRefused, EtcdUnanswered, Json
from apps.journal.reading import Reading
from hydra.journal import JournalError, JournalOfAnotherFormat, Kind, Record
from hydra.settings import EtcdSettings

_PATIENCE_S: Final = 2.0
_NOTHING: Final[Mapping[int, Record]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Copy:
    """A :class:`hydra.journal.JournalCopy`."""

    as_of_unix_s: float
    kinds: Mapping[Kind, Mapping[int, Record]]

    def records(self, kind: Kind) -> Mapping[int, Record]:
        return self.kinds.get(kind, _NOTHING)


class Copying:
    """Keeps a copy up to date. Thread-safe."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._etcd = Etcd(settings)
        self._reading = Reading(
            f"{settings.prefix}journal/", f"{self._etcd.name}, {settings.prefix}"
        )
        self._lock = threading.Lock()
        self._looked_s = float("-inf")
        """When the last look began, by the monotonic clock."""
        self._error: JournalError | None = None
        """The error of the last look."""
        self._is_last = False
        """True after the last look."""
        self._copy: Copy | None = None

    @property
    def last(self) -> Copy | None:
        """The copy of the last answered look; None before the first answer."""
        return self._copy

    def look(self) -> Copy:
        """The present records; concurrent callers share the next look.

        Raises JournalOfAnotherFormat if a release with another format has written the journal, and
        JournalError if etcd does not answer.
        """
        asked_s = time.monotonic()
        with self._lock:
            if self._looked_s < asked_s and not self._is_last:
                self._looked_s, self._error = time.monotonic(), None
                try:
                    self._copy = self._look(self._copy)
                except JournalOfAnotherFormat as error:
                    self._error = error
                except (EtcdRefused, EtcdUnanswered) as error:
                    name = self._etcd.name
                    self._error = JournalError(f"can't read the journal in {name}: {error}")
            if self._error is not None:
                raise self._error
            if self._copy is None:
                raise JournalError(f"the journal in {self._etcd.name} has yet to be read")
            return self._copy

    def hand_over(self) -> Reading:
        """All records read, up to date if etcd answers, for the new owner of the journal.

        The new owner's writes are not followed here: the copy stays unchanged.
        """
        with suppress(JournalError):  # the new owner tries again
            self.look()
        with self._lock:
            self._is_last, self._error = True, None
            return self._reading

    def close(self) -> None:
        self._etcd.close()

    def _look(self, before: Copy | None) -> Copy:
        now_s = time.time()
        changed = self._reading.look(self._ask)
        kinds = {} if before is None else dict(before.kinds)
        for kind in changed:
            some = dict(self._reading.records[kind])
            if kinds.get(kind) != some:
                kinds[kind] = some
        return Copy(now_s, kinds)

    def _ask(
        self, compare: Sequence[Json], success: Sequence[Json], failure: Sequence[Json] = ()
    ) -> Answer:
        return self._etcd.transaction(compare, success, failure, patience_s=_PATIENCE_S)
