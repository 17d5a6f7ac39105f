"""Independent checks of topologies and VLANs, which share no code with the planners.

Each returns the problems it finds, in words; an empty list is a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from hydra.model import Circuit, Fabric, NetworkState, Path, PortId, Topology, VlanId, VlanRange
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

    Each port serves one circuit, on the plane it is wired to, and no ``blocked`` port serves any;
    with one-way circuits it sends on one and is lit by one, or neither. Each pair has at most
    ``paths_per_pair`` paths, no two alike; a path is made of existing circuits, joins its pair,
    visits no rack twice and has at most ``max_hops`` hops, unless it is among those ``standing``.
    """
    racks, planes = _racks(fabric), _planes(fabric)
    problems = []
    sends = Counter(port for c in topology.circuits for port in c.senders)
    lit = Counter(port for c in topology.circuits for port in c.receivers)
    for port in sorted(sends | lit):
        if max(sends[port], lit[port]) > 1:
            problems.append(f"port {port} serves {max(sends[port], lit[port])} circuits")
        if port not in lit:
            problems.append(f"port {port} sends and has no light")
        if port in blocked:
            problems.append(f"port {port} is blocked and serves a circuit")
    for circuit in sorted(topology.circuits):
        problems.extend(_circuit_problems(circuit, racks, planes))
    for pair, count in sorted(Counter((p.src, p.dst) for p in topology.paths).items()):
        if count > paths_per_pair:
            problems.append(f"pair {pair[0]}-{pair[1]} has {count} paths")
    if len(set(topology.paths)) < len(topology.paths):
        problems.append("a path is listed twice")
    if list(topology.paths) != sorted(topology.paths):
        problems.append("the paths are not sorted")
    for path in topology.paths:
        longest = len(path.circuits) if path in standing else max_hops
        problems.extend(_path_problems(path, topology, racks, longest))
    return problems


def check_vlans(fabric: Fabric | FabricArrays, state: NetworkState, vlans: VlanRange) -> list[str]:
    """Check that every path has a VLAN of the range, and that no VLAN contains a loop.

    A VLAN's domain is every circuit of the topology whose two end ports both carry it, whatever
    paths put it there; it must be a forest on the racks.
    """
    problems = _assignment_problems(state, vlans)
    racks = _racks(fabric)
    circuits = sorted(state.topology.circuits)
    for vlan, ports in sorted(_ports_by_vlan([state]).items()):
        domain = _domain(circuits, ports)
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
    paths = set(state.topology.paths)
    problems = [
        f"path {path.src}-{path.dst} has no VLAN"
        for path in state.topology.paths
        if path not in state.vlans
    ]
    problems += [
        f"VLAN {vlan} belongs to {path}, which does not exist"
        for path, vlan in state.vlans.items()
        if path not in paths
    ]
    problems += [
        f"VLAN {vlan} of path {path.src}-{path.dst} is outside {vlans.first}-{vlans.last}"
        for path, vlan in state.vlans.items()
        if not vlans.first <= vlan <= vlans.last
    ]
    return problems + [
        f"VLAN {vlan} is in use and resting"
        for vlan in sorted(state.resting & set(state.vlans.values()))
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
    before = old.topology.circuits - set(disconnect_first)
    after = new.topology.circuits - set(connect_last)
    # A loop is found at its last circuit; new ones come last since they conflict only with others.
    ordered = [*sorted(before & after), *sorted(before - after), *sorted(after - before)]
    return [
        f"VLAN {vlan}: {circuit} may close a loop during the change"
        for vlan, ports in sorted(_ports_by_vlan([old, new]).items())
        for circuit in _may_loop(_domain(ordered, ports), racks)
    ]


def _racks(fabric: Fabric | FabricArrays) -> Sequence[int]:
    if isinstance(fabric, Fabric):
        return [port.rack for port in fabric.ports]
    return [int(rack) for rack in fabric.port_rack]


def _planes(fabric: Fabric | FabricArrays) -> Sequence[int]:
    if isinstance(fabric, Fabric):
        return [port.plane for port in fabric.ports]
    return [int(plane) for plane in fabric.port_plane]


def _circuit_problems(
    circuit: Circuit, racks: Sequence[int], planes: Sequence[int]
) -> Iterator[str]:
    for port in circuit.ends:
        if not 0 <= port < len(planes):
            yield f"{circuit} ends at port {port}, which does not exist"
            return
        if planes[port] != circuit.plane:
            yield f"{circuit} ends at port {port}, which is wired to plane {planes[port]}"
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
            yield f"{name} uses {circuit}, which does not exist"
            return
        ends = {racks[circuit.a], racks[circuit.b]}
        if circuit.one_way != path.one_way:
            yield f"{name} mixes one-way and duplex circuits"
            return
        starts = {racks[circuit.a]} if circuit.one_way else ends
        if visited[-1] not in starts:
            yield f"{name} breaks at rack {visited[-1]}: {circuit} does not touch it"
            return
        visited.extend(ends - {visited[-1]})
    if visited[-1] != path.dst:
        yield f"{name} ends at rack {visited[-1]}"
    if len(set(visited)) < len(visited):
        yield f"{name} visits a rack twice"


def _ports_by_vlan(states: Iterable[NetworkState]) -> dict[VlanId, set[PortId]]:
    ports: dict[VlanId, set[PortId]] = {}
    for state in states:
        for path, vlan in state.vlans.items():
            ports.setdefault(vlan, set()).update(
                port for circuit in path.circuits for port in (circuit.a, circuit.b)
            )
    return ports


def _domain(circuits: Sequence[Circuit], ports: set[PortId]) -> list[Circuit]:
    return [c for c in circuits if c.a in ports and c.b in ports]


def _extra(circuits: Iterable[Circuit], racks: Sequence[int]) -> Iterator[Circuit]:
    """Circuits that close a loop with those before them (union-find on the racks)."""
    parent: dict[int, int] = {}

    def root(rack: int) -> int:
        while rack in parent:
            rack = parent[rack]
        return rack

    for circuit in circuits:
        one, other = root(racks[circuit.a]), root(racks[circuit.b])
        if one == other:
            yield circuit
        else:
            parent[one] = other


def _may_loop(circuits: Sequence[Circuit], racks: Sequence[int]) -> Iterator[Circuit]:
    """Circuits that close a loop with earlier ones that share no port with them."""
    if not any(_extra(circuits, racks)):
        return
    for position, circuit in enumerate(circuits):
        taken = {circuit.a, circuit.b}
        earlier = (c for c in circuits[:position] if taken.isdisjoint((c.a, c.b)))
        reached = {racks[circuit.a]}
        edges = [{racks[c.a], racks[c.b]} for c in earlier]
        grown = True
        while grown and racks[circuit.b] not in reached:
            touching = [edge for edge in edges if edge & reached]
            grown = bool(set().union(*touching) - reached)
            reached = reached.union(*touching)
        if racks[circuit.b] in reached:
            yield circuit
