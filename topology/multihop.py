"""The HydRA topology heuristic (Christodoulopoulos et al., JOCN 2015, section III.B.3)."""

from __future__ import annotations

from collections.abc import Iterator

from numpy.typing import ArrayLike

from hydra.model import Path, PortId, RackId, Topology
from topology.auxgraph import AuxiliaryGraph
from topology.problem import (
    Budget,
    FabricArrays,
    PairDemand,
    PlanResult,
    Reserved,
    measure,
    pair_demands,
    validate_demand,
)
from topology.standing import Standing, standing_part


def plan_hydra_bfs(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Plan circuits and paths of at most ``budget.max_hops`` hops for ``demand``.

    ``demand`` has shape (N, N), Mbps from row to column. A pair of racks wants the larger of its
    two directions and gets at most one path. Pairs are taken largest first (ties by rack numbers)
    in rounds h = 1, 2, …, H; a round serves those that a breadth-first search of depth h on the
    auxiliary graph reaches: links are pairs of free ports on one plane, and circuits with capacity
    left. In round 1 that means a circuit of one's own. A served pair leaves the ordering and
    books ``min(demand, what the scarcest circuit of its path has left)``.

    Fixed here where the paper leaves a choice: among shortest paths the lexicographically smallest
    rack sequence; for a hop a circuit with all that is wanted, then a new circuit (one that exists
    in ``current`` first, then the lowest plane), then a circuit with something left (Boolean
    demands only). A hop runs between racks of the budget, on its planes or on circuits that stay.

    The result holds the circuits and paths that must stay (see :mod:`topology.standing`), and
    beyond them only circuits that some path uses. The same input gives the same result.

    Cost: O(H·N²) searches of O(N + K) operations on N-bit sets.

    Raises PlanError for a bad demand entry, an impossible budget, or pinned paths that do not fit.
    """
    pairs = pair_demands(validate_demand(demand, fabric.n_racks))
    budget.check(fabric)
    standing = standing_part(fabric, pairs, current, reserved, budget)
    graph = _auxiliary_graph(fabric, current, standing, budget)
    new_paths = list(_rounds(graph, _open_pairs(pairs, standing, budget), budget))
    topology = Topology(
        circuits=standing.circuits.union(*(path.circuits for path in new_paths)),
        paths=tuple(sorted([*standing.paths, *new_paths], key=lambda path: (path.src, path.dst))),
    )
    return measure(fabric, pairs, topology, reserved)


def keep_current(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """``current`` unchanged, and how much of ``demand`` it serves: the baseline of comparisons.

    Raises PlanError for a bad demand entry or budget.
    """
    pairs = pair_demands(validate_demand(demand, fabric.n_racks))
    budget.check(fabric)
    return measure(fabric, pairs, current, reserved)


def _auxiliary_graph(
    fabric: FabricArrays, current: Topology, standing: Standing, budget: Budget
) -> AuxiliaryGraph:
    unavailable = standing.ports() | budget.blocked_ports
    racks, planes = fabric.port_rack.tolist(), fabric.port_plane.tolist()
    ports = (
        PortId(port)
        for port in range(fabric.n_ports)
        if port not in unavailable
        and budget.includes_rack(racks[port])
        and budget.includes_plane(planes[port])
    )
    graph = AuxiliaryGraph(fabric, ports, preferred=current.circuits - standing.circuits)
    for circuit in sorted(standing.circuits):
        within = all(budget.includes_rack(rack) for rack in fabric.racks_of(circuit))
        if within and not budget.blocked_ports & {circuit.a, circuit.b}:
            graph.add_circuit(circuit, standing.residual_mbps[circuit])
    return graph


def _open_pairs(pairs: list[PairDemand], standing: Standing, budget: Budget) -> list[PairDemand]:
    served = {(int(path.src), int(path.dst)) for path in standing.paths}
    return [
        pair
        for pair in pairs
        if (pair.src, pair.dst) not in served
        and budget.includes_rack(pair.src)
        and budget.includes_rack(pair.dst)
    ]


def _rounds(graph: AuxiliaryGraph, waiting: list[PairDemand], budget: Budget) -> Iterator[Path]:
    for depth in range(1, budget.max_hops + 1):
        left_over = []
        for pair in waiting:
            need_mbps = 0.0 if budget.boolean else pair.mbps
            racks = graph.shortest_path(pair.src, pair.dst, depth, need_mbps)
            if racks is None:
                left_over.append(pair)
                continue
            circuits = graph.book(racks, pair.mbps, need_mbps)
            yield Path(RackId(pair.src), RackId(pair.dst), circuits)
        waiting = left_over
