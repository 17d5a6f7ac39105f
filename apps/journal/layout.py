"""The layout of the journal in etcd: keys and values, for readers and writers.

Keys, after the prefix, and their values:

``format``
    the number of this layout.
``owner``
    the id of the last opener for writing, and the number of the owner's last write. Each write is a
    transaction that finds the number before its own there, or changes nothing. An unanswered write
    can therefore be repeated: the write is made once.
``records/KIND/ORDER/PART``
    a record as JSON text, in parts of at most :data:`PART`; ORDER grows by first writing.
``redo``, ``staged/N``
    a write too large for a transaction: the whole write is staged first, and made when ``redo``
    holds the number of pieces. The owner of the journal then carries the pieces over to
    ``records``; a reader does the same in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from apps.etcd.gateway import Entry, EtcdRefused
from hydra.journal import JournalOfAnotherFormat, Kind

FORMAT: Final = "1"
"""Increased with every change of the layout or of records that earlier releases can't read."""
PART: Final = 400_000
"""Characters of a value. etcd takes requests of 1.5 MiB."""
_MOST_OPERATIONS: Final = 100
"""Of etcd's 128 in a transaction."""
_MOST_CHARACTERS: Final = 1_000_000
_MOST_READINGS: Final = 5
"""Attempts at a reading: etcd may compact the revision being read."""
_COMPACTED: Final = "has been compacted"
_KINDS: Final = frozenset(kind.value for kind in Kind)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Held:
    """A record as stored."""

    key: str | None
    unix_s: float | None
    text: str

    @property
    def parts(self) -> int:
        return -(-len(self.text) // PART)


@dataclass(slots=True)
class KindHeld:
    """Records of a kind, by ascending order."""

    records: dict[int, Held] = field(default_factory=dict)
    orders: dict[str, int] = field(default_factory=dict)
    """Orders of records with a key."""
    oldest_s: float = float("inf")
    """None is older."""

    def see_oldest(self) -> None:
        times = (record.unix_s for record in self.records.values() if record.unix_s is not None)
        self.oldest_s = min(times, default=float("inf"))

    def set(self, order: int, held: Held | None) -> None:
        old = self.records.pop(order, None) if held is None else self.records.get(order)
        key = None if old is None else old.key
        if held is None and key is not None and self.orders.get(key) == order:
            del self.orders[key]  # else the key belongs to another record by now
        if held is not None:
            self.records[order] = held
            if held.key is not None:
                self.orders[held.key] = order
            if held.unix_s is not None:
                self.oldest_s = min(self.oldest_s, held.unix_s)


@dataclass(frozen=True, slots=True)
class Work:
    """Keys to put, and ranges of keys to delete; all after the prefix. No key is touched twice."""

    puts: Mapping[str, str]
    deletes: Sequence[tuple[str, str]]

    @property
    def is_small(self) -> bool:
        characters = sum(len(key) + len(value) for key, value in self.puts.items())
        number = len(self.puts) + len(self.deletes)
        return number <= _MOST_OPERATIONS and characters <= _MOST_CHARACTERS

    def pieces(self) -> Iterator[Work]:
        """The changes of a write, in small pieces."""
        for begin in range(0, len(self.deletes), _MOST_OPERATIONS):
            yield Work({}, self.deletes[begin : begin + _MOST_OPERATIONS])
        some: dict[str, str] = {}
        characters = 0
        for key, value in self.puts.items():
            characters += len(key) + len(value)
            if some and (len(some) == _MOST_OPERATIONS or characters > _MOST_CHARACTERS):
                yield Work(some, ())
                some, characters = {}, len(key) + len(value)
            some[key] = value
        if some:
            yield Work(some, ())

    def text(self) -> str:
        return json.dumps(
            {"put": dict(self.puts), "delete": [list(delete) for delete in self.deletes]}
        )

    @classmethod
    def read(cls, text: str) -> Work:
        document = json.loads(text)
        return cls(document["put"], [(first, end) for first, end in document["delete"]])


def check_format(name: str, found: Sequence[Entry]) -> None:
    """``found``: the key ``format``, if present. Raises JournalOfAnotherFormat."""
    written = found[0].value if found else FORMAT
    if written != FORMAT:
        raise JournalOfAnotherFormat(
            f"the journal {name} has format {written}, this release reads {FORMAT}: start the "
            "release that wrote the journal, or choose another controller.store.etcd.prefix"
        )


def place_of(kind: Kind, order: int) -> str:
    return f"records/{kind}/{order:016x}"


def order_of(key: str) -> int:
    """The order of the record to which a key belongs."""
    return int(key.split("/")[2], 16)


def staged_key(number: int) -> str:
    return f"staged/{number:08x}"


NOTHING_STAGED: Final = Work({}, (("redo", "redo\0"), ("staged/", "staged0")))


def read_consistently(read: Callable[[], _T]) -> _T:
    """The result of ``read``, which reads as of a single moment; repeated if etcd has compacted the
    revision meanwhile. Raises EtcdRefused, EtcdUnanswered.
    """
    for _ in range(_MOST_READINGS - 1):
        try:
            return read()
        except EtcdRefused as error:
            if _COMPACTED not in str(error):
                raise
    return read()


def after(prefix: str) -> str:
    """The first key beyond all keys with ``prefix``, which ends in a character of ASCII."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def staged(entries: Mapping[str, str]) -> Work | None:
    """The finished staged write, in keys without the prefix; None if there is none."""
    if "redo" not in entries:
        return None
    return Work.read("".join(entries[staged_key(part)] for part in range(int(entries["redo"]))))


def carry(entries: dict[str, str], work: Work) -> None:
    """Make a staged write in ``entries``."""
    for first, end in work.deletes:
        for key in [key for key in entries if first <= key < end]:
            del entries[key]
    entries.update(work.puts)


def texts(entries: Mapping[str, str]) -> Iterator[tuple[Kind, int, str]]:
    """Kind, order and text of each record, in order; kinds of later releases are left out."""
    parts: dict[tuple[str, str], list[str]] = {}
    for key, value in sorted(entries.items()):
        _, kind, order, _ = key.split("/")
        parts.setdefault((kind, order), []).append(value)
    for (kind, order), some in parts.items():
        if kind in _KINDS:
            yield Kind(kind), int(order, 16), "".join(some)
