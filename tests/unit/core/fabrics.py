"""Small fabrics and random states of the fabrics, for the tests of the core."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_interface, ip_network
from itertools import islice

from hydra.forwarding.substrate import substrate_of
from hydra.model import (
    EMPTY_TOPOLOGY,
    Circuit,
    DatapathId,
    Fabric,
    MacAddress,
    NetworkState,
    OneWayCircuit,
    OpticalPort,
    Path,
    Plane,
    PlaneId,
    PortId,
    Rack,
    RackId,
    Server,
    SubstrateKind,
    Topology,
    Tor,
    VlanId,
    VlanRange,
    VSwitch,
)
from hydra.reservations.book import ReservationBook
from hydra.reservations.records import read_reservation, reservation_record
from hydra.rings import whole_rings
from hydra.vlan_pool import VlanPool
from topology.marks import Marks, marks_of

CIRCUIT_VLANS = VlanRange(VlanId(100), VlanId(399))
PARKING_VLAN = VlanId(4000)
NATIVE_VLAN = VlanId(10)


def _server(rack: int, number: int) -> Server:
    name = f"h{rack + 1}{number}"
    return Server(
        name=name,
        rack=RackId(rack),
        mac=MacAddress(f"02:00:00:00:{rack + 1:02x}:{number:02x}"),
        addresses=(
            ip_interface(f"10.0.{rack + 1}.{number}/16"),
            ip_interface(f"fd00:10:0:{rack + 1:x}::{number:x}/48"),
        ),
        tor_port=f"s{number}",
        vswitch=VSwitch(
            DatapathId(0x2000 + 256 * rack + number), f"v-{name}", "host", "optical", "electrical"
        ),
    )


def _rack(number: int, servers: int) -> Rack:
    return Rack(
        id=RackId(number),
        name=f"r{number + 1}",
        prefixes=(
            ip_network(f"10.0.{number + 1}.0/24"),
            ip_network(f"fd00:10:0:{number + 1:x}::/64"),
        ),
        tor=Tor(
            "any", f"tor{number + 1}", f"tor{number + 1}", DatapathId(0x1000 + number), NATIVE_VLAN
        ),
        servers=tuple(_server(number, 1 + index) for index in range(servers)),
    )


def small_fabric(
    racks: int = 4, planes: int = 2, ports_per_plane: int = 1, servers: int = 2
) -> Fabric:
    """Racks r1, r2, … with servers h11, h12, …; every rack on every plane p1, p2, …, 100 Mb/s."""
    size = racks * ports_per_plane
    ports: list[OpticalPort] = []
    for rack in range(racks):
        for plane in range(planes):
            for index in range(ports_per_plane):
                ingress = 1 + rack * ports_per_plane + index
                ports.append(
                    OpticalPort(
                        PortId(len(ports)),
                        RackId(rack),
                        PlaneId(plane),
                        f"o{plane + 1}.{index + 1}",
                        ingress,
                        size + ingress,
                        100.0,
                    )
                )
    return Fabric(
        name="small",
        racks=tuple(_rack(number, servers) for number in range(racks)),
        planes=tuple(
            Plane(PlaneId(number), f"p{number + 1}", "any", f"ocs{number + 1}", size, 25.0, 100.0)
            for number in range(planes)
        ),
        ports=tuple(ports),
        circuit_vlans=CIRCUIT_VLANS,
        parking_vlan=PARKING_VLAN,
        electrical_rate_mbps=10.0,
        server_rate_mbps=100.0,
    )


def single_homed(fabric: Fabric) -> Fabric:
    """The same fabric with one uplink per server, and the electrical network behind the ToRs."""

    def attached(rack: Rack) -> Rack:
        servers = tuple(
            replace(one, vswitch=replace(one.vswitch, electrical_port=one.vswitch.optical_port))
            for one in rack.servers
        )
        return replace(rack, servers=servers, tor=replace(rack.tor, electrical_port="up"))

    racks = tuple(attached(rack) for rack in fabric.racks)
    return replace(fabric, racks=racks, substrate=SubstrateKind.SINGLE_HOMED_VLAN)


def with_guests(fabric: Fabric, *macs: MacAddress) -> Fabric:
    """``fabric``, whose first server bridges guests."""
    rack = fabric.racks[0]
    servers = (replace(rack.servers[0], guests=macs), *rack.servers[1:])
    return replace(fabric, racks=(replace(rack, servers=servers), *fabric.racks[1:]))


def openflow_only(fabric: Fabric) -> Fabric:
    """The same fabric with plain servers, and steering ToRs."""

    def attached(rack: Rack) -> Rack:
        servers = tuple(replace(server, vswitch=None) for server in rack.servers)
        tor = replace(rack.tor, electrical_port="up", native_vlan=VlanId(0))
        return replace(rack, servers=servers, tor=tor)

    return replace(
        fabric,
        racks=tuple(map(attached, fabric.racks)),
        parking_vlan=VlanId(0),
        substrate=SubstrateKind.SINGLE_HOMED_OPENFLOW,
    )


def with_one_way_circuits(fabric: Fabric) -> Fabric:
    """The same fabric with steering ToRs, and circuits in rings."""
    return replace(openflow_only(fabric), one_way=True)


def reread(book: ReservationBook, fabric: Fabric, other: Fabric | None = None) -> ReservationBook:
    """Reservations written by a controller of ``fabric``, as read by a controller of ``other``."""
    other = other or fabric
    records = json.loads(json.dumps([reservation_record(fabric, one) for one in book]))
    return ReservationBook(other, [read_reservation(other, record) for record in records])


def reordered(fabric: Fabric, rng: random.Random) -> Fabric:
    """The same network, with racks, planes and ports in another order."""
    racks = rng.sample(fabric.racks, len(fabric.racks))
    planes = rng.sample(fabric.planes, len(fabric.planes))
    ports = rng.sample(fabric.ports, len(fabric.ports))
    rack_at = {rack.id: RackId(position) for position, rack in enumerate(racks)}
    plane_at = {plane.id: PlaneId(position) for position, plane in enumerate(planes)}
    return replace(
        fabric,
        racks=tuple(
            replace(
                rack,
                id=rack_at[rack.id],
                servers=tuple(replace(one, rack=rack_at[rack.id]) for one in rack.servers),
            )
            for rack in racks
        ),
        planes=tuple(replace(plane, id=plane_at[plane.id]) for plane in planes),
        ports=tuple(
            replace(port, id=PortId(position), rack=rack_at[port.rack], plane=plane_at[port.plane])
            for position, port in enumerate(ports)
        ),
    )


def physical(fabric: Fabric, path: Path, src: RackId) -> list[set[tuple[object, ...]]]:
    """The elements of a path, hop by hop from ``src``, by names and numbers on the devices."""
    hops = [
        {
            (fabric.racks[end.rack].name, end.tor_port, fabric.planes[end.plane].name, end.ingress)
            for end in (fabric.ports[port] for port in circuit.ends)
        }
        for circuit in path.circuits
    ]
    return hops if path.src == src else hops[::-1]


def random_fabric(rng: random.Random) -> Fabric:
    fabric = small_fabric(
        racks=rng.randint(2, 6),
        planes=rng.randint(1, 3),
        ports_per_plane=rng.choice((1, 1, 2)),
        servers=rng.choice((1, 2)),
    )
    return rng.choice(
        (fabric, single_homed(fabric), openflow_only(fabric), with_one_way_circuits(fabric))
    )


def circuit_between(fabric: Fabric, one: int, other: int, plane: int = 0) -> Circuit:
    """The circuit between the first ports of two racks on a plane."""
    ends = [
        next(port.id for port in fabric.ports if port.rack == rack and port.plane == plane)
        for rack in sorted((one, other))
    ]
    return Circuit(PlaneId(plane), min(ends), max(ends))


def path_of(fabric: Fabric, src: int, dst: int, *circuits: Circuit) -> Path:
    return Path(RackId(src), RackId(dst), circuits or (circuit_between(fabric, src, dst),))


def parallel_paths(fabric: Fabric) -> tuple[Path, ...]:
    """Racks 0 and 1, joined by a circuit on each plane."""
    return tuple(
        path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, plane.id)) for plane in fabric.planes
    )


def topology_of(*paths: Path) -> Topology:
    return Topology(frozenset(c for p in paths for c in p.circuits), tuple(sorted(paths)))


def state_of(fabric: Fabric, current: NetworkState, *paths: Path) -> NetworkState:
    """The state after ``current`` with these paths, VLANs allocated."""
    return marks_of(fabric).state(current, topology_of(*paths))


def order_of(fabric: Fabric, marks: Marks | None = None):
    """Stand-in for a fabric's data as needed by :func:`hydra.reconfiguration.plan.diff`.

    ``marks``: the fabric's, if available.
    """
    marks = marks or marks_of(fabric)

    def order(old: NetworkState, new: NetworkState):
        found = marks.order(old, new)
        return found.disconnect_first, found.connect_last

    return order


def _random_circuits(fabric: Fabric, rng: random.Random, kept: set[Circuit]) -> set[Circuit]:
    """The ``kept`` circuits, and a random matching of the free ports, plane by plane."""
    if fabric.one_way:
        return _random_rings(fabric, rng, kept)
    circuits = set(kept)
    taken = {end for circuit in kept for end in (circuit.a, circuit.b)}
    for plane in fabric.planes:
        free = [p for p in fabric.ports if p.plane == plane.id and p.id not in taken]
        rng.shuffle(free)
        while len(free) > 1:
            end = free.pop()
            partners = [other for other in free if other.rack != end.rack]
            if partners and rng.random() < 0.9:
                other = rng.choice(partners)
                free.remove(other)
                circuits.add(Circuit(plane.id, min(end.id, other.id), max(end.id, other.id)))
    return circuits


def _random_rings(fabric: Fabric, rng: random.Random, kept: set[Circuit]) -> set[Circuit]:
    """The whole rings among the ``kept`` circuits, and random rings of the free ports."""
    circuits = set(whole_rings(kept))
    taken = {end for circuit in circuits for end in circuit.ends}
    for plane in fabric.planes:
        free = [p for p in fabric.ports if p.plane == plane.id and p.id not in taken]
        rng.shuffle(free)
        while len(free) > 1:
            length = rng.randint(2, len(free))
            ring, free = free[:length], free[length:]
            links = list(zip(ring, [*ring[1:], ring[0]], strict=True))
            if all(one.rack != other.rack for one, other in links) and rng.random() < 0.9:
                circuits.update(OneWayCircuit(plane.id, one.id, other.id) for one, other in links)
    return circuits


def _paths_on_rings(fabric: Fabric, rng: random.Random, circuits: set[Circuit]) -> set[Path]:
    """A path for nearly every circuit."""
    return {
        Path(*fabric.racks_of(circuit), (circuit,))
        for circuit in sorted(circuits)
        if rng.random() < 0.9
    }


_Step = tuple[Circuit, RackId]
"""A circuit, and the rack that it leads to."""


def _random_path(
    rng: random.Random, steps_from: Mapping[int, Sequence[_Step]], src: int, dst: int, hops: int
) -> Path | None:
    """A random walk by these steps that visits no rack twice; None if the walk ends elsewhere."""
    here, visited, along = src, {src}, []
    while here != dst and len(along) < hops:
        steps = [step for step in steps_from.get(here, ()) if step[1] not in visited]
        if not steps:
            return None
        ending = [step for step in steps if step[1] == dst]
        circuit, here = rng.choice(ending or steps)
        visited.add(here)
        along.append(circuit)
    return Path(RackId(src), RackId(dst), tuple(along)) if here == dst else None


def random_topology(fabric: Fabric, current: Topology, rng: random.Random) -> Topology:
    """A part of ``current`` stays, the rest is random."""
    stay = rng.choice((0.0, 0.5, 0.8))
    kept = {circuit for circuit in sorted(current.circuits) if rng.random() < stay}
    circuits = _random_circuits(fabric, rng, kept)
    paths = {
        path for path in current.paths if circuits.issuperset(path.circuits) and rng.random() < 0.7
    }
    if fabric.one_way:
        paths |= _paths_on_rings(fabric, rng, circuits - current.circuits)
        return Topology(frozenset(circuits), tuple(sorted(paths)))
    joined = {(path.src, path.dst) for path in paths}
    steps_from: dict[int, list[_Step]] = {}
    for circuit in sorted(circuits):
        a, b = fabric.racks_of(circuit)
        steps_from.setdefault(a, []).append((circuit, b))
        steps_from.setdefault(b, []).append((circuit, a))
    for src in range(len(fabric.racks)):
        for dst in range(src + 1, len(fabric.racks)):
            more = 0.2 if (src, dst) in joined else 0.7
            while rng.random() < more:
                path = _random_path(rng, steps_from, src, dst, hops=3)
                paths |= {path} if path else set()
                more = 0.2
    return Topology(frozenset(circuits), tuple(sorted(paths)))


def random_state(
    fabric: Fabric, current: NetworkState, rng: random.Random, marks: Marks | None = None
) -> NetworkState:
    """A state that may follow ``current``. ``marks``: the fabric's, if available.

    Often with random VLANs within the allocator's guarantees, so that mirrors and retagging can't
    go in parallel: with the allocator's own choice they nearly always can.
    """
    marks = marks or marks_of(fabric)
    goal = random_goal(fabric, current, rng, marks)
    return goal if isinstance(goal, NetworkState) else marks.state(current, goal)


def random_goal(
    fabric: Fabric, current: NetworkState, rng: random.Random, marks: Marks
) -> NetworkState | Topology:
    """:func:`random_state`, or only its topology if the allocator should choose the VLANs."""
    topology = random_topology(fabric, current.topology, rng)
    order, retags = order_of(fabric, marks), substrate_of(fabric).retags
    found: NetworkState | None = None
    for _ in range(rng.choice((0, 5))):
        drawn = _with_random_vlans(fabric, current, topology, rng)
        if marks.problems(drawn):
            continue
        first, last = order(current, drawn)
        if marks.transit_problems(current, drawn, first, last):
            continue
        if first or last or not retags:
            return drawn
        found = found or drawn
    return found or topology


def _with_random_vlans(
    fabric: Fabric, current: NetworkState, topology: Topology, rng: random.Random
) -> NetworkState:
    """New paths join VLANs that lose no path, or take new VLANs; both at random."""
    kept = {path: current.vlans[path] for path in topology.paths if path in current.vlans}
    losing = {vlan for path, vlan in current.vlans.items() if path not in kept}
    in_use = set(current.vlans.values())
    first, last = fabric.circuit_vlans.first, fabric.circuit_vlans.last
    unfit = in_use | current.pool.resting
    fresh = list(islice((VlanId(v) for v in range(first, last) if v not in unfit), 3))
    pool = sorted(set(kept.values()) - losing) + fresh[: rng.randint(1, 3)]
    vlans = {path: kept.get(path) or rng.choice(pool) for path in topology.paths}
    resting = frozenset(in_use.difference(vlans.values()))
    return NetworkState(current.epoch + 1, topology, vlans, VlanPool(resting))


def random_change(rng: random.Random) -> tuple[Fabric, NetworkState, NetworkState]:
    """A fabric, and two successive states of it."""
    fabric = random_fabric(rng)
    old = first_state(fabric, rng)
    return fabric, old, random_state(fabric, old, rng)


def first_state(fabric: Fabric, rng: random.Random) -> NetworkState:
    empty = NetworkState(topology=EMPTY_TOPOLOGY)
    return random_state(fabric, empty, rng) if rng.random() < 0.9 else empty
