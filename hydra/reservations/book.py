"""The book of reservations: admission, changes of state, modification, rerouting.

No devices, no clock: identifiers and the time are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from hydra.errors import AdmissionError
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState, check_transition
from hydra.model import Fabric, Path, RackId
from hydra.names import rack_of
from hydra.reservations.admission import (
    Ask,
    admit_most,
    beyond_uplink,
    fastest_circuit_mbps,
    moment,
    takes,
)
from hydra.reservations.calendar_entries import ask_of, servers_among
from hydra.reservations.constraints import route_of
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification, modified, place_again
from hydra.reservations.preemption import lower_ranks, make_room
from hydra.reservations.protected import Protected
from hydra.reservations.protection import admit_both, is_free_of, standby_again
from hydra.reservations.quotas import within_quota_mbps
from hydra.reservations.requests import check, times
from hydra.reservations.rerouting import moved_to_another_path
from hydra.reservations.reservation import (
    LATEST_UNIX_S,
    Reservation,
    ReservationRequest,
    ServiceClass,
    rack_pair,
)
from hydra.reservations.transfers import (
    needed_mbps,
    planned_request,
    transfer_times,
)

NOTICE_S: Final = 60.0
"""Default notice of preemption, in s, for which a preempted reservation keeps the circuits."""
_NO_LIMITS: Final = AdmissionLimits()
_LEAVES_PATH: Final = frozenset(
    {
        ReservationState.RELEASING,
        ReservationState.EXPIRED,
        ReservationState.PREEMPTED,
        ReservationState.FAILED,
    }
)


class ReservationBook(Protected):
    """Decides about admissions and changes. Not thread-safe: the owner holds the lock."""

    def __init__(self, fabric: Fabric, reservations: Iterable[Reservation] = ()) -> None:
        super().__init__(fabric, reservations)
        self._displaced: dict[str, list[Reservation]] = {}
        """Earlier versions of displaced reservations, by the unsettled new reservation's id."""

    # --- admission ------------------------------------------------------------------------------

    def beyond_uplink(self, request: ReservationRequest, now: float) -> tuple[str, str] | None:
        """As :func:`~hydra.reservations.admission.beyond_uplink`, for the named servers."""
        start, end = times(request, now)
        window = self._calendar.window(start, end or math.inf, _NO_LIMITS)
        named = servers_among(self._fabric, request.src, request.dst)
        return beyond_uplink(self._fabric, window, named, request.least_mbps)

    def add(
        self,
        reservation_id: str,
        request: ReservationRequest,
        now: float,
        limits: AdmissionLimits = _NO_LIMITS,
        group: str | None = None,
        notice_s: float = NOTICE_S,
        bundle: str | None = None,
    ) -> Reservation:
        """Enter ``request`` if the calendar has room (:mod:`hydra.reservations.calendar`).

        The new state is ``held`` if the request asks for a hold, ``activating`` for a start now,
        else ``scheduled``. ``limits.blocked`` counts only for a start now: later, blocked ports may
        be repaired. ``now`` is in Unix seconds.

        If there is no room beside reservations of lower priority, they give way. A displaced
        reservation with circuits keeps the circuits for ``notice_s``, and the new reservation
        begins afterwards (see :meth:`displaced`). A hold never preempts.

        Raises UnknownName, WrongRequest, and AdmissionError with alternatives; the book is
        unchanged then.
        """
        src, dst = check(self._fabric, request)
        self._stretch_overdue(now)
        if request.transfer is not None:
            request = self._planned(request, now, limits)
        start, end = times(request, now)
        if start > now:
            limits = limits.later
        ask = Ask(
            src=request.src,
            dst=request.dst,
            pair=rack_pair(src, dst),
            mbps=min(request.most_mbps, self._allowed_mbps(request, start, end)),
            start_unix_s=start,
            end_unix_s=math.inf if end is None else end,
            servers=servers_among(self._fabric, request.src, request.dst),
            exclusive=request.service is ServiceClass.GUARANTEED,
            names_end=request.end_unix_s is not None,
            route=route_of(self._fabric, request.constraints),
            constraints=str(request.constraints),
        )
        ask, path, displaced = self._find_place(ask, request, limits, now, notice_s)
        protection = None
        if request.is_protected:
            around = limits if ask.start_unix_s <= now else limits.later
            least_mbps = min(ask.mbps, request.least_mbps)
            mbps, path, protection = admit_both(self._calendar, ask, path, least_mbps, around)
            ask = replace(ask, mbps=mbps)
        start, end = ask.start_unix_s, None if end is None else ask.end_unix_s
        best_effort = request.service is ServiceClass.BEST_EFFORT
        held_until = None if request.hold_s is None else now + request.hold_s
        reservation = Reservation(
            id=reservation_id,
            state=ReservationState.HELD if held_until is not None else _begun(start, now),
            src=request.src,
            dst=request.dst,
            bandwidth_mbps=request.bandwidth_mbps if best_effort else ask.mbps,
            duration_s=None if end is None else end - start,
            src_rack=src,
            dst_rack=dst,
            created_unix_s=now,
            expires_unix_s=end,
            starts_unix_s=start,
            booked=path,
            held_until_unix_s=held_until,
            group=group,
            bundle=bundle,
            wanted_mbps=None if request.minimum_mbps is None else request.bandwidth_mbps,
            since_unix_s=now,
            protection=protection,
            **request.kept,
        )
        for loser in displaced:
            self._give_way(loser, reservation)
        self._displaced[reservation_id] = displaced
        self.enter(reservation)
        return reservation

    def _planned(
        self, request: ReservationRequest, now: float, limits: AdmissionLimits
    ) -> ReservationRequest:
        """A transfer with rate and times. Raises AdmissionError."""
        steady = replace(request, bandwidth_mbps=needed_mbps(request, now))
        most_mbps = self._allowed_mbps(steady, *transfer_times(request, now))
        most_mbps = min(most_mbps, request.bandwidth_mbps or most_mbps)
        return planned_request(self._calendar, request, most_mbps, limits, now)

    def _find_place(
        self,
        ask: Ask,
        request: ReservationRequest,
        limits: AdmissionLimits,
        now: float,
        notice_s: float,
    ) -> tuple[Ask, Path, list[Reservation]]:
        """Return the granted ask, the path, and the displaced reservations. Raises
        AdmissionError.
        """
        try:
            mbps, path = admit_most(self._calendar, ask, request.least_mbps, limits)
        except AdmissionError:
            if request.rank < 0 or request.hold_s is not None:
                raise
            least = replace(ask, mbps=request.least_mbps)
            lower = lower_ranks(self._calendar, self._by_id, least, 0)
            if not lower and not request.priority:
                raise
        else:
            return ask if mbps == ask.mbps else replace(ask, mbps=mbps), path, []
        try:
            return least, *make_room(self._calendar, least, lower, limits)
        except AdmissionError:
            if not request.priority:
                raise
        later_s = max(0.0, now + notice_s - ask.start_unix_s)
        later = replace(
            least,
            start_unix_s=ask.start_unix_s + later_s,
            end_unix_s=_later(ask.end_unix_s, later_s),
        )
        self._allowed_mbps(request, later.start_unix_s, later.end_unix_s)
        around = limits if later.start_unix_s <= now else limits.later
        lower = lower_ranks(self._calendar, self._by_id, later, request.rank)
        return later, *make_room(self._calendar, later, lower, around)

    def _give_way(self, reservation: Reservation, other: Reservation) -> None:
        """Preempt a reservation: with circuits, at the start of ``other``; without, now."""
        reason = (
            f"gives way to a reservation of priority {other.priority}"
            if reservation.rank >= 0
            else f"gives way, as best effort, to a reservation of service {other.service.value}"
        )
        changed = replace(reservation, preempted_by=other.id, reason=reason)
        if reservation.holds_capacity and other.state is not ReservationState.ACTIVATING:
            end = other.starts_unix_s
            changed = replace(changed, expires_unix_s=end, reason=f"{reason} at {moment(end)}")
            self._put(changed)
        else:
            self._put(changed)
            now = other.created_unix_s
            self.transition(reservation.id, ReservationState.PREEMPTED, reason, now=now)

    def giving_way_to(self, reservation_id: str) -> tuple[Reservation, ...]:
        """Reservations with circuits that are to give way to ``reservation_id``."""
        giving_way = (self._by_id[reservation_id] for reservation_id in self._giving_way)
        return tuple(
            reservation for reservation in giving_way if reservation.preempted_by == reservation_id
        )

    def let_stay(self, reservation_id: str, now: float) -> tuple[Reservation, ...]:
        """Cancel the pending preemptions by a finished reservation, and return the spared
        reservations.

        A reservation whose circuits were promised again in the meantime gives way all the same.
        Raises UnknownName.
        """
        if self.get(reservation_id).is_booked:
            return ()
        staying = []
        for reservation in self.giving_way_to(reservation_id):
            end = (
                None
                if reservation.duration_s is None
                else reservation.starts_unix_s + reservation.duration_s
            )
            longer = replace(reservation, expires_unix_s=end, preempted_by=None, reason="")
            ask = ask_of(self._fabric, longer, now)
            self._calendar.remove(reservation.id)
            fits = reservation.booked is not None and takes(
                self._calendar, ask, reservation.booked, _NO_LIMITS
            )
            if fits and not self._standby_fits(longer, ask):
                longer = replace(longer, protection=None)
            self._put(longer if fits else reservation)
            if fits:
                staying.append(longer)
        return tuple(staying)

    def displaced(self, reservation_id: str) -> tuple[Reservation, ...]:
        """Present versions of the reservations that a new, unsettled reservation displaced."""
        return tuple(
            self._by_id[reservation.id] for reservation in self._displaced.get(reservation_id, ())
        )

    def settle(self, reservation_id: str) -> None:
        """Note that a new reservation is final."""
        self._displaced.pop(reservation_id, None)

    def unsettled(self) -> tuple[str, ...]:
        """Ids of new reservations that are neither settled nor removed, oldest first."""
        return tuple(self._displaced)

    def _allowed_mbps(
        self, request: ReservationRequest, start_unix_s: float, end_unix_s: float | None
    ) -> float:
        """Highest Mbps that quota and circuits allow at any time. Raises QuotaExceeded."""
        src, dst = rack_of(self._fabric, request.src), rack_of(self._fabric, request.dst)
        limit_mbps = max(request.least_mbps, fastest_circuit_mbps(self._fabric, src, dst))
        if request.owner is None or request.quota is None:
            return limit_mbps
        end_unix_s = math.inf if end_unix_s is None else end_unix_s
        bookings = self._bookings_of(request.owner)
        return min(
            limit_mbps,
            within_quota_mbps(
                request.quota,
                bookings,
                request.least_mbps,
                start_unix_s,
                end_unix_s,
                request.circuits,
            ),
        )

    def remove(self, reservation_id: str) -> None:
        """Remove a reservation without trace; displaced reservations come back."""
        self._forget(self.get(reservation_id))
        for reservation in self._displaced.pop(reservation_id, ()):
            self._put(reservation)

    # --- changes --------------------------------------------------------------------------------

    def transition(
        self,
        reservation_id: str,
        state: ReservationState,
        reason: str = "",
        *,
        now: float | None = None,
    ) -> Reservation:
        """Change the state.

        ``now`` is in Unix seconds; None: unknown. If a reservation with circuits is released or
        ends, the path stays noted until its circuits are gone. A preempted reservation
        keeps the reason of the preemption unless ``reason`` is given.

        Raises UnknownName, and LifecycleError for a step outside the transition table; the book is
        unchanged then.
        """
        old = self.get(reservation_id)
        named = f"reservation {reservation_id}"
        check_transition(RESERVATION_TRANSITIONS, old.state, state, named)
        if old.preempted_by is not None:
            reason = reason or old.reason
        leaves_path = old.leaves_path or (old.holds_capacity and state in _LEAVES_PATH)
        return self._put(
            replace(
                old,
                state=state,
                reason=reason,
                held_until_unix_s=None,
                since_unix_s=now,
                leaves_path=leaves_path,
            )
        )

    def modify(
        self,
        reservation_id: str,
        change: Modification,
        now: float,
        limits: AdmissionLimits = _NO_LIMITS,
    ) -> Reservation:
        """Modify a reservation on the present path, or, without circuits, on any path that fits.

        Raises UnknownName, WrongRequest, LifecycleError, and AdmissionError (NotHitless if only the
        path is in the way); the book is unchanged then.
        """
        old = self.get(reservation_id)
        self._stretch_overdue(now)
        new = modified(self._fabric, old, change, now)
        ask = ask_of(self._fabric, new, now)
        self._calendar.remove(old.id)
        try:
            had = ask_of(self._fabric, old, now)
            more = ask.mbps > had.mbps or ask.end_unix_s > had.end_unix_s
            if old.owner is not None and change.quota is not None and more:
                others = [
                    booking for booking in self._bookings_of(old.owner) if booking.id != old.id
                ]
                quota = replace(change.quota, max_reservations=None)  # count unchanged
                within_quota_mbps(
                    quota, others, ask.mbps, ask.start_unix_s, ask.end_unix_s, new.circuits
                )
            new = place_again(self._calendar, new, ask, limits)
            if not self._standby_fits(new, ask):
                new = replace(new, protection=standby_again(self._calendar, new, ask, limits))
        finally:
            self._put(old)
        return self._put(new)

    def begin(self, reservation_id: str, now: float) -> Reservation:
        """Leave ``committed``: for ``activating`` if the start has come, else for ``scheduled``."""
        starts = self.get(reservation_id).starts_unix_s
        return self.transition(reservation_id, _begun(starts, now), now=now)

    def reroute(
        self, pair: tuple[RackId, RackId], now: float, limits: AdmissionLimits
    ) -> tuple[tuple[Reservation, ...], dict[str, AdmissionError]]:
        """Book the reservations of ``pair`` anew around ``limits.blocked``, active reservations
        first. Active reservations without blocked ports stay on the path.

        Returns the changed reservations, and, by id, the errors of reservations without a path. The
        caller must fail the latter: their bookings are removed from the calendar.
        """
        reservations = [
            reservation
            for booking in self._calendar.of_pair(pair)
            if not booking.standby
            and (
                not (reservation := self._by_id[booking.id]).holds_capacity
                or not is_free_of(booking.path, limits.blocked)
            )
        ]
        reservations.sort(key=lambda r: (not r.holds_capacity, r.starts_unix_s))
        for reservation in reservations:
            self._calendar.remove(reservation.id)
        changed: list[Reservation] = []
        refused: dict[str, AdmissionError] = {}
        for reservation in reservations:
            around = limits if reservation.holds_capacity else limits.later
            try:
                moved = self._put(moved_to_another_path(self._calendar, reservation, now, around))
            except AdmissionError as error:
                refused[reservation.id] = error
                continue
            if moved != reservation:
                changed.append(self.protect(moved.id, now, limits))
        return tuple(changed), refused


def _later(unix_s: float, by_s: float) -> float:
    """Move a time, at most to the year 9999; infinite stays infinite."""
    return unix_s if math.isinf(unix_s) else min(unix_s + by_s, LATEST_UNIX_S)


def _begun(starts_unix_s: float, now: float) -> ReservationState:
    late = starts_unix_s > now
    return ReservationState.SCHEDULED if late else ReservationState.ACTIVATING
