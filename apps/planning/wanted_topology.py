"""A topology as requested, with the circuits that have to stay, and within the policy's limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hydra.errors import PlanError
from hydra.model import Circuit, Fabric, NetworkState, Path, PortId, Topology
from hydra.reconfiguration.plan import pair_named, pair_of
from hydra.service import PlanRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """The policy's limits on paths."""

    max_hops: int
    paths_per_pair: int


def as_wanted(
    fabric: Fabric,
    current: NetworkState,
    request: PlanRequest,
    pinned: Sequence[Path],
    blocked: Collection[PortId],
    limits: Limits,
) -> Topology:
    """``request.topology``, with the fixed circuits and paths added.

    Fixed are circuits of planes and racks that may not change, and the ``pinned`` paths of
    reservations. Raises PlanError for a circuit that conflicts with a fixed circuit or needs a
    ``blocked`` port, and for a path beyond the limits.
    """
    wanted = request.topology or Topology()
    standing = current.topology
    stays = {
        circuit: "the circuit is outside the planes and racks that may change; allow both"
        for circuit in standing.circuits
        if _fixed(fabric, request, circuit)
    }
    stays |= {
        circuit: "a reservation has the circuit; release the reservation, or wait for the end"
        for path in pinned
        for circuit in path.circuits
    }
    _check_new(fabric, request, sorted(wanted.circuits - standing.circuits), blocked)
    _check_ports(fabric, wanted, stays)
    _check_paths(fabric, wanted, current, limits)
    kept = [*pinned, *(path for path in standing.paths if stays.keys() >= set(path.circuits))]
    pairs_with_path = {pair_of(path) for path in pinned}
    paths = {*pinned, *(path for path in wanted.paths if pair_of(path) not in pairs_with_path)}
    pairs_with_path |= {pair_of(path) for path in paths}
    paths |= {path for path in kept if pair_of(path) not in pairs_with_path}
    return Topology(wanted.circuits | frozenset(stays), tuple(sorted(paths)))


def _fixed(fabric: Fabric, request: PlanRequest, circuit: Circuit) -> bool:
    """True for a circuit outside the planes and racks that may change."""
    if request.planes is not None and circuit.plane not in request.planes:
        return True
    return request.racks is not None and not request.racks.issuperset(fabric.racks_of(circuit))


def _check_new(
    fabric: Fabric, request: PlanRequest, new: Sequence[Circuit], blocked: Collection[PortId]
) -> None:
    for circuit in new:
        name = fabric.circuit_name(circuit)
        if _fixed(fabric, request, circuit):
            raise PlanError(
                f"{name} can't be made: the plane or a rack is out of reach, or not among "
                "circuits that may change"
            )
        for port in circuit.ends:
            if port in blocked:
                there = fabric.ports[port]
                rack = fabric.racks[there.rack].name
                raise PlanError(
                    f"{name} can't be made: port {there.tor_port} of {rack} is out of use "
                    "(`hydra quarantine`)"
                )


def _check_ports(fabric: Fabric, wanted: Topology, stays: dict[Circuit, str]) -> None:
    user = {half: circuit for circuit in stays for half in circuit.halves}
    for circuit in sorted(wanted.circuits):
        for half in circuit.halves:
            other = user.get(half, circuit)
            if other != circuit:
                raise PlanError(
                    f"{fabric.circuit_name(circuit)} needs a port of "
                    f"{fabric.circuit_name(other)}, which stays: {stays[other]}"
                )


def _check_paths(fabric: Fabric, wanted: Topology, current: NetworkState, limits: Limits) -> None:
    for path in wanted.paths:
        if path.hops > limits.max_hops and path not in current.vlans:
            raise PlanError(
                f"the path {pair_named(fabric, (path.src, path.dst))} has {path.hops} hops: "
                f"policy.max_hops allows {limits.max_hops}"
            )
    for ends, count in Counter((path.src, path.dst) for path in wanted.paths).items():
        if count > limits.paths_per_pair:
            raise PlanError(
                f"{pair_named(fabric, ends)} has {count} paths: policy.paths_per_pair allows "
                f"{limits.paths_per_pair}"
            )
