"""VLANs for a repeating schedule: assigned once, for all of its slots."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.model import NetworkState, Path, Topology, VlanId
from topology.marks import Marks


def week_states(
    marks: Marks, current: NetworkState, slots: Sequence[Topology]
) -> tuple[NetworkState, ...]:
    """The state of each slot, in which a path has the same VLAN-ID whenever it stands.

    Paths share an ID only if they come and go together. So no path ever joins a VLAN while a second
    path leaves the VLAN, and addresses remembered by ToRs from a VLAN's last day are true again on
    the VLAN's next day. A path of ``current`` in all slots of the week keeps the ID. All other
    paths take IDs that are not in use, nor resting while others suffice. IDs of the week rest while
    not in use, so other changes take other IDs if there are any.

    Raises PlanError if there are too few IDs.
    """
    when: dict[Path, tuple[int, ...]] = {}
    for number, topology in enumerate(slots):
        for path in topology.paths:
            when[path] = (*when.get(path, ()), number)
    together: dict[tuple[int, ...], list[Path]] = {}
    for path in sorted(when):
        together.setdefault(when[path], []).append(path)
    always = tuple(range(len(slots)))
    vlans = {
        path: current.vlans[path] for path in together.get(always, ()) if path in current.vlans
    }
    closed = current.pool.closed.union(current.vlans.values())
    for paths in together.values():
        fresh = tuple(path for path in paths if path not in vlans)
        if not fresh:
            continue
        circuits = frozenset(circuit for path in fresh for circuit in path.circuits)
        before = NetworkState(pool=current.pool.closed_to(closed))
        marked = marks.state(before, Topology(circuits, fresh))
        vlans |= marked.vlans
        closed = closed.union(marked.vlans.values())
    rests = frozenset(vlans.values()).union(current.vlans.values())
    return tuple(_state(current, topology, vlans, rests) for topology in slots)


def _state(
    current: NetworkState,
    topology: Topology,
    vlans: dict[Path, VlanId],
    rests: frozenset[VlanId],
) -> NetworkState:
    own = {path: vlans[path] for path in topology.paths}
    pool = current.pool.shared(rests, own.values())
    return NetworkState(current.epoch + 1, topology, own, pool)
