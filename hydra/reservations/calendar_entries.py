"""Conversion of reservations to calendar entries, and to pins of the planner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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
        end_unix_s=_after(end, start),
        servers=servers_among(fabric, reservation.src, reservation.dst),
        exclusive=reservation.service is ServiceClass.GUARANTEED,
        route=route_of(fabric, reservation.constraints),
        constraints=str(reservation.constraints),
    )


def bookings_of(fabric: Fabric, reservation: Reservation) -> Iterator[Booking]:
    """The bookings of the paths of ``reservation``, for the full duration."""
    end = reservation.expires_unix_s
    servers = servers_among(fabric, reservation.src, reservation.dst)
    for path in reservation.paths:
        standby = path == reservation.protection
        yield Booking(
            id=reservation.id,
            path=path,
            mbps=reservation.promised_mbps,
            start_unix_s=reservation.starts_unix_s,
            end_unix_s=math.inf if end is None else _after(end, reservation.starts_unix_s),
            servers=frozenset() if standby else servers,
            exclusive=reservation.service is ServiceClass.GUARANTEED,
            standby=standby,
        )


def _after(end_unix_s: float, start_unix_s: float) -> float:
    """The end, later than the start."""
    return max(end_unix_s, math.nextafter(start_unix_s, math.inf))


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
