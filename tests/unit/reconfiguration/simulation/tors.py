"""VLANs of simulated ToRs: retagging, what ToRs have learned, and carrier."""

from __future__ import annotations

import random
from functools import partial

from hydra.failures import FailureKind
from hydra.model import Fabric, NetworkState, PortId, RackId, VlanId
from hydra.reconfiguration.commands import Announce, AwaitPortsUp, ReadVlans, SetVlans
from hydra.reconfiguration.plan import port_trunks
from hydra.roles import PortVlans
from tests.unit.reconfiguration.simulation.bundles import Bundles
from tests.unit.reconfiguration.simulation.faults import Doing, failure_of
from tests.unit.reconfiguration.simulation.planes import Planes


class Tors(Planes, Bundles):
    """VLANs of the ports of learning ToRs, and commands to ToRs."""

    forgotten: frozenset[tuple[PortId, VlanId]] = frozenset()
    """Ports that were retagged, with VLANs that stayed and were not announced since."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        super().__init__(fabric, state, rng)
        self.vlans: dict[PortId, PortVlans] = dict(port_trunks(fabric, state))
        self.port_named = {(p.rack, p.tor_port): p for p in fabric.ports}
        self.server_at = {(s.rack, s.tor_port): s for s in fabric.servers}

    def set_vlans(self, command: SetVlans) -> Doing:
        if self.tor_away(command.rack):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        self.now_s = max(self.now_s, self.still_until_s.get(command.rack, 0.0))
        ports = self.rng.sample(sorted(command.ports), len(command.ports))
        extent, failure = self.extent(command, self.faults.tor, len(ports))

        def change(name: str) -> None:
            server = self.server_at.get((command.rack, name))
            if server is None:
                end, vlans = self.port_named[command.rack, name].id, command.ports[name]
                if vlans != self.vlans[end]:
                    kept = self.vlans[end].tagged & vlans.tagged
                    self.forgotten |= {(end, vlan) for vlan in kept}
                self.vlans[end] = vlans
            elif command.ports[name] == self.substrate.closed_ports([server])[name]:
                self.closed.add(server.name)
            else:
                assert command.ports[name] == self.substrate.fixed_ports(server.rack)[name]
                self.reopen([server])

        for name in ports[:extent]:
            change(name)
            yield
        if failure and failure.kind is FailureKind.UNKNOWN:
            rack = self.fabric.racks[command.rack].name
            self.postpone(rack, [partial(change, name) for name in ports[extent:]])
        return None, failure

    def read_vlans(self, command: ReadVlans) -> Doing:
        yield
        if self.tor_away(command.rack) or self.hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        return {n: self._membership(command.rack, n) for n in command.ports}, None

    def await_ports_up(self, command: AwaitPortsUp) -> Doing:
        """Light that is there is told of at once; what does not come is waited for."""
        until_s = self.now_s + command.timeout_s
        yield
        if self.tor_away(command.rack) or self.hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        dark = tuple(
            name
            for name in command.ports
            if not self.lit(self.port_named[command.rack, name]) or self.hit(self.faults.no_carrier)
        )
        if dark:
            self.now_s = max(self.now_s, until_s)
        return dark, None

    def announce(self, command: Announce) -> Doing:
        announced = {vlan for _, vlans in command.servers for vlan in vlans}
        self.forgotten = frozenset(entry for entry in self.forgotten if entry[1] not in announced)
        yield
        return None, None

    def tor_away(self, rack: RackId) -> bool:
        return self.fabric.racks[rack].name in self.away

    def _membership(self, rack: RackId, name: str) -> PortVlans:
        server = self.server_at.get((rack, name))
        if server is not None and server.name in self.closed:
            return self.substrate.closed_ports([server])[name]
        port = self.port_named.get((rack, name))
        return self.substrate.fixed_ports(rack)[name] if port is None else self.vlans[port.id]
