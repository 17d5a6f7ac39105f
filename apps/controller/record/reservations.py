"""Promises: reservations as in the journal, and their paths in the network.

A request is in the journal before any client sees the reservation, or the request is refused. An
event stands even if the journal can't be written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from typing import Any, Final

from apps.controller.record.activity import ActivityLog
from apps.controller.record.journal_writer import JournalWriter
from apps.controller.record.network import NetworkRecord
from apps.controller.record.reservation_news import PLACED, ReservationNews, news_of
from hydra.errors import Changed
from hydra.journal import JournalError
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState
from hydra.model import Fabric, Pair, Path
from hydra.reconfiguration.plan import pair_of, paths_by_pair
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import Reservation

LOG = logging.getLogger("hydra.ledger")
_STAYS: Final = "does not give way any more"
_NOT_BEGUN: Final = frozenset({ReservationState.HELD, ReservationState.SCHEDULED})
_ENDED_BY_OTHERS: Final = frozenset(
    {ReservationState.RELEASING, ReservationState.CANCELLED, ReservationState.PREEMPTED}
)
"""States that a reservation can enter at any time, even while the conductor works on it."""


class Reservations(ReservationNews):
    """Thread-safe. ``lock`` guards all records."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        book: ReservationBook,
        writer: JournalWriter,
        network: NetworkRecord,
        log: ActivityLog,
        lock: threading.RLock,
    ) -> None:
        super().__init__(fabric=fabric, book=book, writer=writer, log=log, lock=lock)
        self._network = network

    # -- requests ---------------------------------------------------------------------------------

    def keep(self, reservations: Collection[Reservation]) -> None:
        """Write reservations, and the reservations displaced by them, in one journal write.

        After the write, they survive a restart. Raises JournalError if nothing could be written.
        """
        with self._lock:
            displaced = [
                reservation for r in reservations for reservation in self._book.displaced(r.id)
            ]
            all_changed = (*displaced, *reservations)
            self._writer.write(self._records(all_changed), news_of(all_changed))
            for reservation in reservations:
                self._book.settle(reservation.id)
            self._note(all_changed)
            self._let_stay(
                [reservation.id for reservation in displaced if not reservation.is_booked]
            )

    def let_go(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Cancel a reservation for its owner: a started reservation is releasing; after a failure,
        released.

        Raises UnknownName, Changed, LifecycleError, JournalError.
        """
        with self._lock:
            self._check_unchanged(seen)
            (reservation,) = self._let_go([reservation_id])
            return reservation

    def let_group_go(self, group: str) -> Sequence[Reservation]:
        """:meth:`let_go` of all reservations of a group that are not over, in one journal write.

        Raises UnknownName, JournalError; all reservations are as before then.
        """
        with self._lock:
            return self._let_go(
                [
                    member.id
                    for member in self._book.members(group)
                    if member.is_booked or member.state is ReservationState.FAILED
                ]
            )

    def _let_go(self, ids: Sequence[str]) -> Sequence[Reservation]:
        gone: list[Reservation] = []
        staying: list[Reservation] = []
        now_s = time.time()
        with self._or_as_they_were(ids):
            for reservation_id in ids:
                state, why = _once_let_go(self._book.get(reservation_id))
                gone.append(self._book.transition(reservation_id, state, why, now=now_s))
                staying += self._book.let_stay(reservation_id, now_s)
            both = [*gone, *staying]
            self._writer.write(self._records_and_forgotten(both), news_of(both))
        self._note(gone)
        self._note(staying, _STAYS)
        return gone

    def commit(self, reservation_id: str, seen: Reservation | None) -> Reservation:
        """Commit a held reservation. Raises UnknownName, Changed, LifecycleError, JournalError."""
        with self._lock:
            self._check_unchanged(seen)
            with self._or_as_they_were([reservation_id]):
                now = time.time()
                committed = self._book.transition(
                    reservation_id, ReservationState.COMMITTED, now=now
                )
                reservation = self._book.begin(reservation_id, now)
                both = (committed, reservation)
                self._writer.write(self._records_and_forgotten([reservation]), news_of(both))
            self._note(both)
            return reservation

    def modify(
        self,
        reservation_id: str,
        change: Modification,
        limits: AdmissionLimits,
        seen: Reservation | None,
    ) -> Reservation:
        """Change a reservation. Raises the errors of :meth:`ReservationBook.modify`, Changed,
        JournalError.
        """
        with self._lock:
            self._check_unchanged(seen)
            old = self._book.get(reservation_id)
            with self._or_as_they_were([reservation_id]):
                new = self._book.modify(reservation_id, change, time.time(), limits)
                if new != old:
                    self._writer.write(self._records_and_forgotten([new]), news_of([new]))
                    self._note([new])
            return new

    def _check_unchanged(self, seen: Reservation | None) -> None:
        """Raise Changed if the reservation differs from ``seen``."""
        if seen is not None and self._book.get(seen.id) != seen:
            raise Changed(f"reservation {seen.id} has changed meanwhile: read it again")

    @contextmanager
    def _or_as_they_were(self, ids: Iterable[str]) -> Iterator[None]:
        """If the journal can't be written: restore reservations, and others due to give way."""
        before = [
            reservation
            for i in ids
            for reservation in (self._book.get(i), *self._book.giving_way_to(i))
        ]
        try:
            yield
        except JournalError:
            for reservation in before:
                self._book.put_back(reservation)
            raise

    # -- events -----------------------------------------------------------------------------------

    def change(
        self,
        reservation_id: str,
        state: ReservationState,
        reason: str = "",
        seen: Reservation | None = None,
    ) -> Reservation:
        """Enter a state, unless the owner or a reservation of a higher rank has ended this
        reservation.

        Raises Changed if the reservation differs from ``seen``.
        """
        with self._lock:
            self._check_unchanged(seen)
            (reservation,) = self.change_all([reservation_id], state, reason)
            return reservation

    def change_all(
        self, ids: Iterable[str], state: ReservationState, reason: str = ""
    ) -> Sequence[Reservation]:
        """:meth:`change` of several reservations, in one journal write; reservations changed before
        an error are written, too.
        """
        with self._lock:
            now_s = time.time()
            present: list[Reservation] = []
            changed: list[Reservation] = []
            staying: list[Reservation] = []
            try:
                for reservation_id in ids:
                    before = self._book.get(reservation_id)
                    present.append(before)
                    if (
                        before.state in _ENDED_BY_OTHERS
                        and state not in RESERVATION_TRANSITIONS[before.state]
                    ):
                        continue
                    present[-1] = self._book.transition(reservation_id, state, reason, now=now_s)
                    changed.append(present[-1])
                    staying += self._book.let_stay(reservation_id, now_s)
            finally:
                if changed:
                    self._write_changed(changed, staying)
            return present

    def released(self, ids: Iterable[str], gone: Container[Pair]) -> None:
        """End the release of reservations, in one journal write; do :meth:`leave_nothing` for the
        pairs ``gone``, too.
        """
        with self._lock:
            now_s = time.time()
            staying: list[Reservation] = []
            ended = []
            for reservation_id in ids:
                before = self._book.get(reservation_id)
                if before.state is ReservationState.RELEASING:
                    state, reason = ReservationState.RELEASED, before.reason
                    self._book.transition(reservation_id, state, reason, now=now_s)
                    staying += self._book.let_stay(reservation_id, now_s)
                    ended.append(reservation_id)
            left = self._left_nothing(gone.__contains__)
            self._write_changed(
                [self._book.get(reservation_id) for reservation_id in ended], staying, left
            )

    def _write_changed(
        self,
        changed: Sequence[Reservation],
        staying: Sequence[Reservation],
        silent: Sequence[Reservation] = (),
    ) -> None:
        """Write changed and staying reservations, with events, and ``silent`` reservations without
        events.
        """
        self._note(changed)
        self._note(staying, _STAYS)
        published = [*changed, *staying]
        self._writer.write_in_time(
            self._records_and_forgotten([*published, *silent]), news_of(published)
        )

    def reroute(self, pair: Pair, limits: AdmissionLimits, tried: Sequence[str] = ()) -> None:
        """Book the pair's reservations around blocked ports; reservations without another path
        fail.

        The reason of failure begins with ``tried``, the earlier attempts in words. A tenant reads
        the reason, so it names no foreign reservations.
        """
        with self._lock:
            changed, refused = self._book.reroute(pair, time.time(), limits)
            self._note_placed(changed)
            for reservation_id, error in refused.items():
                LOG.warning("reservation %s has no other path: %s", reservation_id, error)
                owned = self._book.get(reservation_id).owner is not None
                refusal = f"no other path: {error.in_public if owned else error}"
                why = "; ".join(dict.fromkeys([*filter(None, tried), refusal]))
                self.change(reservation_id, ReservationState.FAILED, why)

    def _let_stay(self, over: Iterable[str]) -> None:
        """Keep the reservations that would have been preempted by the finished reservations
        ``over``.
        """
        now_s = time.time()
        staying = [
            reservation
            for reservation_id in over
            for reservation in self._book.let_stay(reservation_id, now_s)
        ]
        if staying:
            self._note(staying, _STAYS)
            self._writer.write_in_time(self._records(staying), news_of(staying))

    def resume(self, stale: Callable[[Reservation], bool]) -> None:
        """After a start: fail reservations without a path yet, and begin committed reservations.

        The ``stale`` reservations are written before clients see the result. Raises JournalError.
        """
        for reservation in self._book:
            if reservation.is_booked and reservation.booked is None:
                reason = "no path yet when the controller ended"
                self._book.transition(
                    reservation.id, ReservationState.FAILED, reason, now=time.time()
                )
            elif reservation.state is ReservationState.COMMITTED:
                self._book.begin(reservation.id, time.time())
        changed = [reservation for reservation in self._book if stale(reservation)]
        failed = [
            reservation for reservation in changed if reservation.state is ReservationState.FAILED
        ]
        if changed:
            self._writer.write(self._records(changed), news_of(failed))
        for reservation in failed:
            LOG.warning("reservation %s has failed: %s", reservation.id, reservation.reason)
        self._note(failed)

    # -- paths ------------------------------------------------------------------------------------

    def save(self, what: str) -> None:
        """Write the network's state and the reservations' paths: now, or once the journal can be
        written. ``what`` names the event behind the state.
        """
        with self._lock:
            placed = self._placed(self._network.promised_paths())
            self._note(placed, PLACED)
            self._network.note_unsaved(what)
            self._writer.write_in_time(self._records(placed), news_of(placed))

    def finish(self, reconfiguration_id: str, **changes: Any) -> None:
        """Update a finished reconfiguration, and :meth:`save` the resulting state, in one write."""
        with self._lock:
            self._log.amend(reconfiguration_id, changes)
            self.save("reconfigured")

    def place(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Set ``paths`` as the present paths of their reservations, in one journal write.

        Returns the paths that stand, except paths of pairs with an unreserved path; these stay
        without effect.
        """
        with self._lock:
            standing = paths_by_pair(self._network.state)
            promised: dict[Pair, set[Path]] = {}
            for reservation in self._book.active():
                promised.setdefault(reservation.pair, set()).update(reservation.paths)
            placed = [
                path
                for path in dict.fromkeys(paths)
                if path in (of_pair := standing.get(pair_of(path), ()))
                and promised.get(pair_of(path), set()).issuperset(of_pair)
            ]
            self._note_placed(self._placed(placed))
            return frozenset(placed)

    def keep_standing(self, planned: Callable[[Pair], bool] = lambda _pair: False) -> None:
        """Count all present paths without a reservation as requested in their own right.

        Paths of released or finished reservations count only if their pair was ``planned`` for.
        """
        with self._lock:
            self.leave_nothing(planned)
            self._network.keep_unreserved()
            self._note_placed(self._placed(self._network.promised_paths()))

    def leave_nothing(self, concerned: Callable[[Pair], bool]) -> None:
        """Clear ``leaves_path`` of finished reservations on the given pairs: the circuits left by
        them are gone, or in other hands.
        """
        with self._lock:
            if gone := self._left_nothing(concerned):
                self._writer.write_in_time(self._records(gone))

    def _placed(self, paths: Iterable[Path]) -> list[Reservation]:
        """Note in the book that ``paths`` stand; returns the changed reservations."""
        before = {reservation.id: reservation for reservation in self._book.active()}
        vlans = self._network.state.vlans
        return [
            reservation
            for path in paths
            for reservation in self._book.place(path, vlans[path])
            if reservation != before[reservation.id]
        ]

    def _left_nothing(self, concerned: Callable[[Pair], bool]) -> tuple[Reservation, ...]:
        """Clear ``leaves_path`` of finished reservations on the given pairs, in the book alone.

        Reservations still being released are skipped: their final state clears the flag.
        """
        over = [
            reservation.id
            for reservation in self._book.leaving()
            if reservation.state is not ReservationState.RELEASING and concerned(reservation.pair)
        ]
        return self._book.leave_nothing(over)


def _once_let_go(reservation: Reservation) -> tuple[ReservationState, str]:
    """State of a reservation that its owner lets go, and why."""
    if reservation.state in _NOT_BEGUN:
        return ReservationState.CANCELLED, "asked for"
    if reservation.state is ReservationState.FAILED:
        why = f"released on request, after the failure: {reservation.reason}"
        return ReservationState.RELEASED, why
    return ReservationState.RELEASING, "asked for"
