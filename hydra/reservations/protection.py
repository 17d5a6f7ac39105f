"""Protection of reservations: a second path, on standby, that fails apart from the working path.

The two paths have no plane in common. As far as the fabric allows, they have no relay and no device
with several planes in common, either. The ToRs of the two racks are always in common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from hydra.errors import AdmissionError, NoRoom, NotHitless
from hydra.model import Fabric, Path, PlaneId
from hydra.reservations.admission import Ask, admit, find
from hydra.reservations.calendar import Calendar
from hydra.reservations.constraints import Route, planes_of, relays_of
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import Reservation


def admit_both(
    calendar: Calendar, ask: Ask, working: Path, least_mbps: float, limits: AdmissionLimits
) -> tuple[float, Path, Path]:
    """Return the bandwidth, the working path and the path on standby for ``ask``, which fits on
    ``working``. Another working path is taken if ``working`` leaves no disjoint path.

    Raises AdmissionError.
    """
    if limits.paths_per_pair < 2:
        raise AdmissionError(
            "a protected reservation has two paths, and policy.paths_per_pair allows one path "
            "between two racks: leave protect out, or ask an operator for a larger number"
        )
    for mbps in dict.fromkeys((ask.mbps, least_mbps)):
        part = replace(ask, mbps=mbps)
        for path in (working, *_other_paths(calendar, part, limits)):
            standby = find_standby(calendar, part, path, limits)
            if standby is not None:
                return mbps, path, standby
    fabric = calendar.fabric
    beside = f"no disjoint path beside {_in_words(fabric, working)}"
    try:
        least = replace(ask, mbps=least_mbps)
        admit(calendar, _standby(least, _levels(fabric, working)[-1]), limits)
    except AdmissionError as error:
        why, public = f"{beside}: {error}", f"{beside}: {error.in_public}"
        raise NoRoom(why, in_public=public) from None
    raise NoRoom(f"{beside}: leave protect out, or ask again", in_public=beside)


def find_standby(
    calendar: Calendar, ask: Ask, working: Path, limits: AdmissionLimits
) -> Path | None:
    """Find a path on standby for ``ask`` on ``working``; None if no path fits."""
    fabric = calendar.fabric
    window = calendar.window(ask.start_unix_s, ask.end_unix_s, limits.anywhere)
    if working not in window.booked_paths(ask.pair):  # the working path counts, too
        limits = replace(limits, paths_per_pair=limits.paths_per_pair - 1)
    for route in _levels(fabric, working):
        found = find(calendar, _standby(ask, route), limits)
        if found is not None:
            return found
    return None


def standby_again(calendar: Calendar, new: Reservation, ask: Ask, limits: AdmissionLimits) -> Path:
    """The path on standby of a modified reservation; ``calendar`` lacks the old bookings.

    Raises NotHitless if the reservation holds circuits, or no path fits.
    """
    if new.booked is not None and not new.holds_capacity:
        standby = find_standby(calendar, ask, new.booked, limits.later)
        if standby is not None:
            return standby
    raise NotHitless(
        "hitless modification not possible: other reservations hold the circuits of the path on "
        f"standby; make a further reservation, then release {new.id}"
    )


def _standby(ask: Ask, avoiding: Route) -> Ask:
    route = Route(
        ask.route.avoided_planes | avoiding.avoided_planes,
        ask.route.avoided_relays | avoiding.avoided_relays,
        ask.route.max_hops,
    )
    return replace(ask, route=route, constraints="", standby=True, may_wait=False)


def _levels(fabric: Fabric, working: Path) -> list[Route]:
    """What a path on standby avoids of ``working``: everything, then less and less."""
    planes, relays = planes_of(working), relays_of(fabric, working)
    devices = planes.union(*(_of_device(fabric, plane) for plane in planes))
    levels = (Route(devices, relays), Route(planes, relays), Route(devices), Route(planes))
    return list(dict.fromkeys(levels))


def _of_device(fabric: Fabric, plane: PlaneId) -> Iterator[PlaneId]:
    """Planes of the device of ``plane``."""
    own = fabric.planes[plane]
    for other in fabric.planes:
        if other.address and (other.driver, other.address) == (own.driver, own.address):
            yield other.id


def _other_paths(calendar: Calendar, ask: Ask, limits: AdmissionLimits) -> Iterator[Path]:
    """Other working paths: on each plane alone."""
    planes = {plane.id for plane in calendar.fabric.planes}
    for plane in sorted(planes - ask.route.avoided_planes):
        route = replace(ask.route, avoided_planes=frozenset(planes - {plane}))
        path = find(calendar, replace(ask, route=route), limits)
        if path is not None:
            yield path


def shared_by(fabric: Fabric, working: Path, standby: Path) -> tuple[str, ...]:
    """Names of what the two paths have in common: ToRs of the ends, relays, devices."""
    ends = (working.src, working.dst)
    relays = sorted(relays_of(fabric, working) & relays_of(fabric, standby))
    devices = [
        {(fabric.planes[plane].driver, fabric.planes[plane].address) for plane in planes_of(path)}
        for path in (working, standby)
    ]
    return (
        *(f"ToR of {fabric.racks[rack].name}" for rack in ends),
        *(f"relay {fabric.racks[rack].name}" for rack in relays),
        *(f"device {address}" for _, address in sorted(devices[0] & devices[1])),
    )


def _in_words(fabric: Fabric, path: Path) -> str:
    return ", ".join(map(fabric.circuit_name, path.circuits))


def is_free_of(path: Path, ports: Collection[int]) -> bool:
    """True if ``path`` uses none of ``ports``."""
    return all(end not in ports for circuit in path.circuits for end in circuit.ends)
