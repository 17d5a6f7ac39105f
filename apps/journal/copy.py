"""A copy of records in etcd, for controllers that stand by: it asks for what has changed alone.

Every write changes the key ``owner``; as long as that is what it was, so is the copy. Keys that
were written since the last look are asked for by etcd's revisions; if there are fewer keys by then
than that comes to, some were deleted, and all are read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from apps.etcd.gateway import Answer, Entry, Etcd, EtcdRefused, EtcdUnanswered, get, has_value
from apps.journal.etcd import after, carry, check_format, in_one_moment, staged, texts
from hydra.journal import JournalError, JournalOfAnotherFormat, Kind
from hydra.policy import EtcdSettings

_PATIENCE_S: Final = 2.0
_PAGE: Final = 500
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Copy:
    """A :class:`hydra.journal.JournalCopy`."""

    as_of_unix_s: float
    kinds: Mapping[Kind, Mapping[str, str]]

    def texts(self, kind: Kind) -> Mapping[str, str]:
        return self.kinds.get(kind, _NOTHING)


class Copying:
    """Keeps a copy of some kinds of records up to date. Thread-safe."""

    def __init__(self, settings: EtcdSettings, kinds: Collection[Kind]) -> None:
        self._etcd = Etcd(settings)
        self._prefix = f"{settings.prefix}journal/"
        self._name = f"{self._etcd.name}, {settings.prefix}"
        self._kinds = tuple(kinds)
        self._lock = threading.Lock()
        self._looked_s = float("-inf")
        """When the last look began, by the monotonic clock."""
        self._error: JournalError | None = None
        """The reason why that one failed."""
        self._owner: str | None = None
        self._revision = 0
        self._entries: dict[Kind, dict[str, str]] = {}
        """By key, without the prefix."""
        self._copy: Copy | None = None

    @property
    def last(self) -> Copy | None:
        """The copy as of the last look that was answered; None: there was none yet."""
        return self._copy

    def look(self) -> Copy:
        """The records as they are now; those who ask during a look share the next one.

        Raises JournalOfAnotherFormat if a release that writes otherwise has written there, and
        JournalError if etcd does not answer.
        """
        asked_s = time.monotonic()
        with self._lock:
            if self._looked_s < asked_s:
                self._looked_s, self._error = time.monotonic(), None
                try:
                    self._copy = self._look(self._copy)
                except JournalOfAnotherFormat as error:
                    self._error = error
                except (EtcdRefused, EtcdUnanswered) as error:
                    name = self._etcd.name
                    self._error = JournalError(f"can't read the journal in {name}: {error}")
            if self._error is not None or self._copy is None:
                raise self._error or AssertionError("a look gives a copy, or fails")
            return self._copy

    def close(self) -> None:
        self._etcd.close()

    def _look(self, before: Copy | None) -> Copy:
        now_s = time.time()
        changed: Sequence[Kind] = self._kinds
        if before is None or self._owner is None:  # None: there was no journal
            in_one_moment(self._read_all)
        else:
            changed = self._read_changed(self._owner)
        kinds = {} if before is None else dict(before.kinds)
        for kind in changed:
            some = {f"{order:016x}": text for _, order, text in texts(self._entries[kind])}
            if kinds.get(kind) != some:
                kinds[kind] = some
        return Copy(now_s, kinds)

    def _read_changed(self, owner: str) -> Sequence[Kind]:
        """Read what has changed since ``owner`` was written; its kinds, and perhaps others."""
        answer = self._etcd.transaction(
            [has_value(self._key("owner"), owner)],
            [],
            self._ranges(written_since=self._revision + 1),
            patience_s=_PATIENCE_S,
        )
        if answer.succeeded:
            return ()
        owned, redo, layout, *written = answer.found
        check_format(self._name, layout)
        entries = {
            kind: self._entries[kind] | self._named(some)
            for kind, some in zip(self._kinds, written, strict=True)
            if some
        }
        counts = dict(zip(self._kinds, answer.counts[3:], strict=True))
        whole = all(len((self._entries | entries)[kind]) == counts[kind] for kind in self._kinds)
        if not owned or redo or not whole:
            in_one_moment(self._read_all)
            return self._kinds
        self._entries |= {kind: dict(sorted(some.items())) for kind, some in entries.items()}
        self._owner, self._revision = owned[0].value, answer.revision
        return tuple(entries)

    def _read_all(self) -> None:
        """All records as of one moment, and what a staged write makes of them."""
        answer = self._etcd.transaction([], self._ranges(limit=_PAGE), patience_s=_PATIENCE_S)
        owned, redo, layout, *pages = answer.found
        check_format(self._name, layout)
        if redo:
            entries = self._with_what_is_staged(answer)
        else:
            entries = {
                kind: self._named(page) | self._beyond(f"records/{kind}/", page, answer.revision)
                for kind, page in zip(self._kinds, pages, strict=True)
            }
        self._owner = owned[0].value if owned else None
        self._revision, self._entries = answer.revision, entries

    def _with_what_is_staged(self, answer: Answer) -> dict[Kind, dict[str, str]]:
        everything = self._beyond("", None, answer.revision)
        work = staged(everything)
        if work is not None:
            carry(everything, work)
        return {
            kind: {key: text for key, text in everything.items() if key.startswith(begin)}
            for kind in self._kinds
            for begin in (f"records/{kind}/",)
        }

    def _beyond(self, first: str, page: Sequence[Entry] | None, revision: int) -> dict[str, str]:
        """Entries beyond a page of those whose keys begin with ``first``; None: all of those."""
        begin, end = self._key(first), after(self._key(first))
        found: dict[str, str] = {}
        while page is None or len(page) == _PAGE:
            if page:
                begin = page[-1].key + "\0"
            one = get(begin, end, limit=_PAGE, revision=revision)
            page = self._etcd.transaction([], [one], patience_s=_PATIENCE_S).found[0]
            found |= self._named(page)
        return found

    def _ranges(self, *, limit: int = 0, written_since: int = 0) -> list[dict[str, object]]:
        records = [self._key(f"records/{kind}/") for kind in self._kinds]
        return [
            get(self._key("owner")),
            get(self._key("redo")),
            get(self._key("format")),
            *(get(one, after(one), limit=limit, written_since=written_since) for one in records),
        ]

    def _named(self, found: Iterable[Entry]) -> dict[str, str]:
        return {one.key.removeprefix(self._prefix): one.value for one in found}

    def _key(self, name: str) -> str:
        return self._prefix + name
