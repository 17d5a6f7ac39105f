"""Independent checks of topologies and VLANs, without code shared with the planners.

Each check returns the problems found, in words; an empty list is a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydra.circuit_arrays import Circuits, CircuitTable
from hydra.model import Circuit, Fabric, NetworkState, Path, PortId, Topology, VlanId, VlanRange
from hydra.path_arrays import Lanes, Paths, numbered
from topology import _native
from topology.problem import FabricArrays


def check_topology(
    fabric: Fabric | FabricArrays,
    topology: Topology,
    max_hops: int,
    blocked: Collection[PortId] = frozenset(),
    paths_per_pair: int = 1,
    standing: Collection[Path] = frozenset(),
) -> list[str]:
    """Check that ports, circuits and paths fit the wiring and each other.

    Each port serves at most one circuit, on the port's own plane, and no ``blocked`` port serves
    any; with one-way circuits a port sends on one and is lit by one, or neither. Each pair has at
    most ``paths_per_pair`` paths, no two alike; a path is made of existing circuits, joins its
    pair, visits no rack twice and has at most ``max_hops`` hops, unless the path is among
    ``standing``.
    """
    racks, planes = _racks(fabric), _planes(fabric)
    circuits = CircuitTable.of(topology.circuits)
    problems = _port_problems(circuits, blocked)
    for circuit in sorted(_misplaced(circuits, racks, planes)):
        problems.extend(_circuit_problems(circuit, racks, planes))
    paths = Paths.of(topology.paths)
    problems.extend(_number_problems(paths, paths_per_pair))
    if not _ascending(paths):
        if len(set(paths)) < len(paths):
            problems.append("a path is listed twice")
        if list(paths) != sorted(paths):
            problems.append("the paths are not sorted")
    for path in paths.chosen(_suspects(paths, topology.circuits, racks, max_hops)):
        longest = len(path.circuits) if path in standing else max_hops
        problems.extend(_path_problems(path, topology, racks.tolist(), longest))
    return problems


def check_vlans(fabric: Fabric | FabricArrays, state: NetworkState, vlans: VlanRange) -> list[str]:
    """Check that every path has a VLAN of the range, and that no VLAN contains a loop.

    A VLAN's domain is every circuit of the topology whose two end ports both carry the VLAN,
    regardless of paths; the domain must be a forest on the racks.
    """
    problems = _assignment_problems(state, vlans)
    racks = _racks(fabric)
    circuits = _in_order(state.topology.circuits)
    domains = _Domains.of(circuits, [state], len(racks))
    for vlan, domain in domains.with_cycles(racks):
        problems += [f"VLAN {vlan}: {circuit} closes a loop" for circuit in _extra(domain, racks)]
    return problems


def check_labels(state: NetworkState, labels: VlanRange) -> list[str]:
    """Check that every path has a label of the range, its own on each of its circuits."""
    problems = _assignment_problems(state, labels)
    users: dict[tuple[Circuit, VlanId], list[Path]] = {}
    for path, label in state.vlans.items():
        for circuit in path.circuits:
            users.setdefault((circuit, label), []).append(path)
    return problems + [
        f"label {label} on {circuit} stands for {len(paths)} paths"
        for (circuit, label), paths in sorted(users.items())
        if len(paths) > 1
    ]


def _assignment_problems(state: NetworkState, vlans: VlanRange) -> list[str]:
    paths, lanes = Paths.of(state.topology.paths), Lanes.of(state.vlans)
    listed = paths is lanes.paths
    without = () if listed else np.flatnonzero(paths.places_in(lanes.paths) < 0)
    unknown = () if listed else np.flatnonzero(lanes.paths.places_in(paths) < 0)
    outside = np.flatnonzero((lanes.vlan < vlans.first) | (lanes.vlan > vlans.last))
    problems = [
        f"path {path.src}-{path.dst} has no VLAN" for path in paths.chosen(np.asarray(without, int))
    ]
    problems += [
        f"VLAN {state.vlans[path]} belongs to the missing {path}"
        for path in lanes.paths.chosen(np.asarray(unknown, int))
    ]
    problems += [
        f"VLAN {state.vlans[path]} of path {path.src}-{path.dst} is outside "
        f"{vlans.first}-{vlans.last}"
        for path in lanes.paths.chosen(outside)
    ]
    return problems + [
        f"VLAN {vlan} is in use and resting" for vlan in sorted(state.pool.resting & lanes.ids)
    ]


def check_transit(
    fabric: Fabric | FabricArrays,
    old: NetworkState,
    new: NetworkState,
    disconnect_first: Collection[Circuit] = frozenset(),
    connect_last: Collection[Circuit] = frozenset(),
) -> list[str]:
    """Check that no VLAN can loop at any moment of the change from ``old`` to ``new``.

    While ports are being retagged, each may carry its old and its new VLANs, and any set of old and
    new circuits that don't share a port may be up, except those in ``disconnect_first`` (already
    down) and ``connect_last`` (not yet up). Both end states must be loop-free in themselves, see
    :func:`check_vlans`.
    """
    racks = _racks(fabric)
    before = old.topology.circuits - frozenset(disconnect_first)
    after = new.topology.circuits - frozenset(connect_last)
    # A loop is found at its last circuit. New circuits come last: they conflict only with others.
    staying, going, coming = before & after, before - after, after - before
    domains = _Domains.of(_in_order(staying, going, coming), [old, new], len(racks))
    return [
        f"VLAN {vlan}: {circuit} may close a loop during the change"
        for vlan, circuit in domains.loops(racks)
    ]


def _racks(fabric: Fabric | FabricArrays) -> NDArray[np.int32]:
    if isinstance(fabric, Fabric):
        return np.array([port.rack for port in fabric.ports], dtype=np.int32)
    return fabric.port_rack


def _planes(fabric: Fabric | FabricArrays) -> NDArray[np.int32]:
    if isinstance(fabric, Fabric):
        return np.array([port.plane for port in fabric.ports], dtype=np.int32)
    return fabric.port_plane


def _in_order(*groups: AbstractSet[Circuit]) -> CircuitTable:
    """The circuits of all ``groups``, sorted within each group."""
    return CircuitTable.joined([Circuits.of(group).table for group in groups])


def _port_problems(circuits: CircuitTable, blocked: Collection[PortId]) -> list[str]:
    if not blocked and not circuits.one_way.any():
        ends = np.sort(np.concatenate([circuits.a, circuits.b]))
        if (np.diff(ends) > 0).all():
            return []
    problems = []
    made = circuits.circuits()
    sends = Counter(port for circuit in made for port in circuit.senders)
    lit = Counter(port for circuit in made for port in circuit.receivers)
    for port in sorted(sends | lit):
        if max(sends[port], lit[port]) > 1:
            problems.append(f"port {port} serves {max(sends[port], lit[port])} circuits")
        if port not in lit:
            problems.append(f"port {port} sends and has no light")
        if port in blocked:
            problems.append(f"port {port} is blocked and serves a circuit")
    return problems


def _misplaced(
    circuits: CircuitTable, racks: NDArray[np.int32], planes: NDArray[np.int32]
) -> list[Circuit]:
    """Circuits with an end at a missing port, at a port of another plane, or with both ends at a
    rack.
    """
    plane, a, b = circuits.plane, circuits.a, circuits.b
    wrong = (a < 0) | (b < 0) | (a >= len(racks)) | (b >= len(racks))
    port_a, port_b = np.where(wrong, 0, a), np.where(wrong, 0, b)
    if len(racks):
        wrong |= (
            (planes[port_a] != plane) | (planes[port_b] != plane) | (racks[port_a] == racks[port_b])
        )
    return circuits.chosen(wrong).circuits()


def _number_problems(paths: Paths, paths_per_pair: int) -> Iterator[str]:
    table = paths.table
    ends = table.src.astype(np.int64) << 32 | table.dst
    _, first, count = np.unique(ends, return_index=True, return_counts=True)
    many = count > paths_per_pair
    for place, number in zip(first[many].tolist(), count[many].tolist(), strict=True):
        yield f"pair {table.src[place]}-{table.dst[place]} has {number} paths"


def _ascending(paths: Paths) -> bool:
    """True if the paths are in ascending order, without duplicates."""
    table = paths.table
    ends = table.src.astype(np.int64) << 32 | table.dst
    step = np.diff(ends)
    if (step < 0).any():
        return False
    equal = np.flatnonzero(step == 0)
    if not equal.size:
        return True
    circuits = paths.circuits.table
    plane, a, b = (values[paths.link] for values in (circuits.plane, circuits.a, circuits.b))
    hops = table.hops
    for hop in range(int(hops.max(initial=0)) + 1):
        if (hops[equal + 1] <= hop).any():
            return False  # the later path is the same, or the same up to its end
        equal = equal[hops[equal] > hop]
        order = np.zeros(len(equal), dtype=np.int8)
        for values in (plane, a, b):
            before, after = values[table.start[equal] + hop], values[table.start[equal + 1] + hop]
            order = np.where(order == 0, np.sign(after - before), order)
        if (order < 0).any():
            return False
        equal = equal[order == 0]
    return True


def _suspects(
    paths: Paths, circuits: AbstractSet[Circuit], racks: NDArray[np.int32], max_hops: int
) -> NDArray[np.intp]:
    """Places of paths that may be faulty: all other paths are whole and short enough."""
    table, hops = paths.table, paths.table.hops
    exists = paths.circuits.places_in(Circuits.of(circuits)) >= 0
    one_way = paths.circuits.table.one_way
    wrong = (hops > max_hops) | (hops == 0)
    if not exists.all():
        wrong |= table.any_hop(~exists[paths.link])
    if one_way.any():
        wrong |= table.any_hop(one_way[paths.link])
    wrong |= table.src >= table.dst
    strays = np.empty(len(paths), dtype=np.uint8)
    _native.find_strays(
        int(racks.max(initial=-1)) + 1,
        racks,
        table.start,
        table.hop_a,
        table.hop_b,
        table.src,
        table.dst,
        strays,
    )
    return np.flatnonzero(wrong | (strays > 0))


def _circuit_problems(
    circuit: Circuit, racks: NDArray[np.int32], planes: NDArray[np.int32]
) -> Iterator[str]:
    for port in circuit.ends:
        if not 0 <= port < len(planes):
            yield f"{circuit} ends at the missing port {port}"
            return
        if planes[port] != circuit.plane:
            yield f"{circuit} ends at port {port} of plane {planes[port]}"
    if racks[circuit.a] == racks[circuit.b]:
        yield f"{circuit} joins rack {racks[circuit.a]} to itself"


def _path_problems(
    path: Path, topology: Topology, racks: Sequence[int], max_hops: int
) -> Iterator[str]:
    name = f"path {path.src}-{path.dst}"
    if path.src >= path.dst and not path.one_way:
        yield f"{name} is not written from the lower rack to the higher"
    if len(path.circuits) > max_hops:
        yield f"{name} has {len(path.circuits)} hops, more than {max_hops}"
    visited: list[int] = [path.src]
    for circuit in path.circuits:
        if circuit not in topology.circuits:
            yield f"{name} uses the missing {circuit}"
            return
        if not all(0 <= port < len(racks) for port in circuit.ends):
            yield f"{name} uses {circuit}, which ends at a missing port"
            return
        ends = {racks[circuit.a], racks[circuit.b]}
        if circuit.one_way != path.one_way:
            yield f"{name} mixes one-way and duplex circuits"
            return
        starts = {racks[circuit.a]} if circuit.one_way else ends
        if visited[-1] not in starts:
            yield f"{name} breaks at rack {visited[-1]}: {circuit} does not touch the rack"
            return
        visited.extend(ends - {visited[-1]})
    if visited[-1] != path.dst:
        yield f"{name} ends at rack {visited[-1]}"
    if len(set(visited)) < len(visited):
        yield f"{name} visits a rack twice"


@dataclass(frozen=True, slots=True)
class _Domains:
    """Circuits of each VLAN: both end ports carry the VLAN."""

    circuits: CircuitTable
    vlans: NDArray[np.int32]
    """The VLANs that ports carry, ascending."""
    start: NDArray[np.int32]
    """Start of each VLAN's circuits in ``circuit``, and the end."""
    circuit: NDArray[np.int32]
    """Places in ``circuits``, ascending for each VLAN."""

    @classmethod
    def of(cls, circuits: CircuitTable, states: Iterable[NetworkState], n_ports: int) -> _Domains:
        marked = [Lanes.of(state.vlans) for state in states]
        known, places = numbered(np.concatenate([lanes.vlan for lanes in marked]))
        ends = np.cumsum([len(lanes) for lanes in marked])
        carries = np.zeros(n_ports * -(-len(known) // 64), dtype=np.uint64)
        for lanes, place in zip(marked, np.split(places, ends[:-1]), strict=True):
            table = lanes.paths.table
            _native.tag_ports(
                n_ports, len(known), table.start, table.hop_a, table.hop_b, place, carries
            )
        lowest, highest = (each(circuits.a, circuits.b) for each in (np.minimum, np.maximum))
        real = (lowest >= 0) & (highest < n_ports)
        if not real.all():
            circuits = circuits.chosen(np.flatnonzero(real))
        start, circuit = np.zeros(len(known) + 1, dtype=np.int32), np.zeros(0, dtype=np.int32)
        domains = n_ports, len(known), carries, circuits.a, circuits.b, start
        circuit = np.empty(_native.list_domains(*domains, circuit), dtype=np.int32)
        _native.list_domains(*domains, circuit)
        return cls(circuits, known, start, circuit)

    def loops(self, racks: NDArray[np.int32]) -> Iterator[tuple[int, Circuit]]:
        """VLANs, each with a circuit that closes a loop with earlier circuits, no two sharing a
        port.
        """
        a, b = self.circuits.a, self.circuits.b
        closes = np.zeros(len(self.circuit), dtype=np.int32)
        ports = a[self.circuit], b[self.circuit]
        _native.find_loops(int(racks.max(initial=-1)) + 1, racks, self.start, *ports, closes)
        places = np.flatnonzero(closes)
        vlans = self.vlans[np.searchsorted(self.start, places, side="right") - 1]
        yield from zip(
            vlans.tolist(), self.circuits.chosen(self.circuit[places]).circuits(), strict=True
        )

    def with_cycles(self, racks: NDArray[np.int32]) -> Iterator[tuple[int, Sequence[Circuit]]]:
        """VLANs whose circuits contain a cycle, each with its circuits in order.

        A circuit with an end where no other circuit ends is in no cycle. Such circuits are removed
        until no edge can be removed: a forest becomes empty.
        """
        n_racks = int(racks.max(initial=0)) + 1
        first = np.repeat(n_racks * np.arange(len(self.vlans)), np.diff(self.start))
        end_a = first + racks[self.circuits.a[self.circuit]]
        end_b = first + racks[self.circuits.b[self.circuit]]
        rest = np.arange(len(end_a))
        while True:
            ends = np.bincount(
                np.concatenate([end_a[rest], end_b[rest]]), minlength=len(self.vlans) * n_racks
            )
            stays = (ends[end_a[rest]] > 1) & (ends[end_b[rest]] > 1)
            if stays.all():
                break
            rest = rest[stays]
        for place in np.unique(first[rest] // n_racks).tolist():
            within = self.circuits.chosen(self.circuit[self.start[place] : self.start[place + 1]])
            yield int(self.vlans[place]), within.circuits()


def _extra(circuits: Iterable[Circuit], racks: NDArray[np.int32]) -> Iterator[Circuit]:
    """Circuits that close a loop with earlier circuits (union-find on the racks)."""
    parent: dict[int, int] = {}

    def root(rack: int) -> int:
        while rack in parent:
            rack = parent[rack]
        return rack

    for circuit in circuits:
        root_a, root_b = root(racks[circuit.a]), root(racks[circuit.b])
        if root_a == root_b:
            yield circuit
        else:
            parent[root_a] = root_b
