"""An algorithm of your own beside one of ours: a circuit for the greatest demands first."""

import sys
from itertools import combinations

import numpy as np

from apps.offline.study import plain_fabric
from hydra.model import Circuit, Path, PlaneId, PortId, RackId, Topology
from topology.algorithms import algorithm
from topology.checks import check_topology
from topology.demand import served_mbps
from topology.problem import Budget, FabricArrays, Reserved
from topology.synthetic import synthetic_demand

fabric = FabricArrays.of(plain_fabric(16, 4, rate_mbps=10_000))
demand = synthetic_demand("gravity", fabric.n_racks, seed=7, busiest_mbps=20_000)


def greedy() -> Topology:
    """A circuit for each pair of racks, the greatest demand first, where both have a free port."""
    free = {
        (int(rack), int(plane)): PortId(port)
        for port, (rack, plane) in enumerate(zip(fabric.port_rack, fabric.port_plane, strict=True))
    }
    paths = []
    wanted = demand + demand.T
    for a, b in sorted(combinations(range(fabric.n_racks), 2), key=lambda ab: -wanted[ab]):
        for plane in range(fabric.n_planes):
            if (a, plane) in free and (b, plane) in free:
                ends = free.pop((a, plane)), free.pop((b, plane))
                circuit = Circuit(PlaneId(plane), min(ends), max(ends))
                paths.append(Path(RackId(a), RackId(b), (circuit,)))
                break
    return Topology(frozenset(path.circuits[0] for path in paths), tuple(sorted(paths)))


ours = algorithm("edmonds")(fabric, demand, Topology(), Reserved(), Budget(max_hops=1)).topology
electrical = np.full(fabric.n_racks, 1_000.0)
for name, plan in {"greedy": greedy(), "edmonds": ours, "no circuits": Topology()}.items():
    for problem in check_topology(fabric, plan, max_hops=1):
        sys.exit(f"{name}: {problem}")
    served = served_mbps(fabric, plan, demand, electrical, electrical).sum() / demand.sum()
    print(f"{name}: {served:.0%} of the demand served")
