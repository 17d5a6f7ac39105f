"""The journal in etcd, for controllers on several machines; layout: :mod:`apps.journal.layout`."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from apps.etcd.gateway import (
    Answer,
    Entry,
    Etcd,
    EtcdRefused,
    EtcdUnanswered,
    Json,
    delete,
    get,
    has_value,
    is_absent,
    put,
)
from apps.journal import reading
from apps.journal.held import HeldRecords
from apps.journal.layout import (
    FORMAT,
    NOTHING_STAGED,
    PART,
    Work,
    after,
    carry,
    check_format,
    read_consistently,
    staged,
    staged_key,
    texts,
)
from apps.journal.reading import Reading
from hydra.journal import Change, JournalError, JournalTaken, Kind
from hydra.settings import EtcdSettings

LOG = logging.getLogger("hydra.journal")
_FULL: Final = "space exceeded"
_CLOSED: Final = "the journal is not open"
_DAY_S: Final = 86_400.0
_T = TypeVar("_T")
_NOTHING: Final = Work({}, ())


class EtcdJournal:
    """A :class:`hydra.journal.Journal`.

    With ``read_only`` nothing is owned and nothing is changed. With ``later`` the journal is closed
    until :meth:`open`. Entries and history older than ``kept_days``, as
    :data:`hydra.journal.AGEING` counts, go when a new entry comes; None: only their number counts.
    """

    def __init__(
        self,
        settings: EtcdSettings,
        *,
        read_only: bool = False,
        later: bool = False,
        kept_days: float | None = None,
        patience_s: float | None = None,
    ) -> None:
        """``patience_s``: of each request, as in :meth:`Etcd.ask`. Raises JournalError."""
        self._etcd = Etcd(settings)
        self._prefix = f"{settings.prefix}journal/"
        self.name = f"{self._etcd.name}, {settings.prefix}"
        self._compare: tuple[Json, ...] = ()
        self.patience_s = patience_s
        """How long a write or a reading is tried."""
        self._lock = threading.Lock()
        self._read_only = read_only
        self._closed = later
        self._number = 0
        self._id = uuid.uuid4().hex
        self._held = HeldRecords(float("inf") if kept_days is None else kept_days * _DAY_S)
        self._read: Mapping[Kind, Mapping[int, dict[str, Any]]] | None = None
        """Records read at the opening, valid until the first write.

        Between the opening and the first write a controller begins to lead, without other writers.
        """
        self._unknown: tuple[str, Work] | None = None
        """(The owner's value after an unanswered write, the work to undo the write)."""
        self._to_undo: list[Work] = []
        """Work to undo writes that were refused and made nevertheless, in order."""
        self._pending_transfers: list[Work] = []
        """Pieces of a staged write that was made and not carried over yet."""
        if not later:
            try:
                self.open()
            except JournalError:
                self._etcd.close()
                raise

    def open(self, compare: Sequence[Json] = (), known: Reading | None = None) -> None:
        """``compare``: conditions of every write beside the journal's own, such as leadership.

        ``known``: records read already, so that only later changes are read; owned by the journal
        from now on. Raises JournalError.
        """
        with self._lock:
            self._compare = tuple(compare)
            try:
                if self._read_only:
                    check_format(self.name, self._ask([], [get(self._key("format"))]).found[0])
                else:
                    self._own(known or Reading(self._prefix, self.name))
            except (EtcdRefused, EtcdUnanswered) as error:
                raise self._error("open", error) from error
            self._closed = False

    def _error(self, verb: str, error: Exception | str) -> JournalError:
        detail = str(error)
        if _FULL in detail:
            remedy = (
                "etcd's space is full: compact and defragment it, or raise its quota, see to free "
                "disk space, and disarm its alarm"
            )
        else:
            remedy = "see to etcd, and to the way there"
        return JournalError(f"can't {verb} the journal {self.name} ({detail}): {remedy}")

    # -- opening ----------------------------------------------------------------------------------

    def _own(self, known: Reading) -> None:
        """Own the journal as ``known``, and carry over staged writes.

        The former owner can write nothing any more, and each of its writes has changed the owner's
        value: so nothing has been written since ``known`` was read.
        """
        own, owner = self._owner_of(self._number), self._key("owner")
        if not known.revision:
            known.look(self._ask)
        while known.owner != own:  # owned already if the last answer was lost
            seen = known.owner
            before = is_absent(owner) if seen is None else has_value(owner, seen)
            answer = self._ask(
                [before, *self._compare],
                [put(owner, own), put(self._key("format"), FORMAT)],
                known.ranges(),
            )
            if answer.succeeded:
                break
            known.take(answer, self._ask)
            if known.owner == seen:
                raise self._taken()
        for why in known.unreadable.values():
            raise self._no_json(why)
        self._held.begin(known.held)
        self._read = known.records
        self._pending_transfers = known.to_carry
        self._carry_over()

    # -- writing ----------------------------------------------------------------------------------

    def write(self, changes: Iterable[Change]) -> None:
        with self._lock:
            if self._closed:
                raise self._error("write", _CLOSED)
            if self._read_only:
                raise self._error("write", "the journal was opened to be read")
            self._read = None
            try:
                self._settle()
                delta, next_order = self._held.delta(changes)
                before = self._held.before(delta)
                self._make(self._held.work(delta, before), self._held.work(before, delta))
                self._held.remember(delta, next_order)
            except (EtcdRefused, EtcdUnanswered) as error:
                raise self._error("write", error) from error
            try:
                self._carry_over()
            except (EtcdRefused, EtcdUnanswered) as error:
                LOG.warning("a large write is made, and has yet to be carried over: %s", error)

    def _make(self, work: Work, undone: Work) -> None:
        """Make all of ``work`` or nothing.

        ``undone`` is the work to undo it, for a write that is made without an answer; empty for
        work due to be repeated in this case.
        """
        if work.is_small:
            self._step(work, undone)
            return
        text = work.text()
        pieces = [text[begin : begin + PART] for begin in range(0, len(text), PART)]
        self._step(NOTHING_STAGED, _NOTHING)
        for number, piece in enumerate(pieces):
            self._step(Work({staged_key(number): piece}, ()), _NOTHING)
        self._step(Work({"redo": str(len(pieces))}, ()), NOTHING_STAGED)
        self._pending_transfers = [*work.pieces(), NOTHING_STAGED]

    def _carry_over(self) -> None:
        while self._pending_transfers:
            self._step(self._pending_transfers[0], _NOTHING)  # stays due until answered
            del self._pending_transfers[0]

    def _step(self, work: Work, undone: Work) -> None:
        """A transaction, made once. Raises JournalTaken, EtcdRefused, EtcdUnanswered.

        After EtcdUnanswered the outcome is unknown; :meth:`_settle` finds out.
        """
        owner = self._key("owner")
        before, after = self._owner_of(self._number), self._owner_of(self._number + 1)
        operations = [put(self._key(key), value) for key, value in work.puts.items()]
        operations += [delete(self._key(begin), self._key(end)) for begin, end in work.deletes]
        try:
            answer = self._ask(
                [has_value(owner, before), *self._compare],
                [*operations, put(owner, after)],
                [get(owner)],
            )
        except EtcdUnanswered:
            self._unknown = after, undone
            raise
        if not answer.succeeded and not (answer.found[0] and answer.found[0][0].value == after):
            raise self._taken()
        self._number += 1

    def _settle(self) -> None:
        """Undo writes that were refused and made nevertheless."""
        self._end_unknown()
        self._carry_over()
        while self._to_undo:
            self._make(self._to_undo[0], _NOTHING)
            del self._to_undo[0]
            self._carry_over()

    def _end_unknown(self) -> None:
        """Find the outcome of an unanswered write.

        Afterwards the write can't be made any more, as its number is used up.
        """
        if self._unknown is None:
            return
        after, undone = self._unknown
        owner, following = self._key("owner"), self._owner_of(self._number + 2)
        before = self._owner_of(self._number)
        answer = self._ask(
            [has_value(owner, before), *self._compare], [put(owner, following)], [get(owner)]
        )
        found = answer.found[0][0].value if answer.found and answer.found[0] else None
        if not answer.succeeded and found not in {after, following}:
            raise self._taken()
        self._unknown = None
        if answer.succeeded or found == following:
            self._number += 2
            return
        self._number += 1
        if undone != _NOTHING:
            self._to_undo.insert(0, undone)

    def _taken(self) -> JournalTaken:
        return JournalTaken(
            f"another controller has taken over the journal {self.name}: nothing is written from "
            "here any more, end this controller"
        )

    # -- reading ----------------------------------------------------------------------------------

    def records(self, kind: Kind, newest: int | None = None) -> list[dict[str, Any]]:
        with self._lock:
            if self._read is not None and not self._closed:
                return _newest([*self._read[kind].values()], newest)
        return [document["record"] for document in self._documents(kind, newest)]

    def changes(self, kind: Kind) -> list[Change]:
        """As :meth:`hydra.journal.Journal.changes`."""
        return [
            Change(kind, document.get("key"), document["record"])
            for document in self._documents(kind, None)
        ]

    def _documents(self, kind: Kind, newest: int | None) -> list[dict[str, Any]]:
        with self._lock:
            if self._closed:
                raise self._error("read", _CLOSED)
            if self._read is not None:
                return _newest(list(self._known(kind, self._read[kind])), newest)
            try:
                entries = self._entries(kind, newest)
            except (EtcdRefused, EtcdUnanswered) as error:
                raise self._error("read", error) from error
        found = [text for _, _, text in texts(entries)]
        return [self._read_json(text) for text in _newest(found, newest)]

    def _known(self, kind: Kind, records: Mapping[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for order, entry in self._held.by_kind[kind].records.items():
            yield {"key": entry.key, "record": records[order]}

    def _read_json(self, text: str) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise self._no_json(str(error)) from error
        return document

    def _no_json(self, why: str) -> JournalError:
        return self._error("read", f"a record is no JSON: {why}")

    def _entries(self, kind: Kind, newest: int | None) -> dict[str, str]:
        """Keys of a kind with values, as of a single moment."""
        if newest is not None:
            few = self._newest(kind, newest)
            if few is not None:
                return few
        entries = self._everything(f"records/{kind}/", "redo")
        if "redo" in entries:
            everything = self._everything("")
            work = staged(everything)
            if work is not None:
                carry(everything, work)
            entries = everything
        return {key: text for key, text in entries.items() if key.startswith(f"records/{kind}/")}

    def _newest(self, kind: Kind, newest: int) -> dict[str, str] | None:
        """The newest records, if a single answer holds them and nothing is staged."""
        first = self._key(f"records/{kind}/")
        answer = self._ask(
            [], [get(self._key("redo")), get(first, after(first), limit=newest, last=True)]
        )
        if answer.found[0]:
            return None
        found = {entry.key.removeprefix(self._prefix): entry.value for entry in answer.found[1]}
        whole = all(key.endswith("/0000") for key in found)
        return dict(sorted(found.items())) if whole else None

    def _everything(self, first: str, *more: str) -> dict[str, str]:
        """All keys that begin with ``first``, and ``more``, in order, as of a single moment."""
        return read_consistently(lambda: self._read_pages(first, more))

    def _read_pages(self, first: str, more: Sequence[str]) -> dict[str, str]:
        begin = self._key(first)
        end, revision = after(begin), 0
        entries: dict[str, str] = {}

        def add(found: Iterable[Entry]) -> None:
            entries.update((entry.key.removeprefix(self._prefix), entry.value) for entry in found)

        while True:
            others = [get(self._key(key), revision=revision) for key in more]
            answer = self._ask(
                [], [get(begin, end, limit=reading.PAGE, revision=revision), *others]
            )
            revision = revision or answer.revision
            for found in answer.found:
                add(found)
            if len(answer.found[0]) < reading.PAGE:
                return entries
            begin = answer.found[0][-1].key + "\0"

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._etcd.close()

    # -- keys -------------------------------------------------------------------------------------

    def _ask(
        self, compare: Sequence[Json], success: Sequence[Json], failure: Sequence[Json] = ()
    ) -> Answer:
        return self._etcd.transaction(compare, success, failure, patience_s=self.patience_s)

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _owner_of(self, number: int) -> str:
        return f"{self._id} {number}"


def _newest(found: list[_T], number: int | None) -> list[_T]:
    """The last elements of ``found``, at most ``number``; None: all."""
    return found if number is None else found[len(found) - min(number, len(found)) :]
