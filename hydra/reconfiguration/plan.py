"""The changes that lead from one state of the network to another.

:func:`diff` is pure; its result prints as a dry run. Only what differs is touched: a path that
keeps its circuits and its VLAN keeps its rules and counters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hydra.forwarding.rules import Lane
from hydra.forwarding.substrate import substrate_of
from hydra.model import (
    Circuit,
    CrossConnect,
    Fabric,
    NetworkState,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
    VlanId,
)
from hydra.rings import rings_of, whole_rings
from hydra.roles import PortVlans

Pair = tuple[RackId, RackId]
"""Two racks, lower first: traffic that moves in one direction is diverted in both."""

PortsToTag = Mapping[RackId, Mapping[str, PortVlans]]
"""By rack and name, the VLAN membership that ToR ports are to have."""


@dataclass(frozen=True, slots=True)
class MirrorMove:
    """Cross-connects of one plane to tear down and to set up."""

    disconnect: frozenset[CrossConnect]
    connect: frozenset[CrossConnect]


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps from ``current`` to ``target``, by device."""

    current: NetworkState
    target: NetworkState
    affected: frozenset[Pair]
    """Pairs whose path or VLAN changes: these are diverted, and no others."""
    connect: frozenset[Circuit]
    disconnect: frozenset[Circuit]
    mirrors: Mapping[PlaneId, MirrorMove]
    untag_first: PortsToTag
    """VLANs in use by pairs that stay, off the ports about to go dark: a frame that their ToR
    floods would be lost there."""
    retag: PortsToTag
    """New VLAN membership of the ToR ports whose membership changes, while mirrors move."""
    tag_last: PortsToTag
    """VLANs in use by pairs that stay, on the new circuits' ports once these have light."""
    disconnect_first: frozenset[Circuit] = frozenset()
    """Circuits that have to be down before any port is retagged, lest a VLAN closes a loop."""
    connect_last: frozenset[Circuit] = frozenset()
    """Circuits that may come up only once every port is retagged."""

    @property
    def empty(self) -> bool:
        return not (self.affected or self.connect or self.disconnect or self.memberships)

    @property
    def memberships(self) -> PortsToTag:
        """The VLANs that the retagging leads to, on every port that it touches."""
        return merged(self.untag_first, self.retag, self.tag_last)

    @property
    def retagged_ports(self) -> int:
        return sum(len(ports) for ports in self.memberships.values())


def pair_of(path: Path) -> Pair:
    src, dst = path.src, path.dst
    return (src, dst) if src < dst else (dst, src)


def pair_named(fabric: Fabric, pair: Pair) -> str:
    """The names of a pair's racks, as in "r1 - r2"."""
    return " - ".join(fabric.racks[rack].name for rack in pair)


def paths_by_pair(state: NetworkState) -> dict[Pair, tuple[Path, ...]]:
    """The paths of each pair that has any, sorted."""
    found: dict[Pair, tuple[Path, ...]] = {}
    for path in state.topology.paths:
        pair = pair_of(path)
        found[pair] = (*found.get(pair, ()), path)
    return found


def resting_beside(state: NetworkState, tried: NetworkState) -> NetworkState:
    """``state`` with what ``tried``, a change from it that broke off, may have used at rest."""
    used = frozenset(tried.vlans.values()).difference(state.vlans.values())
    return replace(state, resting=state.resting | used)


def vlans_changed(before: NetworkState, after: NetworkState) -> dict[VlanId, set[Path]]:
    """VLAN-IDs with the paths that begin to use them between two states.

    The other way round: with the paths that lose them.
    """
    changed: dict[VlanId, set[Path]] = {}
    for path, vlan in after.vlans.items():
        if before.vlans.get(path) != vlan:
            changed.setdefault(vlan, set()).add(path)
    return changed


def directions(state: NetworkState) -> frozenset[tuple[RackId, RackId]]:
    """(from, to) of the traffic that a state's paths carry."""
    return frozenset(one for path in state.topology.paths for one in path.directions)


def port_trunks(fabric: Fabric, state: NetworkState) -> Mapping[PortId, PortVlans]:
    """VLAN membership of every optical port that has one."""
    return substrate_of(fabric).trunks(state)


def changed_pairs(current: NetworkState, target: NetworkState) -> frozenset[Pair]:
    """The pairs of which any path comes, goes, or changes its VLAN."""
    old = {pair_of(path) for path, vlan in current.vlans.items() if target.vlans.get(path) != vlan}
    new = {pair_of(path) for path, vlan in target.vlans.items() if current.vlans.get(path) != vlan}
    return frozenset(old | new)


def _darkened_pairs(
    current: NetworkState, target: NetworkState, moved: Collection[Circuit]
) -> frozenset[Pair]:
    """The pairs with a path that stays, but is in a ring with circuits that are ``moved``."""
    dark = {
        circuit
        for state in (current, target)
        for circuit in rings_of(moved, state.topology.circuits)
    }.difference(moved)
    return frozenset(
        pair_of(path)
        for state in (current, target)
        for path in (state.topology.paths if dark else ())
        if not dark.isdisjoint(path.circuits)
    )


def moving_pairs(current: NetworkState, target: NetworkState) -> frozenset[Pair]:
    """The pairs to be diverted on the way from one state to the other."""
    moved = current.topology.circuits ^ target.topology.circuits
    return changed_pairs(current, target) | _darkened_pairs(current, target, moved)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """What a change that broke off leaves open."""

    ended: frozenset[Path] = frozenset()
    """Paths of before that may be no more.

    Paths that are to stay are among them, if their pair moves: a path that no probe came through is
    given up.
    """
    begun: frozenset[Lane] = frozenset()
    """Paths that may carry frames already, each with its VLAN-ID."""

    @classmethod
    def by(cls, current: NetworkState, target: NetworkState) -> Unsettled:
        """A change from ``current`` to ``target``."""
        moving = moving_pairs(current, target)
        return cls(
            frozenset(path for path in current.topology.paths if pair_of(path) in moving),
            begun_by(current, target),
        )

    def __or__(self, other: Unsettled) -> Unsettled:
        return Unsettled(self.ended | other.ended, self.begun | other.begun)


SETTLED: Final = Unsettled()


def begun_by(current: NetworkState, target: NetworkState) -> frozenset[Lane]:
    """Paths of ``target`` that are not in ``current``, or have another VLAN-ID there."""
    return frozenset(target.vlans.items() - current.vlans.items())


def mirror_moves(
    fabric: Fabric, disconnect: Collection[Circuit], connect: Collection[Circuit]
) -> dict[PlaneId, MirrorMove]:
    def crossed(circuits: Collection[Circuit], plane: PlaneId) -> frozenset[CrossConnect]:
        return frozenset(
            cross
            for circuit in circuits
            if circuit.plane == plane
            for cross in fabric.cross_connects(circuit)
        )

    planes = sorted({circuit.plane for circuit in (*disconnect, *connect)})
    return {
        plane: MirrorMove(crossed(disconnect, plane), crossed(connect, plane)) for plane in planes
    }


def merged(*stages: PortsToTag) -> PortsToTag:
    """Memberships of ports once all ``stages`` have been carried out in turn."""
    result: dict[RackId, dict[str, PortVlans]] = {}
    for stage in stages:
        for rack, ports in stage.items():
            result.setdefault(rack, {}).update(ports)
    return result


def retagging(fabric: Fabric, current: NetworkState, target: NetworkState) -> PortsToTag:
    """The VLAN membership in ``target`` of every optical port whose membership changes."""
    return _differing(fabric, port_trunks(fabric, current), port_trunks(fabric, target))


def _differing(
    fabric: Fabric,
    old: Mapping[PortId, PortVlans],
    new: Mapping[PortId, PortVlans],
    among: Collection[PortId] | None = None,
) -> PortsToTag:
    """Ports, ``among`` these or all, that have others in ``new``, and which."""
    found: dict[RackId, dict[str, PortVlans]] = {}
    for end in new if among is None else among:
        was, vlans = old[end], new[end]
        if was is not vlans and was != vlans:
            port = fabric.ports[end]
            found.setdefault(port.rack, {})[port.tor_port] = vlans
    return found


def _staged_retagging(
    fabric: Fabric,
    current: NetworkState,
    target: NetworkState,
    in_use: frozenset[VlanId],
) -> tuple[PortsToTag, PortsToTag, PortsToTag]:
    """(untag first, retag, tag last), with no VLAN of ``in_use`` on a port without light."""
    old, new = port_trunks(fabric, current), port_trunks(fabric, target)
    moved = current.topology.circuits ^ target.topology.circuits
    dark = sorted({end for circuit in moved for end in circuit.ends if end in new})

    def less(vlans: PortVlans) -> PortVlans:
        return PortVlans(vlans.tagged - in_use or frozenset({fabric.parking_vlan}), vlans.native)

    cleared = {**old, **{end: less(old[end]) for end in dark}}
    between = {**new, **{end: less(new[end]) for end in dark}}
    return (
        _differing(fabric, old, cleared, dark),
        _differing(fabric, cleared, between),
        _differing(fabric, between, new, dark),
    )


OrderOf = Callable[[NetworkState, NetworkState], tuple[frozenset[Circuit], frozenset[Circuit]]]
"""Finds circuits that must go before, and those that come after, retagging between two states."""


def diff(fabric: Fabric, current: NetworkState, target: NetworkState, order_of: OrderOf) -> Plan:
    """The plan that turns ``current`` into ``target``, touching only what differs."""
    first, last = order_of(current, target)
    disconnect = current.topology.circuits - target.topology.circuits
    connect = target.topology.circuits - current.topology.circuits
    affected = moving_pairs(current, target)
    in_use = frozenset(
        vlan for path, vlan in current.vlans.items() if pair_of(path) not in affected
    )
    untag_first, retag, tag_last = _staged_retagging(fabric, current, target, in_use)
    return Plan(
        current=current,
        target=target,
        affected=affected,
        connect=connect,
        disconnect=disconnect,
        mirrors=mirror_moves(fabric, disconnect - first, connect - last),
        untag_first=untag_first,
        retag=retag,
        tag_last=tag_last,
        disconnect_first=first,
        connect_last=last,
    )


def hold(
    current: NetworkState,
    target: NetworkState,
    pairs: Collection[Pair],
    circuits: Collection[Circuit],
) -> NetworkState:
    """The nearest state to ``target`` that leaves these pairs' present paths and these circuits.

    Used when a server can't confirm its divert, or a circuit does not drain, and for stages:
    circuits that they use must not move, and circuits that were to take their ports can't come up.
    """
    untouchable = set(pairs)
    if circuits:
        still = set(circuits)
        untouchable.update(
            pair_of(path) for path in current.topology.paths if not still.isdisjoint(path.circuits)
        )
    staying = current.topology.circuits & target.topology.circuits
    fixed = set(circuits) & current.topology.circuits
    while True:
        kept_paths, fixed = _held(current, untouchable, fixed)
        taken = {port for circuit in fixed for port in circuit.ends}
        coming = {one for one in target.topology.circuits - fixed if taken.isdisjoint(one.ends)}
        wanted = whole_rings(coming | fixed)
        if staying <= wanted:
            break
        fixed |= staying - wanted  # their next ring can't be closed: the present one stays
    untouchable |= {pair_of(path) for path in kept_paths}
    kept = [path for path in current.topology.paths if path in kept_paths]
    new_paths = [
        path
        for path in target.topology.paths
        if pair_of(path) not in untouchable and wanted.issuperset(path.circuits)
    ]
    paths = tuple(sorted([*kept, *new_paths]))  # both are sorted: they are merged
    vlans = {
        path: current.vlans[path] if path in kept_paths else target.vlans[path] for path in paths
    }
    return NetworkState(
        target.epoch,
        Topology(wanted, paths),
        vlans,
        target.resting - set(vlans.values()),
        target.freed,
    )


def _held(
    current: NetworkState, pairs: Collection[Pair], circuits: Collection[Circuit]
) -> tuple[set[Path], set[Circuit]]:
    """Paths and circuits that stay if these pairs and circuits do: with the rings that they are in,
    and all paths of pairs that use those.
    """
    staying = set(pairs)
    fixed = set(circuits)
    while True:
        paths = {path for path in current.topology.paths if pair_of(path) in staying}
        fixed.update(circuit for path in paths for circuit in path.circuits)
        rings = rings_of(fixed, current.topology.circuits)
        if rings <= fixed:
            return paths, fixed
        fixed |= rings
        staying |= {
            pair_of(path) for path in current.topology.paths if not rings.isdisjoint(path.circuits)
        }


def off_the_dark(
    fabric: Fabric,
    target: NetworkState,
    left: NetworkState,
    unlit: Collection[Circuit],
    flooded: Collection[VlanId],
) -> dict[RackId, dict[str, PortVlans]]:
    """VLANs for ports of ``unlit`` circuits of ``target`` that would be in ``flooded`` VLANs.

    ToRs flood what is announced and sent on the VLANs of new paths. The ports get the VLANs that
    they have in ``left``, the state without what has failed.
    """
    meant = port_trunks(fabric, target)
    kept = port_trunks(fabric, left)
    ports: dict[RackId, dict[str, PortVlans]] = {}
    for circuit in unlit:
        for end in circuit.ends:
            if end in meant and not meant[end].tagged.isdisjoint(flooded):
                port = fabric.ports[end]
                ports.setdefault(port.rack, {})[port.tor_port] = kept[end]
    return ports


def without(
    state: NetworkState, circuits: Collection[Circuit], paths: Collection[Path] = ()
) -> NetworkState:
    """``state`` without these circuits, circuits that are dark then, every path over one of them,
    and these ``paths``.
    """
    standing = whole_rings(state.topology.circuits - set(circuits))
    gone = frozenset(paths)
    left = tuple(
        path
        for path in state.topology.paths
        if path not in gone and standing.issuperset(path.circuits)
    )
    vlans = {path: state.vlans[path] for path in left}
    freed = frozenset(state.vlans.values()) - frozenset(vlans.values())
    return NetworkState(
        state.epoch,
        Topology(standing, left),
        vlans,
        state.resting | freed,
        state.freed,
    )
