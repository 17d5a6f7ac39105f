"""One-way light paths as a topology: rings of circuits, with a path for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np
from scipy.optimize import linear_sum_assignment

from hydra.model import OneWayCircuit, Path, PlaneId, PortId, RackId, Topology
from hydra.rings import closing
from topology.problem import Budget, FabricArrays, Lightpath, PlanResult

_PortOf = dict[int, PortId]
"""A plane as one port of each rack."""


def ring_topology(
    fabric: FabricArrays, result: PlanResult, current: Topology, budget: Budget
) -> Topology:
    """What stands in the only slot of a one-way plan, standing circuits included.

    Light paths that are added to close rings (:mod:`hydra.rings`) carry what there is for them,
    like any others; they are between ports that the plan uses in one direction anyway. Planes that
    are alike change places so that as many circuits as possible of ``current`` stay.
    """
    (slot,) = result.slots
    standing = result.topology
    circuits = _rings(slot.lightpaths)
    for alike in _planes_alike(fabric, budget, standing):
        circuits = _settled(fabric, circuits, current, alike)
    paths = [
        Path(
            RackId(int(fabric.port_rack[circuit.a])),
            RackId(int(fabric.port_rack[circuit.b])),
            (circuit,),
        )
        for circuit in circuits
    ]
    return Topology(standing.circuits.union(circuits), tuple(sorted([*standing.paths, *paths])))


def _rings(lightpaths: Collection[Lightpath]) -> list[OneWayCircuit]:
    planned: dict[PlaneId, list[tuple[int, int]]] = defaultdict(list)
    for light in sorted(lightpaths):
        planned[light.plane].append((light.sender, light.receiver))
    return [
        OneWayCircuit(plane, PortId(sender), PortId(receiver))
        for plane, edges in planned.items()
        for sender, receiver in (*edges, *closing(edges))
    ]


def _planes_alike(
    fabric: FabricArrays, budget: Budget, standing: Topology
) -> list[dict[PlaneId, _PortOf]]:
    """Planes in groups that any plan fits on as well: one port of each of the same racks, at the
    same rates, all of them free to be planned with.
    """
    unfit = {circuit.plane for circuit in standing.circuits}
    unfit |= {PlaneId(int(fabric.port_plane[port])) for port in budget.blocked_ports}
    groups: dict[tuple[tuple[int, float], ...], dict[PlaneId, _PortOf]] = defaultdict(dict)
    for plane in map(PlaneId, range(fabric.n_planes)):
        ports = np.flatnonzero(fabric.port_plane == plane)
        racks = fabric.port_rack[ports].tolist()
        if plane in unfit or not budget.includes_plane(plane) or len(set(racks)) < len(racks):
            continue
        rates = fabric.port_rate_mbps[ports].tolist()
        port_of = dict(zip(racks, map(PortId, ports.tolist()), strict=True))
        groups[tuple(sorted(zip(racks, rates, strict=True)))][plane] = port_of
    return [planes for planes in groups.values() if len(planes) > 1]


def _settled(
    fabric: FabricArrays,
    circuits: Collection[OneWayCircuit],
    current: Topology,
    alike: dict[PlaneId, _PortOf],
) -> list[OneWayCircuit]:
    """What is planned for each of the planes on that of them where most of it stands now."""

    def on(circuit: OneWayCircuit, plane: PlaneId) -> OneWayCircuit:
        sender, receiver = (alike[plane][int(fabric.port_rack[end])] for end in circuit.ends)
        return OneWayCircuit(plane, sender, receiver)

    planes = list(alike)
    staying = np.zeros((len(planes), len(planes)))
    for circuit in circuits:
        if circuit.plane in alike:
            row = planes.index(circuit.plane)
            staying[row] += [on(circuit, plane) in current.circuits for plane in planes]
    # Of equally good ones, that which leaves most planes as they were planned.
    worth = (len(planes) + 1) * staying + np.eye(len(planes))
    _, columns = linear_sum_assignment(worth, maximize=True)
    place = dict(zip(planes, (planes[column] for column in columns.tolist()), strict=True))
    return [
        on(circuit, place[circuit.plane]) if circuit.plane in place else circuit
        for circuit in circuits
    ]
