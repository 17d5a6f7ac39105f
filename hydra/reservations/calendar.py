"""The calendar: bookings of paths over time, and the search for room.

The rule of admission. A booking has a single path for the full duration. A path of at most
``max_hops`` circuits fits if, throughout the duration,

- each port is free, or serves the very circuit that the path needs (a port ends a single circuit,
  so the rule also covers the planes);
- each circuit has the capacity for the new booking beside the present bookings; a booking with
  exclusive circuits shares no circuit with a booking of any bandwidth;
- the rack pair has at most ``paths_per_pair`` paths, and all bookings of the pair share the path,
  except bookings without a common server pair. Switches distinguish reserved traffic by server
  pair; they do not distinguish traffic without a bandwidth;
- it meets the constraints of the booking (:mod:`hydra.reservations.constraints`).

A protected reservation has a second booking, on standby: a path without a common plane. The standby
booking holds the circuits' bandwidth, and no bandwidth of the servers' uplinks.

The calendar never moves earlier bookings to make room for later bookings. The search is exact: a
path is found if and only if a path fits. Times are Unix seconds. Bookings are half-open intervals,
so a booking may begin at the end of another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain
from math import fsum
from typing import Final, TypeVar

from hydra.model import Circuit, Fabric, Pair, Path, PlaneId, PortId, RackId
from hydra.reservations.booking import ROUNDING_MBPS, Booking, Need, booking_key
from hydra.reservations.interval_index import IntervalIndex
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.occupancy import Occupancy, Use

_WINDOWS: Final = 4
"""Number of windows that a calendar keeps."""
_KeyT = TypeVar("_KeyT")


class Calendar:
    """All bookings of a fabric. Not thread-safe: the owner holds the lock."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.ports_on: dict[PlaneId, list[PortId]] = {plane.id: [] for plane in fabric.planes}
        for port in fabric.ports:
            self.ports_on[port.plane].append(port.id)
        self._bookings: IntervalIndex[Booking] = IntervalIndex()
        self._by_circuit: dict[Circuit, IntervalIndex[Booking]] = {}
        self._by_pair: dict[Pair, IntervalIndex[Booking]] = {}
        self._by_server: dict[str, IntervalIndex[Booking]] = {}
        self._circuits_at: dict[PortId, set[Circuit]] = {}
        self._windows: list[Window] = []
        """The windows asked for last; the edges of a shape have the same few windows."""

    def __len__(self) -> int:
        return len(self._bookings)

    def __iter__(self) -> Iterator[Booking]:
        return iter(self._bookings)

    def get(self, booking_id: str) -> Booking | None:
        """The booking of a reservation, not on standby."""
        return self._bookings.get(booking_key(booking_id))

    def add(self, booking: Booking) -> None:
        """Enter a booking, even without room; replaces a booking with the same key."""
        if (old := self._bookings.get(booking.key)) is not None:
            self._take_out(old)
        self._bookings.add(booking)
        _enter(self._by_pair, (booking.path.src, booking.path.dst), booking)
        for circuit in booking.path.circuits:
            if _enter(self._by_circuit, circuit, booking):
                for port in circuit.ends:
                    self._circuits_at.setdefault(port, set()).add(circuit)
        for server in booking.servers:
            _enter(self._by_server, server, booking)
        for window in self._windows:
            window.note_added(booking)

    def remove(self, booking_id: str) -> None:
        """Remove the bookings of a reservation; ignores an unknown id."""
        for standby in (False, True):
            booking = self._bookings.get(booking_key(booking_id, standby))
            if booking is not None:
                self._take_out(booking)

    def _take_out(self, booking: Booking) -> None:
        self._bookings.remove(booking.key)
        _drop(self._by_pair, (booking.path.src, booking.path.dst), booking.key)
        for circuit in booking.path.circuits:
            if _drop(self._by_circuit, circuit, booking.key):
                for port in circuit.ends:
                    self._circuits_at[port].discard(circuit)
        for server in booking.servers:
            _drop(self._by_server, server, booking.key)
        for window in self._windows:
            window.note_removed(booking)

    def of_pair(self, pair: Pair) -> Sequence[Booking]:
        return tuple(self._by_pair.get(pair, ()))

    def of_server(self, server: str) -> Sequence[Booking]:
        return tuple(self._by_server.get(server, ()))

    def of_circuit(self, circuit: Circuit) -> Sequence[Booking]:
        return tuple(self._by_circuit.get(circuit, ()))

    def meeting(self, start_unix_s: float, end_unix_s: float) -> list[Booking]:
        """Bookings at any moment of [start, end)."""
        return self._bookings.meeting(start_unix_s, end_unix_s)

    def pair_meets(self, pair: Pair, start_unix_s: float, end_unix_s: float) -> list[Booking]:
        """Bookings of ``pair`` at any moment of [start, end)."""
        table = self._by_pair.get(pair)
        return [] if table is None else table.meeting(start_unix_s, end_unix_s)

    def server_meets(self, server: str, start_unix_s: float, end_unix_s: float) -> list[Booking]:
        """Bookings on a server's uplink at any moment of [start, end)."""
        table = self._by_server.get(server)
        return [] if table is None else table.meeting(start_unix_s, end_unix_s)

    def circuit_meets(
        self, circuit: Circuit, start_unix_s: float, end_unix_s: float
    ) -> list[Booking]:
        """Bookings on ``circuit`` at any moment of [start, end)."""
        table = self._by_circuit.get(circuit)
        return [] if table is None else table.meeting(start_unix_s, end_unix_s)

    def ends_after(
        self, unix_s: float, ports: Iterable[PortId], servers: Iterable[str], most: int
    ) -> list[float]:
        """The next ``most`` times at which a booking ends at one of the ports or servers."""
        tables = [self._by_circuit[circuit] for port in ports for circuit in self.circuits_at(port)]
        tables += [self._by_server[server] for server in servers if server in self._by_server]
        ends: list[float] = []
        coming = [table.ending_after(unix_s) for table in tables]
        for booking in merge(*coming, key=lambda booking: booking.start_unix_s):
            if len(ends) >= most and booking.start_unix_s >= ends[most - 1]:
                break
            place = bisect_left(ends, booking.end_unix_s)
            if place == len(ends) or ends[place] != booking.end_unix_s:
                ends.insert(place, booking.end_unix_s)
        return ends[:most]

    def circuits_at(self, port: PortId) -> Collection[Circuit]:
        """Circuits that any booking has at ``port``, at any time."""
        return self._circuits_at.get(port, ())

    def window(self, start_unix_s: float, end_unix_s: float, limits: AdmissionLimits) -> Window:
        """The calendar over [start, end); use at once, before the calendar changes."""
        for window in self._windows:
            if window.is_of(start_unix_s, end_unix_s, limits):
                return window
        window = Window(self, start_unix_s, end_unix_s, limits)
        self._windows = [window, *self._windows[: _WINDOWS - 1]]
        return window


def _enter(index: dict[_KeyT, IntervalIndex[Booking]], key: _KeyT, booking: Booking) -> bool:
    """Add an entry; return True if the key had no entries before."""
    if (entries := index.get(key)) is not None:
        entries.add(booking)
        return False
    index[key] = entries = IntervalIndex()
    entries.add(booking)
    return True


def _drop(index: dict[_KeyT, IntervalIndex[Booking]], key: _KeyT, booking_key: str) -> bool:
    """Remove an entry; return True if the key has no entries left."""
    entries = index[key]
    entries.remove(booking_key)
    if entries:
        return False
    del index[key]
    return True


_NO_NEED: Final = Need(0.0)


class Window(Occupancy):
    """A time interval, and the paths that fit throughout."""

    def fork(self) -> Window:
        """A copy for trials: bookings entered in the copy (``enter``) are in no calendar. Use
        at once, before the calendar changes.
        """
        copy = Window(self._calendar, self.start_unix_s, self.end_unix_s, self._limits)
        copy._users, copy._booked = dict(self._users), dict(self._booked)
        copy._met = {pair: list(met) for pair, met in self._met.items()}
        copy._idle = dict(self._idle)
        copy._idle_by_plane = {plane: dict(idle) for plane, idle in self._idle_by_plane.items()}
        return copy

    def bound_paths(self, pair: Pair, need: Need) -> frozenset[Path]:
        """Booked paths that a booking with ``need`` has to share.

        Bookings of a rack pair have no common server pair if, in a rack, both name a server, and
        the servers differ. Bookings on standby neither bind nor are bound.
        """
        if need.standby:
            return frozenset()
        binding = [booking for booking in self._pair_meets(pair) if not booking.standby]
        if not (need.mbps and need.servers):
            return frozenset(booking.path for booking in binding)
        server, covered = self._fabric.server_by_name, need.servers
        racks = {server[name].rack for name in covered}
        bound = set()
        for booking in binding:
            for name in booking.servers if booking.mbps else ():
                if name not in covered and server[name].rack in racks:
                    break
            else:
                bound.add(booking.path)
        return frozenset(bound)

    # --- search ----------------------------------------------------------------------------------

    def find(self, pair: Pair, need: Need) -> Path | None:
        """Find a path that fits by the rule of admission (see the module); None if no path fits.

        A present path of the pair comes first, then a new path, with the fewest circuits in each
        case. If the pair has standing paths and no bookings, only a standing path qualifies; a
        reservation removes the other standing paths.
        """
        bound = self.bound_paths(pair, need)
        if len(bound) > 1:
            return None
        present = bound or self.pair_paths(pair)
        fitting = [path for path in present if self._may_have(path, need)]
        if fitting:
            return min(fitting, key=lambda path: (path.hops, path))
        if bound or (present and not self.booked_paths(pair)) or self.has_all_paths(pair):
            return None
        return self._search(pair, need)

    def _may_have(self, path: Path, need: Need) -> bool:
        for circuit in path.circuits:
            if not self._usable(self._use_of(circuit), need):
                return False
        return need.route.admits(self._fabric, path) and not self.has_all_paths(
            (path.src, path.dst), path
        )

    def has_all_paths(self, pair: Pair, but_for: Path | None = None) -> bool:
        """True if at some moment the pair has the full number of booked paths, not counting
        ``but_for``.
        """
        most = self._limits.paths_per_pair
        if len(self.booked_paths(pair) - {but_for}) < most:
            return False
        others = [booking for booking in self._pair_meets(pair) if booking.path != but_for]
        moments = {max(self.start_unix_s, booking.start_unix_s) for booking in others}
        return any(
            len(
                {
                    booking.path
                    for booking in others
                    if booking.start_unix_s <= moment < booking.end_unix_s
                }
            )
            >= most
            for moment in moments
        )

    def takes(self, path: Path, need: Need) -> bool:
        """True if ``path`` fits."""
        pair = path.src, path.dst
        return (
            self.bound_paths(pair, need) <= {path}
            and (bool(self.booked_paths(pair)) or path in (self.pair_paths(pair) or {path}))
            and self._may_have(path, need)
        )

    def _usable(self, use: Use, need: Need) -> bool:
        circuit = use.circuit
        return (
            self._is_whole(circuit)
            and circuit.plane not in need.route.avoided_planes
            and use.rate_mbps - self._load_mbps(use) >= need.mbps - ROUNDING_MBPS
            and not (need.exclusive and self.bookings(circuit))
        )

    def _search(self, pair: Pair, need: Need) -> Path | None:
        """Search breadth first over racks.

        A single way of reaching a rack is enough. No path needs to leave a rack by the port of
        entry: on the plane of the port, the rack before could have gone on directly. For the same
        reason, new circuits of a plane are tried from the first rack only.
        """
        src, dst = pair
        came: dict[RackId, tuple[RackId, Circuit] | None] = {src: None}
        near = self._circuits_to(dst, need)
        ends = {self._fabric.ports[port].plane: port for port in self._free_ports(dst, need)}
        searched: set[PlaneId] = set()
        last = near.get(src) or (self._new_circuit(src, ends, need) if ends else None)
        if last is not None:
            return _path(pair, came, src, last)
        avoided = need.route.avoided_relays
        frontier = [src]
        for _ in range(1, need.route.within(self._limits.max_hops)):
            reached: list[RackId] = []
            for rack in frontier:
                for circuit, far in self._onward(rack, need, searched):
                    if far in came or far in avoided:
                        continue
                    came[far] = (rack, circuit)
                    last = near.get(far)
                    if last is None and ends:
                        last = self._new_circuit(far, ends, need)
                    if last is not None:
                        return _path(pair, came, far, last)
                    reached.append(far)
            frontier = reached
        return None

    def _circuits_to(self, dst: RackId, need: Need) -> Mapping[RackId, Circuit]:
        """The usable booked circuit from each rack to ``dst``, where there is one."""
        near: dict[RackId, Circuit] = {}
        for circuit, far in self._booked_onward(dst, need):
            if (other := near.get(far)) is None or circuit < other:
                near[far] = circuit
        return near

    def _new_circuit(
        self, rack: RackId, ends: Mapping[PlaneId, PortId], need: Need
    ) -> Circuit | None:
        """A new circuit from a rack to one of ``ends``, free ports by plane."""
        for port in self._free_ports(rack, need):
            plane = self._fabric.ports[port].plane
            if plane in ends:
                return _circuit(plane, port, ends[plane])
        return None

    def _onward(
        self, rack: RackId, need: Need, searched: set[PlaneId]
    ) -> Iterable[tuple[Circuit, RackId]]:
        """Circuits from a rack, booked circuits first, with the racks at the far ends."""
        onward = self._booked_onward(rack, need)
        free = self._free_ports(rack, need)
        return chain(onward, self._new_onward(rack, need, free, searched)) if free else onward

    def _new_onward(
        self, rack: RackId, need: Need, free: Sequence[PortId], searched: set[PlaneId]
    ) -> Iterator[tuple[Circuit, RackId]]:
        """New circuits from the free ports of a rack on planes not ``searched`` before."""
        ports, least_mbps = self._fabric.ports, need.mbps - ROUNDING_MBPS
        for port in free:
            plane = ports[port].plane
            if plane in searched:
                continue
            searched.add(plane)
            if (idle := self._idle_by_plane.get(plane)) is None:
                idle = dict.fromkeys(filter(self._is_idle, self._calendar.ports_on[plane]))
                self._idle_by_plane[plane] = idle
            for other in idle:
                far = ports[other]
                if far.rack != rack and far.rate_mbps >= least_mbps:
                    yield _circuit(plane, port, other), far.rack

    def _booked_onward(self, rack: RackId, need: Need) -> list[tuple[Circuit, RackId]]:
        """Usable booked circuits from a rack, with the racks at the far ends."""
        if (known := self._lit.get(rack)) is None:
            uses = [(self._use_of(circuit), far) for circuit, far in self._booked_from(rack)]
            known = self._lit[rack] = [entry for entry in uses if self._is_whole(entry[0].circuit)]
        least_mbps, load_mbps = need.mbps - ROUNDING_MBPS, self._load_mbps
        roomy = [
            (use.circuit, far) for use, far in known if use.rate_mbps - load_mbps(use) >= least_mbps
        ]
        avoided = need.route.avoided_planes
        if avoided or need.exclusive:
            return [
                (circuit, far)
                for circuit, far in roomy
                if circuit.plane not in avoided and not (need.exclusive and self.bookings(circuit))
            ]
        return roomy

    def _free_ports(self, rack: RackId, need: Need) -> list[PortId]:
        if (idle := self._idle.get(rack)) is None:
            ports = self._fabric.ports_of(rack)
            idle = self._idle[rack] = [port.id for port in ports if self._is_idle(port.id)]
        if not idle:
            return idle
        least_mbps, ports_by_id = need.mbps - ROUNDING_MBPS, self._fabric.ports
        avoided = need.route.avoided_planes
        return [
            number
            for number in idle
            if (port := ports_by_id[number]).rate_mbps >= least_mbps and port.plane not in avoided
        ]

    def room_mbps(self, rack: RackId) -> tuple[float, float]:
        """Free Mbps of a rack: at ports without circuits, and on booked circuits."""
        ports = self._free_ports(rack, _NO_NEED)
        free = fsum(self._fabric.ports[port].rate_mbps for port in ports)
        spare = (self.spare_mbps(circuit) for circuit, _ in self._booked_from(rack))
        return free, fsum(max(0.0, mbps) for mbps in spare)

    def levels_mbps(self) -> list[float]:
        """Bandwidths at which the answer of :meth:`find` may change, sorted."""
        spare = {
            self.spare_mbps(circuit)
            for booking in self._calendar.meeting(self.start_unix_s, self.end_unix_s)
            for circuit in booking.path.circuits
        }
        return sorted(spare | self._fabric.port_rates_mbps)


def _circuit(plane: PlaneId, port: PortId, other: PortId) -> Circuit:
    return Circuit(plane, min(port, other), max(port, other))


def _path(
    pair: Pair,
    came: Mapping[RackId, tuple[RackId, Circuit] | None],
    rack: RackId,
    last: Circuit,
) -> Path:
    circuits = [last]
    step = came[rack]
    while step is not None:
        circuits.append(step[1])
        step = came[step[0]]
    return Path(*pair, tuple(reversed(circuits)))
