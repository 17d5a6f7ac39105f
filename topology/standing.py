"""Standing parts of a topology: reservations, and fixed racks and planes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydra.circuit_arrays import Circuits, CircuitTable
from hydra.errors import PlanError
from hydra.model import Circuit, Path, PortId, Topology
from hydra.rings import rings_of
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    PairDemands,
    Reserved,
    count_paths,
    members,
    serve,
    shares,
)
from topology.tables import PathTable


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Circuits and paths that a new topology must contain, and the capacity and demand left."""

    circuits: frozenset[Circuit]
    paths: tuple[Path, ...]
    residual_mbps: Mapping[Circuit, float]
    """Capacity of each standing circuit left by the standing paths, in each direction."""
    remaining_mbps: NDArray[np.float64]
    """Shape (F,): demand of each pair not carried by the standing paths."""

    def ports(self) -> frozenset[PortId]:
        return frozenset(port for c in self.circuits for port in c.ends)

    def open_paths(self, n: int, reserved: Reserved, budget: Budget) -> NDArray[np.int64]:
        """Shape (n, n), symmetric: number of further paths that two racks may get."""
        count = budget.paths_between(*np.ogrid[:n, :n])
        np.fill_diagonal(count, 0)
        for path in self.paths:
            ends = [path.src, path.dst]
            count[ends, ends[::-1]] -= 1
        for path in reserved.rate_by_path():
            ends = [path.src, path.dst]
            count[ends, ends[::-1]] = 0
        inside = members(budget.racks, n)
        return np.where(inside[:, None] & inside, np.maximum(count, 0), 0)


def standing_part(
    fabric: FabricArrays,
    pairs: PairDemands,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> Standing:
    """The circuits and paths that a new topology must contain.

    - Pinned paths, with their rings.
    - Circuits of fixed racks and planes (racks and planes not in ``budget``).
    - Every path of a fixed rack, with all circuits of the path, also between racks in ``budget``.
    - Other paths over these circuits alone.

    Demand of a pair with standing paths, beyond the pair's reservations, is served by the
    capacity left on the standing paths.

    Raises PlanError if a pinned path is broken, does not fit, or needs a port that is blocked or
    taken by a standing circuit.
    """
    reserved_rates = reserved.rate_by_path()
    fixed, kept = _outside(fabric, current, budget)
    pinned = _pinned_circuits(fabric, reserved_rates, budget)
    taken = {(path.src, path.dst) for path in reserved_rates}
    paths = [*reserved_rates, *(path for path in kept if (path.src, path.dst) not in taken)]
    ring_mates = rings_of(pinned, current.circuits) - pinned
    if ring_mates:
        fixed |= ring_mates
        paths += [p for p in current.paths if p not in paths and ring_mates.issuperset(p.circuits)]
    _check_ports(fabric, fixed | pinned)
    paths.sort()
    residual = {circuit: fabric.rate_of(circuit) for circuit in fixed | pinned}
    _book_reserved(residual, reserved_rates)
    left = pairs.mbps
    if paths and not any(path.one_way for path in paths):
        residual, left = _book_demands(fabric, residual, pairs, paths, reserved_rates)
    return Standing(fixed | pinned, tuple(paths), residual, left)


def _outside(
    fabric: FabricArrays, current: Topology, budget: Budget
) -> tuple[frozenset[Circuit], list[Path]]:
    """(Circuits of racks and planes that are not in the budget, with all circuits of paths of such
    racks; paths over these circuits alone).
    """
    if budget.racks is None and budget.planes is None:
        return frozenset(), []
    rack_in = members(budget.racks, fabric.n_racks)
    may_change = rack_in[fabric.port_rack]
    may_change &= members(budget.planes, fabric.n_planes)[fabric.port_plane]
    blocked = members(budget.blocked_ports, fabric.n_ports)
    circuits = Circuits.of(current.circuits)
    lower, higher = circuits.table.a, circuits.table.b
    fixed = np.zeros(fabric.n_ports, dtype=np.bool_)
    """Mask by the lower port of a circuit, or by the sender of a one-way circuit."""
    fixed[lower] = ~(may_change[lower] & may_change[higher])
    table = PathTable.of(current.paths)
    lost = ~fixed[table.hop_a] & (blocked[table.hop_a] | blocked[table.hop_b])
    foreign = ~(rack_in[table.src] & rack_in[table.dst])
    stays = foreign & ~table.any_hop(lost)
    fixed[table.hop_a[np.repeat(stays, table.hops)]] = True
    rings = rings_of([circuit for circuit in circuits if fixed[circuit.a]], circuits)
    fixed[[circuit.a for circuit in rings]] = True
    kept = np.flatnonzero(~table.any_hop(~fixed[table.hop_a]))
    return (
        frozenset(circuits.table.chosen(fixed[lower]).circuits()),
        [current.paths[i] for i in kept.tolist()],
    )


def _pinned_circuits(
    fabric: FabricArrays, reserved_rates: Mapping[Path, float], budget: Budget
) -> frozenset[Circuit]:
    circuits: set[Circuit] = set()
    for path, rate_mbps in reserved_rates.items():
        if not rate_mbps >= 0:
            raise PlanError(f"{rate_mbps} Mbps reserved on {path}: must not be negative")
        for circuit in path.circuits:
            _check_pinned_circuit(fabric, circuit, budget)
        fabric.racks_along(path)
        circuits.update(path.circuits)
    return frozenset(circuits)


def _check_pinned_circuit(fabric: FabricArrays, circuit: Circuit, budget: Budget) -> None:
    for port in (circuit.a, circuit.b):
        if not 0 <= port < fabric.n_ports:
            raise PlanError(f"pinned {circuit} ends at port {port}: no such port")
        if fabric.port_plane[port] != circuit.plane:
            raise PlanError(
                f"pinned {circuit} ends at port {port} of plane {fabric.port_plane[port]}"
            )
        if port in budget.blocked_ports:
            raise PlanError(
                f"pinned {circuit} needs port {port}, a blocked port: move"
                " the reservation or release the port"
            )


def _check_ports(fabric: FabricArrays, circuits: Iterable[Circuit]) -> None:
    by_sender: dict[PortId, Circuit] = {}
    by_receiver: dict[PortId, Circuit] = {}
    for circuit in sorted(circuits):
        for users, ports in ((by_sender, circuit.senders), (by_receiver, circuit.receivers)):
            for port in ports:
                if port in users:
                    raise PlanError(
                        f"port {port} of rack {fabric.port_rack[port]} can't serve both "
                        f"{users[port]} and {circuit}, and neither may change"
                    )
                users[port] = circuit


def _book_reserved(
    residual_mbps: dict[Circuit, float], reserved_rates: Mapping[Path, float]
) -> None:
    for path, rate_mbps in reserved_rates.items():
        for circuit in path.circuits:
            residual_mbps[circuit] -= rate_mbps
            if residual_mbps[circuit] < -RATE_TOLERANCE_MBPS:
                raise PlanError(
                    f"{circuit} can't carry the reserved bandwidth: "
                    f"{-residual_mbps[circuit]:g} Mbps too much"
                )
            residual_mbps[circuit] = max(0.0, residual_mbps[circuit])


def _book_demands(
    fabric: FabricArrays,
    residual_mbps: Mapping[Circuit, float],
    pairs: PairDemands,
    paths: Sequence[Path],
    reserved_rates: Mapping[Path, float],
) -> tuple[dict[Circuit, float], NDArray[np.float64]]:
    """(Capacity in Mbps of each circuit left by ``paths``; demand left of each pair, shape (F,)).

    The circuits serve each pair's demand beyond the pair's reservations.
    """
    left = np.zeros(fabric.n_ports)
    lower = CircuitTable.of(residual_mbps.keys()).a
    left[lower] = list(residual_mbps.values())
    table = PathTable.of(paths)
    place = pairs.places(table.src, table.dst, fabric.n_racks)
    reserved = np.array([reserved_rates.get(path, 0.0) for path in paths])
    wanted = pairs.mbps.copy()
    np.subtract.at(wanted, place[place >= 0], reserved[place >= 0])
    np.maximum(wanted, 0.0, out=wanted)
    share = shares(wanted, count_paths(place, len(pairs)))
    given = serve(table, table.hop_a, left, place, share)
    np.subtract.at(wanted, place[place >= 0], given[place >= 0])
    np.maximum(wanted, 0.0, out=wanted)
    return dict(zip(residual_mbps, left[lower].tolist(), strict=True)), wanted
