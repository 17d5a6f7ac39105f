"""Reservations: bandwidth between two racks for a time, on a path that the controller chooses.

:mod:`hydra.reservations.book` keeps reservations, :mod:`hydra.reservations.records` serializes
them.

A reservation holds the same bandwidth in both directions, because a circuit is bidirectional and
both directions take the same path. A reservation has a single working path; a protected reservation
(:mod:`hydra.reservations.protection`) has a second path on standby. Reservations of a rack pair
with a common server pair share a path, and their bandwidths add up. Other reservations of the rack
pair may have separate paths.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState
from hydra.model import Path, RackId, VlanId
from hydra.reservations.constraints import UNCONSTRAINED, Constraints
from hydra.reservations.quotas import Quota

HOLDING_STATES: Final = frozenset({ReservationState.ACTIVATING, ReservationState.ACTIVE})
"""States in which a reservation has circuits, or is getting circuits."""

BOOKED_STATES: Final = HOLDING_STATES | {
    ReservationState.HELD,
    ReservationState.COMMITTED,
    ReservationState.SCHEDULED,
}
"""States in which the calendar sets capacity aside for a reservation."""

FINAL_STATES: Final = frozenset(s for s, after in RESERVATION_TRANSITIONS.items() if not after) | {
    ReservationState.FAILED
}
"""States in which a reservation is over; the owner may acknowledge a failure by a release."""

LATEST_UNIX_S: Final = 253_402_300_799.0
"""The last second of the year 9999, the latest time that ``datetime`` can represent."""

PRIORITIES: Final = range(10)
"""Priorities of requests; a reservation preempts lower priorities only."""

GONE: Final = RackId(2**31)
"""Rack id of a finished reservation whose rack the fabric has lost; no rack has this id."""


class ServiceClass(StrEnum):
    """Promise of a reservation."""

    GUARANTEED = "guaranteed"
    """Exclusive circuits, without other traffic."""
    SHARED = "shared"
    """Bandwidth on circuits with other traffic."""
    BEST_EFFORT = "best-effort"
    """A path while a path is free; no bandwidth, and every other class has precedence."""


class Protect(StrEnum):
    """Protection of a reservation against the loss of its path."""

    NONE = "none"
    """After a loss, the controller looks for another path."""
    DISJOINT = "disjoint"
    """A second path without a common plane is set up, and takes over after a loss."""


@dataclass(frozen=True, slots=True)
class RetryKey:
    """Key that identifies a repeated request (Idempotency-Key in HTTP)."""

    key: str
    digest: str
    """Digest of the whole request: the same key with a different digest is an error."""


@dataclass(frozen=True, slots=True)
class ShapeEdge:
    """Place of a reservation in its shape (:mod:`hydra.reservations.shapes`)."""

    pattern: str
    src: int
    """Position of the source among the racks of the shape."""
    dst: int
    racks: int
    """Number of racks of the shape."""
    choice: str = ""
    """How the racks were chosen, at the first edge of a shape; empty: the request named them."""


class Profile(StrEnum):
    """Choice among the rates and times that carry a transfer by its deadline."""

    EARLIEST = "earliest"
    """The earliest end."""
    LATEST = "latest"
    """The latest start."""
    CHEAPEST = "cheapest"
    """The lowest rate: from the earliest start until the deadline, if possible."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Megabytes by a deadline (:mod:`hydra.reservations.transfers`)."""

    megabytes: float
    """Frames with their headers, in each direction."""
    deadline_unix_s: float
    profile: Profile = Profile.EARLIEST
    left_megabytes: float | None = None
    """Megabytes left when the rate was planned again; None: the first plan."""
    planned_unix_s: float | None = None
    """Begin of the present rate; None: the start of the reservation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Fields of a request that the reservation keeps."""

    owner: str | None = None
    """Tenant that owns the reservation."""
    retry: RetryKey | None = None
    minimum_mbps: float | None = None
    """Lowest acceptable bandwidth, if below ``bandwidth_mbps``. If a reservation needs a new path,
    None means the present bandwidth.
    """
    priority: int = 0
    service: ServiceClass = ServiceClass.SHARED
    purpose: str = ""
    """Free text from the client, without effect."""
    shape: ShapeEdge | None = None
    """None: the reservation belongs to no shape."""
    transfer: Transfer | None = None
    """Bytes by a deadline, from which rate and times follow; None: rate and times are given."""
    constraints: Constraints = UNCONSTRAINED
    """Constraints on all paths of the reservation."""
    protect: Protect = Protect.NONE

    @property
    def is_protected(self) -> bool:
        return self.protect is not Protect.NONE

    @property
    def circuits(self) -> int:
        """Number of paths that hold the bandwidth."""
        return 1 + self.is_protected

    @property
    def rank(self) -> int:
        """Rank for preemption: lower ranks give way."""
        return -1 if self.service is ServiceClass.BEST_EFFORT else self.priority

    @property
    def kept(self) -> dict[str, Any]:
        """The fields by name, to construct a reservation."""
        return dict(zip(_KEPT, _kept_values(self), strict=True))


_KEPT: Final = tuple(field.name for field in fields(Wish))
_kept_values: Final = attrgetter(*_KEPT)


@dataclass(frozen=True, slots=True)
class ReservationRequest(Wish):
    """Request of an application; :func:`hydra.reservations.requests.check` validates the values."""

    src: str
    """Name of a rack or a server."""
    dst: str
    bandwidth_mbps: float
    """Upper limit if ``minimum_mbps`` is given, or ``transfer``; 0: no limit of a transfer."""
    duration_s: float | None = None
    """None: until the release, or until ``end_unix_s``."""
    start_unix_s: float | None = None
    """None: now."""
    end_unix_s: float | None = None
    """Alternative to ``duration_s``."""
    hold_s: float | None = None
    """Hold the reservation, and drop it after this time unless committed; None: no hold."""
    quota: Quota | None = None
    """Present quota of the owner."""

    @property
    def most_mbps(self) -> float:
        """Mbps to book if the network has room."""
        return 0.0 if self.service is ServiceClass.BEST_EFFORT else self.bandwidth_mbps

    @property
    def least_mbps(self) -> float:
        """Mbps that must be booked."""
        return self.most_mbps if self.minimum_mbps is None else self.minimum_mbps


@dataclass(frozen=True, slots=True)
class Reservation(Wish):
    """An admitted request and the present state."""

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
    """``starts_unix_s + duration_s``: the time to set up the circuits counts."""
    starts_unix_s: float
    booked: Path | None = None
    """Booked path; None if the fabric has lost a part of the path."""
    held_until_unix_s: float | None = None
    """End of the hold; None once committed, or without a hold."""
    group: str | None = None
    """Common group of the reservations of a single request."""
    bundle: str | None = None
    """Id of the bundle (:mod:`hydra.reservations.bundle`) that contains the reservation, or
    None.
    """
    path: Path | None = None
    """Path that stands; None before the first path; the last path once the reservation is over."""
    vlan: VlanId | None = None
    wanted_mbps: float | None = None
    """Requested bandwidth if ``bandwidth_mbps`` might be less; None: ``bandwidth_mbps``."""
    preempted_by: str | None = None
    """Id of the preempting reservation; preemption takes effect at ``expires_unix_s``."""
    reason: str = ""
    """Reason for the state, in words."""
    since_unix_s: float | None = None
    """Time of the last state change; None: unknown, since no clock was given."""
    leaves_path: bool = False
    """True if a released, finished or failed reservation may have left a path standing."""
    protection: Path | None = None
    """Booked second path of a protected reservation; None: unprotected for now."""

    @property
    def pair(self) -> tuple[RackId, RackId]:
        """The two racks in the order of :class:`Path`."""
        return rack_pair(self.src_rack, self.dst_rack)

    @property
    def promised_mbps(self) -> float:
        return 0.0 if self.service is ServiceClass.BEST_EFFORT else self.bandwidth_mbps

    @property
    def paths(self) -> tuple[Path, ...]:
        """The booked paths: the working path, and the path on standby."""
        return tuple(path for path in (self.booked, self.protection) if path is not None)

    @property
    def holds_capacity(self) -> bool:
        return self.state in HOLDING_STATES

    @property
    def is_booked(self) -> bool:
        return self.state in BOOKED_STATES

    def ends_by(self, unix_s: float) -> bool:
        """True if the reservation or the hold has ended at ``unix_s``."""
        ends = (self.expires_unix_s, self.held_until_unix_s)
        return any(end is not None and end <= unix_s for end in ends)


@dataclass(frozen=True, slots=True)
class Pin:
    """A path that the planner must keep or make, with its bandwidth."""

    src: RackId
    dst: RackId
    path: Path | None
    bandwidth_mbps: float
    """Sum over the reservations; the full rate if a reservation has exclusive circuits."""
    reservations: tuple[str, ...]


def rack_pair(rack: RackId, other: RackId) -> tuple[RackId, RackId]:
    return (rack, other) if rack < other else (other, rack)
