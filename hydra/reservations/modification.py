"""Hitless modification of reservations.

A change is hitless where the path stays: a new rate, a new end, or a different server of the same
rack. A reservation without circuits may also get a new path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from hydra.errors import AdmissionError, Alternative, LifecycleError, NotHitless, WrongRequest
from hydra.model import Fabric
from hydra.names import rack_of
from hydra.reservations.admission import Ask, admit, beyond_any_circuit, moment, takes
from hydra.reservations.booking import ROUNDING_MBPS, at_most_mbps, peak_mbps
from hydra.reservations.calendar import Calendar
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.quotas import Quota
from hydra.reservations.requests import check
from hydra.reservations.reservation import Reservation, ReservationRequest

_IMPOSSIBLE: Final = "hitless modification not possible"


@dataclass(frozen=True, slots=True)
class Modification:
    """New values; None keeps a value."""

    bandwidth_mbps: float | None = None
    src: str | None = None
    dst: str | None = None
    end_unix_s: float | None = None
    quota: Quota | None = None
    """Present quota of the owner."""


def modified(fabric: Fabric, old: Reservation, change: Modification, now: float) -> Reservation:
    """Return ``old`` with ``change`` applied, without a check of the calendar.

    Raises UnknownName, WrongRequest, AdmissionError, and LifecycleError for a reservation that is
    finished or preempted, or whose time is over.
    """
    if not old.is_booked:
        raise LifecycleError(
            f"reservation {old.id} is {old.state.value} and can't be changed: reserve anew"
        )
    if old.preempted_by is not None:
        raise LifecycleError(
            f"reservation {old.id} {old.reason} and can't be changed: reserve anew"
        )
    if change.end_unix_s is None and old.expires_unix_s is not None and old.expires_unix_s <= now:
        raise LifecycleError(
            f"reservation {old.id} ended at {moment(old.expires_unix_s)} and can't be changed: "
            "reserve anew"
        )
    if old.transfer is not None and (change.bandwidth_mbps or change.end_unix_s):
        raise AdmissionError(
            f"rate and end of reservation {old.id} follow from its {old.transfer.megabytes:g} MB "
            "and their deadline: release the reservation and ask for other bytes"
        )
    src, dst = change.src or old.src, change.dst or old.dst
    if (rack_of(fabric, src), rack_of(fabric, dst)) != (old.src_rack, old.dst_rack):
        racks = " and ".join(fabric.racks[rack].name for rack in (old.src_rack, old.dst_rack))
        raise NotHitless(
            f"{_IMPOSSIBLE}: the circuits join {racks}, and the ends can only move within these "
            f"racks; reserve anew, then release {old.id}"
        )
    mbps = old.bandwidth_mbps if change.bandwidth_mbps is None else change.bandwidth_mbps
    wish = ReservationRequest(src, dst, mbps, priority=old.priority, service=old.service)
    check(fabric, wish)
    beyond = beyond_any_circuit(fabric, old.src_rack, old.dst_rack, wish.least_mbps)
    if beyond is not None:
        raise AdmissionError(f"{beyond}; ask for no more, or make a further reservation")
    end = old.expires_unix_s if change.end_unix_s is None else change.end_unix_s
    start = old.starts_unix_s
    if end is not None and end <= max(start, now):
        when = "has passed" if end <= now else f"is not after the start ({moment(start)})"
        raise WrongRequest(
            f"end_unix_s {end:.15g} {when}: give a later end, or release the reservation",
            "end_unix_s",
        )
    ranged = change.bandwidth_mbps is None
    return replace(
        old,
        src=src,
        dst=dst,
        bandwidth_mbps=mbps,
        expires_unix_s=end,
        duration_s=None if end is None else end - start,
        wanted_mbps=old.wanted_mbps if ranged else None,
        minimum_mbps=old.minimum_mbps if ranged else None,
    )


def place_again(
    calendar: Calendar, new: Reservation, ask: Ask, limits: AdmissionLimits
) -> Reservation:
    """Return ``new`` with a booking that fits; ``calendar`` lacks the old booking. Raises
    AdmissionError.
    """
    if new.booked is not None and takes(calendar, ask, new.booked, limits.later):
        return new
    if not new.holds_capacity:
        stays = replace(ask, may_wait=False)
        return replace(new, booked=admit(calendar, stays, limits.later))
    raise _not_on_its_path(calendar, new, ask)


def _not_on_its_path(calendar: Calendar, new: Reservation, ask: Ask) -> NotHitless:
    """The refusal, with the bandwidth that the path has left throughout."""
    limits = AdmissionLimits()
    window = calendar.window(ask.start_unix_s, ask.end_unix_s, limits)
    circuits = () if new.booked is None else new.booked.circuits
    spare_mbps = min((window.spare_mbps(circuit) for circuit in circuits), default=0.0)
    server_mbps = calendar.fabric.server_rate_mbps
    for server in ask.servers:
        booked = calendar.of_server(server)
        held_mbps = peak_mbps(booked, ask.start_unix_s, ask.end_unix_s)
        spare_mbps = min(spare_mbps, server_mbps - held_mbps)
    until = "" if math.isinf(ask.end_unix_s) else f" until {moment(ask.end_unix_s)}"
    less = replace(ask, mbps=spare_mbps)
    if (
        new.booked is None
        or not ROUNDING_MBPS < spare_mbps < ask.mbps
        or not takes(calendar, less, new.booked, limits)
    ):
        return NotHitless(
            f"{_IMPOSSIBLE}: other reservations hold the circuits or ports{until}; make a further "
            f"reservation, then release {new.id}"
        )
    most = at_most_mbps(spare_mbps)
    return NotHitless(
        f"{_IMPOSSIBLE}: the circuits have room for {most} Mb/s{until}; ask for at most {most} "
        f"Mb/s, or make a further reservation, then release {new.id}",
        [Alternative(spare_mbps, None)],
    )
