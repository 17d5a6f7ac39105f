"""Conversion of reservations to calendar entries, and to pins of the planner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hydra.model import Fabric, Path, RackId
from hydra.reservations.admission import Ask
from hydra.reservations.booking import Booking
from hydra.reservations.constraints import route_of
from hydra.reservations.reservation import Pin, Reservation, ServiceClass


def servers_among(fabric: Fabric, *names: str) -> frozenset[str]:
    """The names that are not racks."""
    return frozenset(name for name in names if name not in fabric.rack_by_name)


def ask_of(fabric: Fabric, reservation: Reservation, now: float) -> Ask:
    """The ask for the remaining time of a reservation, not empty even after the end."""
    start = max(reservation.starts_unix_s, now)
    end = math.inf if reservation.expires_unix_s is None else reservation.expires_unix_s
    return Ask(
        src=reservation.src,
        dst=reservation.dst,
        pair=reservation.pair,
        mbps=reservation.promised_mbps,
        start_unix_s=start,
        end_unix_s=max(end, math.nextafter(start, math.inf)),
        servers=servers_among(fabric, reservation.src, reservation.dst),
        exclusive=reservation.service is ServiceClass.GUARANTEED,
        route=route_of(fabric, reservation.constraints),
        constraints=str(reservation.constraints),
    )


def bookings_of(fabric: Fabric, reservation: Reservation) -> Iterator[Booking]:
    """The bookings of the paths of ``reservation``, for the full duration."""
    ask = ask_of(fabric, reservation, reservation.starts_unix_s)
    for path in reservation.paths:
        standby = path == reservation.protection
        yield replace(ask, standby=standby).booking(reservation.id, path)


def pin_of(
    fabric: Fabric,
    pair: tuple[RackId, RackId],
    path: Path | None,
    reservations: Sequence[Reservation],
) -> Pin:
    """The pin that binds the planner for the reservations of ``pair`` on a path."""
    mbps = math.fsum(r.promised_mbps for r in reservations)
    if path is not None and any(r.service is ServiceClass.GUARANTEED for r in reservations):
        mbps = max(mbps, *(fabric.rate_of(circuit) for circuit in path.circuits))
    return Pin(pair[0], pair[1], path, mbps, tuple(r.id for r in reservations))
