"""Links between servers and their ToRs: down, closed, or dead in one direction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hydra.forwarding.substrate import Steering
from hydra.model import DatapathId, Fabric, PortId, Server
from hydra.reconfiguration.readiness import Connections, Readiness

LOG: Final = logging.getLogger("hydra.switches")


class Uplinks(Readiness):
    """As :class:`Readiness`; uplinks are noted in the thread that runs courses."""

    closed: frozenset[str] = frozenset()
    """Servers whose port at the ToR is closed to circuits, until their switch answers."""
    closed_meanwhile: frozenset[str] = frozenset()
    """Servers whose port was closed to circuits by changes under way, which rely on the closing."""
    one_way_uplinks: frozenset[str] = frozenset()
    """Servers with an uplink dead in one direction, as probes show; replaced, never changed."""
    dead_uplinks: frozenset[str] = frozenset()
    """Servers whose uplink to the ToR is down, closed, or dead in one direction."""

    def __init__(self, fabric: Fabric, connections: Connections) -> None:
        super().__init__(fabric, connections)
        self.steering: Final[Mapping[DatapathId, Steering]] = {
            switch.datapath: switch
            for rack in fabric.racks
            for switch in self.substrate.steering(rack.id)
        }
        self.switch_of: Final[Mapping[str, DatapathId]] = {
            server.name: switch.datapath
            for switch in self.steering.values()
            for server in switch.servers
        }
        self._uplinks = frozenset(
            end for server in fabric.servers for end in self._ends_of_uplink(server)
        )
        uplinks_at: dict[DatapathId, list[Server]] = {}
        for server in fabric.servers:
            for datapath, _ in self._ends_of_uplink(server):
                uplinks_at.setdefault(datapath, []).append(server)
        self._uplinks_at: Final[Mapping[DatapathId, Sequence[Server]]] = uplinks_at
        self._unseen_uplinks = True
        """True if ports may have changed since the last check of uplinks."""

    def _ends_of_uplink(self, server: Server) -> Iterator[tuple[DatapathId, str]]:
        """Ports at both ends of a server's uplink, as far as switches report the ports."""
        vswitch, tor = server.vswitch, self.fabric.racks[server.rack].tor.datapath_id
        if vswitch is not None:
            yield vswitch.datapath_id, vswitch.optical_port
        if tor is not None:
            yield tor, server.tor_port

    def is_of_uplink(self, datapath: DatapathId, port: str) -> bool:
        """True for a port between a server and its ToR."""
        return (datapath, port) in self._uplinks

    def _uplink_down(self, server: Server) -> bool:
        """True if an uplink is known to be down at either end, or dead in one direction; a silent
        switch counts as up.
        """
        if server.name in self.one_way_uplinks:
            return True
        return self._carrier_lost(server)

    def still_down(self, names: frozenset[str]) -> frozenset[str]:
        """The servers among ``names`` whose uplink has not come back."""
        shut = self.closed | self.closed_meanwhile
        servers = self.fabric.server_by_name
        return frozenset(name for name in names if name in shut or self._uplink_down(servers[name]))

    def linked(self) -> frozenset[DatapathId]:
        """Ready switches whose uplink has carrier and whose ToR, if controlled by OpenFlow, has its
        rules. Loss of frames on the uplink does not count here.
        """
        down = {self.switch_of[name] for name in self.dead_uplinks - self.one_way_uplinks}
        blank = {
            rack.id
            for rack in self.fabric.racks
            if rack.tor.datapath_id is not None and rack.tor.datapath_id not in self._synchronised
        }
        if blank:
            down |= {dp for dp, switch in self.steering.items() if switch.rack in blank}
        ready = self.ready()
        return ready - down if down else ready

    def _carrier_lost(self, server: Server) -> bool:
        seen = (self._connections.port(*end) for end in self._ends_of_uplink(server))
        return any(port is not None and not port.up for port in seen)

    def is_dark(self, end: PortId) -> bool:
        """True if a port is known to have no carrier; False for a silent ToR."""
        port = self.fabric.ports[end]
        tor = self.fabric.racks[port.rack].tor.datapath_id
        seen = None if tor is None else self._connections.port(tor, port.tor_port)
        return seen is not None and not seen.up

    def have_uplinks_checked(self) -> None:
        """Have the next check look at all uplinks."""
        self._unseen_uplinks = True

    def note_uplinks(self, connected: Iterable[DatapathId] | None = None) -> bool:
        """Note the uplinks down or closed; True if the set has changed.

        Checks uplinks that were down, and uplinks of switches that ``connected`` since; all uplinks
        if None, or after ports changed without a check.
        """
        if connected is None or self._unseen_uplinks:
            servers = list(self.fabric.servers)
            self._unseen_uplinks = False
        else:
            servers = [server for at in connected for server in self._uplinks_at.get(at, ())]
            if self.dead_uplinks:
                servers += [
                    server for server in self.fabric.servers if server.name in self.dead_uplinks
                ]
        down = (server.name for server in servers if self._uplink_down(server))
        dead = self.closed.union(self.closed_meanwhile, down)
        if dead == self.dead_uplinks:
            return False
        self.dead_uplinks = dead
        LOG.warning("uplinks to ToRs down or closed: %s", ", ".join(sorted(dead)) or "none")
        return True
