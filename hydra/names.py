"""Lookup of racks and servers by name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from hydra.errors import UnknownName
from hydra.model import Fabric, PlaneId, RackId


def rack_of(fabric: Fabric, name: str) -> RackId:
    """Id of the rack ``name``, or of the rack of the server ``name``. Raises UnknownName."""
    if (rack := fabric.rack_by_name.get(name)) is not None:
        return rack.id
    if (server := fabric.server_by_name.get(name)) is not None:
        return server.rack
    raise UnknownName(
        f"no rack or server {name!r} in fabric {fabric.name}"
        + did_you_mean(name, (*fabric.rack_by_name, *fabric.server_by_name))
    )


def rack_named(fabric: Fabric, name: str) -> RackId:
    """Id of the rack ``name``. Raises UnknownName."""
    if (rack := fabric.rack_by_name.get(name)) is not None:
        return rack.id
    raise UnknownName(f"no rack {name!r}{did_you_mean(name, fabric.rack_by_name)}")


def plane_named(fabric: Fabric, name: str) -> PlaneId:
    """Id of the plane ``name``. Raises UnknownName."""
    if (plane := fabric.plane_by_name.get(name)) is not None:
        return plane.id
    raise UnknownName(f"no plane {name!r}{did_you_mean(name, fabric.plane_by_name)}")


def no_reservation(reservation_id: str) -> UnknownName:
    """The error for an unknown reservation, with the remedy."""
    return UnknownName(
        f"no reservation {reservation_id!r}: GET /v1/reservations (`hydra reservations --all`) has "
        "the ids"
    )


def no_group(group: str) -> UnknownName:
    """The error for an unknown group, with the remedy."""
    return UnknownName(
        f"no group {group!r}: the reservations of GET /v1/reservations name their groups, and GET "
        "/v1/shapes (`hydra shape list --all`) has the shapes"
    )


def counted(number: int, noun: str) -> str:
    """``1 circuit``, ``2 circuits``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suffix for "no such name" messages: ``: did you mean 'r1'?``, or empty."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.5) if len(name) <= 64 else []
    return f": did you mean {' or '.join(map(repr, close))}?" if close else ""
