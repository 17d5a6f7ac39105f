"""Compare the journal's state with the devices after a start, to find the actual state.

If a device denies a path of the journal, the path is given up and goes electrical. A device without
an answer denies nothing: its paths are kept, unless an interrupted change was moving them.
Everything else on our ports is taken down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from hydra.forwarding.rules import Lane
from hydra.forwarding.substrate import substrate_of
from hydra.model import (
    Circuit,
    Fabric,
    NetworkState,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
    VlanId,
)
from hydra.reconfiguration.plan import SETTLED, MirrorMove, Unsettled
from hydra.rings import rings_of, whole_rings
from hydra.roles import Mirrors, PortVlans


@dataclass(frozen=True, slots=True)
class Actual:
    """The state as read from the devices; devices without an answer are absent."""

    mirrors: Mapping[PlaneId, Mirrors]
    vlans: Mapping[RackId, Mapping[str, PortVlans]]

    def passes(self, fabric: Fabric, circuit: Circuit) -> bool | None:
        """True if the mirrors pass the light of ``circuit``; None if the plane did not answer."""
        mirrors = self.mirrors.get(circuit.plane)
        return None if mirrors is None else mirrors.lit.issuperset(fabric.cross_connects(circuit))

    def carries(self, fabric: Fabric, end: PortId, vlan: VlanId) -> bool | None:
        """True if a ToR port passes on tagged frames of ``vlan``, possibly among other VLANs; None
        if the ToR did not answer.
        """
        port = fabric.ports[end]
        if port.rack not in self.vlans:
            return None
        vlans = self.vlans[port.rack].get(port.tor_port)
        return vlans is not None and vlan in vlans.tagged and vlan != vlans.native


@dataclass(frozen=True, slots=True)
class Held:
    """Paths absent from the state but left standing: a switch may still send there."""

    lanes: frozenset[Lane] = frozenset()
    circuits: frozenset[Circuit] = frozenset()
    """All circuits whose light the paths need."""

    def only(self, lanes: Collection[Lane]) -> Held:
        """The part with only these paths."""
        used = {circuit for path, _ in lanes for circuit in path.circuits}
        return Held(frozenset(lanes), rings_of(used, self.circuits))

    @property
    def ends(self) -> Mapping[PortId, frozenset[VlanId]]:
        """VLANs by port."""
        found: dict[PortId, frozenset[VlanId]] = {}
        for path, vlan in self.lanes:
            for end in (end for circuit in path.circuits for end in circuit.ends):
                found[end] = found.get(end, frozenset()) | {vlan}
        return found

    def racks(self, fabric: Fabric) -> frozenset[RackId]:
        """Racks on the way of the paths, or with a port lit for a path."""
        return frozenset(rack for circuit in self.circuits for rack in fabric.racks_of(circuit))

    def beside(self, state: NetworkState) -> NetworkState:
        """``state`` with the held paths."""
        vlans = {**state.vlans, **dict(self.lanes)}
        topology = Topology(state.topology.circuits | self.circuits, tuple(sorted(vlans)))
        return replace(state, topology=topology, vlans=vlans)


NONE_HELD: Final = Held()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    state: NetworkState
    mirrors: Mapping[PlaneId, MirrorMove]
    """Moves to take down cross-connects on our ports outside the circuits of ``state``."""
    retag: Mapping[RackId, Mapping[str, PortVlans]]
    """VLAN membership wanted by ``state``, for ports with a different membership."""
    dropped: AbstractSet[Circuit]
    unread: frozenset[Circuit]
    """Circuits of ``state`` whose plane, or a ToR at an end, did not answer."""
    unlit: Mapping[Circuit, frozenset[PortId]]
    """Dropped circuits whose mirrors should pass light, with their ports without light."""
    standing: Sequence[Lane]
    """Paths given up, remembered or begun, on which frames pass according to the devices. The
    mirrors of a silent plane count as unmoved.
    """
    passing: Sequence[Lane]
    """``standing``, and paths without a missing mirror or VLAN according to the devices: light may
    be there by now.
    """
    lit: frozenset[Circuit]
    """Circuits, remembered or begun, whose mirrors pass light, or whose plane did not answer."""

    @property
    def sure(self) -> bool:
        """True if no frame can pass a given-up path outside ``standing``."""
        return len(self.standing) == len(self.passing)


def reconcile(
    fabric: Fabric,
    remembered: NetworkState,
    actual: Actual,
    unsettled: Unsettled = SETTLED,
    closed: Collection[str] = (),
    dark: Collection[PortId] = (),
) -> Reconciled:
    """The part of ``remembered`` that is real, and the differences to repair.

    A path is given up if a port on its way does not carry its VLAN; extra VLANs on the port are
    removed without the loss of a path. A path of ``unsettled.ended``, from an interrupted change,
    is given up if relays may have lost the path's rules, or if a device does not answer. A path
    whose VLAN-ID has left the configuration is given up, since ports of servers lose the VLAN-ID.
    The ports of ``closed`` servers stay as they are. ``dark`` ports receive no light.
    """
    relays, retags = substrate_of(fabric).relays, substrate_of(fabric).retags
    passes = {circuit: actual.passes(fabric, circuit) for circuit in remembered.topology.circuits}
    dark_ports = frozenset(dark)
    unlit = {
        circuit: ends
        for circuit, passed in passes.items()
        if passed is not False and (ends := dark_ports.intersection(circuit.receivers))
    }
    kept = whole_rings(
        circuit for circuit in passes if passes[circuit] is not False and circuit not in unlit
    )
    silent = {rack.id for rack in fabric.racks if retags and rack.id not in actual.vlans}
    unread = {
        circuit
        for circuit in kept
        if passes[circuit] is None or not silent.isdisjoint(fabric.racks_of(circuit))
    }

    def carried(path: Path, vlan: VlanId) -> bool:
        """False if a ToR denies the VLAN."""
        ends = (end for circuit in path.circuits for end in circuit.ends)
        return not retags or all(actual.carries(fabric, end, vlan) is not False for end in ends)

    def stays(path: Path) -> bool:
        vlan = remembered.vlans[path]
        if not kept.issuperset(path.circuits) or vlan not in fabric.circuit_vlans:
            return False
        if not carried(path, vlan):
            return False
        moved = path in unsettled.ended
        return not (
            moved and (relays(path, vlan, remembered.epoch) or not unread.isdisjoint(path.circuits))
        )

    paths = tuple(filter(stays, remembered.topology.paths))
    moving = {circuit for path in unsettled.ended for circuit in path.circuits}
    used = rings_of({circuit for path in paths for circuit in path.circuits}, kept)
    kept_lanes = {(path, remembered.vlans[path]) for path in paths}
    passing = [
        (path, vlan)
        for path, vlan in sorted((remembered.vlans.items() | unsettled.begun) - kept_lanes)
        if all(actual.passes(fabric, circuit) is not False for circuit in path.circuits)
        and carried(path, vlan)
    ]
    known = frozenset(remembered.topology.circuits).union(
        unsettled.circuits, (circuit for path, _ in unsettled.begun for circuit in path.circuits)
    )
    standing = [
        (path, vlan)
        for path, vlan in passing
        if all(dark_ports.isdisjoint(circuit.receivers) for circuit in path.circuits)
        and all(
            actual.carries(fabric, end, vlan) for circuit in path.circuits for end in circuit.ends
        )
    ]
    state = NetworkState(
        remembered.epoch,
        Topology(used, paths),
        {path: remembered.vlans[path] for path in paths},
        remembered.pool.rested(
            frozenset(remembered.vlans.values()).difference(
                remembered.vlans[path] for path in paths
            )
        ),
    )
    return Reconciled(
        state=state,
        mirrors=stray_mirrors(fabric, state, actual.mirrors),
        retag=wrong_vlans(fabric, state, actual, closed),
        dropped=remembered.topology.circuits - used,
        unread=used & unread,
        # The light of a circuit may be off because the circuit was being moved.
        unlit={
            circuit: ends
            for circuit, ends in unlit.items()
            if passes[circuit] or circuit not in moving
        },
        standing=standing,
        passing=passing,
        lit=frozenset(circuit for circuit in known if actual.passes(fabric, circuit) is not False),
    )


def stray_mirrors(
    fabric: Fabric, state: NetworkState, actual: Mapping[PlaneId, Mirrors], held: Held = NONE_HELD
) -> dict[PlaneId, MirrorMove]:
    """Cross-connects at a wired port of ours that belong to no circuit of ``state`` or ``held``.

    Includes cross-connects without light. Cross-connects between ports outside the configuration
    are left alone.
    """
    moves: dict[PlaneId, MirrorMove] = {}
    for plane, mirrors in actual.items():
        ours = {
            number
            for port in fabric.ports
            if port.plane == plane
            for number in (port.ingress, port.egress)
        }
        meant = {
            cross
            for circuit in state.topology.circuits | held.circuits
            if circuit.plane == plane
            for cross in fabric.cross_connects(circuit)
        }
        stray = frozenset(
            cross
            for cross in mirrors.present - meant
            if cross.ingress in ours or cross.egress in ours
        )
        if stray:
            moves[plane] = MirrorMove(disconnect=stray, connect=frozenset())
    return moves


def wanted_vlans(
    fabric: Fabric, state: NetworkState, closed: Collection[str] = (), held: Held = NONE_HELD
) -> dict[RackId, dict[str, PortVlans]]:
    """Wanted VLAN membership of every ToR port in the configuration with a membership.

    Ports of ``closed`` servers have no VLANs of circuits. Ports on ``held`` paths also carry the
    paths' VLANs.
    """
    substrate = substrate_of(fabric)
    wanted = {rack.id: substrate.fixed_ports(rack.id) for rack in fabric.racks}
    for server in map(fabric.server_by_name.__getitem__, closed):
        wanted[server.rack] |= substrate.closed_ports([server])
    more = held.ends
    for end, vlans in substrate.trunks(state).items():
        port = fabric.ports[end]
        wanted[port.rack][port.tor_port] = vlans
        if end in more:
            tagged = (vlans.tagged | more[end]) - {fabric.parking_vlan}
            wanted[port.rack][port.tor_port] = PortVlans(tagged, vlans.native)
    return wanted


def servers_closed(fabric: Fabric, actual: Actual) -> frozenset[str]:
    """Servers whose port at the ToR was closed by an earlier run, according to the ToRs."""
    substrate = substrate_of(fabric)
    return frozenset(
        server.name
        for server in fabric.servers
        for name, vlans in substrate.closed_ports([server]).items()
        if actual.vlans.get(server.rack, {}).get(name) == vlans
    )


def wrong_vlans(
    fabric: Fabric,
    state: NetworkState,
    actual: Actual,
    closed: Collection[str] = (),
    held: Held = NONE_HELD,
) -> dict[RackId, dict[str, PortVlans]]:
    """Wanted VLAN membership of ports with a different membership, at ToRs that answered."""
    wrong: dict[RackId, dict[str, PortVlans]] = {}
    for rack, ports in wanted_vlans(fabric, state, closed, held).items():
        if rack not in actual.vlans:
            continue
        differing = {
            name: vlans for name, vlans in ports.items() if actual.vlans[rack].get(name) != vlans
        }
        if differing:
            wrong[rack] = differing
    return wrong
