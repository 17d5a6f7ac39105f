"""The state that the network is really in after a start: the journal's, held against the devices'.

A path of the journal is given up where a device denies it, and goes electrical. A device that does
not answer denies nothing: its paths are kept, unless a change that broke off was moving them.
Whatever else stands on our ports is taken down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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
from hydra.reconfiguration.plan import SETTLED, MirrorMove, Unsettled, port_trunks
from hydra.rings import rings_of, whole_rings
from hydra.roles import Mirrors, PortVlans


@dataclass(frozen=True, slots=True)
class Actual:
    """The state as read from the devices; those that did not answer are absent."""

    mirrors: Mapping[PlaneId, Mirrors]
    vlans: Mapping[RackId, Mapping[str, PortVlans]]

    def passes(self, fabric: Fabric, circuit: Circuit) -> bool | None:
        """True if the mirrors pass the light of ``circuit``; None if its plane said nothing."""
        mirrors = self.mirrors.get(circuit.plane)
        return None if mirrors is None else mirrors.lit.issuperset(fabric.cross_connects(circuit))


@dataclass(frozen=True, slots=True)
class Reconciled:
    state: NetworkState
    mirrors: Mapping[PlaneId, MirrorMove]
    """Moves that take down cross-connects on our ports which belong to no circuit of ``state``."""
    retag: Mapping[RackId, Mapping[str, PortVlans]]
    """VLANs that ``state`` wants on ports that have others."""
    dropped: frozenset[Circuit]
    unread: frozenset[Circuit]
    """Circuits of ``state`` of which the plane, or a ToR at an end, said nothing."""
    unlit: Mapping[Circuit, frozenset[PortId]]
    """Dropped circuits whose mirrors should pass light, with the ports that receive none."""
    standing: Sequence[Lane]
    """Paths that are given up, remembered or begun, and on which frames pass as the devices say;
    a plane that says nothing has its mirrors where they were.
    """
    sure: bool
    """False if there are more of them that mirrors and VLANs let pass, and only light is missing:
    it may be there by now.
    """


def reconcile(
    fabric: Fabric,
    remembered: NetworkState,
    actual: Actual,
    unsettled: Unsettled = SETTLED,
    closed: Collection[str] = (),
    dark: Collection[PortId] = (),
) -> Reconciled:
    """The part of ``remembered`` that is real, and the differences to mend.

    A path that a change which broke off, and left ``unsettled``, has ended is given up where relays
    may know it no more, and where a device does not answer. A path whose VLAN-ID is none of the
    fabric's any more is given up: ports of servers lose it.
    The ports of ``closed`` servers stay as they are. ``dark`` ports receive no light.
    """
    relays = substrate_of(fabric).relays
    passes = {one: actual.passes(fabric, one) for one in remembered.topology.circuits}
    dark_ports = frozenset(dark)
    unlit = {
        one: ends
        for one, passed in passes.items()
        if passed is not False and (ends := dark_ports.intersection(one.receivers))
    }
    kept = whole_rings(one for one in passes if passes[one] is not False and one not in unlit)
    wanted = port_trunks(fabric, remembered)
    tagged = {
        one: {_tagged_as_wanted(fabric, actual, wanted, end) for end in one.ends} for one in kept
    }
    unread = {one for one in kept if None in (passes[one], *tagged[one])}

    def stays(path: Path) -> bool:
        vlan = remembered.vlans[path]
        if not kept.issuperset(path.circuits) or vlan not in fabric.circuit_vlans:
            return False
        if any(False in tagged[one] for one in path.circuits):
            return False
        moved = path in unsettled.ended
        return not (
            moved and (relays(path, vlan, remembered.epoch) or not unread.isdisjoint(path.circuits))
        )

    paths = tuple(filter(stays, remembered.topology.paths))
    moving = {one for path in unsettled.ended for one in path.circuits}
    used = rings_of({circuit for path in paths for circuit in path.circuits}, kept)
    kept_lanes = {(path, remembered.vlans[path]) for path in paths}
    passing = [
        (path, vlan)
        for path, vlan in sorted((remembered.vlans.items() | unsettled.begun) - kept_lanes)
        if all(actual.passes(fabric, one) is not False for one in path.circuits)
        and all(vlan in _tagged(fabric, actual, end) for one in path.circuits for end in one.ends)
    ]
    standing = [
        (path, vlan)
        for path, vlan in passing
        if all(dark_ports.isdisjoint(one.receivers) for one in path.circuits)
    ]
    state = NetworkState(
        remembered.epoch,
        Topology(used, paths),
        {path: remembered.vlans[path] for path in paths},
        remembered.resting
        | frozenset(remembered.vlans.values())
        - frozenset(remembered.vlans[path] for path in paths),
        remembered.freed,
    )
    return Reconciled(
        state,
        stray_mirrors(fabric, state, actual.mirrors),
        wrong_vlans(fabric, state, actual, closed),
        remembered.topology.circuits - used,
        used & unread,
        # The light of a circuit that was being moved may be off for that.
        {one: ends for one, ends in unlit.items() if passes[one] or one not in moving},
        standing,
        sure=len(standing) == len(passing),
    )


def _tagged_as_wanted(
    fabric: Fabric, actual: Actual, wanted: Mapping[PortId, PortVlans], end: PortId
) -> bool | None:
    """True if a port has the VLANs that it should; None if its ToR did not answer."""
    port = fabric.ports[end]
    if port.rack not in actual.vlans:
        return None if end in wanted else True
    return actual.vlans[port.rack].get(port.tor_port) == wanted.get(end)


def _tagged(fabric: Fabric, actual: Actual, end: PortId) -> frozenset[VlanId]:
    """VLANs of a port, as read; none where it has none, or its ToR did not answer."""
    port = fabric.ports[end]
    vlans = actual.vlans.get(port.rack, {}).get(port.tor_port)
    return frozenset() if vlans is None else vlans.tagged


def stray_mirrors(
    fabric: Fabric, state: NetworkState, actual: Mapping[PlaneId, Mirrors]
) -> dict[PlaneId, MirrorMove]:
    """Cross-connects that touch a wired port of ours and belong to no circuit of ``state``.

    Those that pass no light are among them. Cross-connects between ports that the configuration
    does not name are left alone.
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
            for circuit in state.topology.circuits
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
    fabric: Fabric, state: NetworkState, closed: Collection[str] = ()
) -> dict[RackId, dict[str, PortVlans]]:
    """VLAN membership of every ToR port that the configuration names, and that has one.

    Ports of ``closed`` servers have no VLANs of circuits.
    """
    substrate = substrate_of(fabric)
    wanted = {rack.id: substrate.fixed_ports(rack.id) for rack in fabric.racks}
    for server in map(fabric.server_by_name.__getitem__, closed):
        wanted[server.rack] |= substrate.closed_ports([server])
    for end, vlans in substrate.trunks(state).items():
        port = fabric.ports[end]
        wanted[port.rack][port.tor_port] = vlans
    return wanted


def servers_closed(fabric: Fabric, actual: Actual) -> frozenset[str]:
    """Servers whose port at the ToR was closed by an earlier run, as the ToRs say."""
    substrate = substrate_of(fabric)
    return frozenset(
        server.name
        for server in fabric.servers
        for name, vlans in substrate.closed_ports([server]).items()
        if actual.vlans.get(server.rack, {}).get(name) == vlans
    )


def wrong_vlans(
    fabric: Fabric, state: NetworkState, actual: Actual, closed: Collection[str] = ()
) -> dict[RackId, dict[str, PortVlans]]:
    """VLANs that ports of ToRs which answered are to have, where they have others."""
    wrong: dict[RackId, dict[str, PortVlans]] = {}
    for rack, ports in wanted_vlans(fabric, state, closed).items():
        if rack not in actual.vlans:
            continue
        differing = {
            name: vlans for name, vlans in ports.items() if actual.vlans[rack].get(name) != vlans
        }
        if differing:
            wrong[rack] = differing
    return wrong
