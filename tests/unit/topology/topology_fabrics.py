"""Fabrics, states and Hypothesis strategies for the tests of the topology engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hydra.model import Circuit, Path, PlaneId, PortId, RackId, Topology, VlanId, VlanRange
from topology.problem import Budget, FabricArrays

VLANS = VlanRange(VlanId(100), VlanId(999))


def arrays(
    n_racks: int, n_planes: int, ports: Sequence[tuple[int, int] | tuple[int, int, float]]
) -> FabricArrays:
    """A fabric whose ports are given as (rack, plane) or (rack, plane, Mbps); 100 Mbps default."""
    return FabricArrays(
        n_racks=n_racks,
        n_planes=n_planes,
        port_rack=np.array([port[0] for port in ports], dtype=np.int32),
        port_plane=np.array([port[1] for port in ports], dtype=np.int32),
        port_rate_mbps=np.array(
            [port[2] if len(port) == 3 else 100.0 for port in ports], dtype=np.float64
        ),
    )


def full(n_racks: int, n_planes: int, per_plane: int = 1, rate_mbps: float = 100.0) -> FabricArrays:
    """Every rack has ``per_plane`` ports on every plane; numbered rack by rack."""
    return arrays(
        n_racks,
        n_planes,
        [
            (rack, plane, rate_mbps)
            for rack in range(n_racks)
            for plane in range(n_planes)
            for _ in range(per_plane)
        ],
    )


def circuit(fabric: FabricArrays, one: int, other: int) -> Circuit:
    """The circuit between two ports."""
    a, b = sorted((one, other))
    return Circuit(PlaneId(int(fabric.port_plane[a])), PortId(a), PortId(b))


def path(src: int, dst: int, *circuits: Circuit) -> Path:
    return Path(RackId(src), RackId(dst), circuits)


def topology_of(*paths: Path) -> Topology:
    return Topology(frozenset(c for p in paths for c in p.circuits), tuple(sorted(paths)))


def demand_of(n: int, entries: dict[tuple[int, int], float]) -> NDArray[np.float64]:
    demand = np.zeros((n, n))
    for (src, dst), mbps in entries.items():
        demand[src, dst] = mbps
    return demand


def hops_of(topology: Topology) -> dict[tuple[int, int], int]:
    return {(int(p.src), int(p.dst)): p.hops for p in topology.paths}


@st.composite
def fabrics(draw: st.DrawFn, max_racks: int = 7, max_planes: int = 4) -> FabricArrays:
    """Uneven fabrics: racks that miss planes, several ports per plane, several rates."""
    n_racks = draw(st.integers(1, max_racks))
    n_planes = draw(st.integers(0, max_planes))
    rates = draw(st.sampled_from([(100.0,), (10.0, 100.0), (10.0, 40.0, 100.0)]))
    ports = [
        (rack, plane, draw(st.sampled_from(rates)))
        for rack in range(n_racks)
        for plane in range(n_planes)
        for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2])))
    ]
    order = draw(st.permutations(range(len(ports))))
    return arrays(n_racks, n_planes, [ports[i] for i in order])


@st.composite
def demands(draw: st.DrawFn, n: int) -> NDArray[np.float64]:
    """Matrices with zeros, ties, asymmetry, and more than a circuit can carry."""
    rate = st.sampled_from([0.0, 0.0, 1.0, 5.0, 10.0, 33.3, 100.0, 250.0])
    values = draw(st.lists(rate, min_size=n * n, max_size=n * n))
    matrix = np.array(values).reshape(n, n)
    np.fill_diagonal(matrix, 0.0)
    return matrix


@st.composite
def budgets(draw: st.DrawFn, fabric: FabricArrays) -> Budget:
    """Whole and partial budgets, with and without blocked ports."""
    racks = planes = None
    if draw(st.booleans()):
        racks = draw(st.frozensets(st.sampled_from(range(fabric.n_racks))))
    if fabric.n_planes and draw(st.booleans()):
        planes = draw(st.frozensets(st.sampled_from(range(fabric.n_planes))))
    blocked: frozenset[int] = frozenset()
    if fabric.n_ports and draw(st.booleans()):
        blocked = draw(st.frozensets(st.sampled_from(range(fabric.n_ports)), max_size=3))
    return Budget(
        max_hops=draw(st.integers(1, 4)),
        racks=racks,
        planes=planes,
        blocked_ports=blocked,
        boolean=draw(st.booleans()),
        paths_per_pair=draw(st.sampled_from([1, 1, 2, 3])),
    )
