"""Reservations: a bandwidth between two racks, for a time, on a path of its own choosing.

:class:`ReservationBook` is the set of them, with the calendar of what is promised when. It knows
names, limits and states, and nothing of devices or clocks: identifiers and the time are arguments.

A reservation holds its bandwidth in both directions, because a circuit is bidirectional and the
way back takes the same path. There is one path per rack pair, so reservations between the same two
racks share it and add up.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from hydra.admission import Ask, admit, admit_most, moment, takes
from hydra.calendar import ROUNDING_MBPS, Booking, Calendar, Ground, peak_mbps
from hydra.errors import (
    AdmissionError,
    HydraError,
    KeyReused,
    LifecycleError,
    QuotaExceeded,
    UnknownName,
)
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState, check_transition
from hydra.model import Circuit, Fabric, Path, PlaneId, PortId, RackId, VlanId
from hydra.quotas import Quota, Usage, within_quota_mbps

HOLDING_STATES: Final = frozenset({ReservationState.ACTIVATING, ReservationState.ACTIVE})
"""States in which a reservation has, or is getting, its circuits."""

BOOKED_STATES: Final = HOLDING_STATES | {
    ReservationState.HELD,
    ReservationState.COMMITTED,
    ReservationState.SCHEDULED,
}
"""States in which capacity is set aside for a reservation."""

FINAL_STATES: Final = frozenset(s for s, after in RESERVATION_TRANSITIONS.items() if not after)

LATEST_UNIX_S: Final = 253_402_300_799.0
"""The last second of the year 9999: beyond it, points in time can't be written down."""

PRIORITIES: Final = range(10)
"""Only what has a higher one makes others give way."""

NOTICE_S: Final = 60.0
"""How long those that give way keep their circuits, where nothing else is said."""

_NO_GROUND: Final = Ground()


class ServiceClass(Enum):
    """What a reservation may count on."""

    GUARANTEED = "guaranteed"
    """Circuits of its own: nothing else is put on them."""
    SHARED = "shared"
    """Its bandwidth, on circuits that others may use, too."""
    BEST_EFFORT = "best-effort"
    """A path while there is one to spare; no bandwidth, and everybody else comes first."""


@dataclass(frozen=True, slots=True)
class RetryKey:
    """What makes a repeated request known again (the Idempotency-Key of HTTP)."""

    key: str
    digest: str
    """Of the whole request: the same key with another request is a mistake."""


@dataclass(frozen=True, slots=True)
class ReservationRequest:
    """What an application asks for; nothing is checked before :meth:`ReservationBook.check`."""

    src: str
    """Name of a rack or of a server."""
    dst: str
    bandwidth_mbps: float
    """The most, if there is a minimum."""
    duration_s: float | None = None
    """None: until released, or until ``end_unix_s``."""
    start_unix_s: float | None = None
    """None: at once."""
    end_unix_s: float | None = None
    """Instead of ``duration_s``."""
    hold_s: float | None = None
    """Not None: only held, and gone after this long unless it is committed."""
    owner: str | None = None
    """The tenant that it belongs to."""
    quota: Quota | None = None
    """Of the owner, as it is now."""
    retry: RetryKey | None = None
    minimum_mbps: float | None = None
    """The least that will do, where less than ``bandwidth_mbps`` is welcome, too."""
    priority: int = 0
    service: ServiceClass = ServiceClass.SHARED

    @property
    def most_mbps(self) -> float:
        """What is to be set aside for it."""
        return 0.0 if self.service is ServiceClass.BEST_EFFORT else self.bandwidth_mbps

    @property
    def least_mbps(self) -> float:
        """What has to be set aside for it."""
        return self.most_mbps if self.minimum_mbps is None else self.minimum_mbps

    @property
    def rank(self) -> int:
        return _rank(self.service, self.priority)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A request that was admitted, and what became of it."""

    id: str
    state: ReservationState
    src: str
    dst: str
    bandwidth_mbps: float
    duration_s: float | None
    src_rack: RackId
    dst_rack: RackId
    created_unix_s: float
    expires_unix_s: float | None
    """``starts_unix_s + duration_s``: the time to bring the circuits up counts."""
    starts_unix_s: float
    booked: Path | None = None
    """The path that the calendar has for it; None only in journals of earlier releases."""
    held_until_unix_s: float | None = None
    """When it goes unless it is committed by then; None once it is, or if it never was held."""
    group: str | None = None
    """Reservations that were asked for as one have the same group."""
    owner: str | None = None
    retry: RetryKey | None = None
    path: Path | None = None
    """None until there is one; the last one when it is over."""
    vlan: VlanId | None = None
    wanted_mbps: float | None = None
    """What was asked for, if ``bandwidth_mbps`` might be less; None: just that."""
    minimum_mbps: float | None = None
    """The least that will do, should it need another path; None: what it has."""
    priority: int = 0
    preempted_by: str | None = None
    """Id of what it gives way to, at ``expires_unix_s``, or has."""
    reason: str = ""
    """Why it is in this state, in words."""
    service: ServiceClass = ServiceClass.SHARED

    @property
    def pair(self) -> tuple[RackId, RackId]:
        """Its two racks in the order that :class:`Path` uses."""
        return rack_pair(self.src_rack, self.dst_rack)

    @property
    def rank(self) -> int:
        """What has a lower one gives way."""
        return _rank(self.service, self.priority)

    @property
    def promised_mbps(self) -> float:
        return 0.0 if self.service is ServiceClass.BEST_EFFORT else self.bandwidth_mbps

    @property
    def holds_capacity(self) -> bool:
        return self.state in HOLDING_STATES

    @property
    def is_booked(self) -> bool:
        return self.state in BOOKED_STATES

    def to_record(self) -> dict[str, Any]:
        """A dict that JSON can hold; :meth:`from_record` gives back an equal reservation."""
        record = asdict(self)
        record["state"] = self.state.value
        record["service"] = self.service.value
        record["path"] = _path_to_record(self.path)
        record["booked"] = _path_to_record(self.booked)
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Reservation:
        """Raises HydraError for a record that :meth:`to_record` did not write."""
        try:
            fields = dict(record)
            fields["state"] = ReservationState(fields["state"])
            fields["service"] = ServiceClass(fields.get("service", ServiceClass.SHARED.value))
            fields["path"] = _path_from_record(fields["path"])
            # Releases before 1.1 had neither of these.
            fields["booked"] = _path_from_record(fields.get("booked")) or fields["path"]
            fields.setdefault("starts_unix_s", fields["created_unix_s"])
            retry = fields.get("retry")
            fields["retry"] = None if retry is None else RetryKey(**retry)
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise HydraError(f"not a reservation record ({error}): {dict(record)!r}") from error


def _rank(service: ServiceClass, priority: int) -> int:
    return -1 if service is ServiceClass.BEST_EFFORT else priority


def _path_to_record(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    circuits = [[c.plane, c.a, c.b] for c in path.circuits]
    return {"src": path.src, "dst": path.dst, "circuits": circuits}


def _path_from_record(record: Mapping[str, Any] | None) -> Path | None:
    if record is None:
        return None
    circuits = tuple(
        Circuit(PlaneId(plane), PortId(a), PortId(b)) for plane, a, b in record["circuits"]
    )
    return Path(RackId(record["src"]), RackId(record["dst"]), circuits)


@dataclass(frozen=True, slots=True)
class Pin:
    """What the planner must keep, or make, for one rack pair: its path and the bandwidth."""

    src: RackId
    dst: RackId
    path: Path | None
    bandwidth_mbps: float
    """Sum over the pair's reservations; all there is, if one has its circuits for its own."""
    reservations: tuple[str, ...]


def rack_pair(one: RackId, other: RackId) -> tuple[RackId, RackId]:
    return (one, other) if one < other else (other, one)


class ReservationBook:
    """All reservations, oldest first. Not thread-safe: its owner holds the lock."""

    def __init__(self, fabric: Fabric, reservations: Iterable[Reservation] = ()) -> None:
        self._fabric = fabric
        self._by_id: dict[str, Reservation] = {}
        self._calendar = Calendar(fabric)
        self._by_key: dict[tuple[str | None, str], list[str]] = {}
        self._booked_by: dict[str, set[str]] = {}
        """Ids of what is booked, by owner."""
        self._displaced: dict[str, list[Reservation]] = {}
        """What gave way, as it was, by the id of what it gave way to; until that is settled."""
        self._ends: list[tuple[float, str]] = []
        """A heap of when reservations are to end."""
        self._overdue: set[str] = set()
        for reservation in reservations:
            self._insert(reservation)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, reservation_id: object) -> bool:
        return reservation_id in self._by_id

    def get(self, reservation_id: str) -> Reservation:
        """Raises UnknownName."""
        try:
            return self._by_id[reservation_id]
        except KeyError:
            raise UnknownName(f"no reservation {reservation_id!r}") from None

    # --- admission ------------------------------------------------------------------------------

    def check(self, request: ReservationRequest) -> tuple[RackId, RackId]:
        """The racks of ``request``, if names and limits allow it at any time.

        Raises UnknownName for a name that is neither rack nor server, and AdmissionError, with
        the largest bandwidth possible, for what no topology could carry.
        """
        fabric = self._fabric
        src, dst = rack_of(fabric, request.src), rack_of(fabric, request.dst)
        if src == dst:
            raise AdmissionError(
                f"{request.src} and {request.dst} are in rack {fabric.racks[src].name}: traffic "
                "inside a rack never leaves its ToR and needs no circuit"
            )
        for name, rack in ((request.src, src), (request.dst, dst)):
            if fabric.racks[rack].spine:
                raise AdmissionError(f"{name} is a spine: it has no servers, no path ends there")
        _check_numbers(request)
        limit = fastest_circuit_mbps(fabric, src, dst)
        if request.least_mbps > limit + ROUNDING_MBPS:
            pair = f"{fabric.racks[src].name} and {fabric.racks[dst].name}"
            raise AdmissionError(
                f"{request.least_mbps:g} Mb/s between {pair} is too much: the fastest circuit "
                f"carries {limit:g} Mb/s; ask for at most {limit:g} Mb/s"
            )
        return src, dst

    def add(
        self,
        reservation_id: str,
        request: ReservationRequest,
        now: float,
        ground: Ground = _NO_GROUND,
        group: str | None = None,
        notice_s: float = NOTICE_S,
    ) -> Reservation:
        """Enter ``request`` if it fits (see :mod:`hydra.calendar`); ``now`` in Unix seconds.

        It is ``held`` if it asks for that, else ``scheduled``, or ``activating`` if it is to start
        now. ``ground.blocked`` counts only for the latter: by another time things may be mended.
        Where it does not fit beside reservations of lower priority, those give way: what has its
        circuits keeps them for ``notice_s``, and this one begins then (see :meth:`displaced`). What
        is only held makes nobody give way.
        Raises UnknownName, and AdmissionError with alternatives; the book is unchanged then.
        """
        src, dst = self.check(request)
        self._stretch_overdue(now)
        start, end = _times(request, now)
        if start > now:
            ground = Ground(ground.max_hops)
        ask = Ask(
            src=request.src,
            dst=request.dst,
            pair=rack_pair(src, dst),
            mbps=min(request.most_mbps, self._allowed_mbps(request, start, end)),
            start_unix_s=start,
            end_unix_s=math.inf if end is None else end,
            servers=_servers(self._fabric, request.src, request.dst),
            exclusive=request.service is ServiceClass.GUARANTEED,
        )
        ask, path, displaced = self._find_place(ask, request, ground, now, notice_s)
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
            owner=request.owner,
            retry=request.retry,
            wanted_mbps=None if request.minimum_mbps is None else request.bandwidth_mbps,
            minimum_mbps=request.minimum_mbps,
            priority=request.priority,
            service=request.service,
        )
        for one in displaced:
            self._give_way(one, reservation)
        if displaced:
            self._displaced[reservation_id] = displaced
        self._insert(reservation)
        return reservation

    def _find_place(
        self, ask: Ask, request: ReservationRequest, ground: Ground, now: float, notice_s: float
    ) -> tuple[Ask, Path, list[Reservation]]:
        """What is granted of ``ask``, where, and what gives way to it. Raises AdmissionError."""
        try:
            mbps, path = admit_most(self._calendar, ask, request.least_mbps, ground)
        except AdmissionError:
            if request.rank < 0 or request.hold_s is not None:
                raise
            least = replace(ask, mbps=request.least_mbps)
            lower = self._lower(least, 0)
            if not lower and not request.priority:
                raise
        else:
            return replace(ask, mbps=mbps), path, []
        try:
            return least, *self._make_room(least, lower, ground)
        except AdmissionError:
            if not request.priority:
                raise
        later_s = max(0.0, now + notice_s - ask.start_unix_s)
        later = replace(
            least,
            start_unix_s=ask.start_unix_s + later_s,
            end_unix_s=ask.end_unix_s + later_s,
        )
        self._allowed_mbps(request, later.start_unix_s, later.end_unix_s)
        around = ground if later.start_unix_s <= now else Ground(ground.max_hops)
        return later, *self._make_room(later, self._lower(later, request.rank), around)

    # --- giving way -----------------------------------------------------------------------------

    def _lower(self, ask: Ask, rank: int) -> list[tuple[Reservation, Booking]]:
        """What is of lower rank at the same time, the lowest and latest last."""
        lower = [
            (reservation, booking)
            for booking in self._calendar
            if booking.overlaps(ask.start_unix_s, ask.end_unix_s)
            and (reservation := self._by_id[booking.id]).rank < rank
        ]
        lower.sort(key=lambda one: (-one[0].rank, one[0].created_unix_s))
        return lower

    def _make_room(
        self, ask: Ask, lower: Sequence[tuple[Reservation, Booking]], ground: Ground
    ) -> tuple[Path, list[Reservation]]:
        """The path that ``ask`` has if some of ``lower`` give way, and as few of them as it takes.

        Who comes first is let back in first. The calendar is as before. Raises AdmissionError if
        that would not do.
        """
        for _, booking in lower:
            self._calendar.remove(booking.id)
        displaced = []
        try:
            path = admit(self._calendar, ask, ground)
            for reservation, booking in lower:
                self._calendar.add(booking)
                if not takes(self._calendar, ask, path, ground):
                    self._calendar.remove(booking.id)
                    displaced.append(reservation)
        finally:
            for _, booking in lower:
                self._calendar.add(booking)
        return path, displaced

    def _give_way(self, one: Reservation, other: Reservation) -> None:
        """What has circuits keeps them until ``other`` begins; what has none ends now.

        So does best effort, which was promised nothing.
        """
        reason = (
            f"gives way to a reservation of priority {other.priority}"
            if one.rank >= 0
            else f"best effort gives way to {other.service.value} reservations"
        )
        changed = replace(one, preempted_by=other.id, reason=reason)
        if one.holds_capacity and one.rank >= 0:
            end = other.starts_unix_s
            changed = replace(changed, expires_unix_s=end, reason=f"{reason} at {moment(end)}")
            heapq.heappush(self._ends, (end, one.id))
            self._put(changed)
        else:
            self._put(changed)
            self.transition(one.id, ReservationState.PREEMPTED, reason)

    def displaced(self, reservation_id: str) -> tuple[Reservation, ...]:
        """What gave way to a new reservation, as it is now; until that is settled or removed."""
        return tuple(self._by_id[one.id] for one in self._displaced.get(reservation_id, ()))

    def settle(self, reservation_id: str) -> None:
        """A new reservation is here to stay."""
        self._displaced.pop(reservation_id, None)

    def _allowed_mbps(
        self, request: ReservationRequest, start_unix_s: float, end_unix_s: float | None
    ) -> float:
        """The most that quota and circuits allow at any time. Raises QuotaExceeded."""
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

    def _insert(self, reservation: Reservation) -> None:
        if reservation.id in self._by_id:
            raise LifecycleError(f"there is a reservation {reservation.id!r} already")
        if reservation.retry is not None:
            key = reservation.owner, reservation.retry.key
            self._by_key.setdefault(key, []).append(reservation.id)
        if reservation.expires_unix_s is not None:
            heapq.heappush(self._ends, (reservation.expires_unix_s, reservation.id))
        self._put(reservation)

    def _put(self, reservation: Reservation) -> Reservation:
        """Keep the calendar true to the reservation."""
        self._by_id[reservation.id] = reservation
        if reservation.is_booked and reservation.booked is not None:
            self._calendar.add(_booking(self._fabric, reservation, reservation.booked))
            if reservation.owner is not None:
                self._booked_by.setdefault(reservation.owner, set()).add(reservation.id)
        else:
            self._unbook(reservation)
        return reservation

    def _unbook(self, reservation: Reservation) -> None:
        self._calendar.remove(reservation.id)
        if reservation.owner is not None and (mine := self._booked_by.get(reservation.owner)):
            mine.discard(reservation.id)
            if not mine:
                del self._booked_by[reservation.owner]

    def _stretch_overdue(self, now: float) -> None:
        """What is past its end has its circuits until it has let go of them."""
        while self._ends and self._ends[0][0] <= now:
            self._overdue.add(heapq.heappop(self._ends)[1])
        for reservation_id in tuple(self._overdue):
            reservation, booking = (
                self._by_id.get(reservation_id),
                self._calendar.get(reservation_id),
            )
            if (
                reservation is None
                or booking is None
                or not reservation.holds_capacity
                or reservation.expires_unix_s is None
                or reservation.expires_unix_s > now
            ):
                self._overdue.discard(reservation_id)
            else:
                self._calendar.add(replace(booking, end_unix_s=math.nextafter(now, math.inf)))

    def remove(self, reservation_id: str) -> None:
        """As if it had never been asked for: what gave way to it need not."""
        self._forget(self.get(reservation_id))
        for one in self._displaced.pop(reservation_id, ()):
            self._put(one)

    def _forget(self, reservation: Reservation) -> None:
        del self._by_id[reservation.id]
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
        path: Path | None = None,
        vlan: VlanId | None = None,
    ) -> Reservation:
        """Move to ``state``, and, if ``path`` is given, onto it (see :meth:`place`).

        Raises UnknownName, and LifecycleError for a step that is not in the transition table;
        the book is unchanged then.
        """
        old = self.get(reservation_id)
        try:
            check_transition(RESERVATION_TRANSITIONS, old.state, state)
        except LifecycleError as error:
            raise LifecycleError(f"reservation {reservation_id}: {error}") from None
        if path is not None and (path.src, path.dst) != old.pair:
            raise ValueError(f"path of {path.src}-{path.dst} for a reservation of {old.pair}")
        self._put(replace(old, state=state, reason=reason, held_until_unix_s=None))
        if path is not None:
            self.place(path, vlan)
        return self._by_id[reservation_id]

    def begin(self, reservation_id: str, now: float) -> Reservation:
        """On from ``committed``: to ``scheduled``, or to ``activating`` if its time has come."""
        starts = self.get(reservation_id).starts_unix_s
        return self.transition(reservation_id, _begun(starts, now))

    def place(self, path: Path, vlan: VlanId | None) -> tuple[Reservation, ...]:
        """Give this path to all reservations that hold capacity between its racks; returns them.

        All, because there is one path per rack pair.
        """
        return tuple(
            self._put(replace(r, path=path, booked=path, vlan=vlan))
            for r in self._holding((path.src, path.dst))
        )

    def _holding(self, pair: tuple[RackId, RackId]) -> list[Reservation]:
        booked = [self._by_id[booking.id] for booking in self._calendar.of_pair(pair)]
        return [reservation for reservation in booked if reservation.holds_capacity]

    def reroute(
        self, pair: tuple[RackId, RackId], now: float, ground: Ground
    ) -> tuple[tuple[Reservation, ...], dict[str, AdmissionError]]:
        """Book the pair's reservations anew, around ``ground.blocked``, the present ones first.

        Returns those whose booking changed, and why others, by id, have no path now: they are not
        in the calendar any more, and must be failed.
        """
        mine = [self._by_id[booking.id] for booking in self._calendar.of_pair(pair)]
        mine.sort(key=lambda r: (not r.holds_capacity, r.starts_unix_s))
        for reservation in mine:
            self._calendar.remove(reservation.id)
        changed: list[Reservation] = []
        refused: dict[str, AdmissionError] = {}
        for reservation in mine:
            ask = _ask(self._fabric, reservation, now)
            around = ground if reservation.holds_capacity else Ground(ground.max_hops)
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

    def prune(self, keep: int) -> tuple[str, ...]:
        """Forget the oldest reservations that are over, all but ``keep``; returns their ids."""
        if len(self._by_id) - len(self._calendar) <= keep:
            return ()
        over = [r.id for r in self if r.state in FINAL_STATES]
        forgotten = tuple(over[: max(0, len(over) - keep)])
        for reservation_id in forgotten:
            self._forget(self._by_id[reservation_id])
        return forgotten

    # --- questions ------------------------------------------------------------------------------

    def active(self) -> tuple[Reservation, ...]:
        """Those that have, or are getting, circuits: ``activating`` and ``active``."""
        return tuple(r for r in self._booked() if r.holds_capacity)

    def _booked(self) -> Iterator[Reservation]:
        return (self._by_id[booking.id] for booking in self._calendar)

    def on(self, circuit: Circuit) -> tuple[Reservation, ...]:
        """Those that have, or are getting, this circuit now."""
        booked = (self._by_id[booking.id] for booking in self._calendar.of_circuit(circuit))
        return tuple(reservation for reservation in booked if reservation.holds_capacity)

    def members(self, group: str) -> tuple[Reservation, ...]:
        """Raises UnknownName if no reservation belongs to ``group``."""
        members = tuple(r for r in self._by_id.values() if r.group == group)
        if not members:
            raise UnknownName(f"no group {group!r}")
        return members

    def _bookings_of(self, owner: str) -> list[Booking]:
        ids = self._booked_by.get(owner, ())
        return [booking for i in ids if (booking := self._calendar.get(i)) is not None]

    def usage(self, owner: str, now: float) -> Usage:
        """What a tenant has, to be held against its quota."""
        mine = self._bookings_of(owner)
        return Usage(len(mine), peak_mbps(mine, now, math.inf))

    def admitted_before(self, owner: str | None, retry: RetryKey) -> tuple[Reservation, ...]:
        """What the same request with the same key brought about; empty if it is new.

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
        """Ids of those past their end, or held for too long; ``now`` in Unix seconds."""
        return tuple(r.id for r in self._booked() if _is_over(r, now))

    def due(self, now: float) -> tuple[str, ...]:
        """Ids of the scheduled ones whose time has come."""
        return tuple(
            r.id
            for r in self._booked()
            if r.state is ReservationState.SCHEDULED and r.starts_unix_s <= now
        )

    def pinned(self, leaving_out: frozenset[str] = frozenset()) -> tuple[Pin, ...]:
        """What the planner must keep or make now, one pin per rack pair, sorted by pair."""
        by_pair: dict[tuple[RackId, RackId], list[Reservation]] = {}
        for reservation in self.active():
            if reservation.id not in leaving_out:
                by_pair.setdefault(reservation.pair, []).append(reservation)
        return tuple(_pin(self._fabric, pair, by_pair[pair]) for pair in sorted(by_pair))

    # --- persistence ----------------------------------------------------------------------------

    def to_records(self) -> list[dict[str, Any]]:
        return [reservation.to_record() for reservation in self]

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]], fabric: Fabric) -> ReservationBook:
        """Raises HydraError for a record that is malformed or made for another fabric."""
        book = cls(fabric)
        for record in records:
            reservation = Reservation.from_record(record)
            _check_fits(reservation, fabric)
            book._insert(reservation)
        return book


def _begun(starts_unix_s: float, now: float) -> ReservationState:
    late = starts_unix_s > now
    return ReservationState.SCHEDULED if late else ReservationState.ACTIVATING


def _is_over(reservation: Reservation, now: float) -> bool:
    ends = (reservation.expires_unix_s, reservation.held_until_unix_s)
    return any(end is not None and end <= now for end in ends)


def _servers(fabric: Fabric, *names: str) -> frozenset[str]:
    return frozenset(name for name in names if name not in fabric.rack_by_name)


def _ask(fabric: Fabric, reservation: Reservation, now: float) -> Ask:
    """For what is left of a reservation's time."""
    end = reservation.expires_unix_s
    return Ask(
        src=reservation.src,
        dst=reservation.dst,
        pair=reservation.pair,
        mbps=reservation.promised_mbps,
        start_unix_s=max(reservation.starts_unix_s, now),
        end_unix_s=math.inf if end is None else end,
        servers=_servers(fabric, reservation.src, reservation.dst),
        exclusive=reservation.service is ServiceClass.GUARANTEED,
    )


def _booking(fabric: Fabric, reservation: Reservation, path: Path) -> Booking:
    return _ask(fabric, reservation, reservation.starts_unix_s).booking(reservation.id, path)


def rack_of(fabric: Fabric, name: str) -> RackId:
    """The rack called ``name``, or the rack of the server called so; raises UnknownName."""
    if (rack := fabric.rack_by_name.get(name)) is not None:
        return rack.id
    if (server := fabric.server_by_name.get(name)) is not None:
        return server.rack
    raise UnknownName(
        f"no rack or server {name!r} in fabric {fabric.name}"
        + did_you_mean(name, (*fabric.rack_by_name, *fabric.server_by_name))
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to append to "no such name": `` - did you mean 'r1'?``, or nothing."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f": did you mean {' or '.join(map(repr, close))}?" if close else ""


def fastest_circuit_mbps(fabric: Fabric, src: RackId, dst: RackId) -> float:
    """An upper bound on any path between two racks: no faster than either end's best port.

    0 if one of them has no optical port at all.
    """
    return min(
        max((port.rate_mbps for port in fabric.ports_of(rack)), default=0.0) for rack in (src, dst)
    )


def _check_numbers(request: ReservationRequest) -> None:
    for name, value in (
        ("bandwidth_mbps", request.bandwidth_mbps),
        ("minimum_mbps", request.minimum_mbps),
        ("duration_s", request.duration_s),
        ("hold_s", request.hold_s),
    ):
        # Written so that NaN fails, too.
        if value is not None and not (math.isfinite(value) and value > 0):
            raise AdmissionError(f"{name} must be a finite number above 0, got {value}")
    if request.priority not in PRIORITIES:
        raise AdmissionError(f"priority must be from 0 to 9, got {request.priority}")
    if request.quota is not None and request.priority > request.quota.max_priority:
        raise QuotaExceeded(
            f"priority {request.priority} exceeds the quota of {request.quota.max_priority}: ask "
            "for less, or an operator for a larger quota"
        )
    if request.minimum_mbps is not None and request.service is not ServiceClass.SHARED:
        raise AdmissionError(
            f"minimum_mbps goes with shared reservations, not with {request.service.value} ones: "
            "leave it out"
        )
    if request.least_mbps > request.bandwidth_mbps:
        raise AdmissionError(
            f"minimum_mbps {request.minimum_mbps:g} is more than bandwidth_mbps "
            f"{request.bandwidth_mbps:g}: bandwidth_mbps is the most, minimum_mbps the least"
        )


def _times(request: ReservationRequest, now: float) -> tuple[float, float | None]:
    """When it starts, and when it ends (None: when it is released). Raises AdmissionError."""
    start = now if request.start_unix_s is None else request.start_unix_s
    if start < now:
        raise AdmissionError(
            f"start_unix_s {start:.15g} ({_when(start)}) has passed: leave it out to start now"
        )
    end = request.end_unix_s
    if end is None and request.duration_s is not None:
        end = start + request.duration_s
    if end is not None and end <= start:
        raise AdmissionError(
            f"end_unix_s {end:.15g} ({_when(end)}) is not after the start ({_when(start)})"
        )
    for name, time in (("start", start), ("end", end)):
        if time is not None and time > LATEST_UNIX_S:
            raise AdmissionError(f"the {name} lies beyond the year 9999: give an earlier one")
    return start, end


def _when(unix_s: float) -> str:
    return moment(unix_s) if 0 <= unix_s <= LATEST_UNIX_S else "out of range"


def _pin(fabric: Fabric, pair: tuple[RackId, RackId], reservations: Sequence[Reservation]) -> Pin:
    path = next((r.booked for r in reservations if r.booked is not None), None)
    mbps = math.fsum(r.promised_mbps for r in reservations)
    if path is not None and any(r.service is ServiceClass.GUARANTEED for r in reservations):
        mbps = max(mbps, *(fabric.rate_of(circuit) for circuit in path.circuits))
    return Pin(pair[0], pair[1], path, mbps, tuple(r.id for r in reservations))


def _check_fits(reservation: Reservation, fabric: Fabric) -> None:
    """A journal outlives the configuration: positions in it must still mean the same things."""
    try:
        racks = rack_of(fabric, reservation.src), rack_of(fabric, reservation.dst)
    except UnknownName as error:
        raise HydraError(f"reservation {reservation.id} is for another fabric: {error}") from error
    paths = [path for path in (reservation.path, reservation.booked) if path is not None]
    ports_fit = all(
        _on_plane(fabric, circuit.plane, circuit.a) and _on_plane(fabric, circuit.plane, circuit.b)
        for path in paths
        for circuit in path.circuits
    )
    if racks != (reservation.src_rack, reservation.dst_rack) or not ports_fit:
        raise HydraError(
            f"reservation {reservation.id} ({reservation.src} to {reservation.dst}) was made for "
            f"another wiring than that of fabric {fabric.name}: release it first, or use a new "
            "journal"
        )


def _on_plane(fabric: Fabric, plane: PlaneId, port: PortId) -> bool:
    return 0 <= port < len(fabric.ports) and fabric.ports[port].plane == plane
