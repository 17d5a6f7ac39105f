"""Constraints of reservations on their paths, by names in requests and by ids in the calendar."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hydra.errors import AdmissionError, WrongRequest
from hydra.model import Fabric, Path, PlaneId, RackId
from hydra.names import plane_named, rack_named


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints of a request on its paths, by names; the default: none."""

    avoid_planes: tuple[str, ...] = ()
    require_planes: tuple[str, ...] = ()
    """The only planes allowed; empty: any plane."""
    avoid_relays: tuple[str, ...] = ()
    """Racks that relay no hop; a path may still end there."""
    max_hops: int | None = None
    """Largest number of circuits in a row; None: ``policy.max_hops``."""

    def __str__(self) -> str:
        hops = "" if self.max_hops is None else f"at most {self.max_hops} hops"
        planes = _listed("only planes", self.require_planes), _listed("no", self.avoid_planes)
        return ", ".join(filter(None, (*planes, _listed("no relay", self.avoid_relays), hops)))


UNCONSTRAINED: Final = Constraints()


@dataclass(frozen=True, slots=True)
class Route:
    """Constraints on a path, by ids."""

    avoided_planes: frozenset[PlaneId] = frozenset()
    avoided_relays: frozenset[RackId] = frozenset()
    max_hops: int | None = None

    def admits(self, fabric: Fabric, path: Path) -> bool:
        """True if ``path`` meets the constraints."""
        return self == ANY_ROUTE or (
            (self.max_hops is None or path.hops <= self.max_hops)
            and self.avoided_planes.isdisjoint(planes_of(path))
            and self.avoided_relays.isdisjoint(relays_of(fabric, path))
        )

    def within(self, max_hops: int) -> int:
        """The largest number of hops under a general limit."""
        return max_hops if self.max_hops is None else min(max_hops, self.max_hops)


ANY_ROUTE: Final = Route()


def route_of(fabric: Fabric, constraints: Constraints) -> Route:
    """The route of ``constraints``; names that the fabric no longer has are left out, except that
    the absence of all required planes leaves no plane.
    """
    if constraints == UNCONSTRAINED:
        return ANY_ROUTE
    avoided = {
        plane.id
        for plane in fabric.planes
        if plane.name in constraints.avoid_planes
        or (constraints.require_planes and plane.name not in constraints.require_planes)
    }
    racks = fabric.rack_by_name
    relays = {racks[name].id for name in constraints.avoid_relays if name in racks}
    return Route(frozenset(avoided), frozenset(relays), constraints.max_hops)


def check_constraints(
    fabric: Fabric, constraints: Constraints, src: RackId, dst: RackId, *, protected: bool
) -> None:
    """Raise UnknownName for an unknown plane or rack, WrongRequest for constraints that contradict
    each other, and AdmissionError if the planes left join the racks by no path, or, where a path is
    to be ``protected``, by a single plane.
    """
    if constraints == UNCONSTRAINED and not protected:
        return
    for name in (*constraints.avoid_planes, *constraints.require_planes):
        plane_named(fabric, name)
    for name in constraints.avoid_relays:
        rack_named(fabric, name)
    if both := sorted({*constraints.avoid_planes} & {*constraints.require_planes}):
        raise WrongRequest(
            f"plane {both[0]} is both avoided and required: name the plane once", "constraints"
        )
    if constraints.max_hops is not None and constraints.max_hops < 1:
        raise WrongRequest(
            f"max_hops must be at least 1, got {constraints.max_hops}: a path has a circuit",
            "constraints",
        )
    avoided = route_of(fabric, constraints).avoided_planes
    for rack in (src, dst):
        planes = {port.plane for port in fabric.ports_of(rack)}
        remaining = planes - avoided
        if planes and len(remaining) < 1 + protected:
            raise AdmissionError(_too_few(fabric, rack, planes, remaining, constraints))


def _too_few(
    fabric: Fabric,
    rack: RackId,
    planes: Iterable[PlaneId],
    remaining: Iterable[PlaneId],
    constraints: Constraints,
) -> str:
    """The refusal where a rack has too few planes for its paths."""
    name = fabric.racks[rack].name
    has, may = (
        ", ".join(fabric.planes[plane].name for plane in sorted(some))
        for some in (planes, remaining)
    )
    if constraints == UNCONSTRAINED or may == has:
        return (
            f"{name} has plane {has} alone, and a disjoint path needs a second plane: leave "
            "protect out"
        )
    if may:
        return (
            f"the constraints leave {name} plane {may} alone, and a disjoint path needs a second "
            f"plane: allow another of {has}, or leave protect out"
        )
    return f"the constraints leave {name} no plane: allow one of {has}"


def planes_of(path: Path) -> frozenset[PlaneId]:
    return frozenset(circuit.plane for circuit in path.circuits)


def relays_of(fabric: Fabric, path: Path) -> frozenset[RackId]:
    """Racks that relay a path's frames from circuit to circuit."""
    met = {rack for circuit in path.circuits for rack in fabric.racks_of(circuit)}
    return frozenset(met - {path.src, path.dst})


def _listed(what: str, names: Iterable[str]) -> str:
    return f"{what} {', '.join(names)}" if names else ""
