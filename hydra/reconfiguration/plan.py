"""The difference between two states of the network, as steps by device.

:func:`diff` is pure; the result prints as a dry run. Only differences are touched: a path with the
same circuits and the same VLAN keeps rules and counters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, repeat
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hydra.circuit_arrays import CircuitTable
from hydra.columns import no_cycles
from hydra.forwarding.rules import Lane
from hydra.forwarding.substrate import substrate_of
from hydra.forwarding.trunks import Trunks
from hydra.model import (
    Circuit,
    CrossConnect,
    Fabric,
    NetworkState,
    Pair,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
    VlanId,
)
from hydra.path_arrays import Lanes, Pairs, lanes_of
from hydra.rings import rings_of, whole_rings
from hydra.roles import PortVlans

K = TypeVar("K")
V = TypeVar("V")

PortsToTag = Mapping[RackId, Mapping[str, PortVlans]]
"""Intended VLAN membership of ToR ports, by rack and port name."""


@dataclass(frozen=True, slots=True)
class MirrorMove:
    """Cross-connects of a plane to tear down and to set up."""

    disconnect: frozenset[CrossConnect]
    connect: frozenset[CrossConnect]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps from ``current`` to ``target``, by device."""

    current: NetworkState
    target: NetworkState
    affected: AbstractSet[Pair]
    """Pairs whose path or VLAN changes: no other pairs are diverted."""
    connect: AbstractSet[Circuit]
    disconnect: AbstractSet[Circuit]
    mirrors: Mapping[PlaneId, MirrorMove]
    untag_first: PortsToTag
    """VLANs of staying pairs, removed from ports about to go dark: a frame flooded by the ToR would
    be lost there.
    """
    retag: PortsToTag
    """New VLAN membership of ToR ports whose membership changes, while mirrors move."""
    tag_last: PortsToTag
    """VLANs of staying pairs, added to the ports of new circuits once there is light."""
    disconnect_first: AbstractSet[Circuit] = frozenset()
    """Circuits to take down before any port is retagged, to prevent loops in a VLAN."""
    connect_last: AbstractSet[Circuit] = frozenset()
    """Circuits to set up only once every port is retagged."""

    @property
    def empty(self) -> bool:
        return not (self.affected or self.connect or self.disconnect or self.memberships)

    @property
    def memberships(self) -> PortsToTag:
        """Final VLAN membership of every retagged port."""
        return merged(self.untag_first, self.retag, self.tag_last)

    @property
    def retagged_ports(self) -> int:
        return sum(len(ports) for ports in self.memberships.values())

    def make_moves(self) -> None:
        """Compute the moves of mirrors and the retags now, instead of on the first access."""
        for moves in (self.untag_first, self.retag, self.mirrors, self.tag_last):
            len(moves)


def pair_of(path: Path) -> Pair:
    src, dst = path.src, path.dst
    return (src, dst) if src < dst else (dst, src)


def pair_named(fabric: Fabric, pair: Pair) -> str:
    """The names of a pair's racks, as in "r1 - r2"."""
    return " - ".join(fabric.racks[rack].name for rack in pair)


def paths_by_pair(
    state: NetworkState, among: Collection[Pair] | None = None
) -> dict[Pair, tuple[Path, ...]]:
    """The sorted paths of each pair in ``among`` (None: of all pairs). A pair without paths has no
    entry.
    """
    paths = state.topology.paths if among is None else Lanes.of(state.vlans).between(among)
    found: dict[Pair, tuple[Path, ...]] = {}
    for path in paths:
        pair = pair_of(path)
        found[pair] = (*found.get(pair, ()), path)
    return found


def resting_beside(state: NetworkState, tried: NetworkState) -> NetworkState:
    """``state`` with the VLAN-IDs of an interrupted change to ``tried`` at rest."""
    used = frozenset(tried.vlans.values()).difference(state.vlans.values())
    return replace(state, pool=state.pool.rested(used))


def directions(state: NetworkState) -> frozenset[tuple[RackId, RackId]]:
    """(from, to) of the traffic on a state's paths."""
    return frozenset(direction for path in state.topology.paths for direction in path.directions)


def port_trunks(fabric: Fabric, state: NetworkState) -> Trunks:
    """VLAN membership of every optical port; empty for a substrate without VLANs."""
    return substrate_of(fabric).trunks(state)


def _ends_at(lanes: Lanes, ends: Collection[PortId]) -> NDArray[np.intp]:
    """Places of the paths with a circuit that ends at one of the ports."""
    wanted = np.fromiter(ends, dtype=np.int64, count=len(ends))
    table = lanes.paths.table
    met = np.isin(table.hop_a, wanted) | np.isin(table.hop_b, wanted)
    return np.flatnonzero(table.any_hop(met))


def paths_through(state: NetworkState, ends: Collection[PortId]) -> list[Path]:
    """Paths of ``state`` with a circuit that ends at one of the ports."""
    if not ends:
        return []
    lanes = lanes_of(state)
    return lanes.paths.chosen(_ends_at(lanes, ends))


def sharing_vlans(
    state: NetworkState, ends: Collection[PortId], *, before: NetworkState
) -> list[Path]:
    """Paths of ``state`` with the VLAN-ID of a path through one of the ports, in ``state`` or in
    ``before``.
    """
    if not ends:
        return []
    now, then = lanes_of(state), lanes_of(before)
    shared = np.concatenate([lanes.vlan[_ends_at(lanes, ends)] for lanes in (now, then)])
    return now.paths.chosen(np.flatnonzero(np.isin(now.vlan, shared)))


def changed_pairs(current: NetworkState, target: NetworkState) -> frozenset[Pair]:
    """The pairs whose paths, or the paths' VLANs, differ."""
    return frozenset(_changed(current, target))


def _changed(current: NetworkState, target: NetworkState) -> Pairs:
    old, new = Lanes.of(current.vlans), Lanes.of(target.vlans)
    codes = old.paths.table.pair_codes(), new.paths.table.pair_codes()
    ended, begun = old.unlike(new)
    both = np.sort(np.concatenate([codes[0][ended], codes[1][begun]]), kind="stable")
    return Pairs(both[np.diff(both, prepend=-1) > 0])  # two ascending runs: np.unique is slower


def _darkened_pairs(
    current: NetworkState, target: NetworkState, moved: Collection[Circuit]
) -> frozenset[Pair]:
    """The pairs with a staying path in a ring with ``moved`` circuits."""
    if not CircuitTable.of(moved).one_way.any():
        return frozenset()
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
    """The pairs to divert on the way from ``current`` to ``target``."""
    return frozenset(_moving(current, target))


def _moving(current: NetworkState, target: NetworkState) -> Pairs:
    moved = current.topology.circuits ^ target.topology.circuits
    changed, darkened = _changed(current, target), _darkened_pairs(current, target, moved)
    return Pairs.of(changed | darkened) if darkened else changed


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Paths and circuits left open by an interrupted change."""

    ended: frozenset[Path] = frozenset()
    """Paths of ``current`` that may no longer exist.

    Includes staying paths of moving pairs: a path is given up if no probe passes.
    """
    begun: frozenset[Lane] = frozenset()
    """Paths that may carry frames already, each with its VLAN-ID."""
    circuits: AbstractSet[Circuit] = frozenset()
    """Circuits that may be up beside the circuits of ``current``: light of one-way circuits keeps
    other circuits up.
    """

    @classmethod
    def by(cls, current: NetworkState, target: NetworkState) -> Unsettled:
        """A change from ``current`` to ``target``."""
        moving = moving_pairs(current, target)
        return cls(
            frozenset(path for path in current.topology.paths if pair_of(path) in moving),
            begun_by(current, target),
            target.topology.circuits - current.topology.circuits,
        )

    def __or__(self, other: Unsettled) -> Unsettled:
        return Unsettled(
            self.ended | other.ended, self.begun | other.begun, self.circuits | other.circuits
        )


SETTLED: Final = Unsettled()


def begun_by(current: NetworkState, target: NetworkState) -> frozenset[Lane]:
    """Paths of ``target`` absent from ``current``, or with a different VLAN-ID."""
    return frozenset(target.vlans.items() - current.vlans.items())


def mirror_moves(
    fabric: Fabric, disconnect: Collection[Circuit], connect: Collection[Circuit]
) -> dict[PlaneId, MirrorMove]:
    """The moves of each plane."""
    less, more = _light_of(fabric, disconnect), _light_of(fabric, connect)
    return {
        plane: MirrorMove(frozenset(less.get(plane, ())), frozenset(more.get(plane, ())))
        for plane in sorted(less.keys() | more.keys())
    }


class _OnAccess(Mapping[K, V]):
    """Entries made on the first access, by a function; equal to a dict with the same items."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], dict[K, V]]) -> None:
        self._make: Callable[[], dict[K, V]] | None = make
        self._made: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._objects())

    def __iter__(self) -> Iterator[K]:
        return iter(self._objects())

    def __getitem__(self, key: K) -> V:
        return self._objects()[key]

    def __repr__(self) -> str:
        return repr(self._objects())

    def __reduce__(self) -> tuple[type[dict[object, object]], tuple[object]]:
        return dict, (self._objects(),)

    def _objects(self) -> dict[K, V]:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made


def _light_of(fabric: Fabric, circuits: Collection[Circuit]) -> dict[PlaneId, list[CrossConnect]]:
    """The :meth:`~hydra.model.Fabric.cross_connects` of circuits by plane."""
    table = CircuitTable.of(circuits)
    back = ~table.one_way
    plane = np.concatenate([table.plane, table.plane[back]])
    by_plane = np.argsort(plane, kind="stable")
    sender = np.concatenate([table.a, table.b[back]])[by_plane].tolist()
    receiver = np.concatenate([table.b, table.a[back]])[by_plane].tolist()
    ingress, egress = fabric.fibres
    fibres = zip(map(ingress.__getitem__, sender), map(egress.__getitem__, receiver), strict=True)
    light = [*map(tuple.__new__, repeat(CrossConnect), fibres)]  # a fifth of the time of calls
    lit, first = np.unique(plane[by_plane], return_index=True)
    begins = [*first.tolist(), len(light)]
    return {
        PlaneId(number): light[begin:end]
        for number, (begin, end) in zip(lit.tolist(), pairwise(begins), strict=True)
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


def _differing(fabric: Fabric, old: Trunks, new: Trunks) -> PortsToTag:
    """Ports whose membership differs, with the membership in ``new``."""
    ends = old.unlike(new)
    trunks = new.packed(ends)

    def by_rack() -> dict[RackId, Mapping[str, PortVlans]]:
        found: dict[RackId, dict[str, PortVlans]] = {}
        ports = map(fabric.ports.__getitem__, ends.tolist())
        for port, vlans in zip(ports, trunks.memberships(), strict=True):
            found.setdefault(port.rack, {})[port.tor_port] = vlans
        return {**found}

    return _OnAccess(by_rack)


def _staged_retagging(
    fabric: Fabric,
    current: NetworkState,
    target: NetworkState,
    in_use: frozenset[VlanId],
) -> tuple[PortsToTag, PortsToTag, PortsToTag]:
    """(untag first, retag, tag last), with no VLAN of ``in_use`` on a port without light."""
    old, new = port_trunks(fabric, current), port_trunks(fabric, target)
    if not in_use or not new:
        return {}, _differing(fabric, old, new), {}
    moved = current.topology.circuits ^ target.topology.circuits
    ends = CircuitTable.of(moved)
    dark = np.concatenate([ends.a, ends.b])
    before, after = old.without(in_use, dark), new.without(in_use, dark)
    return (
        _differing(fabric, old, before),
        _differing(fabric, before, after),
        _differing(fabric, after, new),
    )


OrderOf = Callable[[NetworkState, NetworkState], tuple[AbstractSet[Circuit], AbstractSet[Circuit]]]
"""Returns, for the step between two states, (circuits to remove before retagging, circuits to add
after retagging).
"""


def diff(fabric: Fabric, current: NetworkState, target: NetworkState, order_of: OrderOf) -> Plan:
    """The plan to turn ``current`` into ``target``, touching only differences."""
    with no_cycles():
        return _diff(fabric, current, target, order_of)


def _diff(fabric: Fabric, current: NetworkState, target: NetworkState, order_of: OrderOf) -> Plan:
    first, last = order_of(current, target)
    disconnect = current.topology.circuits - target.topology.circuits
    connect = target.topology.circuits - current.topology.circuits
    moving = _moving(current, target)
    in_use = Lanes.of(current.vlans).ids_beside(moving)
    untag_first, retag, tag_last = _staged_retagging(fabric, current, target, in_use)
    return Plan(
        current=current,
        target=target,
        affected=moving,
        connect=connect,
        disconnect=disconnect,
        mirrors=_OnAccess(partial(mirror_moves, fabric, disconnect - first, connect - last)),
        untag_first=untag_first,
        retag=retag,
        tag_last=tag_last,
        disconnect_first=first,
        connect_last=last,
    )


def under_traffic(fabric: Fabric, current: NetworkState, target: NetworkState) -> Plan:
    """The plan between two states if one state has all paths of the other. Common paths keep
    carrying traffic: no pair is diverted.

    Paths that come or go share no VLAN-ID with other paths, and so close no loop in any order.
    """
    disconnect = current.topology.circuits - target.topology.circuits
    connect = target.topology.circuits - current.topology.circuits
    in_use = frozenset(vlan for path, vlan in current.vlans.items() if path in target.vlans)
    untag_first, retag, tag_last = _staged_retagging(fabric, current, target, in_use)
    return Plan(
        current=current,
        target=target,
        affected=_changed(current, target),
        connect=connect,
        disconnect=disconnect,
        mirrors=_OnAccess(partial(mirror_moves, fabric, disconnect, connect)),
        untag_first=untag_first,
        retag=retag,
        tag_last=tag_last,
    )


def hold(
    current: NetworkState,
    target: NetworkState,
    pairs: Collection[Pair],
    circuits: Collection[Circuit],
) -> NetworkState:
    """The state nearest to ``target`` that keeps the present paths of ``pairs``, and ``circuits``.

    Used when a server cannot confirm its divert, when a circuit does not drain, for stages, and for
    the rest of a failed course: circuits under the kept paths must not move, and new circuits
    cannot come up on ports in use. A new circuit whose planned paths are all held back does not
    come up either, since no probe would prove its light.
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
        coming = {
            circuit
            for circuit in target.topology.circuits - fixed
            if taken.isdisjoint(circuit.ends)
        }
        wanted = whole_rings(coming | fixed)
        if staying <= wanted:
            break
        fixed |= staying - wanted  # the next ring cannot be closed: the present ring stays
    untouchable |= {pair_of(path) for path in kept_paths}
    kept = [path for path in current.topology.paths if path in kept_paths]
    new_paths = [
        path
        for path in target.topology.paths
        if pair_of(path) not in untouchable and wanted.issuperset(path.circuits)
    ]
    paths = tuple(sorted([*kept, *new_paths]))  # merge of two sorted lists
    if paths != target.topology.paths:
        wanted -= _needless(current, target, paths)
    vlans = {
        path: current.vlans[path] if path in kept_paths else target.vlans[path] for path in paths
    }
    return NetworkState(
        target.epoch,
        Topology(wanted, paths),
        vlans,
        target.pool.used(vlans.values()),
    )


def _needless(
    current: NetworkState, target: NetworkState, paths: Iterable[Path]
) -> frozenset[Circuit]:
    """New circuits of ``target`` with paths there, and with none among ``paths``.

    Unidirectional circuits stay, since a ring comes up as a whole.
    """
    used = {circuit for path in paths for circuit in path.circuits}
    planned = {circuit for path in target.topology.paths for circuit in path.circuits}
    new = planned - used - current.topology.circuits
    return frozenset(circuit for circuit in new if not circuit.one_way)


def _held(
    current: NetworkState, pairs: Collection[Pair], circuits: Collection[Circuit]
) -> tuple[set[Path], set[Circuit]]:
    """Paths and circuits to keep with ``pairs`` and ``circuits``: their rings, and all paths of
    pairs using these rings.
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
    remaining: NetworkState,
    unlit: Collection[Circuit],
    flooded: Collection[VlanId],
) -> dict[RackId, dict[str, PortVlans]]:
    """VLANs for ports of ``unlit`` circuits of ``target`` that would be in ``flooded`` VLANs.

    ToRs flood announcements and frames sent on the VLANs of new paths. The ports get their VLANs of
    ``remaining``, the state without the failed parts.
    """
    meant = port_trunks(fabric, target)
    kept = port_trunks(fabric, remaining)
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
    """``state`` without ``circuits``, circuits dark as a consequence, every path over a removed
    circuit, and ``paths``.
    """
    standing = whole_rings(state.topology.circuits - set(circuits))
    gone = frozenset(paths)
    remaining = tuple(
        path
        for path in state.topology.paths
        if path not in gone and standing.issuperset(path.circuits)
    )
    vlans = {path: state.vlans[path] for path in remaining}
    freed = frozenset(state.vlans.values()) - frozenset(vlans.values())
    return NetworkState(
        state.epoch,
        Topology(standing, remaining),
        vlans,
        state.pool.rested(freed),
    )
