"""Policing: shares of circuits held by reservations, by sender, and the rules that enforce the
shares.

Reserved traffic is recognized by destination and marked where the traffic enters the network: at
the vswitch of each server covered by a reservation. All other traffic for the same circuits is best
effort. Where reserved and best-effort traffic share a circuit, both go through meters, so that no
server sends more into a circuit than the circuit carries, and each reservation keeps the reserved
rate. :mod:`apps.controller.shares` sets the rate of each meter. If reservations leave less of a
circuit than the rate of an electrical uplink, best effort stays on the electrical network.

The destination counts the traffic from each reservation's servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface
from math import inf
from typing import Final, NamedTuple

from hydra.forwarding.pipeline import RuleKind, cookie
from hydra.forwarding.rules import FlowRule, Lane, in_lanes, mac_as_int, prefix_args, rack_metadata
from hydra.model import Circuit, Fabric, Path, RackId, Server, VlanId
from hydra.reservations.reservation import Reservation, ServiceClass

USABLE: Final = 0.97
"""Usable part of a circuit's rate: meters count neither VLAN tags nor gaps between frames."""

_VLAN_BITS: Final = 12
Link = tuple[Circuit, bool]
"""A circuit in one direction; True: from its end ``a`` to its end ``b``."""


class Aggregate(NamedTuple):
    """Traffic of a server to a rack, or to a server in the rack, held by a single meter (RFC 2475).

    A tuple, like :class:`Tally`: a fabric has tens of thousands, hashed and sorted without running
    any Python.
    """

    sender: str
    to: RackId
    receiver: str = ""
    """A server of the rack; empty: all servers without an aggregate of their own."""
    reserved: bool = False


class Tally(NamedTuple):
    """Traffic over circuits from a rack, or from a server in the rack, received by one server."""

    receiver: str
    source: RackId
    sender: str = ""
    """A server of the source rack; empty: all servers without a tally of their own."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Size of the burst that a meter lets pass."""

    time_ms: float
    """Length of the burst at the meter's rate."""
    least_kbit: int


STRICT: Final = Burst(8.0, 640)
"""Burst that must not fill the port buffers of ToRs, where reserved traffic waits, too: at least 40
kB, since TCP hands over a few dozen frames at once, at any rate.
"""
LENIENT: Final = Burst(20.0, 1024)
"""Burst that may come late and all at once, when a vswitch had no processor for a moment."""


def burst_of(aggregate: Aggregate) -> Burst:
    """The burst of an aggregate's meter."""
    return LENIENT if aggregate.reserved else STRICT


@dataclass(frozen=True, slots=True)
class Flow:
    """A reservation in one direction."""

    reservation: str
    mbps: float
    source: RackId
    aggregates: tuple[Aggregate, ...]
    """An aggregate for each sender; the aggregates share ``mbps``. Empty if nothing is promised."""
    tallies: tuple[Tally, ...]
    """A tally for each receiver."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Shares of circuits held by reservations, by sender."""

    flows: tuple[Flow, ...] = ()
    routes: Mapping[Aggregate, tuple[Link, ...]] = field(default_factory=dict)
    """Links that each aggregate shares with other traffic. Empty: the aggregate may send without
    limit.
    """
    remaining_mbps: Mapping[Link, float] = field(default_factory=dict)
    """Rate that reservations leave of each shared link."""
    electrical: frozenset[Aggregate] = frozenset()
    """Best-effort aggregates kept off the circuits."""
    lanes: Mapping[Aggregate, int] = field(default_factory=dict)
    """Number of the path taken by each reserved aggregate, if the pair has several paths."""
    standbys: Mapping[Aggregate, tuple[Lane, Lane]] = field(default_factory=dict)
    """Working path and path on standby of each protected aggregate."""

    @property
    def tallies(self) -> frozenset[Tally]:
        return frozenset(tally for flow in self.flows for tally in flow.tallies)


@dataclass(frozen=True, slots=True)
class _Way:
    """A path in one direction, and its traffic: reserved and not."""

    lane: tuple[RackId, RackId, Path]
    """(from, to, path)"""
    links: tuple[Link, ...]
    flows: tuple[Flow, ...]
    best_effort: tuple[Aggregate, ...]
    exclusive: bool
    """True if a reservation has exclusive use of the path's circuits."""

    standby_mbps: float = 0.0
    """Rate held for protected reservations that work on other paths."""

    @property
    def promising(self) -> tuple[Flow, ...]:
        return tuple(flow for flow in self.flows if flow.aggregates)


def holdings(
    fabric: Fabric,
    paths: Sequence[Path],
    vlans: Mapping[Path, VlanId],
    reservations: Iterable[Reservation],
) -> Holdings:
    """Holdings of the ``reservations`` whose path is among the standing ``paths``."""
    on_path: dict[Path, list[Reservation]] = {}
    standby_mbps: dict[Path, float] = {}
    protected: dict[str, tuple[Path, Path]] = {}
    for reservation in reservations:
        if reservation.booked is not None:
            on_path.setdefault(reservation.booked, []).append(reservation)
        if reservation.booked in vlans and reservation.protection in vlans:
            working_path, standby_path = reservation.paths
            protected[reservation.id] = working_path, standby_path
            held_mbps = standby_mbps.get(standby_path, 0.0)
            standby_mbps[standby_path] = held_mbps + reservation.promised_mbps
    shared = {circuit for path in (*on_path, *standby_mbps) for circuit in path.circuits}
    reserved: dict[tuple[RackId, RackId], list[Path]] = {}
    for path in paths:
        if path in on_path:
            reserved.setdefault((path.src, path.dst), []).append(path)
    ways: list[_Way] = []
    for path in paths:
        if not shared.isdisjoint(path.circuits):
            paths_of_pair = reserved.get((path.src, path.dst), ())
            beside = [user for other in paths_of_pair if other != path for user in on_path[other]]
            both = _both_ways(fabric, path, on_path.get(path, ()), beside)
            ways += (replace(way, standby_mbps=standby_mbps.get(path, 0.0)) for way in both)
    numbers = _numbers(paths, vlans, reserved)
    lanes = {
        aggregate: numbers[way.lane]
        for way in ways
        if way.lane in numbers
        for flow in way.flows
        for aggregate in flow.aggregates
    }
    standbys: dict[Aggregate, tuple[Lane, Lane]] = {}
    for way in ways:
        for flow in way.flows:
            if flow.reservation in protected:
                working, standby = (
                    (lane_path, vlans[lane_path]) for lane_path in protected[flow.reservation]
                )
                standbys |= dict.fromkeys(flow.aggregates, (working, standby))
                lanes |= dict.fromkeys(flow.aggregates, standby_number(working, standby))
    held = _meeting(fabric, ways, _remaining_mbps(fabric, ways))
    return replace(held, lanes=lanes, standbys=standbys)


def standby_number(working: Lane, standby: Lane) -> int:
    """Number, in the switches, of protected traffic that works on one path with another on standby.

    Above all numbers of single paths, which begin at 0. The traffic keeps its number, and with it
    its way, while the pair's other paths come and go. Pairs whose paths share VLAN-IDs have equal
    numbers: a number is unique at a switch, for a destination rack.
    """
    return working[1] << _VLAN_BITS | standby[1]


def _numbers(
    paths: Iterable[Path],
    vlans: Mapping[Path, VlanId],
    reserved: Collection[tuple[RackId, RackId]],
) -> dict[tuple[RackId, RackId, Path], int]:
    """Path numbers in the switches, by (from, to, path), for the ``reserved`` pairs with several
    paths.
    """
    several = (path for path in paths if (path.src, path.dst) in reserved)
    return {
        (*ends, path): number
        for ends, lanes in in_lanes(several, vlans).items()
        if len(lanes) > 1
        for number, (path, _) in enumerate(lanes)
    }


def _remaining_mbps(fabric: Fabric, ways: Collection[_Way]) -> dict[Link, float]:
    """Rate left on each link used by a reservation."""
    left: dict[Link, float] = {}
    for way in ways:
        if not (way.promising or way.standby_mbps):
            continue
        promised_mbps = sum(flow.mbps for flow in way.promising) + way.standby_mbps
        for link in way.links:
            usable_mbps = USABLE * fabric.rate_of(link[0])
            taken_mbps = usable_mbps if way.exclusive else promised_mbps
            left[link] = max(0.0, left.get(link, usable_mbps) - taken_mbps)
    return left


def _meeting(
    fabric: Fabric, ways: Collection[_Way], remaining_mbps: Mapping[Link, float]
) -> Holdings:
    """Holdings of all ``ways``.

    Best effort between racks with several paths counts fully on each path, since the switches
    choose the path of each flow. If a single path lacks room, best effort is kept off all paths of
    the pair.
    """
    electrical = frozenset(
        aggregate
        for way in ways
        if any(remaining_mbps.get(link, inf) < fabric.electrical_rate_mbps for link in way.links)
        for aggregate in way.best_effort
    )
    parties = dict.fromkeys(remaining_mbps, 0)
    for way in ways:
        joining = (
            bool(way.standby_mbps)
            + len(way.promising)
            + len(way.best_effort)
            - len(electrical & set(way.best_effort))
        )
        for link in parties.keys() & set(way.links):
            parties[link] += joining
    met = {link: remaining_mbps[link] for link, count in parties.items() if count > 1}
    routes: dict[Aggregate, tuple[Link, ...]] = {}
    for way in ways:
        links_met = tuple(link for link in way.links if link in met)
        for flow in way.promising:
            routes.update(dict.fromkeys(flow.aggregates, links_met))
        if links_met:
            for aggregate in way.best_effort:
                if aggregate not in electrical:
                    elsewhere = routes.get(aggregate)
                    routes[aggregate] = (
                        tuple(dict.fromkeys((*elsewhere, *links_met))) if elsewhere else links_met
                    )
    flows = tuple(flow for way in ways for flow in way.flows)
    return Holdings(flows, routes, met, electrical)


def _both_ways(
    fabric: Fabric, path: Path, users: Collection[Reservation], beside: Collection[Reservation]
) -> Iterator[_Way]:
    """Both directions of ``path``.

    ``users`` are the reservations on the path, ``beside`` the pair's reservations on other paths.
    """
    links = _links(fabric, path)
    exclusive = any(user.service is ServiceClass.GUARANTEED for user in users)
    back = tuple((circuit, not ahead) for circuit, ahead in links)
    for src, dst, along in ((path.src, path.dst, links), (path.dst, path.src, back)):
        flows = tuple(_flow(fabric, user, src, dst) for user in users)
        elsewhere = (_flow(fabric, reservation, src, dst) for reservation in beside)
        covered = {
            c.sender for flow in (*flows, *elsewhere) for c in flow.aggregates if not c.receiver
        }
        best_effort = tuple(
            Aggregate(server.name, dst)
            for server in fabric.racks[src].servers
            if server.name not in covered
        )
        yield _Way((src, dst, path), along, flows, best_effort, exclusive)


def _links(fabric: Fabric, path: Path) -> tuple[Link, ...]:
    """The path's circuits, in order from ``src``, each with its direction."""
    links: list[Link] = []
    here = path.src
    for circuit in path.circuits:
        first, second = fabric.racks_of(circuit)
        links.append((circuit, first == here))
        here = second if first == here else first
    return tuple(links)


def _flow(fabric: Fabric, reservation: Reservation, src: RackId, dst: RackId) -> Flow:
    names = {reservation.src_rack: reservation.src, reservation.dst_rack: reservation.dst}
    senders, receivers = _servers(fabric, src, names[src]), _servers(fabric, dst, names[dst])
    sender = names[src] if names[src] in fabric.server_by_name else ""
    receiver = names[dst] if names[dst] in fabric.server_by_name else ""
    promises = reservation.service is not ServiceClass.BEST_EFFORT
    aggregates = tuple(Aggregate(sender.name, dst, receiver, reserved=True) for sender in senders)
    return Flow(
        reservation.id,
        reservation.promised_mbps,
        src,
        aggregates if promises else (),
        tuple(Tally(receiver.name, src, sender) for receiver in receivers),
    )


def _servers(fabric: Fabric, rack: RackId, name: str) -> tuple[Server, ...]:
    server = fabric.server_by_name.get(name)
    return fabric.racks[rack].servers if server is None else (server,)


# --- rules --------------------------------------------------------------------------------------


def aggregate_rules(
    fabric: Fabric, aggregate: Aggregate, meter: int, lane: int | None = None
) -> Iterator[FlowRule]:
    """Rules in the sender's class table that hold ``aggregate`` to ``meter``.

    If the aggregate is reserved, the rules also send the traffic along the path with number
    ``lane``; None: the pair has one path.
    """
    metadata = rack_metadata(aggregate.to)
    last = () if lane is None else (lane,)
    if aggregate.receiver:
        kinds = _TO_HOST[lane is not None]
        for interface in fabric.server_by_name[aggregate.receiver].addresses:
            kind = kinds[isinstance(interface, IPv4Interface)]
            args = (metadata, int(interface.ip), meter, *last)
            yield FlowRule(kind, args, cookie(kind, subject=meter))
        return
    rack_wide = _RACK_WIDE_ON_PATH if lane is not None else _RACK_WIDE[aggregate.reserved]
    for kind in rack_wide:
        yield FlowRule(kind, (metadata, meter, *last), cookie(kind, subject=meter))


def electrical_rule(aggregate: Aggregate) -> FlowRule:
    """The rule that keeps ``aggregate`` off the circuits."""
    metadata = rack_metadata(aggregate.to)
    kind = RuleKind.BEST_EFFORT_ELECTRICAL
    return FlowRule(kind, (metadata,), cookie(kind, subject=metadata))


def tally_rules(fabric: Fabric, tally: Tally, number: int) -> Iterator[FlowRule]:
    """Rules at the receiver that count ``tally``; ``number`` goes into the cookies."""
    mac = mac_as_int(fabric.server_by_name[tally.receiver].mac)
    if tally.sender:
        for interface in fabric.server_by_name[tally.sender].addresses:
            ipv4 = isinstance(interface, IPv4Interface)
            kind = RuleKind.DELIVERED_HOST_V4 if ipv4 else RuleKind.DELIVERED_HOST_V6
            yield FlowRule(kind, (mac, int(interface.ip)), cookie(kind, subject=number))
        return
    for prefix in fabric.racks[tally.source].prefixes:
        kind = RuleKind.DELIVERED_V4 if prefix.version == 4 else RuleKind.DELIVERED_V6
        yield FlowRule(kind, (mac, *prefix_args(prefix)), cookie(kind, subject=number))


_TO_HOST: Final = {
    False: (RuleKind.RESERVED_HOST_V6, RuleKind.RESERVED_HOST_V4),
    True: (RuleKind.RESERVED_HOST_ON_PATH_V6, RuleKind.RESERVED_HOST_ON_PATH_V4),
}
"""Kinds (for IPv6, for IPv4) by whether the pair has several paths."""
_RACK_WIDE_ON_PATH: Final = (RuleKind.RESERVED_ON_PATH_V4, RuleKind.RESERVED_ON_PATH_V6)
_RACK_WIDE: Final = {
    True: (RuleKind.RESERVED_V4, RuleKind.RESERVED_V6),
    False: (RuleKind.BEST_EFFORT_V4, RuleKind.BEST_EFFORT_V6),
}
