"""VLANs for paths: as few as we find, each loop-free, also while the network changes.

Spanning tree is off, so a VLAN must not contain a loop, and several paths may share one as long as
it does not (Christodoulopoulos et al., JOCN 2015, section III.B.1). That racks along a path can be
reached on the same VLAN is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hydra.errors import PlanError
from hydra.model import Circuit, NetworkState, Path, PortId, Topology, VlanId, VlanRange
from topology.problem import FabricArrays


def allocate(
    fabric: FabricArrays, current: NetworkState, target: Topology, vlans: VlanRange
) -> NetworkState:
    """The state of the next epoch: ``target`` with a VLAN for every path.

    A path that ``current`` has too keeps its VLAN. A new one joins a VLAN that loses no path in
    this change, or takes an ID that is neither in use nor resting: switches may still remember
    addresses on the others. IDs that go out of use rest for one epoch.

    In each VLAN the circuits of its paths form a forest on the racks, where parallel circuits
    count as a loop. Two paths don't enter one VLAN together if an old circuit still joins a port
    of one to a port of the other, since they might be tagged before that circuit goes. For what
    IDs alone can't prevent during the change, see :func:`topology.transit.transit_order`.

    First fit, once with paths grouped by relay and once with the longest first; the order that
    needs fewer VLANs counts. Cost: O(paths · VLANs), vectorised over the VLANs.

    Raises PlanError if the range has too few free IDs, or a path of ``target`` is broken.
    """
    kept = {
        path: vlan
        for path in target.paths
        if (vlan := current.vlans.get(path)) is not None and vlan in vlans
    }
    in_use = frozenset(current.vlans.values())
    joinable = _joinable(current, kept)
    fresh = [
        VlanId(vlan)
        for vlan in range(vlans.first, vlans.last + 1)
        if vlan not in in_use and vlan not in current.resting
    ]
    removed = current.topology.circuits - target.circuits
    new_paths = [path for path in target.paths if path not in kept]
    packing = min(
        (
            _pack(fabric, removed, list(joinable.values()), ordered)
            for ordered in _orders(fabric, new_paths)
        ),
        key=lambda attempt: attempt.n_bins,
    )
    needed = packing.n_bins - len(joinable)
    if needed > len(fresh):
        raise PlanError(
            f"the VLAN range {vlans.first}-{vlans.last} does not suffice: new paths need {needed} "
            f"more IDs, {len(fresh)} are free ({len(in_use)} in use, "
            f"{len(current.resting - in_use)} resting until the next change); widen the range"
        )
    ids = [*joinable, *fresh]
    assigned = kept | {path: ids[index] for path, index in packing.bin_of.items()}
    return NetworkState(
        epoch=current.epoch + 1,
        topology=target,
        vlans={path: assigned[path] for path in target.paths},
        resting=in_use.difference(assigned.values()),
    )


def _joinable(current: NetworkState, kept: dict[Path, VlanId]) -> dict[VlanId, list[Path]]:
    """VLANs that lose no path in this change, ascending, with their paths."""
    losing = {vlan for path, vlan in current.vlans.items() if path not in kept}
    residents: dict[VlanId, list[Path]] = {vlan: [] for vlan in sorted(set(kept.values()) - losing)}
    for path, vlan in kept.items():
        if vlan in residents:
            residents[vlan].append(path)
    return residents


def _orders(fabric: FabricArrays, paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Two orders for first fit: stars around a relay are trees, and long paths are bulky."""
    relays = {path: fabric.racks_along(path)[1:-1] for path in paths}
    by_relay = sorted(paths, key=lambda path: (path.hops == 1, relays[path], path.circuits))
    longest_first = sorted(paths, key=lambda path: (-path.hops, path.circuits))
    return by_relay, longest_first


@dataclass(frozen=True, slots=True)
class _Packing:
    """Which bin each new path went to; the first bins are the VLANs that could be joined."""

    bin_of: dict[Path, int]
    n_bins: int


def _pack(
    fabric: FabricArrays,
    removed: frozenset[Circuit],
    occupied: Sequence[Sequence[Path]],
    paths: Sequence[Path],
) -> _Packing:
    """First fit of ``paths`` into the ``occupied`` bins and as many new ones as it takes."""
    bins = _Bins(fabric, removed)
    for index, residents in enumerate(occupied):
        bins.open()
        for path in residents:
            bins.add(path, index)
    return _Packing({path: bins.first_fit(path) for path in paths}, bins.count)


class _Bins:
    """VLANs in the making: the forest of each, held so that one test covers all of them.

    ``_component`` has shape (racks, bins): the number of the tree that a rack is in. ``_member``
    has shape (ports, bins): whether a port carries the VLAN. Columns are added by doubling.
    """

    def __init__(self, fabric: FabricArrays, removed: frozenset[Circuit]) -> None:
        self._fabric = fabric
        self._once_joined: dict[PortId, PortId] = {}
        """The other end of the circuit that goes away from a port."""
        for circuit in removed:
            self._once_joined[circuit.a] = circuit.b
            self._once_joined[circuit.b] = circuit.a
        self.count = 0
        self._own_trees = np.arange(fabric.n_racks, dtype=np.int32)[:, np.newaxis]
        self._component = np.repeat(self._own_trees, 8, axis=1)
        self._member = np.zeros((fabric.n_ports, 8), dtype=np.bool_)

    def open(self) -> int:
        """Add an empty bin and return its index."""
        width = self._component.shape[1]
        if self.count == width:
            more = np.repeat(self._own_trees, width, axis=1)
            self._component = np.concatenate([self._component, more], axis=1)
            self._member = np.concatenate([self._member, np.zeros_like(self._member)], axis=1)
        self.count += 1
        return self.count - 1

    def first_fit(self, path: Path) -> int:
        """Put ``path`` where all its circuits are already, else where it fits, else apart."""
        within, fits = self._inspect(path)
        for candidates in (within, fits):
            index = int(candidates.argmax()) if candidates.size else 0
            if candidates.size and candidates[index]:
                self.add(path, index)
                return index
        index = self.open()
        self.add(path, index)
        return index

    def add(self, path: Path, index: int) -> None:
        racks = self._fabric.racks_along(path)
        component = self._component[:, index]
        for rack in racks[1:]:
            component[component == component[rack]] = component[racks[0]]
        for circuit in path.circuits:
            self._member[[circuit.a, circuit.b], index] = True

    def _inspect(self, path: Path) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For every bin: whether it holds all circuits of ``path``, and whether it may take it.

        Two racks of the path that are in one tree already, while a circuit between them along the
        path is not in the bin, would be joined twice.
        """
        racks = self._fabric.racks_along(path)
        component = self._component[:, : self.count]
        member = self._member[:, : self.count]
        held = [member[circuit.a] for circuit in path.circuits]
        loop = np.zeros(self.count, dtype=np.bool_)
        for i, j in combinations(range(len(racks)), 2):
            missing = ~np.logical_and.reduce(held[i:j])
            loop |= missing & (component[racks[i]] == component[racks[j]])
        ports = {port for circuit in path.circuits for port in (circuit.a, circuit.b)}
        for port in ports:
            other = self._once_joined.get(port)
            if other is not None and other not in ports:
                loop |= member[other]
        return np.logical_and.reduce(held), ~loop
