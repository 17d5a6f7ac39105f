"""The set of all reservations, with the calendar of their bookings.

It knows names, limits and states, and nothing of devices or clocks: identifiers and the time are
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Final

from hydra.errors import AdmissionError, KeyReused, LifecycleError, UnknownName
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState, check_transition
from hydra.model import Circuit, Fabric, Path, RackId, VlanId
from hydra.names import rack_of
from hydra.reservations.admission import (
    Ask,
    admit_most,
    fastest_circuit_mbps,
    fitting_mbps,
    moment,
    takes,
)
from hydra.reservations.calendar import AdmissionLimits, Booking, Calendar, peak_mbps
from hydra.reservations.calendar_entries import ask_of, booking_of, pin_of, servers_among
from hydra.reservations.modification import Modification, modified, place_again
from hydra.reservations.preemption import lower_ranks, make_room
from hydra.reservations.quotas import Usage, within_quota_mbps
from hydra.reservations.requests import check, times
from hydra.reservations.reservation import (
    FINAL_STATES,
    LATEST_UNIX_S,
    Pin,
    Reservation,
    ReservationRequest,
    RetryKey,
    ServiceClass,
    rack_pair,
)
from hydra.reservations.timer_queue import TimerQueue

NOTICE_S: Final = 60.0
"""Seconds for which reservations that give way keep their circuits, unless said otherwise."""
_NO_LIMITS: Final = AdmissionLimits()
_LEAVES_PATH: Final = frozenset(
    {
        ReservationState.RELEASING,
        ReservationState.EXPIRED,
        ReservationState.PREEMPTED,
        ReservationState.FAILED,
    }
)


class ReservationBook:
    """All reservations, oldest first. Not thread-safe: its owner holds the lock."""

    def __init__(self, fabric: Fabric, reservations: Iterable[Reservation] = ()) -> None:
        self._fabric = fabric
        self._by_id: dict[str, Reservation] = {}
        self._parts_of: dict[str, dict[str, None]] = {}
        """Ids of the parts of each bundle, in the order of their entry."""
        self._calendar = Calendar(fabric)
        self._by_key: dict[tuple[str | None, str], list[str]] = {}
        self._booked_by: dict[str, set[str]] = {}
        """Ids of booked reservations, by owner."""
        self._displaced: dict[str, list[Reservation]] = {}
        """Reservations that gave way, as they were, by the id of the unsettled new one."""
        self._timers = TimerQueue()
        self._active: dict[str, None] = {}
        """Ids of reservations that have, or are getting, circuits."""
        self._giving_way: dict[str, None] = {}
        """Of these, those that are to give way."""
        self._leaving: dict[str, None] = {}
        """Ids of reservations whose circuits are to go."""
        self._over: dict[str, None] = {}
        """Ids of reservations that are over, those first that ended first."""
        for reservation in reservations:
            self.enter(reservation)
        ended = ((self._by_id[one].since_unix_s or 0.0, one) for one in self._over)
        self._over = {one: None for _, one in sorted(ended, key=itemgetter(0))}

    def take_over(self, other: ReservationBook) -> None:
        """Become ``other``, which is not to be used afterwards."""
        vars(self).update(vars(other))

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, reservation_id: object) -> bool:
        return reservation_id in self._by_id

    def get(self, reservation_id: str) -> Reservation:
        """The reservation with this id. Raises UnknownName."""
        try:
            return self._by_id[reservation_id]
        except KeyError:
            raise UnknownName(f"no reservation {reservation_id!r}") from None

    # --- admission ------------------------------------------------------------------------------

    def check(self, request: ReservationRequest) -> tuple[RackId, RackId]:
        """The racks of a request, as by :func:`hydra.reservations.requests.check`."""
        return check(self._fabric, request)

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
        """Enter ``request`` if it fits the calendar (:mod:`hydra.reservations.calendar`).

        It is ``held`` if it asks for that, else ``scheduled``, or ``activating`` if it is to start
        now. ``limits.blocked`` counts only for the latter: by another time things may be mended.
        ``now`` is in Unix seconds.
        Where it does not fit beside reservations of lower priority, those give way: one that has
        circuits keeps them for ``notice_s``, and the new one begins then (see :meth:`displaced`).
        A reservation that is only held makes nobody give way.
        Raises UnknownName, and AdmissionError with alternatives; the book is unchanged then.
        """
        src, dst = check(self._fabric, request)
        self._stretch_overdue(now)
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
        )
        ask, path, displaced = self._find_place(ask, request, limits, now, notice_s)
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
            **request.kept,
        )
        for one in displaced:
            self._give_way(one, reservation)
        self._displaced[reservation_id] = displaced
        self.enter(reservation)
        return reservation

    def _find_place(
        self,
        ask: Ask,
        request: ReservationRequest,
        limits: AdmissionLimits,
        now: float,
        notice_s: float,
    ) -> tuple[Ask, Path, list[Reservation]]:
        """The granted ask, its path, and the reservations that give way. Raises AdmissionError."""
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
            return replace(ask, mbps=mbps), path, []
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

    # --- giving way -----------------------------------------------------------------------------

    def _give_way(self, one: Reservation, other: Reservation) -> None:
        """End ``one``: when ``other`` begins, if it has circuits; otherwise now."""
        reason = (
            f"gives way to a reservation of priority {other.priority}"
            if one.rank >= 0
            else f"best effort gives way to {other.service.value} reservations"
        )
        changed = replace(one, preempted_by=other.id, reason=reason)
        if one.holds_capacity and other.state is not ReservationState.ACTIVATING:
            end = other.starts_unix_s
            changed = replace(changed, expires_unix_s=end, reason=f"{reason} at {moment(end)}")
            self._put(changed)
        else:
            self._put(changed)
            now = other.created_unix_s
            self.transition(one.id, ReservationState.PREEMPTED, reason, now=now)

    def giving_way_to(self, reservation_id: str) -> tuple[Reservation, ...]:
        """Reservations that have circuits, and are to give way to this one."""
        giving_way = (self._by_id[one] for one in self._giving_way)
        return tuple(one for one in giving_way if one.preempted_by == reservation_id)

    def let_stay(self, reservation_id: str, now: float) -> tuple[Reservation, ...]:
        """Let those stay until their own end that are to give way to one that is over.

        Returns them. One whose circuits are promised to somebody else since then gives way all the
        same. Raises UnknownName.
        """
        if self.get(reservation_id).is_booked:
            return ()
        staying = []
        for one in self.giving_way_to(reservation_id):
            end = None if one.duration_s is None else one.starts_unix_s + one.duration_s
            longer = replace(one, expires_unix_s=end, preempted_by=None, reason="")
            ask = ask_of(self._fabric, longer, now)
            self._calendar.remove(one.id)
            fits = one.booked is not None and takes(self._calendar, ask, one.booked, _NO_LIMITS)
            self._put(longer if fits else one)
            if fits:
                staying.append(longer)
        return tuple(staying)

    def displaced(self, reservation_id: str) -> tuple[Reservation, ...]:
        """Reservations, as they are now, that gave way to a new one which is still unsettled."""
        return tuple(self._by_id[one.id] for one in self._displaced.get(reservation_id, ()))

    def settle(self, reservation_id: str) -> None:
        """Note that a new reservation is here to stay."""
        self._displaced.pop(reservation_id, None)

    def unsettled(self) -> tuple[str, ...]:
        """Ids of new reservations that are neither settled nor removed, oldest first."""
        return tuple(self._displaced)

    def _allowed_mbps(
        self, request: ReservationRequest, start_unix_s: float, end_unix_s: float | None
    ) -> float:
        """The most Mbps that quota and circuits allow at any time. Raises QuotaExceeded."""
        src, dst = rack_of(self._fabric, request.src), rack_of(self._fabric, request.dst)
        limit_mbps = max(request.least_mbps, fastest_circuit_mbps(self._fabric, src, dst))
        if request.owner is None or request.quota is None:
            return limit_mbps
        end_unix_s = math.inf if end_unix_s is None else end_unix_s
        mine = self._bookings_of(request.owner)
        return min(
            limit_mbps,
            within_quota_mbps(request.quota, mine, request.least_mbps, start_unix_s, end_unix_s),
        )

    def enter(self, reservation: Reservation) -> None:
        """Enter a reservation as it is, asked for and admitted elsewhere. Raises LifecycleError."""
        if reservation.id in self._by_id:
            raise LifecycleError(f"there is a reservation {reservation.id!r} already")
        if reservation.retry is not None:
            key = reservation.owner, reservation.retry.key
            self._by_key.setdefault(key, []).append(reservation.id)
        self._put(reservation)

    def _put(self, reservation: Reservation) -> Reservation:
        """Enter a reservation as it is now, and keep the calendar true to it."""
        self._by_id[reservation.id] = reservation
        if reservation.bundle is not None:
            self._parts_of.setdefault(reservation.bundle, {}).setdefault(reservation.id)
        if reservation.state in FINAL_STATES:
            self._over.setdefault(reservation.id)
        else:
            self._over.pop(reservation.id, None)
        if reservation.leaves_path or reservation.state is ReservationState.RELEASING:
            self._leaving[reservation.id] = None
        else:
            self._leaving.pop(reservation.id, None)
        if reservation.is_booked and reservation.booked is not None:
            self._timers.note(reservation.id, _next_moment(reservation))
            if reservation.holds_capacity:
                self._active[reservation.id] = None
                self._giving_way.pop(reservation.id, None)
                if reservation.preempted_by is not None:
                    self._giving_way[reservation.id] = None
            self._calendar.add(booking_of(self._fabric, reservation, reservation.booked))
            if reservation.owner is not None:
                self._booked_by.setdefault(reservation.owner, set()).add(reservation.id)
        else:
            self._unbook(reservation)
        return reservation

    def put_back(self, reservation: Reservation) -> None:
        """Put a reservation back as it was: its change could not be kept."""
        self._unbook(reservation)
        self._put(reservation)

    def _unbook(self, reservation: Reservation) -> None:
        self._calendar.remove(reservation.id)
        self._timers.drop(reservation.id)
        self._active.pop(reservation.id, None)
        self._giving_way.pop(reservation.id, None)
        if reservation.owner is not None and (mine := self._booked_by.get(reservation.owner)):
            mine.discard(reservation.id)
            if not mine:
                del self._booked_by[reservation.owner]

    def _stretch_overdue(self, now: float) -> None:
        """Book reservations past their end up to now: they have circuits until they let go."""
        for reservation_id in self._timers.reached(now):
            reservation, booking = self._by_id[reservation_id], self._calendar.get(reservation_id)
            if booking is None or not reservation.holds_capacity:
                continue
            if reservation.expires_unix_s is not None and reservation.expires_unix_s <= now:
                self._calendar.add(replace(booking, end_unix_s=math.nextafter(now, math.inf)))

    def remove(self, reservation_id: str) -> None:
        """Remove it as if it had never been asked for; those that gave way to it come back."""
        self._forget(self.get(reservation_id))
        for one in self._displaced.pop(reservation_id, ()):
            self._put(one)

    def _forget(self, reservation: Reservation) -> None:
        del self._by_id[reservation.id]
        if reservation.bundle is not None:
            parts = self._parts_of[reservation.bundle]
            del parts[reservation.id]
            if not parts:
                del self._parts_of[reservation.bundle]
        self._over.pop(reservation.id, None)
        self._leaving.pop(reservation.id, None)
        self._unbook(reservation)
        if reservation.retry is not None:
            key = reservation.owner, reservation.retry.key
            self._by_key[key].remove(reservation.id)
            if not self._by_key[key]:
                del self._by_key[key]

    # --- changes --------------------------------------------------------------------------------

    def transition(
        self,
        reservation_id: str,
        state: ReservationState,
        reason: str = "",
        *,
        now: float | None = None,
    ) -> Reservation:
        """Move to ``state``.

        ``now`` is in Unix seconds; None: not known. One that had circuits, and is let go or over,
        leaves its path until :meth:`leave_nothing`. One that is to give way keeps that as its
        reason, unless there is another.

        Raises UnknownName, and LifecycleError for a step that is not in the transition table;
        the book is unchanged then.
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
        """Change a reservation where it is, or, while it has no circuits, where it fits.

        Raises UnknownName, LifecycleError, and AdmissionError (NotHitless where only its path is
        in the way); the book is unchanged then.
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
                mine = [booking for booking in self._bookings_of(old.owner) if booking.id != old.id]
                quota = replace(change.quota, max_reservations=None)  # there are not more of them
                within_quota_mbps(quota, mine, ask.mbps, ask.start_unix_s, ask.end_unix_s)
            new = place_again(self._calendar, new, ask, limits)
        finally:
            self._put(old)
        return self._put(new)

    def begin(self, reservation_id: str, now: float) -> Reservation:
        """Move on from ``committed``: to ``scheduled``, or ``activating`` if its time has come."""
        starts = self.get(reservation_id).starts_unix_s
        return self.transition(reservation_id, _begun(starts, now), now=now)

    def place(self, path: Path, vlan: VlanId | None) -> tuple[Reservation, ...]:
        """Note that this path stands, with all that hold capacity on it; returns them."""
        return tuple(
            self._put(replace(r, path=path, vlan=vlan))
            for r in self._holding((path.src, path.dst))
            if r.booked == path
        )

    def _holding(self, pair: tuple[RackId, RackId]) -> list[Reservation]:
        booked = [self._by_id[booking.id] for booking in self._calendar.of_pair(pair)]
        return [reservation for reservation in booked if reservation.holds_capacity]

    def reroute(
        self, pair: tuple[RackId, RackId], now: float, limits: AdmissionLimits
    ) -> tuple[tuple[Reservation, ...], dict[str, AdmissionError]]:
        """Book the pair's reservations anew, around ``limits.blocked``, the present ones first.

        Present ones that are not at blocked ports stay on their path.

        Returns the reservations whose booking changed, and, by id, why others have no path now:
        those are not in the calendar any more, and must be failed.
        """
        mine = [
            reservation
            for booking in self._calendar.of_pair(pair)
            if not (reservation := self._by_id[booking.id]).holds_capacity
            or any(not limits.blocked.isdisjoint(one.ends) for one in booking.path.circuits)
        ]
        mine.sort(key=lambda r: (not r.holds_capacity, r.starts_unix_s))
        for reservation in mine:
            self._calendar.remove(reservation.id)
        changed: list[Reservation] = []
        refused: dict[str, AdmissionError] = {}
        for reservation in mine:
            ask = ask_of(self._fabric, reservation, now)
            around = limits if reservation.holds_capacity else limits.later
            least_mbps = min(ask.mbps, reservation.minimum_mbps or ask.mbps)
            try:
                mbps, path = admit_most(self._calendar, ask, least_mbps, around)
            except AdmissionError as error:
                refused[reservation.id] = error
                continue
            held_mbps = reservation.bandwidth_mbps if reservation.rank < 0 else mbps
            moved = self._put(replace(reservation, booked=path, bandwidth_mbps=held_mbps))
            if moved != reservation:
                changed.append(moved)
        return tuple(changed), refused

    def fitting_mbps(
        self, reservation_id: str, now: float, limits: AdmissionLimits
    ) -> float | None:
        """Mbps that a reservation which has failed could have now; None: nothing.

        Raises UnknownName.
        """
        ask = ask_of(self._fabric, self.get(reservation_id), now)
        around = limits if ask.start_unix_s <= now else limits.later
        return fitting_mbps(self._calendar, ask, around)

    def prune(self, keep: int) -> tuple[str, ...]:
        """Forget the reservations that ended first, all but ``keep``; returns their ids."""
        forgotten = tuple(islice(self._over, max(0, len(self._over) - keep)))
        for reservation_id in forgotten:
            self._forget(self._by_id[reservation_id])
        return forgotten

    # --- questions ------------------------------------------------------------------------------

    def active(self) -> tuple[Reservation, ...]:
        """Reservations that have, or are getting, circuits: ``activating`` and ``active``."""
        return tuple(self._by_id[reservation_id] for reservation_id in self._active)

    def leaving(self) -> tuple[Reservation, ...]:
        """Reservations that were let go or are over, and whose circuits may stand yet."""
        return tuple(self._by_id[reservation_id] for reservation_id in self._leaving)

    def leave_nothing(self, reservation_ids: Iterable[str]) -> tuple[Reservation, ...]:
        """Note that the circuits of these are gone, or somebody else's. Raises UnknownName."""
        return tuple(self._put(replace(self.get(i), leaves_path=False)) for i in reservation_ids)

    def on(self, circuit: Circuit) -> tuple[Reservation, ...]:
        """Reservations that have, or are getting, this circuit now."""
        booked = (self._by_id[booking.id] for booking in self._calendar.of_circuit(circuit))
        return tuple(reservation for reservation in booked if reservation.holds_capacity)

    def parts(self, bundle: str) -> tuple[Reservation, ...]:
        """Parts of ``bundle``; empty if there is none of this id."""
        return tuple(self._by_id[one] for one in self._parts_of.get(bundle, ()))

    def members(self, group: str) -> tuple[Reservation, ...]:
        """Reservations of ``group``. Raises UnknownName if there are none."""
        members = tuple(r for r in self._by_id.values() if r.group == group)
        if not members:
            raise UnknownName(f"no group {group!r}")
        return members

    def _bookings_of(self, owner: str) -> list[Booking]:
        ids = self._booked_by.get(owner, ())
        return [booking for i in ids if (booking := self._calendar.get(i)) is not None]

    def usage(self, owner: str, now: float) -> Usage:
        """Usage of a tenant, to be held against its quota."""
        mine = self._bookings_of(owner)
        return Usage(len(mine), peak_mbps(mine, now, math.inf))

    def admitted_before(self, owner: str | None, retry: RetryKey) -> tuple[Reservation, ...]:
        """Reservations that the same request with the same key made; none if it is new.

        Raises KeyReused if the key came with another request.
        """
        known = tuple(self._by_id[i] for i in self._by_key.get((owner, retry.key), ()))
        if any(reservation.retry != retry for reservation in known):
            raise KeyReused(
                f"the idempotency key {retry.key!r} belongs to another request, which made "
                f"reservation {known[0].id}: use a new key for a new request"
            )
        return known

    def expired(self, now: float) -> tuple[str, ...]:
        """Ids of reservations past their end, or held for too long; ``now`` in Unix seconds."""
        return tuple(r.id for r in self._reached(now) if r.ends_by(now))

    def due(self, now: float) -> tuple[str, ...]:
        """Ids of scheduled reservations whose time has come."""
        return tuple(
            r.id
            for r in self._reached(now)
            if r.state is ReservationState.SCHEDULED and r.starts_unix_s <= now
        )

    def _reached(self, now: float) -> Iterator[Reservation]:
        return (self._by_id[reservation_id] for reservation_id in self._timers.reached(now))

    def pinned(self, leaving_out: frozenset[str] = frozenset()) -> tuple[Pin, ...]:
        """Pins that the planner must keep or make now, one per path, sorted by rack pair."""
        sharing: dict[tuple[tuple[RackId, RackId], Path | None], list[Reservation]] = {}
        for reservation in self.active():
            if reservation.id not in leaving_out:
                sharing.setdefault((reservation.pair, reservation.booked), []).append(reservation)
        pins = [pin_of(self._fabric, *key, its) for key, its in sharing.items()]
        return tuple(
            sorted(pins, key=lambda pin: (pin.src, pin.dst, pin.path.circuits if pin.path else ()))
        )


def _later(unix_s: float, by_s: float) -> float:
    """A moment moved, but not beyond the last that can be told; infinite stays so."""
    return unix_s if math.isinf(unix_s) else min(unix_s + by_s, LATEST_UNIX_S)


def _begun(starts_unix_s: float, now: float) -> ReservationState:
    late = starts_unix_s > now
    return ReservationState.SCHEDULED if late else ReservationState.ACTIVATING


def _next_moment(reservation: Reservation) -> float | None:
    """The Unix time at which something is to become of it by itself; None if there is none."""
    moments = [reservation.expires_unix_s, reservation.held_until_unix_s]
    if reservation.state is ReservationState.SCHEDULED:
        moments.append(reservation.starts_unix_s)
    return min((moment for moment in moments if moment is not None), default=None)
