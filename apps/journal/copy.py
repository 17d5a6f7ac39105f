"""A copy of the journal in etcd, for controllers that stand by: it asks for what has changed alone.

Every write changes the key ``owner``; as long as that is what it was, so is the copy. Keys that
were written since the last look are asked for by etcd's revisions; if there are fewer keys by then
than that comes to, some were deleted, and all are read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from apps.etcd.gateway import Entry, Etcd, EtcdRefused, EtcdUnanswered, get, has_value
from apps.journal.etcd import after, carry, staged, texts
from hydra.journal import JournalError, Kind
from hydra.policy import EtcdSettings

_PATIENCE_S: Final = 2.0
_PAGE: Final = 500
_RECORDS: Final = "records/"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Copy:
    """A :class:`hydra.journal.JournalCopy`."""

    as_of_unix_s: float
    kinds: Mapping[Kind, Mapping[str, str]]

    def texts(self, kind: Kind) -> Mapping[str, str]:
        return self.kinds.get(kind, _NOTHING)


class Copying:
    """Keeps a copy up to date. Thread-safe; whoever asks during a look shares the next one."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._etcd = Etcd(settings)
        self._prefix = f"{settings.prefix}journal/"
        self._lock = threading.Lock()
        self._began_s = float("-inf")
        """When the last look that was answered began, by the monotonic clock."""
        self._owner: str | None = None
        self._revision = 0
        self._entries: dict[str, str] = {}
        self._copy: Copy | None = None

    @property
    def last(self) -> Copy | None:
        """The copy as of the last look; None: there was none yet."""
        return self._copy

    def look(self) -> Copy:
        """The journal as it is now. Raises JournalError if etcd does not answer."""
        asked_s = time.monotonic()
        with self._lock:
            if self._copy is None or self._began_s < asked_s:
                self._copy = self._look(self._copy)
            return self._copy

    def close(self) -> None:
        self._etcd.close()

    def _look(self, before: Copy | None) -> Copy:
        began_s, now_s = time.monotonic(), time.time()
        try:
            if before is not None and self._is_as_it_was():
                kinds = before.kinds
            else:
                if before is None:
                    self._read_all()
                kinds = self._kinds({} if before is None else before.kinds)
        except (EtcdRefused, EtcdUnanswered) as error:
            raise JournalError(f"can't read the journal in {self._etcd.name}: {error}") from error
        self._began_s = began_s
        return Copy(now_s, kinds)

    def _is_as_it_was(self) -> bool:
        """False if something has changed, which is read then."""
        if self._owner is None:  # there was no journal
            self._read_all()
            return False
        owner, records = self._key("owner"), self._key(_RECORDS)
        answer = self._etcd.transaction(
            [has_value(owner, self._owner)],
            [],
            [
                get(owner),
                get(self._key("redo")),
                get(records, after(records), written_since=self._revision + 1),
            ],
            patience_s=_PATIENCE_S,
        )
        if answer.succeeded:
            return True
        owned, redo, written = answer.found
        entries = self._entries | self._named(written)
        if not owned or redo or len(entries) != answer.counts[2]:
            self._read_all()
        else:
            self._owner, self._revision = owned[0].value, answer.revision
            self._entries = dict(sorted(entries.items()))
        return False

    def _named(self, found: Iterable[Entry]) -> dict[str, str]:
        return {one.key.removeprefix(self._prefix): one.value for one in found}

    def _read_all(self) -> None:
        """All keys as of one moment, and what a staged write makes of them."""
        begin, end, revision = self._prefix, after(self._prefix), 0
        entries: dict[str, str] = {}
        while True:
            answer = self._etcd.transaction(
                [], [get(begin, end, limit=_PAGE, revision=revision)], patience_s=_PATIENCE_S
            )
            revision = revision or answer.revision
            entries |= self._named(answer.found[0])
            if len(answer.found[0]) < _PAGE:
                break
            begin = answer.found[0][-1].key + "\0"
        work = staged(entries)
        if work is not None:
            carry(entries, work)
        self._owner, self._revision = entries.get("owner"), revision
        self._entries = {key: text for key, text in entries.items() if key.startswith(_RECORDS)}

    def _kinds(self, before: Mapping[Kind, Mapping[str, str]]) -> Mapping[Kind, Mapping[str, str]]:
        """Records by kind; those of a kind that has not changed are what they were ``before``."""
        found: dict[Kind, dict[str, str]] = {}
        for kind, order, text in texts(self._entries):
            found.setdefault(kind, {})[f"{order:016x}"] = text
        return {
            kind: before[kind] if before.get(kind) == some else some for kind, some in found.items()
        }

    def _key(self, name: str) -> str:
        return self._prefix + name
