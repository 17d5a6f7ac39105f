"""Labels for paths if ToRs forward by label: paths over the same circuit have different labels.

A relay distinguishes paths by a frame's ingress port and its label, as ATM and MPLS do. Nothing is
flooded, so circuits of a label may form a loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_

from hydra.errors import PlanError
from hydra.model import Circuit, NetworkState, Path, Topology, VlanId, VlanRange


def assign_labels(current: NetworkState, target: Topology, labels: VlanRange) -> NetworkState:
    """The state of the next epoch: ``target`` with a label (a VLAN-ID) for every path.

    A path of ``current`` keeps its label. A new path takes a label that no path over any of its
    circuits has, and that neither rests nor is given up by a path in this change: with such a
    label, a late frame, or a switch that still has old rules, would mistake the new path for the
    old path. Lowest labels that no path has ever lost come first, then the label lost the longest
    ago, then labels at rest in the same order. Long paths choose first (a greedy colouring of the
    paths' conflict graph, the hardest vertices first).

    Cost: O(hops · labels), in words of 64 labels.

    Raises PlanError if the range has no label left for a path.
    """
    kept = {
        path: label
        for path in target.paths
        if (label := current.vlans.get(path)) is not None and label in labels
    }
    in_use = frozenset(current.vlans.values())
    lost = {label for path, label in current.vlans.items() if path not in kept}
    pool = current.pool
    order = pool.in_turn(labels)
    place_of = {label: place for place, label in enumerate(order)}
    closed = _mask(lost | pool.resting - pool.spare(in_use), place_of)
    barred = closed | _mask(pool.resting, place_of)
    taken = dict.fromkeys(target.circuits, 0)  # masks of labels, the first to take in bit 0
    for path, label in kept.items():
        _take(taken, path, 1 << place_of[label])
    assigned = dict(kept)
    for path in sorted(set(target.paths) - kept.keys(), key=lambda entry: (-entry.hops, entry)):
        others = reduce(or_, map(taken.__getitem__, path.circuits), 0)
        bit = _lowest_clear(others | barred)
        if bit.bit_length() > len(labels):
            bit = _lowest_clear(others | closed)
        place = bit.bit_length() - 1
        if place >= len(labels):
            raise PlanError(
                f"the VLAN range {labels.first}-{labels.last} does not suffice: paths over the "
                f"circuits of path {path.src}-{path.dst} hold all the labels, or released labels "
                f"just now ({closed.bit_count()} of them); widen the range"
            )
        assigned[path] = order[place]
        _take(taken, path, bit)
    return NetworkState(
        epoch=current.epoch + 1,
        topology=target,
        vlans={path: assigned[path] for path in target.paths},
        pool=pool.after(
            frozenset(assigned.values()),
            rests=in_use,
            lost=lost,
            taken={assigned[path] for path in target.paths if path not in kept},
        ),
    )


def _mask(labels: Collection[VlanId], place_of: Mapping[VlanId, int]) -> int:
    return reduce(or_, (1 << place_of[label] for label in labels if label in place_of), 0)


def _take(taken: dict[Circuit, int], path: Path, bit: int) -> None:
    for circuit in path.circuits:
        taken[circuit] |= bit


def _lowest_clear(mask: int) -> int:
    """A mask of the lowest bit that is 0 in ``mask``."""
    return ~mask & (mask + 1)
