"""Admission: find the place of a reservation in the calendar, or explain the refusal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from hydra.errors import AdmissionError, Alternative, NoRoom
from hydra.model import Fabric, OpticalPort, Pair, Path, PlaneId, RackId
from hydra.reservations.booking import ROUNDING_MBPS, Booking, Need, at_most_mbps
from hydra.reservations.calendar import Calendar, Window
from hydra.reservations.constraints import ANY_ROUTE, Route
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import LATEST_UNIX_S

_LATER_STARTS_TRIED: Final = 24
_NAMED: Final = 4
"""Number of reservations, and of ports, that a refusal lists by name; further reservations and
ports are counted.
"""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request with resolved names and times."""

    src: str
    dst: str
    pair: Pair
    mbps: float
    start_unix_s: float
    end_unix_s: float
    """Infinite: until the release."""
    servers: frozenset[str]
    exclusive: bool = False
    """True for exclusive circuits."""
    names_end: bool = False
    """True if the request gave an end instead of a duration."""
    may_wait: bool = True
    """False if a later start is no alternative."""
    route: Route = ANY_ROUTE
    constraints: str = ""
    """The constraints behind ``route``, in words."""
    standby: bool = False
    """True for the second path of a protected reservation."""

    @property
    def need(self) -> Need:
        servers = frozenset[str]() if self.standby else self.servers
        return Need(self.mbps, self.exclusive, servers, self.route, self.standby)


def admit(calendar: Calendar, ask: Ask, limits: AdmissionLimits) -> Path:
    """Return a path for ``ask``. Preferred is a path that leaves standing paths alone; second, a
    path that need not wait for a change under way.

    Raises AdmissionError with the obstacle and with alternatives.
    """
    path = find(calendar, ask, limits)
    if path is None:
        raise _refusal(calendar, ask, limits.anywhere)
    return path


def admit_most(
    calendar: Calendar, ask: Ask, least_mbps: float, limits: AdmissionLimits
) -> tuple[float, Path]:
    """Return the highest bandwidth from ``least_mbps`` to ``ask.mbps`` that fits, and the path.

    Raises AdmissionError if ``least_mbps`` does not fit.
    """
    if least_mbps >= ask.mbps:
        return ask.mbps, admit(calendar, ask, limits)
    path = find(calendar, ask, limits)
    if path is not None:
        return ask.mbps, path
    anywhere = limits.anywhere
    window = calendar.window(ask.start_unix_s, ask.end_unix_s, anywhere)
    lower = _lower_rate(window, calendar, ask)
    if lower is None or lower.bandwidth_mbps < least_mbps - ROUNDING_MBPS:
        raise _refusal(calendar, replace(ask, mbps=least_mbps), anywhere)
    most = replace(ask, mbps=lower.bandwidth_mbps)
    return most.mbps, admit(calendar, most, limits)


def fitting_mbps(calendar: Calendar, ask: Ask, limits: AdmissionLimits) -> float | None:
    """Return the highest bandwidth up to ``ask.mbps`` that fits; None if no bandwidth fits."""
    window = calendar.window(ask.start_unix_s, ask.end_unix_s, limits.anywhere)
    if _fit_window(window, calendar, ask) is not None:
        return ask.mbps
    lower = _lower_rate(window, calendar, ask)
    return None if lower is None else lower.bandwidth_mbps


def takes(calendar: Calendar, ask: Ask, path: Path, limits: AdmissionLimits) -> bool:
    """Return True if ``ask`` fits on ``path``."""
    window = calendar.window(ask.start_unix_s, ask.end_unix_s, limits.anywhere)
    return _servers_have_room(window, calendar, ask) and window.takes(path, ask.need)


def find(calendar: Calendar, ask: Ask, limits: AdmissionLimits) -> Path | None:
    """Find a path, avoiding standing paths and moving ports where possible; None if no path
    fits.
    """
    for around in limits.gentlest_first:
        path = _fit(calendar, ask, around)
        if path is not None:
            return path
    return None


def _fit(calendar: Calendar, ask: Ask, limits: AdmissionLimits) -> Path | None:
    return _fit_window(calendar.window(ask.start_unix_s, ask.end_unix_s, limits), calendar, ask)


def _fit_window(window: Window, calendar: Calendar, ask: Ask) -> Path | None:
    return window.find(ask.pair, ask.need) if _servers_have_room(window, calendar, ask) else None


def _servers_have_room(window: Window, calendar: Calendar, ask: Ask) -> bool:
    """True if the uplinks have room. A path on standby takes no further room: the servers send on a
    single path at a time.
    """
    if not ask.need.servers:
        return True
    room_mbps = calendar.fabric.server_rate_mbps - ask.mbps + ROUNDING_MBPS
    return all(window.server_mbps(server) <= room_mbps for server in ask.need.servers)


def fastest_circuit_mbps(fabric: Fabric, src: RackId, dst: RackId) -> float:
    """Upper bound on the rate between two racks: the slower of the fastest ports of both racks.

    0 if a rack has no optical port.
    """
    return min(fabric.fastest_port_mbps[src], fabric.fastest_port_mbps[dst])


def beyond_any_circuit(fabric: Fabric, src: RackId, dst: RackId, mbps: float) -> str | None:
    """Explain why no circuit between the racks can carry ``mbps``; None if a circuit can."""
    limit_mbps = fastest_circuit_mbps(fabric, src, dst)
    if mbps <= limit_mbps + ROUNDING_MBPS:
        return None
    names = " and ".join(fabric.racks[rack].name for rack in (src, dst))
    most = f"the fastest circuit carries {limit_mbps:g} Mb/s"
    return f"{mbps:g} Mb/s between {names} is too much: {most}"


def beyond_uplink(
    fabric: Fabric, window: Window, servers: Collection[str], mbps: float
) -> tuple[str, str] | None:
    """Explain which server's uplink can't carry ``mbps`` in ``window``, and the share of other
    reservations; None if all uplinks can.
    """
    for server in sorted(servers):
        held_mbps = window.server_mbps(server)
        if held_mbps + mbps > fabric.server_rate_mbps + ROUNDING_MBPS:
            return (
                f"{mbps:g} Mb/s is too much for server {server}: the uplink carries "
                f"{fabric.server_rate_mbps:g} Mb/s",
                _and_reserved(held_mbps),
            )
    return None


# --- refusals -----------------------------------------------------------------------------------


def _refusal(calendar: Calendar, ask: Ask, limits: AdmissionLimits) -> AdmissionError:
    if limits.brief:
        return NoRoom("no room")
    window = calendar.window(ask.start_unix_s, ask.end_unix_s, limits)
    free = replace(ask, route=ANY_ROUTE, constraints="")
    if ask.constraints and (path := _fit(calendar, free, limits)) is not None:
        hops = ", ".join(map(calendar.fabric.circuit_name, path.circuits))
        public = (
            f"no path between {ask.src} and {ask.dst} meets the constraints ({ask.constraints}); "
            f"without them, {hops} fits"
        )
        return NoRoom(public, (), public)
    lower = _lower_rate(window, calendar, ask)
    later = _later_start(calendar, ask, replace(limits, blocked=frozenset()))
    ways = []
    if lower is not None:
        ways.append(f"ask for at most {at_most_mbps(lower.bandwidth_mbps)} Mb/s")
    if later is not None and later.start_unix_s is not None:
        end = "" if later.end_unix_s is None else f" and end at {moment(later.end_unix_s)}"
        ways.append(f"start at {moment(later.start_unix_s)}{end}")
    remedy = f"; {', or '.join(ways)}" if ways else ""
    alternatives = [alternative for alternative in (lower, later) if alternative is not None]
    beyond = beyond_any_circuit(calendar.fabric, *ask.pair, ask.mbps)
    if beyond is not None:
        fastest_mbps = fastest_circuit_mbps(calendar.fabric, *ask.pair)
        if lower is not None and lower.bandwidth_mbps < fastest_mbps - ROUNDING_MBPS:
            left = at_most_mbps(lower.bandwidth_mbps)
            beyond += f", of which other reservations and servers' uplinks leave {left} Mb/s"
        if len(ask.servers) > 1:
            beyond += ", and a server pair never has more than one circuit"
        return AdmissionError(beyond + remedy, alternatives)
    unused = " and ports out of use" if limits.blocked else ""
    return NoRoom(
        _in_the_way(calendar, window, ask, limits) + remedy,
        alternatives,
        f"{_in_words(ask)} between {ask.src} and {ask.dst} does not fit beside the "
        f"promised reservations{unused}{remedy}",
    )


def _in_words(ask: Ask) -> str:
    path = "an exclusive path" if ask.exclusive else "a path"
    return f"{path} with {ask.mbps:g} Mb/s" if ask.mbps else path


def _lower_rate(window: Window, calendar: Calendar, ask: Ask) -> Alternative | None:
    """Find the highest bandwidth that fits at the same time."""
    server_mbps = calendar.fabric.server_rate_mbps
    levels = {*window.levels_mbps(), *(server_mbps - window.server_mbps(s) for s in ask.servers)}
    rates = sorted(rate for rate in levels if ROUNDING_MBPS < rate < ask.mbps)
    low, high = 0, len(rates)  # rates[:low] fit, rates[high:] do not
    while low < high:
        middle = (low + high) // 2
        if _fit_window(window, calendar, replace(ask, mbps=rates[middle])) is None:
            high = middle
        else:
            low = middle + 1
    return Alternative(round(rates[low - 1], 6), None) if low else None


def _later_start(calendar: Calendar, ask: Ask, limits: AdmissionLimits) -> Alternative | None:
    """Find the first end of a booking after which ``ask`` fits for the full duration.

    Tries the next ``_LATER_STARTS_TRIED`` ends. None if no booking is in the way: the repair time
    of blocked ports is unknown.
    """
    if not ask.may_wait or _fit(calendar, ask, limits) is not None:
        return None
    ports = {port.id for rack in ask.pair for port in calendar.fabric.ports_of(rack)}
    length_s = ask.end_unix_s - ask.start_unix_s
    ends = calendar.ends_after(ask.start_unix_s, ports, ask.servers, _LATER_STARTS_TRIED)
    for end_unix_s in ends:
        later = replace(ask, start_unix_s=end_unix_s, end_unix_s=end_unix_s + length_s)
        if _fit(calendar, later, limits) is not None:
            return Alternative(ask.mbps, end_unix_s, later.end_unix_s if ask.names_end else None)
    return None


def _in_the_way(calendar: Calendar, window: Window, ask: Ask, limits: AdmissionLimits) -> str:
    fabric = calendar.fabric
    if (beyond := beyond_uplink(fabric, window, ask.servers, ask.mbps)) is not None:
        return "".join(beyond)
    names = " and ".join(fabric.racks[rack].name for rack in ask.pair)
    bound = window.bound_paths(ask.pair, ask.need)
    if len(bound) > 1:
        return (
            f"traffic between {ask.src} and {ask.dst} has several paths at the time (reservations "
            f"{_ids(_of_pair(calendar, window, ask.pair))}), and a reservation has a single path: "
            "reserve between single servers"
        )
    if bound:
        (path,) = bound
        fullest = min(path.circuits, key=window.spare_mbps)
        holders = {b.id: b for circuit in path.circuits for b in window.bookings(circuit)}
        alone = [booking for booking in holders.values() if booking.exclusive]
        if alone:
            return f"the circuits between {names} are exclusive to {_ids(alone)}"
        if ask.exclusive and holders:
            return f"the circuits between {names} have other users ({_ids(holders.values())})"
        if window.spare_mbps(fullest) < ask.mbps - ROUNDING_MBPS:
            held_mbps = window.load_mbps(fullest)
            return (
                f"{ask.mbps:g} Mb/s between {names} is too much: the path carries "
                f"{fabric.rate_of(fullest):g} Mb/s{_and_reserved(held_mbps)} (by "
                f"{_ids(window.bookings(fullest))})"
                f"{_further_circuit(fabric, window, ask, limits)}"
            )
        ends = "traffic has to take the path promised already, and "
        ends += _describe_obstacles(fabric, window, path, limits)
    elif window.booked_paths(ask.pair) and window.has_all_paths(ask.pair):
        most = limits.paths_per_pair
        ends = (
            f"the racks have {_ids(_of_pair(calendar, window, ask.pair))} already, and may have "
            f"{most} path{'s' if most > 1 else ''} at a time (policy.paths_per_pair)"
        )
    else:
        avoided = ask.route.avoided_planes
        ends = "; ".join(_describe_rack(fabric, window, rack, limits, avoided) for rack in ask.pair)
    wanted = f" with {ask.mbps:g} Mb/s" if ask.mbps else ""
    exclusive = "exclusive " if ask.exclusive else ""
    return f"no {exclusive}path{wanted} to spare between {names}: {ends}"


def _further_circuit(fabric: Fabric, window: Window, ask: Ask, limits: AdmissionLimits) -> str:
    """Name the planes on which both racks have a free port; empty if there are none."""
    if len(window.booked_paths(ask.pair)) >= limits.paths_per_pair:
        return ""
    src_planes, dst_planes = (
        {
            port.plane
            for port in fabric.ports_of(rack)
            if port.id not in limits.blocked and not window.users(port.id)
        }
        for rack in ask.pair
    )
    idle = [fabric.planes[plane].name for plane in sorted(src_planes & dst_planes)]
    if not idle:
        return ""
    more = f" and {len(idle) - _NAMED} more planes" if len(idle) > _NAMED else ""
    return (
        f"; a further circuit could be on {', '.join(idle[:_NAMED])}{more}, for traffic between "
        "other servers: a server pair never has more than one circuit"
    )


def _of_pair(calendar: Calendar, window: Window, pair: Pair) -> list[Booking]:
    return calendar.pair_meets(pair, window.start_unix_s, window.end_unix_s)


def _describe_rack(
    fabric: Fabric,
    window: Window,
    rack: RackId,
    limits: AdmissionLimits,
    avoided: Collection[PlaneId],
) -> str:
    ports = [port for port in fabric.ports_of(rack) if port.plane not in avoided]
    texts = [_describe_port(fabric, window, port, limits) for port in ports[:_NAMED]]
    if len(ports) > _NAMED:
        free = [
            port
            for port in ports[_NAMED:]
            if port.id not in limits.blocked and not window.users(port.id)
        ]
        texts.append(f"and {len(ports) - _NAMED} more ports ({len(free)} free)")
    return f"at {fabric.racks[rack].name} " + (", ".join(texts) or "there is no optical port")


def _describe_obstacles(fabric: Fabric, window: Window, path: Path, limits: AdmissionLimits) -> str:
    """Describe the ports of a path that are blocked, or used by a different circuit at some
    time.
    """
    ports = [
        fabric.ports[end]
        for circuit in path.circuits
        for end in circuit.ends
        if end in limits.blocked or window.users(end) - {circuit}
    ]
    return "; ".join(
        f"at {fabric.racks[port.rack].name} {_describe_port(fabric, window, port, limits)}"
        for port in ports
    )


def _describe_port(
    fabric: Fabric, window: Window, port: OpticalPort, limits: AdmissionLimits
) -> str:
    name = f"{port.tor_port} (plane {fabric.planes[port.plane].name})"
    if port.id in limits.blocked:
        return f"{name} is out of use"
    holders = {b.id: b for circuit in window.users(port.id) for b in window.bookings(circuit)}
    if not holders:
        return f"{name} is free"
    texts = [_describe_booking(fabric, port, booking) for booking in holders.values()]
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return f"{name} is held by {' and '.join(texts[:_NAMED])}{more}"


def _describe_booking(fabric: Fabric, port: OpticalPort, booking: Booking) -> str:
    racks = f"{fabric.racks[booking.path.src].name}-{fabric.racks[booking.path.dst].name}"
    until = f", until {moment(booking.end_unix_s)}" if isfinite(booking.end_unix_s) else ""
    return f"{booking.id} ({racks}, {booking.mbps:g} of {port.rate_mbps:g} Mb/s{until})"


def _ids(bookings: Iterable[Booking]) -> str:
    ids: Sequence[str] = [booking.id for booking in bookings]
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more


def _and_reserved(held_mbps: float) -> str:
    return f", and {held_mbps:g} Mb/s are reserved already" if held_mbps else ""


def moment(unix_s: float) -> str:
    """Format a time in UTC by RFC 3339; times after the year 9999 are cut to the end of 9999."""
    unix_s = min(unix_s, LATEST_UNIX_S)
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
