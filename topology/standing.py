"""What stays whatever is planned: reservations, and everything outside the budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hydra.errors import PlanError
from hydra.model import Circuit, Path, PortId, Topology
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    PairDemands,
    Reserved,
)


@dataclass(frozen=True, slots=True)
class Standing:
    circuits: frozenset[Circuit]
    paths: tuple[Path, ...]
    residual_mbps: Mapping[Circuit, float]
    """What the standing paths leave of each standing circuit, in each direction."""

    def ports(self) -> frozenset[PortId]:
        return frozenset(port for c in self.circuits for port in (c.a, c.b))


def standing_part(
    fabric: FabricArrays,
    pairs: PairDemands,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> Standing:
    """The circuits and paths that a new topology must contain.

    These are: the pinned paths; the circuits outside the budget; the paths of racks outside the
    budget, with all their circuits, even where those could change (racks outside notice nothing);
    and the other paths that lie on such circuits alone. A standing pair's demand beyond what it
    has reserved takes what its path has left, since it can't be served elsewhere.

    Raises PlanError if a pinned path is broken, does not fit, or wants a port that is blocked or
    taken by something that stays.
    """
    reserved_rates = reserved.rate_by_path()
    fixed = _outside(fabric, current, budget)
    pinned = _pinned_circuits(fabric, reserved_rates, budget)
    _check_ports(fabric, fixed | pinned)
    taken = {(path.src, path.dst) for path in reserved_rates}
    kept = [
        path
        for path in current.paths
        if fixed.issuperset(path.circuits) and (path.src, path.dst) not in taken
    ]
    paths = tuple(sorted([*reserved_rates, *kept]))
    residual = {circuit: fabric.rate_of(circuit) for circuit in fixed | pinned}
    _book_reserved(residual, reserved_rates)
    if paths:
        _book_demands(residual, pairs, paths, reserved_rates)
    return Standing(circuits=fixed | pinned, paths=paths, residual_mbps=residual)


def _outside(fabric: FabricArrays, current: Topology, budget: Budget) -> frozenset[Circuit]:
    """Circuits that stay because they, or a path over them, lie outside the budget."""
    if budget.racks is None and budget.planes is None:
        return frozenset()
    fixed = {c for c in current.circuits if not budget.may_change(fabric, c)}
    for path in current.paths:
        foreign = not (budget.includes_rack(path.src) and budget.includes_rack(path.dst))
        if foreign and not any(
            budget.may_change(fabric, c) and budget.blocked_ports & {c.a, c.b}
            for c in path.circuits
        ):
            fixed.update(path.circuits)
    return frozenset(fixed)


def _pinned_circuits(
    fabric: FabricArrays, reserved_rates: Mapping[Path, float], budget: Budget
) -> frozenset[Circuit]:
    circuits: set[Circuit] = set()
    pairs: set[tuple[int, int]] = set()
    for path, rate_mbps in reserved_rates.items():
        if not rate_mbps >= 0:
            raise PlanError(f"{rate_mbps} Mbps reserved on {path}: must not be negative")
        if (path.src, path.dst) in pairs:
            raise PlanError(
                f"racks {path.src} and {path.dst} have two different pinned paths: "
                "reservations between the same racks must share one"
            )
        pairs.add((path.src, path.dst))
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
                f"pinned {circuit} ends at port {port}, which is wired to plane "
                f"{fabric.port_plane[port]}"
            )
        if port in budget.blocked_ports:
            raise PlanError(
                f"pinned {circuit} needs port {port}, which is blocked: "
                "move the reservation or release the port"
            )


def _check_ports(fabric: FabricArrays, circuits: Iterable[Circuit]) -> None:
    user: dict[PortId, Circuit] = {}
    for circuit in sorted(circuits):
        for port in (circuit.a, circuit.b):
            if port in user:
                raise PlanError(
                    f"port {port} of rack {fabric.port_rack[port]} can't serve both "
                    f"{user[port]} and {circuit}, and neither may change"
                )
            user[port] = circuit


def _book_reserved(
    residual_mbps: dict[Circuit, float], reserved_rates: Mapping[Path, float]
) -> None:
    for path, rate_mbps in reserved_rates.items():
        for circuit in path.circuits:
            residual_mbps[circuit] -= rate_mbps
            if residual_mbps[circuit] < -RATE_TOLERANCE_MBPS:
                raise PlanError(
                    f"{circuit} can't carry what is reserved on it: "
                    f"{-residual_mbps[circuit]:g} Mbps too much"
                )
            residual_mbps[circuit] = max(0.0, residual_mbps[circuit])


def _book_demands(
    residual_mbps: dict[Circuit, float],
    pairs: PairDemands,
    paths: Iterable[Path],
    reserved_rates: Mapping[Path, float],
) -> None:
    path_of: dict[tuple[int, int], Path] = {(path.src, path.dst): path for path in paths}
    for pair in pairs:
        path = path_of.get((pair.src, pair.dst))
        if path is not None:
            wanted_mbps = max(0.0, pair.mbps - reserved_rates.get(path, 0.0))
            given = min(wanted_mbps, *(residual_mbps[circuit] for circuit in path.circuits))
            for circuit in path.circuits:
                residual_mbps[circuit] -= given
