"""Labels for paths where ToRs forward by label: those over one circuit differ, and that is all.

A relay tells paths apart by the port a frame comes in at and its label, as ATM and MPLS do. Nothing
is flooded, so circuits of one label may well form a loop.
"""

from __future__ import annotations

from hydra.errors import PlanError
from hydra.model import Circuit, NetworkState, Path, Topology, VlanId, VlanRange


def assign_labels(current: NetworkState, target: Topology, labels: VlanRange) -> NetworkState:
    """The state of the next epoch: ``target`` with a label (a VLAN-ID) for every path.

    A path that ``current`` has too keeps its label. A new one takes the lowest that no path over
    any of its circuits has, and none that is resting or that a path loses in this change: a late
    frame, or a switch that has yet to be told, would mistake the new path for the old one. IDs
    that go out of use rest for one epoch. Long paths choose first (colouring the paths' conflict
    graph greedily, the hardest vertices first).

    Cost: O(hops · labels tried).

    Raises PlanError if the range has no label left for a path.
    """
    kept = {
        path: label
        for path in target.paths
        if (label := current.vlans.get(path)) is not None and label in labels
    }
    in_use = frozenset(current.vlans.values())
    lost = {label for path, label in current.vlans.items() if path not in kept}
    barred = lost | current.resting
    taken: dict[Circuit, set[VlanId]] = {circuit: set() for circuit in target.circuits}
    for path, label in kept.items():
        for circuit in path.circuits:
            taken[circuit].add(label)
    assigned = dict(kept)
    for path in sorted(set(target.paths) - kept.keys(), key=lambda one: (-one.hops, one)):
        label = _lowest(path, taken, barred, labels)
        assigned[path] = label
        for circuit in path.circuits:
            taken[circuit].add(label)
    return NetworkState(
        epoch=current.epoch + 1,
        topology=target,
        vlans={path: assigned[path] for path in target.paths},
        resting=in_use.difference(assigned.values()),
    )


def _lowest(
    path: Path, taken: dict[Circuit, set[VlanId]], barred: set[VlanId], labels: VlanRange
) -> VlanId:
    for number in range(labels.first, labels.last + 1):
        label = VlanId(number)
        if label not in barred and not any(label in taken[circuit] for circuit in path.circuits):
            return label
    raise PlanError(
        f"the VLAN range {labels.first}-{labels.last} does not suffice: path {path.src}-{path.dst} "
        f"shares circuits with paths on all {len(labels) - len(barred)} labels but the "
        f"{len(barred)} that are leaving use or resting; widen the range"
    )
