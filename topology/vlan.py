"""VLANs for paths: as few as the search finds, each loop-free, also while the network changes.

Spanning tree is off, so a VLAN must not contain a loop, and several paths may share a loop-free
VLAN (Christodoulopoulos et al., JOCN 2015, section III.B.1). The racks along a path may reach each
other on the path's VLAN, by intention.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hydra.circuit_arrays import CircuitTable
from hydra.columns import column
from hydra.errors import PlanError
from hydra.model import Circuit, NetworkState, Topology, VlanId, VlanRange
from hydra.path_arrays import Lanes, Paths, numbered
from topology import _native
from topology.problem import FabricArrays
from topology.tables import IntArray, PathTable, starts

_SPARE_PER_PORT: Final = 2
"""IDs for a change of everything, and as many at rest afterwards (docs/configuration.md)."""
_NONE: Final = -1
"""No VLAN-ID."""


def allocate(
    fabric: FabricArrays, current: NetworkState, target: Topology, vlans: VlanRange
) -> NetworkState:
    """The state of the next epoch: ``target`` with a VLAN for every path.

    A path of ``current`` keeps its VLAN. New paths take IDs that are neither in use nor resting:
    switches may still remember addresses on resting IDs. On an ID in use, a faulty plane, for
    instance one that leads a port's light back to the port, would have ToRs learn servers of
    standing paths at a wrong port before the gate finds the fault. If fresh IDs would leave fewer
    than two for each port of the best connected rack, which later changes may need, a new path
    joins a VLAN that loses no path in this change. (A VLAN in use *and* at rest belongs to another
    change under way: no path joins such a VLAN.) IDs that go out of use rest for one epoch, and
    longer while other IDs suffice: IDs out of use for longest come first. If these are too few, IDs
    at rest come next, in the same order, except closed IDs: no change would ever end their rest
    otherwise.

    In each VLAN the circuits of its paths form a forest on the racks, where parallel circuits count
    as a loop. Two paths don't enter a VLAN together if an old circuit still joins a port of each,
    since both might be tagged before the old circuit goes. For loops that IDs alone can't prevent
    during the change, see :func:`topology.transit.transit_order`.

    A path goes into the first VLAN that has all its circuits, else into a VLAN that stays a forest,
    the first that lacks the fewest of the circuits, else into a new VLAN. Two orders are tried:
    paths grouped by relay, and the longest first. The better result is then packed again, the VLAN
    opened last going first, for as long as the number of VLANs falls (iterated greedy: Culberson
    and Luo, Exploring the k-colorable landscape with iterated greedy, 1996). A path stands for both
    directions, so there are no equal paths to merge beforehand.

    Cost: O(paths · VLANs).

    Raises PlanError if the range has too few free IDs, or a path of ``target`` is broken.
    """
    before, paths = Lanes.of(current.vlans), Paths.of(target.paths)
    place = paths.places_in(before.paths)
    standing = np.zeros(len(before), dtype=np.bool_)
    standing[place[place >= 0]] = True
    kept = np.where(place >= 0, before.vlan[place], _NONE) if len(before) else place
    outside = (kept < vlans.first) | (kept > vlans.last)
    standing &= (before.vlan >= vlans.first) & (before.vlan <= vlans.last)
    kept[outside] = _NONE
    in_use = before.ids
    pool = current.pool
    losing = set(numbered(before.vlan[~standing])[0].tolist())
    joinable = sorted(set(numbered(kept[kept != _NONE])[0].tolist()) - losing - pool.resting)
    fresh = pool.free(vlans, in_use)
    removed = current.topology.circuits - target.circuits
    bins, needed = _pack(fabric, removed, paths, kept, ())
    if needed > len(fresh) - _SPARE_PER_PORT * np.bincount(fabric.port_rack).max(initial=0):
        bins, needed = _pack(fabric, removed, paths, kept, joinable)
    else:
        joinable = []
    if needed > len(fresh):
        fresh += pool.at_rest(vlans, in_use)
    if needed > len(fresh):
        raise PlanError(
            f"the VLAN range {vlans.first}-{vlans.last} does not suffice: new paths need {needed} "
            f"more IDs, {len(fresh)} are free ({len(in_use)} in use, "
            f"{len(pool.closed - in_use)} of changes under way); widen the range"
        )
    ids = np.array([*joinable, *fresh, _NONE], dtype=np.int32)
    # A kept path whose VLAN has no bin gets bin 0 as a placeholder.
    assigned = Lanes(paths, np.where(kept == _NONE, ids[np.minimum(bins, len(ids) - 1)], kept))
    then_in_use = assigned.ids
    return NetworkState(
        epoch=current.epoch + 1,
        topology=replace(target, paths=paths),
        vlans=assigned,
        pool=pool.after(then_in_use, rests=in_use, lost=in_use - then_in_use, taken=then_in_use),
    )


def _pack(
    fabric: FabricArrays,
    removed: AbstractSet[Circuit],
    paths: Paths,
    kept: IntArray,
    joinable: Sequence[VlanId],
) -> tuple[IntArray, int]:
    """The bin of each path, and the number of bins beyond the first, which are ``joinable``.

    ``kept``, shape (F,), has the VLAN-ID that a path keeps, or ``_NONE``. A kept path whose VLAN
    has no bin is in no bin; 0 is a placeholder.
    """
    walk = _Walk.of(fabric, paths)
    rivals = _rivals(fabric, removed, paths.circuits.table)
    is_new = kept == _NONE
    bin_of_vlan = {vlan: place for place, vlan in enumerate(joinable)}
    staying = np.flatnonzero(~is_new) if joinable else np.zeros(0, dtype=np.intp)
    places = column((bin_of_vlan.get(VlanId(v), -1) for v in kept[staying].tolist()), len(staying))
    residents = staying[places >= 0].astype(np.int32)
    start = np.zeros(len(paths), dtype=np.int32)
    start[residents] = places[places >= 0]

    def packing(order: IntArray) -> _Packing:
        order = order[is_new[order]]
        bin_of = start.copy()
        n_bins = _native.pack_paths(
            fabric.n_racks,
            len(paths.circuits),
            rivals,
            walk.table.start,
            paths.link,
            walk.rack,
            residents,
            len(joinable),
            order,
            bin_of,
        )
        return _Packing(order, bin_of, n_bins)

    best = min(map(packing, walk.orders()), key=lambda attempt: attempt.n_bins)
    while (again := packing(best.last_bins_first())).n_bins < best.n_bins:
        best = again
    return best.bin_of, best.n_bins - len(joinable)


def _rivals(
    fabric: FabricArrays, removed: AbstractSet[Circuit], circuits: CircuitTable
) -> IntArray:
    """Shape (2 * C,): for ends ``a`` and ``b`` of each circuit in turn, the circuit at the port
    that one of the ``removed`` circuits joins with this end; -1 for none.
    """
    gone = CircuitTable.of(removed)
    once_joined, circuit_at = np.full((2, fabric.n_ports + 1), -1, dtype=np.int32)
    once_joined[gone.a], once_joined[gone.b] = gone.b, gone.a
    circuit_at[circuits.a] = circuit_at[circuits.b] = np.arange(len(circuits), dtype=np.int32)
    return circuit_at[once_joined[np.column_stack([circuits.a, circuits.b]).ravel()]]


@dataclass(frozen=True, slots=True, eq=False)
class _Packing:
    order: IntArray
    """The new paths in the order of packing."""
    bin_of: IntArray
    """Shape (F,): the bin of every path."""
    n_bins: int

    def last_bins_first(self) -> IntArray:
        """The paths by bin, the last bin first, in the previous order within each bin: packing in
        this order needs no more bins.
        """
        from_last = (self.n_bins - self.bin_of[self.order]).astype(np.int16)  # sorted by radix
        return self.order[np.argsort(from_last, kind="stable")]


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """Paths as arrays, with the racks along each."""

    table: PathTable
    rack: IntArray
    """Shape (all hops + F,): the racks that each path visits, ends included."""
    first: IntArray
    """Shape (F,): start of each path's racks in ``rack``."""

    @classmethod
    def of(cls, fabric: FabricArrays, paths: Paths) -> _Walk:
        """Raises PlanError if a path is broken."""
        table = paths.table
        rack = np.empty(len(table.hop_a) + len(paths), dtype=np.int32)
        broken = np.empty(len(paths), dtype=np.uint8)
        _native.walk_paths(
            fabric.n_racks,
            fabric.port_rack,
            table.start,
            table.hop_a,
            table.hop_b,
            table.src,
            table.dst,
            rack,
            broken,
        )
        for index in np.flatnonzero(broken).tolist():
            fabric.racks_along(paths[index])
        return cls(table, rack, starts(table.hops + np.int32(1))[:-1])

    def orders(self) -> tuple[IntArray, IntArray]:
        """Two orders to pack in: by relay, direct paths last, and by hops, then relay.

        Stars around a relay are trees, and long paths are bulky. Ties stay in order.
        """
        hops = self.table.hops
        longest = int(hops.max(initial=1))
        relays = []
        for place in range(1, longest):
            relay = np.zeros(len(hops), dtype=np.uint16)  # words of 16 bits are sorted by radix
            there = hops > place
            relay[there] = self.rack[self.first[there] + place] + 1
            relays.append(relay)
        by_relay = np.lexsort([*relays[::-1], (hops == 1).astype(np.uint16)])
        longest_first = np.lexsort([*relays[::-1], (longest - hops).astype(np.uint16)])
        return by_relay.astype(np.int32), longest_first.astype(np.int32)
