"""All reservations by id, circuit, owner, bundle or time, and the calendar of bookings.

No devices, and no clock: the time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from operator import itemgetter

from hydra.errors import KeyReused, LifecycleError
from hydra.lifecycle import ReservationState
from hydra.model import Circuit, Fabric, Path, RackId, VlanId
from hydra.names import no_group, no_reservation
from hydra.reservations.admission import Ask
from hydra.reservations.availability import Available, availability
from hydra.reservations.booking import Booking, peak_mbps
from hydra.reservations.calendar import Calendar
from hydra.reservations.calendar_entries import bookings_of, pin_of, servers_among
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.quotas import Usage
from hydra.reservations.requests import check, times
from hydra.reservations.reservation import (
    FINAL_STATES,
    Pin,
    Reservation,
    ReservationRequest,
    RetryKey,
    rack_pair,
)
from hydra.reservations.timer_queue import TimerQueue

_NO_LIMITS = AdmissionLimits()


class Register:
    """All reservations, oldest first. Not thread-safe: the owner holds the lock."""

    def __init__(self, fabric: Fabric, reservations: Iterable[Reservation] = ()) -> None:
        self._fabric = fabric
        self._by_id: dict[str, Reservation] = {}
        self._parts_of: dict[str, dict[str, None]] = {}
        """Ids of the parts of each bundle, in order of entry."""
        self._calendar = Calendar(fabric)
        self._by_key: dict[tuple[str | None, str], list[str]] = {}
        self._booked_by: dict[str, dict[str, tuple[Booking, ...]]] = {}
        """Bookings by owner and id of the reservation."""
        self._timers = TimerQueue()
        self._active: dict[str, None] = {}
        """Ids of reservations that have or are getting circuits."""
        self._giving_way: dict[str, None] = {}
        """Ids of active reservations with a preemption pending."""
        self._leaving: dict[str, None] = {}
        """Ids of reservations whose circuits are to be removed."""
        self._over: dict[str, None] = {}
        """Ids of finished reservations, ordered by end."""
        for reservation in reservations:
            self.enter(reservation)
        ended = (
            (self._by_id[reservation_id].since_unix_s or 0.0, reservation_id)
            for reservation_id in self._over
        )
        self._over = {
            reservation_id: None for _, reservation_id in sorted(ended, key=itemgetter(0))
        }

    def take_over(self, other: Register) -> None:
        """Take over the content of ``other``; ``other`` must not be used afterwards."""
        vars(self).update(vars(other))

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, reservation_id: object) -> bool:
        return reservation_id in self._by_id

    def get(self, reservation_id: str) -> Reservation:
        """Return the reservation with this id. Raises UnknownName."""
        try:
            return self._by_id[reservation_id]
        except KeyError:
            raise no_reservation(reservation_id) from None

    def enter(self, reservation: Reservation) -> None:
        """Enter a reservation that was admitted elsewhere. Raises LifecycleError for a known id."""
        if reservation.id in self._by_id:
            raise LifecycleError(f"there is a reservation {reservation.id!r} already")
        if reservation.retry is not None:
            key = reservation.owner, reservation.retry.key
            self._by_key.setdefault(key, []).append(reservation.id)
        self._put(reservation)

    def _put(self, reservation: Reservation) -> Reservation:
        """Store the new version of a reservation, and update the indexes and the calendar."""
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
            if reservation.protection is None:
                self._calendar.remove(reservation.id)
            bookings = tuple(bookings_of(self._fabric, reservation))
            for booking in bookings:
                self._calendar.add(booking)
            if reservation.owner is not None:
                self._booked_by.setdefault(reservation.owner, {})[reservation.id] = bookings
        else:
            self._unbook(reservation)
        return reservation

    def put_back(self, reservation: Reservation) -> None:
        """Restore the earlier version of a reservation after a change that could not be stored."""
        self._unbook(reservation)
        self._put(reservation)

    def availability(
        self,
        request: ReservationRequest,
        now: float,
        limits: AdmissionLimits = _NO_LIMITS,
    ) -> list[Available]:
        """The bandwidth that fits between two ends in each span from the request's start to its
        end. Raises UnknownName, and AdmissionError for ends that can't be joined.
        """
        fabric = self._fabric
        src, dst = check(fabric, request)
        start, end = times(request, now)
        ask = Ask(
            src=request.src,
            dst=request.dst,
            pair=rack_pair(src, dst),
            mbps=request.bandwidth_mbps,
            start_unix_s=start,
            end_unix_s=start if end is None else end,
            servers=servers_among(fabric, request.src, request.dst),
            may_wait=False,
        )
        return availability(self._calendar, ask, limits, now)

    def _unbook(self, reservation: Reservation) -> None:
        self._calendar.remove(reservation.id)
        self._timers.drop(reservation.id)
        self._active.pop(reservation.id, None)
        self._giving_way.pop(reservation.id, None)
        if reservation.owner is not None and (booked := self._booked_by.get(reservation.owner)):
            booked.pop(reservation.id, None)
            if not booked:
                del self._booked_by[reservation.owner]

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

    def prune(self, keep: int) -> tuple[str, ...]:
        """Forget the oldest finished reservations beyond ``keep``; return the forgotten ids."""
        forgotten = tuple(islice(self._over, max(0, len(self._over) - keep)))
        for reservation_id in forgotten:
            self._forget(self._by_id[reservation_id])
        return forgotten

    def leave_nothing(self, reservation_ids: Iterable[str]) -> tuple[Reservation, ...]:
        """Clear ``leaves_path``: the circuits are gone or reassigned. Raises UnknownName."""
        return tuple(self._put(replace(self.get(i), leaves_path=False)) for i in reservation_ids)

    def place(self, path: Path, vlan: VlanId | None) -> tuple[Reservation, ...]:
        """Note that ``path`` stands, for all reservations with capacity on the path; return the
        reservations that had another path or VLAN.
        """
        return tuple(
            self._put(replace(r, path=path, vlan=vlan))
            for r in self._holding((path.src, path.dst))
            if r.booked == path and (r.path, r.vlan) != (path, vlan)
        )

    # --- questions ------------------------------------------------------------------------------

    def _holding(self, pair: tuple[RackId, RackId]) -> list[Reservation]:
        booked = self._calendar.of_pair(pair)
        working = [self._by_id[booking.id] for booking in booked if not booking.standby]
        return [reservation for reservation in working if reservation.holds_capacity]

    def active(self) -> tuple[Reservation, ...]:
        """Reservations that have or are getting circuits: ``activating`` and ``active``."""
        return tuple(self._by_id[reservation_id] for reservation_id in self._active)

    def leaving(self) -> tuple[Reservation, ...]:
        """Released or finished reservations whose circuits may still stand."""
        return tuple(self._by_id[reservation_id] for reservation_id in self._leaving)

    def on(self, circuit: Circuit) -> tuple[Reservation, ...]:
        """Reservations that have or are getting ``circuit`` now."""
        booked = (self._by_id[booking.id] for booking in self._calendar.of_circuit(circuit))
        return tuple(reservation for reservation in booked if reservation.holds_capacity)

    def parts(self, bundle: str) -> tuple[Reservation, ...]:
        """Parts of ``bundle``; empty if the id is unknown."""
        return tuple(self._by_id[part] for part in self._parts_of.get(bundle, ()))

    def members(self, group: str) -> tuple[Reservation, ...]:
        """Reservations of ``group``. Raises UnknownName for an empty group."""
        members = tuple(r for r in self._by_id.values() if r.group == group)
        if not members:
            raise no_group(group)
        return members

    def _bookings_of(self, owner: str) -> list[Booking]:
        booked = self._booked_by.get(owner, {})
        return [booking for bookings in booked.values() for booking in bookings]

    def usage(self, owner: str, now: float) -> Usage:
        """Usage of a tenant, for comparison with the quota."""
        bookings = self._bookings_of(owner)
        count = sum(not booking.standby for booking in bookings)
        return Usage(count, peak_mbps(bookings, now, math.inf))

    def admitted_before(self, owner: str | None, retry: RetryKey) -> tuple[Reservation, ...]:
        """Reservations that an earlier identical request with the same key made; empty for a new
        key.

        Raises KeyReused if the key belongs to a different request.
        """
        known = tuple(self._by_id[i] for i in self._by_key.get((owner, retry.key), ()))
        if any(reservation.retry != retry for reservation in known):
            raise KeyReused(
                f"the idempotency key {retry.key!r} belongs to another request (reservation "
                f"{known[0].id}): use a new key for a new request"
            )
        return known

    def rooms_mbps(
        self, request: ReservationRequest, now: float, limits: AdmissionLimits = _NO_LIMITS
    ) -> list[tuple[float, float]]:
        """Free Mbps of each rack during the time of ``request``: at ports without circuits, and on
        booked circuits. Raises AdmissionError for a time that has passed.
        """
        start, end = times(request, now)
        around = limits if start <= now else limits.later
        window = self._calendar.window(start, math.inf if end is None else end, around)
        return [window.room_mbps(rack.id) for rack in self._fabric.racks]

    def expired(self, now: float) -> tuple[str, ...]:
        """Ids of reservations past the end or past the hold time; ``now`` in Unix seconds."""
        return tuple(r.id for r in self._reached(now) if r.ends_by(now))

    def due(self, now: float) -> tuple[str, ...]:
        """Ids of scheduled reservations whose start has come."""
        return tuple(
            r.id
            for r in self._reached(now)
            if r.state is ReservationState.SCHEDULED and r.starts_unix_s <= now
        )

    def _reached(self, now: float) -> Iterator[Reservation]:
        return (self._by_id[reservation_id] for reservation_id in self._timers.reached(now))

    def pinned(self, leaving_out: frozenset[str] = frozenset()) -> tuple[Pin, ...]:
        """Pins that the planner must keep or make now: one per path, sorted by rack pair."""
        sharing: dict[tuple[tuple[RackId, RackId], Path | None], list[Reservation]] = {}
        for reservation in self.active():
            if reservation.id not in leaving_out:
                for path in reservation.paths or (None,):
                    sharing.setdefault((reservation.pair, path), []).append(reservation)
        pins = [pin_of(self._fabric, *key, pair_rates) for key, pair_rates in sharing.items()]
        return tuple(
            sorted(pins, key=lambda pin: (pin.src, pin.dst, pin.path.circuits if pin.path else ()))
        )


def _next_moment(reservation: Reservation) -> float | None:
    """Unix time of the next timed state change; None if none is due."""
    moments = [reservation.expires_unix_s, reservation.held_until_unix_s]
    if reservation.state is ReservationState.SCHEDULED:
        moments.append(reservation.starts_unix_s)
    return min((moment for moment in moments if moment is not None), default=None)
