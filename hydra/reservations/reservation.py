"""Reservations: a bandwidth between two racks, for a time, on a path that the controller chooses.

Requests, and what became of them; :mod:`hydra.reservations.book` keeps them,
:mod:`hydra.reservations.records` writes them down.

A reservation holds its bandwidth in both directions, because a circuit is bidirectional and the
way back takes the same path. It has one path. Reservations of a rack pair that have a server pair
in common share a path, and add up; others of the pair may have paths of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState
from hydra.model import Path, RackId, VlanId
from hydra.reservations.quotas import Quota

HOLDING_STATES: Final = frozenset({ReservationState.ACTIVATING, ReservationState.ACTIVE})
"""States in which a reservation has, or is getting, its circuits."""

BOOKED_STATES: Final = HOLDING_STATES | {
    ReservationState.HELD,
    ReservationState.COMMITTED,
    ReservationState.SCHEDULED,
}
"""States in which capacity is set aside for a reservation."""

FINAL_STATES: Final = frozenset(s for s, after in RESERVATION_TRANSITIONS.items() if not after) | {
    ReservationState.FAILED
}
"""States in which a reservation is over; its owner may acknowledge a failure by releasing it."""

LATEST_UNIX_S: Final = 253_402_300_799.0
"""The last second of the year 9999: beyond it, points in time can't be written down."""

PRIORITIES: Final = range(10)
"""Priorities: a reservation makes only those of lower ones give way."""

GONE: Final = RackId(2**31)
"""The rack of a reservation that is over, if the fabric has lost it; the position of no rack."""


class ServiceClass(StrEnum):
    """Promise that a reservation makes."""

    GUARANTEED = "guaranteed"
    """Circuits of its own: nothing else is put on them."""
    SHARED = "shared"
    """Bandwidth on circuits that others may use, too."""
    BEST_EFFORT = "best-effort"
    """A path while there is one to spare; no bandwidth, and everybody else comes first."""


@dataclass(frozen=True, slots=True)
class RetryKey:
    """The key by which a repeated request is known again (the Idempotency-Key of HTTP)."""

    key: str
    digest: str
    """Digest of the whole request: the same key with another request is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a request and the reservation that it becomes have in common, as it was asked for."""

    owner: str | None = None
    """The tenant that the reservation belongs to."""
    retry: RetryKey | None = None
    minimum_mbps: float | None = None
    """The least that will do, where less than ``bandwidth_mbps`` is welcome, too; of a reservation,
    should it need another path, None: what it has."""
    priority: int = 0
    service: ServiceClass = ServiceClass.SHARED
    purpose: str = ""
    """Words of whoever asked; nothing follows from them."""

    @property
    def rank(self) -> int:
        """Reservations of lower rank give way."""
        return -1 if self.service is ServiceClass.BEST_EFFORT else self.priority

    @property
    def kept(self) -> dict[str, Any]:
        """Fields that a reservation takes from its request, by name."""
        return {field.name: getattr(self, field.name) for field in fields(Wish)}


@dataclass(frozen=True, slots=True)
class ReservationRequest(Wish):
    """A request of an application.

    Nothing is checked before :func:`hydra.reservations.requests.check`.
    """

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
    quota: Quota | None = None
    """The owner's quota, as it is now."""

    @property
    def most_mbps(self) -> float:
        """Mbps to be set aside for it, if they fit."""
        return 0.0 if self.service is ServiceClass.BEST_EFFORT else self.bandwidth_mbps

    @property
    def least_mbps(self) -> float:
        """Mbps that have to be set aside for it."""
        return self.most_mbps if self.minimum_mbps is None else self.minimum_mbps


@dataclass(frozen=True, slots=True)
class Reservation(Wish):
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
    """The path that the calendar has for it; None if the fabric has lost a part of the path."""
    held_until_unix_s: float | None = None
    """The moment at which it goes unless committed; None once it is, or if it was never held."""
    group: str | None = None
    """Reservations that were asked for as one have the same group."""
    bundle: str | None = None
    """Id of the bundle that it is a part of (:mod:`hydra.reservations.bundle`); None: of none."""
    path: Path | None = None
    """None until there is one; the last one when it is over."""
    vlan: VlanId | None = None
    wanted_mbps: float | None = None
    """Bandwidth that was asked for, if ``bandwidth_mbps`` might be less; None: just that."""
    preempted_by: str | None = None
    """Id of the reservation to which it gives way at ``expires_unix_s``, or has given way."""
    reason: str = ""
    """Why it is in this state, in words."""
    since_unix_s: float | None = None
    """The moment at which it got into this state; None: it was read without a clock."""
    leaves_path: bool = False
    """True if it was let go, is over or failed, and its path may stand although nobody wants it."""

    @property
    def pair(self) -> tuple[RackId, RackId]:
        """The two racks in the order that :class:`Path` uses."""
        return rack_pair(self.src_rack, self.dst_rack)

    @property
    def promised_mbps(self) -> float:
        return 0.0 if self.service is ServiceClass.BEST_EFFORT else self.bandwidth_mbps

    @property
    def holds_capacity(self) -> bool:
        return self.state in HOLDING_STATES

    @property
    def is_booked(self) -> bool:
        return self.state in BOOKED_STATES

    def ends_by(self, unix_s: float) -> bool:
        """True if its time is up then, or that for which it is held."""
        ends = (self.expires_unix_s, self.held_until_unix_s)
        return any(end is not None and end <= unix_s for end in ends)


@dataclass(frozen=True, slots=True)
class Pin:
    """A path that the planner must keep, or make, and the bandwidth on it."""

    src: RackId
    dst: RackId
    path: Path | None
    bandwidth_mbps: float
    """Sum over its reservations; all there is, if one has its circuits for its own."""
    reservations: tuple[str, ...]


def rack_pair(one: RackId, other: RackId) -> tuple[RackId, RackId]:
    return (one, other) if one < other else (other, one)
