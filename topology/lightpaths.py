"""One-way light paths as a topology: rings of circuits, with a path for each."""

from __future__ import annotations

from collections import defaultdict

from hydra.model import OneWayCircuit, Path, PlaneId, PortId, RackId, Topology
from hydra.rings import closing
from topology.problem import FabricArrays, PlanResult


def ring_topology(fabric: FabricArrays, result: PlanResult) -> Topology:
    """What stands in the only slot of a one-way plan, standing circuits included.

    Light paths that were added to close rings (:mod:`hydra.rings`) carry what there is for them,
    like any others. They are on ports that the plan uses in one direction anyway.
    """
    (slot,) = result.slots
    edges: dict[PlaneId, list[tuple[PortId, PortId]]] = defaultdict(list)
    for light in sorted(slot.lightpaths):
        edges[light.plane].append((light.sender, light.receiver))
    circuits = [
        OneWayCircuit(plane, PortId(sender), PortId(receiver))
        for plane, planned in edges.items()
        for sender, receiver in (*planned, *closing(planned))
    ]
    paths = [
        Path(
            RackId(int(fabric.port_rack[circuit.a])),
            RackId(int(fabric.port_rack[circuit.b])),
            (circuit,),
        )
        for circuit in circuits
    ]
    standing = result.topology
    return Topology(standing.circuits.union(circuits), tuple(sorted([*standing.paths, *paths])))
