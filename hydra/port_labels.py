"""Names of the neighbours at the ports of a device."""

from __future__ import annotations

from hydra.model import Fabric, PlaneId, Rack, RackId


def wired_to(fabric: Fabric, plane: PlaneId) -> dict[int, tuple[RackId, str]]:
    """(rack, ToR port) by port of an optical switch, for configured wiring."""
    return {
        number: (port.rack, port.tor_port)
        for port in fabric.ports
        if port.plane == plane
        for number in (port.ingress, port.egress)
    }


def wired_name(fabric: Fabric, end: tuple[RackId, str] | None) -> str | None:
    """``r1 hyt-r1-p1``: the name of an entry of :func:`wired_to`."""
    return None if end is None else f"{fabric.racks[end[0]].name} {end[1]}"


def behind_tor_ports(fabric: Fabric, rack: Rack) -> dict[str, str]:
    """Neighbours by ToR port of a rack: a server, ``electrical``, or a plane."""
    behind = {server.tor_port: server.name for server in rack.servers}
    if rack.tor.electrical_port is not None:
        behind[rack.tor.electrical_port] = "electrical"
    return behind | {
        port.tor_port: fabric.planes[port.plane].name for port in fabric.ports_of(rack.id)
    }
