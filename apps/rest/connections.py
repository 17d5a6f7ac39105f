"""Most connections of a controller, and their descriptors."""

from __future__ import annotations

from typing import Final, NamedTuple

from apps.openflow.interface import OpenFlowTls
from apps.process.admitted_connections import reserve_descriptors
from apps.rest.server import MOST_CONNECTIONS
from hydra.config import Loaded

_SPARE_CONNECTIONS: Final = 64
_OTHER_DESCRIPTORS: Final = 256
"""The journal, logs, pipes, webhooks."""


class Connections(NamedTuple):
    """Most connections at a time."""

    openflow: int
    rest: int


def room_for_connections(loaded: Loaded) -> Connections:
    """Reserve descriptors for all connections. Raises HydraError above the process's limit."""
    settings, fabric = loaded.controller, loaded.fabric
    # Switches may come back before their old connections have ended: half of all switches at a
    # time, the rest within seconds.
    switches = len(fabric.servers) + len(fabric.racks)
    devices = len(fabric.racks) + len(fabric.planes)
    openflow = switches + switches // 2 + _SPARE_CONNECTIONS
    rest = settings.connections or MOST_CONNECTIONS + 2 * len(fabric.servers)
    each = 1 if settings.openflow_certificate is None else OpenFlowTls.DESCRIPTORS
    reserve_descriptors(
        openflow * each + rest + 2 * devices + _OTHER_DESCRIPTORS,
        f"for {switches} switches, {devices} devices and {rest} connections to REST",
    )
    return Connections(openflow, rest)
