"""Fixed parts of plans: reserved paths, and ports that are off limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hydra.model import (
    Circuit,
    NetworkState,
    Path,
    PortId,
    Topology,
)
from hydra.reservations.reservation import Pin
from topology.problem import (
    Reserved,
)


def idle(
    needed: Collection[Circuit], current: NetworkState, lost: Collection[Circuit] = ()
) -> set[Circuit]:
    """Standing circuits without a path that are not ``lost``, and share no port with ``needed``
    circuits.
    """
    taken = {half for circuit in needed for half in circuit.halves}
    used = {circuit for path in current.topology.paths for circuit in path.circuits}
    idle = current.topology.circuits - used - set(lost)
    return {circuit for circuit in idle if taken.isdisjoint(circuit.halves)}


def touches(path: Path, ports: Collection[PortId]) -> bool:
    return any(circuit.a in ports or circuit.b in ports for circuit in path.circuits)


def reserved_of(
    pins: Sequence[Pin], current: NetworkState, blocked: Collection[PortId]
) -> Reserved:
    """Paths that have to stay: reserved paths, except paths not yet built on blocked ports.

    A port out of use goes on serving its standing circuit: a switch that can't be commanded holds
    its mirrors.
    """
    return Reserved(
        tuple(
            (pin.path, pin.bandwidth_mbps)
            for pin in pins
            if pin.path is not None
            and (pin.path in current.vlans or not touches(pin.path, blocked))
        )
    )


def beside_reserved(reserved: Reserved, current: NetworkState) -> tuple[list[Path], list[Path]]:
    """Standing paths of pairs without a reserved path: (can stay, have to go)."""
    user = {
        end: circuit
        for path, _ in reserved.pinned
        for circuit in path.circuits
        for end in circuit.ends
    }
    pinned = {(path.src, path.dst) for path, _ in reserved.pinned}
    kept: list[Path] = []
    gone: list[Path] = []
    for path in current.topology.paths:
        if (path.src, path.dst) not in pinned:
            ends = ((end, c) for c in path.circuits for end in c.ends if end in user)
            stays = all(user[end] == circuit for end, circuit in ends)
            (kept if stays else gone).append(path)
    return kept, gone


def ends_of(reserved: Reserved) -> frozenset[PortId]:
    return frozenset(
        end for path, _ in reserved.pinned for circuit in path.circuits for end in circuit.ends
    )


def until(
    parts: Sequence[tuple[float, Topology]], horizon_s: float
) -> list[tuple[float, Topology]]:
    """The first parts, cut at the horizon."""
    first = []
    for lasts_s, topology in parts:
        if horizon_s > 0:
            first.append((min(lasts_s, horizon_s), topology))
        horizon_s -= lasts_s
    return first
