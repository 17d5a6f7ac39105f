"""Reservations: a bandwidth between two racks that the planner must keep a path for.

:class:`ReservationBook` is the set of them. It knows names, limits and states, and nothing of
devices or clocks: identifiers and the time are arguments. Whether a path with enough room exists
is for the planner to say; :func:`explain_refusal` puts its "no" into words.

A reservation holds its bandwidth in both directions, because a circuit is bidirectional and the
way back takes the same path. There is one path per rack pair, so reservations between the same two
racks share it and add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from hydra.errors import AdmissionError, HydraError, LifecycleError, UnknownName
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState, check_transition
from hydra.model import Circuit, Fabric, Path, PlaneId, PortId, RackId, VlanId

HOLDING_STATES: Final = frozenset({ReservationState.ACTIVATING, ReservationState.ACTIVE})
"""States in which a reservation has a claim on capacity."""

FINAL_STATES: Final = frozenset(s for s, after in RESERVATION_TRANSITIONS.items() if not after)

_ROUNDING_MBPS: Final = 1e-6
"""Sums of bandwidths are compared with this slack, so that 0.1 + 0.2 fits into 0.3."""


@dataclass(frozen=True, slots=True)
class ReservationRequest:
    """What an application asks for; nothing is checked before :meth:`ReservationBook.check`."""

    src: str
    """Name of a rack or of a server."""
    dst: str
    bandwidth_mbps: float
    duration_s: float | None
    """None: until released."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A request that was admitted, and what became of it."""

    id: str
    state: ReservationState
    src: str
    dst: str
    bandwidth_mbps: float
    duration_s: float | None
    src_rack: RackId
    dst_rack: RackId
    created_unix_s: float
    expires_unix_s: float | None
    """``created_unix_s + duration_s``: the time to bring the circuits up counts."""
    path: Path | None = None
    """None until there is one; the last one when it is over."""
    vlan: VlanId | None = None
    reason: str = ""
    """Why it is in this state, in words."""

    @property
    def request(self) -> ReservationRequest:
        return ReservationRequest(self.src, self.dst, self.bandwidth_mbps, self.duration_s)

    @property
    def pair(self) -> tuple[RackId, RackId]:
        """Its two racks in the order that :class:`Path` uses."""
        return rack_pair(self.src_rack, self.dst_rack)

    @property
    def holds_capacity(self) -> bool:
        return self.state in HOLDING_STATES

    def to_record(self) -> dict[str, Any]:
        """A dict that JSON can hold; :meth:`from_record` gives back an equal reservation."""
        record = asdict(self)
        record["state"] = self.state.value
        if self.path is not None:
            record["path"] = {
                "src": self.path.src,
                "dst": self.path.dst,
                "circuits": [[c.plane, c.a, c.b] for c in self.path.circuits],
            }
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Reservation:
        """Raises HydraError for a record that :meth:`to_record` did not write."""
        try:
            fields = dict(record)
            fields["state"] = ReservationState(fields["state"])
            fields["path"] = None if fields["path"] is None else _path_from_record(fields["path"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise HydraError(f"not a reservation record ({error}): {dict(record)!r}") from error


def _path_from_record(record: Mapping[str, Any]) -> Path:
    circuits = tuple(
        Circuit(PlaneId(plane), PortId(a), PortId(b)) for plane, a, b in record["circuits"]
    )
    return Path(RackId(record["src"]), RackId(record["dst"]), circuits)


@dataclass(frozen=True, slots=True)
class Pin:
    """What the planner must keep for one rack pair: its path, if it has one, and the bandwidth."""

    src: RackId
    dst: RackId
    path: Path | None
    bandwidth_mbps: float
    """Sum over the pair's reservations."""
    reservations: tuple[str, ...]


def rack_pair(one: RackId, other: RackId) -> tuple[RackId, RackId]:
    return (one, other) if one < other else (other, one)


class ReservationBook:
    """All reservations, oldest first. Not thread-safe: its owner holds the lock."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self._by_id: dict[str, Reservation] = {}
        for reservation in reservations:
            self._insert(reservation)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, reservation_id: object) -> bool:
        return reservation_id in self._by_id

    def get(self, reservation_id: str) -> Reservation:
        """Raises UnknownName."""
        try:
            return self._by_id[reservation_id]
        except KeyError:
            raise UnknownName(f"no reservation {reservation_id!r}") from None

    # --- admission, as far as names and limits go -------------------------------------------

    def check(self, request: ReservationRequest, fabric: Fabric) -> tuple[RackId, RackId]:
        """The racks of ``request``, if names and limits allow it.

        Raises UnknownName for a name that is neither rack nor server, and AdmissionError, with
        the largest bandwidth possible, for what no topology could carry.
        """
        src, dst = rack_of(fabric, request.src), rack_of(fabric, request.dst)
        if src == dst:
            raise AdmissionError(
                f"{request.src} and {request.dst} are in rack {fabric.racks[src].name}: traffic "
                "inside a rack never leaves its ToR and needs no circuit"
            )
        for name, rack in ((request.src, src), (request.dst, dst)):
            if fabric.racks[rack].spine:
                raise AdmissionError(f"{name} is a spine: it has no servers, no path ends there")
        _check_numbers(request)
        self._check_circuit_limit(request, fabric, src, dst)
        for name in (request.src, request.dst):
            self._check_server_limit(request, fabric, name)
        return src, dst

    def _check_circuit_limit(
        self, request: ReservationRequest, fabric: Fabric, src: RackId, dst: RackId
    ) -> None:
        limit = fastest_circuit_mbps(fabric, src, dst)
        held = sum(r.bandwidth_mbps for r in self.active() if r.pair == rack_pair(src, dst))
        if request.bandwidth_mbps + held > limit + _ROUNDING_MBPS:
            pair = f"{fabric.racks[src].name} and {fabric.racks[dst].name}"
            raise AdmissionError(
                f"{request.bandwidth_mbps:g} Mb/s between {pair} is too much: the fastest circuit "
                f"carries {limit:g} Mb/s{_and_reserved(held)}; ask for at most "
                f"{max(0.0, limit - held):g} Mb/s"
            )

    def _check_server_limit(self, request: ReservationRequest, fabric: Fabric, name: str) -> None:
        if name in fabric.rack_by_name:
            return
        limit = fabric.server_rate_mbps
        held = sum(r.bandwidth_mbps for r in self.active() if name in {r.src, r.dst})
        if request.bandwidth_mbps + held > limit + _ROUNDING_MBPS:
            raise AdmissionError(
                f"{request.bandwidth_mbps:g} Mb/s is too much for server {name}: its uplink "
                f"carries {limit:g} Mb/s{_and_reserved(held)}; ask for at most "
                f"{max(0.0, limit - held):g} Mb/s"
            )

    # --- changes ----------------------------------------------------------------------------

    def add(
        self, reservation_id: str, request: ReservationRequest, fabric: Fabric, now: float
    ) -> Reservation:
        """Check ``request`` and enter it as ``activating``; ``now`` in Unix seconds."""
        src, dst = self.check(request, fabric)
        duration = request.duration_s
        reservation = Reservation(
            id=reservation_id,
            state=ReservationState.ACTIVATING,
            src=request.src,
            dst=request.dst,
            bandwidth_mbps=request.bandwidth_mbps,
            duration_s=duration,
            src_rack=src,
            dst_rack=dst,
            created_unix_s=now,
            expires_unix_s=None if duration is None else now + duration,
        )
        self._insert(reservation)
        return reservation

    def _insert(self, reservation: Reservation) -> None:
        if reservation.id in self._by_id:
            raise LifecycleError(f"there is a reservation {reservation.id!r} already")
        self._by_id[reservation.id] = reservation

    def transition(
        self,
        reservation_id: str,
        state: ReservationState,
        reason: str = "",
        path: Path | None = None,
        vlan: VlanId | None = None,
    ) -> Reservation:
        """Move to ``state``, and, if ``path`` is given, onto it (see :meth:`place`).

        Raises UnknownName, and LifecycleError for a step that is not in the transition table;
        the book is unchanged then.
        """
        old = self.get(reservation_id)
        try:
            check_transition(RESERVATION_TRANSITIONS, old.state, state)
        except LifecycleError as error:
            raise LifecycleError(f"reservation {reservation_id}: {error}") from None
        if path is not None and (path.src, path.dst) != old.pair:
            raise ValueError(f"path of {path.src}-{path.dst} for a reservation of {old.pair}")
        self._by_id[reservation_id] = replace(old, state=state, reason=reason)
        if path is not None:
            self.place(path, vlan)
        return self._by_id[reservation_id]

    def place(self, path: Path, vlan: VlanId | None) -> tuple[Reservation, ...]:
        """Give this path to all reservations that hold capacity between its racks; returns them.

        All, because there is one path per rack pair.
        """
        moved = tuple(
            replace(r, path=path, vlan=vlan)
            for r in self.active()
            if r.pair == (path.src, path.dst)
        )
        self._by_id.update((r.id, r) for r in moved)
        return moved

    def prune(self, keep: int) -> tuple[str, ...]:
        """Forget the oldest reservations that are over, all but ``keep``; returns their ids."""
        over = [r.id for r in self if r.state in FINAL_STATES]
        forgotten = tuple(over[: max(0, len(over) - keep)])
        for reservation_id in forgotten:
            del self._by_id[reservation_id]
        return forgotten

    # --- questions --------------------------------------------------------------------------

    def active(self) -> tuple[Reservation, ...]:
        """Those with a claim on capacity: ``activating`` and ``active``."""
        return tuple(r for r in self._by_id.values() if r.holds_capacity)

    def expired(self, now: float) -> tuple[str, ...]:
        """Ids of those that hold capacity past their end; ``now`` in Unix seconds."""
        return tuple(
            r.id for r in self.active() if r.expires_unix_s is not None and r.expires_unix_s <= now
        )

    def pinned(self) -> tuple[Pin, ...]:
        """What the planner must keep, one pin per rack pair, sorted by pair.

        A reservation without a path yet counts into its pair's pin.
        """
        by_pair: dict[tuple[RackId, RackId], list[Reservation]] = {}
        for reservation in self.active():
            by_pair.setdefault(reservation.pair, []).append(reservation)
        return tuple(_pin(pair, by_pair[pair]) for pair in sorted(by_pair))

    # --- persistence ------------------------------------------------------------------------

    def to_records(self) -> list[dict[str, Any]]:
        return [reservation.to_record() for reservation in self]

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]], fabric: Fabric) -> ReservationBook:
        """Raises HydraError for a record that is malformed or made for another fabric."""
        book = cls()
        for record in records:
            reservation = Reservation.from_record(record)
            _check_fits(reservation, fabric)
            book._insert(reservation)
        return book


def rack_of(fabric: Fabric, name: str) -> RackId:
    """The rack called ``name``, or the rack of the server called so; raises UnknownName."""
    if (rack := fabric.rack_by_name.get(name)) is not None:
        return rack.id
    if (server := fabric.server_by_name.get(name)) is not None:
        return server.rack
    raise UnknownName(
        f"no rack or server {name!r} in fabric {fabric.name}"
        + did_you_mean(name, (*fabric.rack_by_name, *fabric.server_by_name))
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to append to "no such name": `` - did you mean 'r1'?``, or nothing."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f": did you mean {' or '.join(map(repr, close))}?" if close else ""


def fastest_circuit_mbps(fabric: Fabric, src: RackId, dst: RackId) -> float:
    """An upper bound on any path between two racks: no faster than either end's best port.

    0 if one of them has no optical port at all.
    """
    return min(
        max((port.rate_mbps for port in fabric.ports_of(rack)), default=0.0) for rack in (src, dst)
    )


def explain_refusal(
    fabric: Fabric, src: RackId, dst: RackId, bandwidth_mbps: float, pins: Sequence[Pin]
) -> str:
    """Why no path was found: at both racks, which optical port serves which reservation.

    For an AdmissionError, once the planner has said that there is no path with enough room.
    """
    holders = _port_holders(fabric, pins)
    ends = "; ".join(_describe_rack(fabric, rack, holders) for rack in (src, dst))
    return (
        f"no path with {bandwidth_mbps:g} Mb/s to spare between {fabric.racks[src].name} and "
        f"{fabric.racks[dst].name}: {ends}"
    )


def _port_holders(fabric: Fabric, pins: Sequence[Pin]) -> dict[PortId, list[str]]:
    holders: dict[PortId, list[str]] = {}
    for pin in pins:
        for circuit in pin.path.circuits if pin.path is not None else ():
            text = (
                f"{', '.join(pin.reservations)} ({fabric.racks[pin.src].name}-"
                f"{fabric.racks[pin.dst].name}, {pin.bandwidth_mbps:g} of "
                f"{fabric.rate_of(circuit):g} Mb/s)"
            )
            for port in (circuit.a, circuit.b):
                holders.setdefault(port, []).append(text)
    return holders


def _describe_rack(fabric: Fabric, rack: RackId, holders: Mapping[PortId, Sequence[str]]) -> str:
    ports = [
        f"{port.tor_port} (plane {fabric.planes[port.plane].name}) "
        + (f"is held by {' and '.join(holders[port.id])}" if port.id in holders else "is free")
        for port in fabric.ports_of(rack)
    ]
    return f"at {fabric.racks[rack].name} " + (", ".join(ports) or "there is no optical port")


def _check_numbers(request: ReservationRequest) -> None:
    # Written so that NaN fails, too.
    if not (math.isfinite(request.bandwidth_mbps) and request.bandwidth_mbps > 0):
        raise AdmissionError(
            f"bandwidth_mbps must be a finite number above 0, got {request.bandwidth_mbps}"
        )
    duration = request.duration_s
    if duration is not None and not (math.isfinite(duration) and duration > 0):
        raise AdmissionError(
            f"duration_s must be a finite number above 0 (or left out), got {duration}"
        )


def _and_reserved(held_mbps: float) -> str:
    return f", of which {held_mbps:g} Mb/s are reserved already" if held_mbps else ""


def _pin(pair: tuple[RackId, RackId], reservations: Sequence[Reservation]) -> Pin:
    return Pin(
        src=pair[0],
        dst=pair[1],
        path=next((r.path for r in reservations if r.path is not None), None),
        bandwidth_mbps=math.fsum(r.bandwidth_mbps for r in reservations),
        reservations=tuple(r.id for r in reservations),
    )


def _check_fits(reservation: Reservation, fabric: Fabric) -> None:
    """A journal outlives the configuration: positions in it must still mean the same things."""
    try:
        racks = rack_of(fabric, reservation.src), rack_of(fabric, reservation.dst)
    except UnknownName as error:
        raise HydraError(f"reservation {reservation.id} is for another fabric: {error}") from error
    ports_fit = reservation.path is None or all(
        _on_plane(fabric, circuit.plane, circuit.a) and _on_plane(fabric, circuit.plane, circuit.b)
        for circuit in reservation.path.circuits
    )
    if racks != (reservation.src_rack, reservation.dst_rack) or not ports_fit:
        raise HydraError(
            f"reservation {reservation.id} ({reservation.src} to {reservation.dst}) was made for "
            f"another wiring than that of fabric {fabric.name}: release it first, or use a new "
            "journal"
        )


def _on_plane(fabric: Fabric, plane: PlaneId, port: PortId) -> bool:
    return 0 <= port < len(fabric.ports) and fabric.ports[port].plane == plane
