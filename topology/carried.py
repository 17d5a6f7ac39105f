"""What the paths of a topology carry, pair by pair."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, DemandMatrix, Path, RackId, Topology
from topology.problem import FabricArrays, PairDemands, Reserved, pair_demands


def pairs_on_paths(wanted_mbps: DemandMatrix, paths: Iterable[Path]) -> PairDemands:
    """Those of :func:`~topology.problem.pair_demands` that have a path; the rest can be many."""
    on_paths = np.zeros_like(wanted_mbps)
    for path in paths:
        for ends in ((path.src, path.dst), (path.dst, path.src)):
            on_paths[ends] = wanted_mbps[ends]
    return pair_demands(on_paths)


def carried_mbps(
    fabric: FabricArrays, wanted_mbps: DemandMatrix, topology: Topology, reserved: Reserved
) -> NDArray[np.float64]:
    """Mbps that each pair gets in either direction, shape (N, N), symmetric.

    Reserved rates are set aside first and serve their own pairs; then each pair, the largest
    demand first, takes what is left along its path, as in :func:`~topology.problem.measure`.
    """
    residual = {circuit: fabric.rate_of(circuit) for circuit in topology.circuits}
    own = {
        (int(path.src), int(path.dst)): _take(residual, path, rate)
        for path, rate in reserved.rate_by_path().items()
    }
    path_of = {(int(path.src), int(path.dst)): path for path in topology.paths}
    carried = np.zeros((fabric.n_racks, fabric.n_racks))
    for pair in pairs_on_paths(wanted_mbps, topology.paths):
        ends = (pair.src, pair.dst)
        given = min(pair.mbps, own.get(ends, 0.0))
        given += _take(residual, path_of[ends], pair.mbps - given)
        carried[ends] = carried[ends[::-1]] = given
    return carried


def _take(residual_mbps: dict[Circuit, float], path: Path, wanted_mbps: float) -> float:
    given = min(wanted_mbps, *(residual_mbps[circuit] for circuit in path.circuits))
    for circuit in path.circuits:
        residual_mbps[circuit] -= given
    return given


def rack_pairs(marked: NDArray[np.bool_]) -> tuple[tuple[RackId, RackId], ...]:
    """The (row, column) of each entry that is marked, sorted."""
    rows, columns = np.nonzero(marked)
    return cast(
        tuple[tuple[RackId, RackId], ...], tuple(zip(rows.tolist(), columns.tolist(), strict=True))
    )
