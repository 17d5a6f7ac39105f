"""Bridges, ports and cables of a fabric: pure functions, for reading and tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hydra.forwarding.substrate import substrate_of
from hydra.model import Fabric, NetworkState, OpticalPort, Plane, Rack, Server, VSwitch
from hydra.reconfiguration.reconcile import wanted_vlans
from mininet_scenarios.testbed.links import Cable
from mininet_scenarios.testbed.ovs import BridgeSpec, PortSpec

ELECTRICAL_BRIDGE: Final = "hyel"


def ocs_interface(plane: Plane, port: OpticalPort) -> str:
    """The OCS's end of the fibre pair to a ToR port, named by the ingress port's number."""
    return f"hyc-{plane.name}-{port.ingress}"


def electrical_interface(fabric: Fabric, server: Server) -> str:
    """The electrical network's end of the server's own uplink, or of the rack's uplink."""
    rack = fabric.racks[server.rack]
    return f"hyx-{server.name if rack.tor.electrical_port is None else rack.name}"


def electrical_interfaces(fabric: Fabric) -> tuple[str, ...]:
    return tuple(dict.fromkeys(electrical_interface(fabric, server) for server in fabric.servers))


def server_interface(server: Server) -> str:
    """The server's own interface, inside its namespace."""
    return f"{server.name}-eth0"


def access_interface(server: Server) -> str:
    """The switch port with the server's own interface plugged in."""
    return server.tor_port if server.vswitch is None else server.vswitch.host_port


def uplink_interfaces(fabric: Fabric, server: Server) -> tuple[str, str]:
    """The switch ports at which a server's frames leave for the ToR, and for the electrical
    network.

    For a plain server: the ToR's end of the server's cable, and the rack's electrical port.
    """
    if server.vswitch is not None:
        return server.vswitch.optical_port, server.vswitch.electrical_port
    return server.tor_port, fabric.racks[server.rack].tor.electrical_port or ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Bridges and cables to create, all but the servers' own namespaces."""

    bridges: tuple[BridgeSpec, ...]
    learning: tuple[str, ...]
    """Bridges that forward by learning, with or without a controller."""
    fabric_cables: tuple[Cable, ...]
    """Cables between switches; the electrical bridge's ends are :func:`electrical_interfaces`."""


def layout(fabric: Fabric, controller: str, fdb_age_s: float) -> Layout:
    """Layout of the whole fabric; ``controller`` in OVS's notation, e.g. ``tcp:127.0.0.1:6653``."""
    return Layout(
        bridges=(
            *(
                _vswitch(server.vswitch, controller)
                for server in fabric.servers
                if server.vswitch is not None
            ),
            *(_tor(fabric, rack, controller, fdb_age_s) for rack in fabric.racks),
        ),
        learning=tuple(
            rack.tor.bridge
            for rack in fabric.racks
            if rack.tor.datapath_id not in substrate_of(fabric).owned()
        ),
        fabric_cables=tuple(_fabric_cables(fabric)),
    )


def _vswitch(vswitch: VSwitch, controller: str) -> BridgeSpec:
    uplinks = {vswitch.optical_port, vswitch.electrical_port}
    ports = tuple(
        PortSpec(name, protected=len(uplinks) > 1 and name in uplinks) for name in vswitch.ports
    )
    return BridgeSpec(vswitch.bridge, ports, vswitch.datapath_id, controller)


def _tor(fabric: Fabric, rack: Rack, controller: str, fdb_age_s: float) -> BridgeSpec:
    vlans = wanted_vlans(fabric, NetworkState())[rack.id]
    names = [server.tor_port for server in rack.servers]
    uplinks = [rack.tor.electrical_port] if rack.tor.electrical_port else []
    uplinks += [port.tor_port for port in fabric.ports_of(rack.id)]
    protected = uplinks if rack.tor.protected_ports else ()
    return BridgeSpec(
        rack.tor.bridge,
        tuple(
            PortSpec(name, vlans[name].tagged, vlans[name].native)
            if name in vlans
            else PortSpec(name, protected=name in protected)
            for name in (*names, *uplinks)
        ),
        rack.tor.datapath_id,
        None if rack.tor.datapath_id is None else controller,
        {"mac-aging-time": f"{max(1, round(fdb_age_s))}"},
    )


def _fabric_cables(fabric: Fabric) -> Iterator[Cable]:
    server_rate, electrical_rate = fabric.server_rate_mbps, fabric.electrical_rate_mbps
    for server in fabric.servers:
        vswitch = server.vswitch
        if vswitch is None:
            continue
        yield Cable(vswitch.optical_port, server.tor_port, server_rate, server_rate)
        if vswitch.electrical_port != vswitch.optical_port:
            end = electrical_interface(fabric, server)
            yield Cable(vswitch.electrical_port, end, electrical_rate, electrical_rate)
    for rack in fabric.racks:
        if rack.tor.electrical_port is not None:
            end = electrical_interface(fabric, rack.servers[0])
            yield Cable(rack.tor.electrical_port, end, electrical_rate, electrical_rate)
    for port in fabric.ports:
        # Light is not queued in a mirror: the ToR's transmitter sets the rate, the OCS sets none.
        yield Cable(port.tor_port, ocs_interface(fabric.planes[port.plane], port), port.rate_mbps)
