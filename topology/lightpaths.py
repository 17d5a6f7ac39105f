"""Topologies of one-way light paths: rings of circuits, with a path for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, OneWayCircuit, Path, PlaneId, PortId, RackId, Topology
from hydra.rings import closing
from topology.problem import Budget, FabricArrays, Lightpath, PlanResult

_PortOf = dict[int, PortId]
"""A plane's ports by rack, a single port of each rack."""


def ring_topology(
    fabric: FabricArrays, result: PlanResult, current: Topology, budget: Budget
) -> Topology:
    """Topology of the only slot of a one-way plan, standing circuits included.

    Light paths added to close rings (:mod:`hydra.rings`) carry traffic like all others, between
    ports already used in one direction. Planes that are alike change places so that as many
    circuits as possible of ``current`` stay.
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
    return Topology(standing.circuits | set(circuits), tuple(sorted([*standing.paths, *paths])))


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
    """Groups of planes that fit any plan equally.

    Planes of a group have a port of each of the same racks, at the same rates, and all may be
    planned with.
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
    """``circuits``, with planes of ``alike`` swapped to keep most circuits in place."""
    row_of = {plane: row for row, plane in enumerate(alike)}
    planned, standing = (_by_plane(fabric, some, row_of) for some in (circuits, current.circuits))
    staying = planned @ standing.T
    # Among equally good choices, the best leaves most planes as planned.
    worth = (len(alike) + 1) * staying + np.eye(len(alike))
    # Imported late, for networks of one-way circuits alone: half of a planner's start-up time.
    assignment = import_module("scipy.optimize").linear_sum_assignment
    _, columns = assignment(worth, maximize=True)
    planes = list(alike)
    place = {
        plane: planes[column]
        for plane, column in zip(planes, columns.tolist(), strict=True)
        if plane != planes[column]
    }

    def settled(circuit: OneWayCircuit) -> OneWayCircuit:
        plane = place.get(circuit.plane)
        if plane is None:
            return circuit
        sender, receiver = (alike[plane][int(fabric.port_rack[end])] for end in circuit.ends)
        return OneWayCircuit(plane, sender, receiver)

    return list(map(settled, circuits))


def _by_plane(
    fabric: FabricArrays, circuits: Collection[Circuit], row_of: Mapping[PlaneId, int]
) -> NDArray[np.float32]:
    """Shape (planes, N * N): 1 if a rack sends to another on a plane of ``row_of``."""
    usable = [circuit for circuit in circuits if circuit.plane in row_of]
    rows = [row_of[circuit.plane] for circuit in usable]
    sender, receiver = (
        fabric.port_rack[np.fromiter(ends, dtype=np.int64, count=len(usable))].astype(np.int64)
        for ends in ((circuit.a for circuit in usable), (circuit.b for circuit in usable))
    )
    lit = np.zeros((len(row_of), fabric.n_racks**2), dtype=np.float32)
    lit[rows, sender * fabric.n_racks + receiver] = 1
    return lit
