"""Records of the journal in etcd as of a single moment, updated by later changes.

Every write changes the key ``owner``; as long as ``owner`` is unchanged, so are the records. Keys
written since the last look are found by etcd's revisions. If the number of keys is lower than
expected, some keys are gone: keys are counted in parts, and a part with missing keys is listed. A
look therefore costs as much as the changes, not as much as the whole journal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from apps.etcd.gateway import Answer, Entry, Json, get
from apps.journal.layout import (
    NOTHING_STAGED,
    Held,
    KindHeld,
    Work,
    after,
    carry,
    check_format,
    order_of,
    place_of,
    read_consistently,
    staged,
    texts,
)
from hydra.journal import Kind

LOG = logging.getLogger("hydra.journal")
PAGE: Final = 500
_PARTS: Final = 64
"""Ranges of keys counted, or listed, by a transaction."""
_NAMED: Final = ("owner", "redo", "format")
_STAGED: Final = "staged/"

Ask = Callable[[Sequence[Json], Sequence[Json], Sequence[Json]], Answer]
"""A transaction: (conditions, operations if they hold, and operations if not). Raises EtcdRefused,
EtcdUnanswered.
"""


class _NotWhole(Exception):
    """The changes do not explain the present keys."""


@dataclass(frozen=True, slots=True)
class _News:
    """Written keys of a kind, with values, and deleted keys."""

    written: Mapping[str, str]
    gone: Collection[str]


class Reading:
    """Not thread-safe."""

    def __init__(self, prefix: str, name: str) -> None:
        """``prefix`` of the journal's keys; ``name`` of the journal, for messages."""
        self._prefix = prefix
        self._name = name
        self.revision = 0
        """Revision of the store at which the records are known; 0: not read yet."""
        self.owner: str | None = None
        """The value of the key ``owner`` then."""
        self.to_carry: list[Work] = []
        """Open work of staged writes; the records are as if the work were done."""
        self.unreadable: dict[tuple[Kind, int], str] = {}
        """Reason why a record is not HydRA's, in words."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.held = {kind: KindHeld() for kind in Kind}
        self.records: dict[Kind, dict[int, dict[str, Any]]] = {kind: {} for kind in Kind}
        """Readable records of :attr:`held`, by order."""
        self.unreadable.clear()
        self._entries: dict[Kind, dict[str, str]] = {kind: {} for kind in Kind}
        """By key, without the prefix."""
        self._was_staged = False

    def look(self, ask: Ask) -> Collection[Kind]:
        """Bring the records up to date; returns the changed kinds.

        Raises JournalOfAnotherFormat, EtcdRefused and EtcdUnanswered; the records stay unchanged
        then.
        """
        if not self.revision:
            return read_consistently(lambda: self._read_all(ask))
        return read_consistently(lambda: self._take(ask([], self.ranges(), ()), ask))

    def ranges(self) -> list[Json]:
        """The ranges of a transaction whose answer goes to :meth:`take`."""
        return self._ranges(self.revision + 1)

    def take(self, answer: Answer, ask: Ask) -> Collection[Kind]:
        """As :meth:`look`, by an answer to :meth:`ranges`."""
        taken = [answer]  # once: after a compaction by etcd, everything is read anew

        def read() -> Collection[Kind]:
            found = taken.pop() if taken else ask([], self.ranges(), ())
            return self._take(found, ask)

        return read_consistently(read)

    def _take(self, answer: Answer, ask: Ask) -> Collection[Kind]:
        owned, redo, layout, *pages = answer.found
        check_format(self._name, layout)
        owner = owned[0].value if owned else None
        try:
            if redo or owner is None or self._was_staged or answer.revision < self.revision:
                raise _NotWhole  # by a lower revision: etcd was restored from a backup
            news = self._news(pages[1:], answer, ask)
        except _NotWhole:
            return self._read_all(ask)
        for kind, changed in news.items():
            self._apply(kind, changed)
        self._note(owner, answer)
        return news.keys()

    def _note(self, owner: str | None, answer: Answer) -> None:
        self.owner, self.revision = owner, answer.revision
        self.to_carry = [NOTHING_STAGED] if answer.counts[len(_NAMED)] else []

    def _news(
        self, pages: Sequence[Sequence[Entry]], answer: Answer, ask: Ask
    ) -> dict[Kind, _News]:
        """News of each changed kind. Raises _NotWhole."""
        news = {}
        since = self.revision + 1
        for kind, page, count in zip(Kind, pages, answer.counts[len(_NAMED) + 1 :], strict=True):
            written = self._named(page)
            written |= self._beyond(f"records/{kind}/", page, answer.revision, ask, since)
            gone: Sequence[str] = ()
            known = self._entries[kind].keys() | written.keys()
            if count != len(known):
                gone = self._gone(kind, sorted(known), len(known) - count, answer.revision, ask)
            if written or gone:
                news[kind] = _News(written, gone)
        return news

    def _gone(
        self, kind: Kind, known: Sequence[str], number: int, revision: int, ask: Ask
    ) -> list[str]:
        """The ``number`` keys of ``known`` that are gone at ``revision``. Raises _NotWhole."""
        if number < 0:
            raise _NotWhole
        size = -(-len(known) // _PARTS)
        parts = [known[begin : begin + size] for begin in range(0, len(known), size)]
        ends = [*(self._key(part[0]) for part in parts), after(self._key(f"records/{kind}/"))]
        ranges = list(pairwise(ends))
        counts = ask(
            [], [get(*keys, revision=revision, counts_only=True) for keys in ranges], ()
        ).counts
        gone = [key for part, count in zip(parts, counts, strict=True) if not count for key in part]
        unsure = [
            number
            for number, (part, count) in enumerate(zip(parts, counts, strict=True))
            if 0 < count < len(part)
        ]
        if unsure:
            asked = [get(*ranges[at], revision=revision, keys_only=True) for at in unsure]
            for at, found in zip(unsure, ask([], asked, ()).found, strict=True):
                left = {entry.key.removeprefix(self._prefix) for entry in found}
                gone += [key for key in parts[at] if key not in left]
        if len(gone) != number:
            raise _NotWhole
        return gone

    def _apply(self, kind: Kind, news: _News) -> None:
        entries, held, records = self._entries[kind], self.held[kind], self.records[kind]
        for key in news.gone:
            entries.pop(key, None)
        entries.update(news.written)
        last = next(reversed(held.records), 0)
        orders = sorted({order_of(key) for key in (*news.gone, *news.written)})
        for order in orders:
            self._set(kind, order, "".join(_parts(entries, place_of(kind, order))))
        if news.gone:
            held.see_oldest()
        if any(order < last for order in orders if order in held.records):
            # A deleted record may have come back, as a write was undone.
            held.records = dict(sorted(held.records.items()))
            self.records[kind] = dict(sorted(records.items()))

    def _set(self, kind: Kind, order: int, text: str) -> None:
        """``text``: the present text of a record; empty if the record is gone."""
        held, records = self.held[kind], self.records[kind]
        self.unreadable.pop((kind, order), None)
        if not text:
            held.set(order, None)
            records.pop(order, None)
            return
        try:
            document = json.loads(text)
            record = document["record"]
            held.set(order, Held(document.get("key"), record.get("unix_s"), text))
            records[order] = record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            LOG.warning("a record of kind %s can't be read: %r", kind, error)
            self.unreadable[kind, order] = str(error)
            held.set(order, Held(None, None, text))
            records.pop(order, None)

    def _read_all(self, ask: Ask) -> Collection[Kind]:
        """Read all records as of a single moment, with a staged write applied."""
        answer = ask([], self._ranges(0), ())
        owned, redo, layout, _, *pages = answer.found
        check_format(self._name, layout)
        work = None
        if redo:
            entries = self._beyond("", None, answer.revision, ask)
            work = staged(entries)
            for key in [key for key in entries if not key.startswith("records/")]:
                del entries[key]
            if work is not None:
                carry(entries, work)
        else:
            entries = {}
            for kind, page in zip(Kind, pages, strict=True):
                entries |= self._named(page)
                entries |= self._beyond(f"records/{kind}/", page, answer.revision, ask)
        self._begin_anew()
        for kind, order, text in texts(entries):
            self._set(kind, order, text)
        for key, value in entries.items():
            kind_name = key.split("/")[1]
            if kind_name in self._entries:
                self._entries[Kind(kind_name)][key] = value
        self._note(owned[0].value if owned else None, answer)
        self._was_staged = bool(redo)
        if work is not None:
            self.to_carry = [*work.pieces(), NOTHING_STAGED]
        return tuple(Kind)

    def _beyond(
        self,
        first: str,
        page: Sequence[Entry] | None,
        revision: int,
        ask: Ask,
        written_since: int = 0,
    ) -> dict[str, str]:
        """Entries beyond a page of the keys that begin with ``first``; None: all such entries."""
        begin, end = self._key(first), after(self._key(first))
        found: dict[str, str] = {}
        while page is None or len(page) == PAGE:
            if page:
                begin = page[-1].key + "\0"
            question = get(begin, end, limit=PAGE, revision=revision, written_since=written_since)
            page = ask([], [question], ()).found[0]
            found |= self._named(page)
        return found

    def _ranges(self, written_since: int) -> list[Json]:
        records = [self._key(f"records/{kind}/") for kind in Kind]
        some = self._key(_STAGED)
        return [
            *(get(self._key(name)) for name in _NAMED),
            get(some, after(some), counts_only=True),
            *(
                get(record, after(record), limit=PAGE, written_since=written_since)
                for record in records
            ),
        ]

    def _named(self, found: Iterable[Entry]) -> dict[str, str]:
        return {entry.key.removeprefix(self._prefix): entry.value for entry in found}

    def _key(self, name: str) -> str:
        return self._prefix + name


def _parts(entries: Mapping[str, str], at: str) -> Iterator[str]:
    part = 0
    while (text := entries.get(f"{at}/{part:04x}")) is not None:
        yield text
        part += 1
