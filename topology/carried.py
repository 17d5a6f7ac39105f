"""Traffic carried by the paths of a topology, pair by pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, DemandMatrix, Path, RackId, Topology
from topology.problem import SLICES, FabricArrays, PairDemands, Reserved, pair_demands


def pairs_on_paths(wanted_mbps: DemandMatrix, paths: Iterable[Path]) -> PairDemands:
    """The :func:`~topology.problem.pair_demands` of pairs with a path; all pairs can be many."""
    on_paths = np.zeros_like(wanted_mbps)
    for path in paths:
        for ends in path.directions:
            on_paths[ends] = wanted_mbps[ends]
    return pair_demands(on_paths)


def carried_mbps(
    fabric: FabricArrays, wanted_mbps: DemandMatrix, topology: Topology, reserved: Reserved
) -> NDArray[np.float64]:
    """Mbps that each pair gets, shape (N, N): symmetric, but one-way for one-way paths.

    Reserved rates are set aside first and serve their own pairs. A pair's further demand is spread
    evenly over its paths, and each path takes the capacity left along its circuits, the largest
    demands first, as in :func:`~topology.problem.measure`.
    """
    if any(path.one_way for path in topology.paths):
        return _carried_one_way(fabric, wanted_mbps, topology)
    residual = {circuit: fabric.rate_of(circuit) for circuit in topology.circuits}
    own: dict[tuple[int, int], float] = {}
    for path, rate in reserved.rate_by_path().items():
        ends = (int(path.src), int(path.dst))
        own[ends] = own.get(ends, 0.0) + _take(residual, path, rate)
    paths_of: dict[tuple[int, int], list[Path]] = {}
    for path in sorted(topology.paths, key=lambda path: path.hops):
        paths_of.setdefault((int(path.src), int(path.dst)), []).append(path)
    carried = np.zeros((fabric.n_racks, fabric.n_racks))
    pairs = list(pairs_on_paths(wanted_mbps, topology.paths))
    for pair in pairs:
        ends = (pair.src, pair.dst)
        carried[ends] = min(pair.mbps, own.get(ends, 0.0))
    beyond_mbps = [pair.mbps - carried[pair.src, pair.dst] for pair in pairs]
    most = max(map(len, paths_of.values()), default=0)
    for nth, part in [(0, 1.0), *((nth, 1 / SLICES) for nth in [*range(1, most)] * SLICES)]:
        for pair, beyond in zip(pairs, beyond_mbps, strict=True):
            paths = paths_of[pair.src, pair.dst]
            if nth < len(paths):
                share = part * beyond / len(paths)
                carried[pair.src, pair.dst] += _take(residual, paths[nth], share)
    return carried + carried.T


def _carried_one_way(
    fabric: FabricArrays, wanted_mbps: DemandMatrix, topology: Topology
) -> NDArray[np.float64]:
    """Carried traffic on one-way paths: nothing is reserved, and no two paths share a circuit."""
    number = Counter((path.src, path.dst) for path in topology.paths)
    carried = np.zeros((fabric.n_racks, fabric.n_racks))
    for path in topology.paths:
        ends = (path.src, path.dst)
        carried[ends] += min(wanted_mbps[ends] / number[ends], *map(fabric.rate_of, path.circuits))
    return carried


def _take(residual_mbps: dict[Circuit, float], path: Path, wanted_mbps: float) -> float:
    given = min(wanted_mbps, *(residual_mbps[circuit] for circuit in path.circuits))
    for circuit in path.circuits:
        residual_mbps[circuit] -= given
    return given


def rack_pairs(marked: NDArray[np.bool_]) -> tuple[tuple[RackId, RackId], ...]:
    """The (row, column) of each marked entry, sorted."""
    rows, columns = np.nonzero(marked)
    return cast(
        tuple[tuple[RackId, RackId], ...], tuple(zip(rows.tolist(), columns.tolist(), strict=True))
    )
