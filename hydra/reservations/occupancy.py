"""Occupancy of ports and circuits during a time interval, updated with each booking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from hydra.model import Circuit, Pair, Path, PlaneId, PortId, RackId
from hydra.reservations.booking import Booking, peak_mbps
from hydra.reservations.limits import AdmissionLimits

if TYPE_CHECKING:
    from hydra.reservations.calendar import Calendar


@dataclass(slots=True)
class Use:
    """Use of a circuit during a window."""

    circuit: Circuit
    rate_mbps: float
    load_mbps: float | None = None
    """Peak of the booked Mbps; infinite for an exclusive circuit; None: not known."""


class Occupancy:
    """Bookings of ports and circuits during a time interval, kept up to date by the calendar."""

    def __init__(
        self, calendar: Calendar, start_unix_s: float, end_unix_s: float, limits: AdmissionLimits
    ) -> None:
        self.start_unix_s = start_unix_s
        self.end_unix_s = end_unix_s
        self._calendar = calendar
        self._fabric = calendar.fabric
        self._limits = limits
        self._standing: dict[PortId, Circuit] = {
            port: circuit
            for path in limits.standing
            for circuit in path.circuits
            for port in circuit.ends
        }
        self._standing_of: dict[Pair, list[Path]] = {}
        for path in limits.standing:
            self._standing_of.setdefault((path.src, path.dst), []).append(path)
        # What is known of the occupancy. Searches ask for the same racks and pairs again and again.
        self._users: dict[PortId, frozenset[Circuit]] = {}
        self._uses: dict[Circuit, Use] = {}
        self._met: dict[Pair, list[Booking]] = {}
        self._booked: dict[Pair, frozenset[Path]] = {}
        self._idle: dict[RackId, list[PortId]] = {}
        self._idle_by_plane: dict[PlaneId, dict[PortId, None]] = {}
        """In the order of the ports."""
        self._lit: dict[RackId, list[tuple[Use, RackId]]] = {}
        """Booked circuits that new bookings may use, with the racks at the far ends."""

    def is_of(self, start_unix_s: float, end_unix_s: float, limits: AdmissionLimits) -> bool:
        """True if the window is that of the arguments."""
        return (self.start_unix_s, self.end_unix_s) == (start_unix_s, end_unix_s) and (
            self._limits is limits or self._limits == limits
        )

    def enter(self, booking: Booking) -> None:
        """Enter a booking of the whole window, with a bandwidth and not exclusive, into a fork."""
        # The occupancy must be known before, as the calendar lacks the booking.
        self.booked_paths((booking.path.src, booking.path.dst))
        for circuit in booking.path.circuits:
            self.load_mbps(circuit)
            for port in circuit.ends:
                self.users(port)
        self.note_added(booking)

    def note_added(self, booking: Booking) -> None:
        """Keep known occupancy up to date with a new booking."""
        if not booking.overlaps(self.start_unix_s, self.end_unix_s):
            return
        path, pair = booking.path, (booking.path.src, booking.path.dst)
        if (met := self._met.get(pair)) is not None:
            met.append(booking)
        if (booked := self._booked.get(pair)) is not None and path not in booked:
            self._booked[pair] = booked | {path}
        whole = booking.start_unix_s <= self.start_unix_s and self.end_unix_s <= booking.end_unix_s
        for circuit in path.circuits:
            for port in circuit.ends:
                if (users := self._users.get(port)) is not None and circuit not in users:
                    self._forget_racks((*users, circuit))
                    self._users[port] = users | {circuit}
                    if (idle := self._idle_by_plane.get(circuit.plane)) is not None:
                        idle.pop(port, None)
            use = self._uses.get(circuit)
            if use is not None and (load := use.load_mbps) is not None:
                more_mbps = inf if booking.exclusive else booking.mbps
                use.load_mbps = load + more_mbps if whole else None

    def note_removed(self, booking: Booking) -> None:
        """Forget the occupancy of a removed booking's circuits."""
        pair = booking.path.src, booking.path.dst
        self._met.pop(pair, None)
        self._booked.pop(pair, None)
        for circuit in booking.path.circuits:
            if (use := self._uses.get(circuit)) is not None:
                use.load_mbps = None
            self._idle_by_plane.pop(circuit.plane, None)
            self._forget_racks((circuit,))
            for port in circuit.ends:
                self._forget_racks(self._users.pop(port, ()))

    def _forget_racks(self, circuits: Iterable[Circuit]) -> None:
        """Forget idle ports and lit circuits of the racks at both ends of circuits."""
        for circuit in circuits:
            for port in circuit.ends:
                rack = self._fabric.ports[port].rack
                self._idle.pop(rack, None)
                self._lit.pop(rack, None)

    # --- occupancy -------------------------------------------------------------------------------

    def bookings(self, circuit: Circuit) -> list[Booking]:
        """Bookings on ``circuit`` at any moment of the window."""
        return self._calendar.circuit_meets(circuit, self.start_unix_s, self.end_unix_s)

    def users(self, port: PortId) -> frozenset[Circuit]:
        """Circuits that end at ``port`` at some moment of the window."""
        known = self._users.get(port)
        if known is None:
            start, end, meets = self.start_unix_s, self.end_unix_s, self._calendar.circuit_meets
            booked = [c for c in self._calendar.circuits_at(port) if meets(c, start, end)]
            standing = self._standing.get(port)
            known = frozenset(booked if standing is None else [*booked, standing])
            self._users[port] = known
        return known

    def load_mbps(self, circuit: Circuit) -> float:
        """Peak of the Mbps booked on ``circuit``; infinite for an exclusive circuit."""
        return self._load_mbps(self._use_of(circuit))

    def spare_mbps(self, circuit: Circuit) -> float:
        use = self._use_of(circuit)
        return use.rate_mbps - self._load_mbps(use)

    def _use_of(self, circuit: Circuit) -> Use:
        if (use := self._uses.get(circuit)) is None:
            use = self._uses[circuit] = Use(circuit, self._fabric.rate_of(circuit))
        return use

    def _load_mbps(self, use: Use) -> float:
        if (load := use.load_mbps) is None:
            booked = self.bookings(use.circuit)
            alone = any(booking.exclusive for booking in booked)
            load = inf if alone else peak_mbps(booked, self.start_unix_s, self.end_unix_s)
            use.load_mbps = load
        return load

    def server_mbps(self, server: str) -> float:
        """Peak of the Mbps booked on the uplink of a server."""
        start, end = self.start_unix_s, self.end_unix_s
        return peak_mbps(self._calendar.server_meets(server, start, end), start, end)

    def pair_paths(self, pair: Pair) -> frozenset[Path]:
        """Paths of ``pair`` at some moment of the window: booked paths, or else standing paths."""
        return self.booked_paths(pair) or frozenset(self._standing_of.get(pair, ()))

    def booked_paths(self, pair: Pair) -> frozenset[Path]:
        """Booked paths of ``pair`` at some moment of the window."""
        if (booked := self._booked.get(pair)) is None:
            booked = self._booked[pair] = frozenset(b.path for b in self._pair_meets(pair))
        return booked

    def _pair_meets(self, pair: Pair) -> Sequence[Booking]:
        """Bookings of ``pair`` at any moment of the window."""
        if (met := self._met.get(pair)) is None:
            met = self._calendar.pair_meets(pair, self.start_unix_s, self.end_unix_s)
            self._met[pair] = met
        return met

    def _booked_from(self, rack: RackId) -> Iterator[tuple[Circuit, RackId]]:
        for port in self._fabric.ports_of(rack):
            users = self.users(port.id)
            if len(users) == 1:
                (circuit,) = users
                other = circuit.b if circuit.a == port.id else circuit.a
                yield circuit, self._fabric.ports[other].rack

    def _is_idle(self, port: PortId) -> bool:
        return port not in self._limits.blocked and not self.users(port)

    def _is_whole(self, circuit: Circuit) -> bool:
        """True if both ports are in use, and free or serving the circuit throughout the window."""
        blocked = self._limits.blocked
        for port in circuit.ends:
            users = self.users(port)
            if port in blocked or (users and users != {circuit}):
                return False
        return True
