"""Reservations as JSON-able records with names (like :mod:`hydra.journal_format`).

A journal outlives the configuration: the fabric may have lost or moved named elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any

from hydra.errors import HydraError, UnknownName
from hydra.journal_format import path_record, read_path
from hydra.lifecycle import ReservationState
from hydra.model import Fabric
from hydra.names import rack_of
from hydra.reservations.constraints import UNCONSTRAINED, Constraints
from hydra.reservations.reservation import (
    BOOKED_STATES,
    FINAL_STATES,
    GONE,
    Profile,
    Protect,
    Reservation,
    RetryKey,
    ServiceClass,
    ShapeEdge,
    Transfer,
)

_ENDS = ("src", "dst")
_PATHS = ("path", "booked")
_LEFT_OUT = frozenset({"shape", "transfer", "constraints", "protect", "protection"})
"""Fields recorded only if in use: earlier releases read the record, too."""
_FIELDS = tuple(field.name for field in fields(Reservation) if field.name not in _LEFT_OUT)
_values = attrgetter(*_FIELDS)


def reservation_record(fabric: Fabric, reservation: Reservation) -> dict[str, Any]:
    """Return ``reservation`` as nested dicts and lists of names and numbers."""
    record: dict[str, Any] = dict(zip(_FIELDS, _values(reservation), strict=True))
    record["retry"] = None if reservation.retry is None else asdict(reservation.retry)
    if reservation.constraints != UNCONSTRAINED:
        record["constraints"] = asdict(reservation.constraints)
    if reservation.is_protected:
        standby = reservation.protection
        record["protect"] = reservation.protect.value
        record["protection"] = None if standby is None else path_record(fabric, standby)
    if reservation.transfer is not None:
        record["transfer"] = asdict(reservation.transfer)
    if reservation.shape is not None:
        edge = reservation.shape
        record["shape"] = {
            "pattern": edge.pattern,
            "src": edge.src,
            "dst": edge.dst,
            "racks": edge.racks,
        }
        if edge.choice:
            record["shape"]["choice"] = edge.choice
    record["state"] = reservation.state.value
    record["service"] = reservation.service.value
    for end, rack in zip(_ENDS, (reservation.src_rack, reservation.dst_rack), strict=True):
        record[f"{end}_rack"] = None if rack == GONE else fabric.racks[rack].name
    for key, path in zip(_PATHS, (reservation.path, reservation.booked), strict=True):
        record[key] = None if path is None else path_record(fabric, path)
    return record


def read_reservation(
    fabric: Fabric, record: Mapping[str, Any], now_unix_s: float | None = None
) -> Reservation:
    """Read a record of :func:`reservation_record`.

    If ``fabric`` has lost a part of a booking, the reservation becomes failed, with the reason, at
    ``now_unix_s``. Missing paths are left out; in a network with one-way circuits, all paths are
    left out. Raises HydraError for a malformed record, and for an unfinished reservation with
    duplex circuits in a network with one-way circuits.
    """
    try:
        values = dict(record)
        state = ReservationState(values["state"])
        booked = values["booked"] is not None
        if fabric.one_way and booked and state not in FINAL_STATES:
            raise HydraError(
                f"reservation {values['id']} ({values['src']} to {values['dst']}) was made for "
                f"duplex circuits, and the circuits of fabric {fabric.name} are one-way: release "
                "the reservation first, or use a new journal"
            )
        if state in BOOKED_STATES and (reason := _loss(fabric, values)):
            state, values["reason"] = ReservationState.FAILED, reason
            values["since_unix_s"] = now_unix_s
        for key in _PATHS:
            entry = values[key]
            values[key] = None if entry is None or fabric.one_way else read_path(fabric, entry)
        for end in _ENDS:
            rack = fabric.rack_by_name.get(values[f"{end}_rack"])
            values[f"{end}_rack"] = GONE if rack is None else rack.id
        if (standby := values.get("protection")) is not None:
            values["protection"] = None if fabric.one_way else read_path(fabric, standby)
        if "protect" in values:
            values["protect"] = Protect(values["protect"])
        if (limits := values.get("constraints")) is not None:
            names = {key: tuple(value) for key, value in limits.items() if key != "max_hops"}
            values["constraints"] = Constraints(**names, max_hops=limits["max_hops"])
        values["state"] = state
        values["service"] = ServiceClass(values["service"])
        retry = values["retry"]
        values["retry"] = None if retry is None else RetryKey(**retry)
        if (edge := values.get("shape")) is not None:
            values["shape"] = ShapeEdge(**edge)
        if (transfer := values.get("transfer")) is not None:
            profile = Profile(transfer["profile"])
            values["transfer"] = Transfer(**{**transfer, "profile": profile})
        return Reservation(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise HydraError(f"not a reservation record ({error}): {dict(record)!r}") from error


def out_of_date(record: Mapping[str, Any], reservation: Reservation) -> bool:
    """Return True if the state has changed since ``record``, so that the record must be
    rewritten.
    """
    return bool(record["state"] != reservation.state.value)


def _loss(fabric: Fabric, fields: Mapping[str, Any]) -> str:
    """Describe the part of a booking that ``fabric`` has lost; empty if none."""
    for end in _ENDS:
        name, rack = fields[end], fields[f"{end}_rack"]
        if rack not in fabric.rack_by_name:
            return f"fabric {fabric.name} has no rack {rack} any more"
        try:
            present = fabric.racks[rack_of(fabric, name)].name
        except UnknownName:
            return f"fabric {fabric.name} has no server {name} any more"
        if present != rack:
            return f"{name} is in rack {present} now, and was in rack {rack}"
    for hop in () if fields["booked"] is None else fields["booked"]["circuits"]:
        planes = set()
        for rack, tor_port in hop:
            if (port := fabric.port_by_name.get((rack, tor_port))) is None:
                return f"fabric {fabric.name} has no optical port {rack} {tor_port} any more"
            planes.add(port.plane)
        if len(planes) > 1:
            return f"{' and '.join(map(' '.join, hop))} are wired to two planes now"
    return ""
