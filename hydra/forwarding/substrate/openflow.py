"""Plain servers with a single uplink, and ToRs under the sole control of OpenFlow.

A ToR holds the tables of a vswitch for all servers of the rack. The VLAN of a path is a label
between ToRs: the first ToR pushes the label, relays match the label, the last ToR pops the label.
Paths over the same circuit have different labels, since relays distinguish paths by label. Servers
are where the configuration says: no table learns, and group frames go to the electrical port and to
neighbours only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hydra.forwarding.match_action import Port, server_port, wired_port
from hydra.forwarding.pipeline import FOR_ONE_SERVER, VLAN_PRESENT, RuleKind, cookie, cookie_subject
from hydra.forwarding.rules import (
    BY_PORT,
    FlowRule,
    Lane,
    account_rules,
    circuit_rules,
    constant,
    default_rules,
    mac_as_int,
    neighbour_discovery_rules,
    port_rules,
    rack_metadata,
)
from hydra.forwarding.substrate.base import PortNames, Steering, Substrate
from hydra.model import (
    Circuit,
    DatapathId,
    NetworkState,
    Path,
    PortId,
    Rack,
    RackId,
    Server,
    VlanId,
)
from hydra.policy import SourceCheck


@dataclass(frozen=True, slots=True)
class SingleHomedOpenFlow(Substrate):
    """The substrate of the module docstring."""

    # -- switches ---------------------------------------------------------------------------------

    def owned(self) -> Mapping[DatapathId, str]:
        return self.fabric.tor_names

    def ports(self, datapath: DatapathId) -> PortNames:
        rack = self.fabric.rack_by_tor_datapath.get(datapath)
        if rack is None:
            return PortNames()
        wired = tuple(port.tor_port for port in self.fabric.ports_of(rack.id))
        return PortNames(
            optical=wired[0] if wired else "",
            electrical=rack.tor.electrical_port or "",
            servers=tuple(server.tor_port for server in rack.servers),
            wired=wired,
            protected=rack.tor.protected_ports,
        )

    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        rack_model = self.fabric.racks[rack]
        if rack_model.spine or rack_model.tor.datapath_id is None:
            return ()
        return (Steering(rack_model.tor.datapath_id, rack_model.name, rack, rack_model.servers),)

    # -- rules ------------------------------------------------------------------------------------

    def own_rules(
        self, datapath: DatapathId, _dead: Collection[str], source_check: SourceCheck
    ) -> Iterator[FlowRule]:
        """``_dead`` has no effect: a dead uplink has no detour."""
        rack = self.fabric.rack_by_tor_datapath[datapath]
        if not rack.spine:
            yield from self._local_rules(rack, source_check)

    def common_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        rack = self.fabric.rack_by_tor_datapath[datapath]
        if not rack.spine:
            yield from account_rules(self.fabric, rack.id)
            yield from default_rules()
        yield from self.path_rules(datapath, state)

    def path_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        rack = self.fabric.rack_by_tor_datapath[datapath]
        yield from self.steering_rules(state, rack.id)
        for path in state.topology.paths:
            if path.hops > 1 and rack.id not in (path.src, path.dst):
                relays = self.relays(path, state.vlans[path], state.epoch)
                yield from relays.get(datapath, ())

    def _local_rules(self, rack: Rack, source_check: SourceCheck) -> Iterator[FlowRule]:
        """Rules by ingress port, and for rack-local and electrical traffic."""
        places = range(len(rack.servers))
        for port in (Port.ELECTRICAL, *map(server_port, places)):
            yield constant(RuleKind.TOR_TAGGED_DROP, port)
        for place, server in enumerate(rack.servers):
            port = server_port(place)
            for mac in map(mac_as_int, server.macs):
                yield constant(RuleKind.TOR_PROBE, mac)
                yield constant(RuleKind.TOR_ARRIVAL, mac, port)
                yield constant(RuleKind.TOR_LOCAL, mac, port)
            yield from port_rules(self.fabric, server, port, source_check)
        for place in range(len(self.fabric.ports_of(rack.id))):
            yield constant(RuleKind.TOR_WIRED_DROP, wired_port(place))
        yield constant(RuleKind.ELECTRICAL_ANNOUNCE_DROP)
        yield constant(RuleKind.PORT_ANY, Port.ELECTRICAL)
        for kind in (
            RuleKind.TOR_ELECTRICAL_GROUP,
            RuleKind.TOR_ELECTRICAL_DROP,
            RuleKind.TOR_GROUP,
        ):
            yield constant(kind)
        yield from neighbour_discovery_rules()

    def steer(
        self, rack: RackId, to: RackId, lanes: Sequence[Lane], epoch: int
    ) -> Sequence[FlowRule]:
        ways = [(label, self._entry(rack, path)) for path, label in lanes]
        return circuit_rules(BY_PORT, to, ways, epoch)

    def for_server(self, rule: FlowRule, server: Server) -> FlowRule:
        kind = FOR_ONE_SERVER[rule.kind]
        place = self.fabric.racks[server.rack].servers.index(server)
        subject = cookie_subject(rule.cookie)
        return FlowRule(kind, (*rule.args, server_port(place)), cookie(kind, subject=subject))

    def relays(self, path: Path, vlan: VlanId, epoch: int) -> Mapping[DatapathId, list[FlowRule]]:
        found: dict[DatapathId, list[FlowRule]] = {}
        subject = rack_metadata(path.dst)
        for earlier, other in pairwise(path.circuits):
            rack, ends = self._meeting(earlier, other)
            datapath = self.fabric.racks[rack].tor.datapath_id
            if datapath is None:
                continue
            a, b = (wired_port(self.fabric.place_of_port[end]) for end in ends)
            label = VLAN_PRESENT | vlan
            kind = RuleKind.TOR_RELAY
            ways = [(a, label, b)] if path.one_way else [(a, label, b), (b, label, a)]
            found[datapath] = [FlowRule(kind, way, cookie(kind, epoch, subject)) for way in ways]
        return found

    def _meeting(self, circuit: Circuit, other: Circuit) -> tuple[RackId, tuple[PortId, PortId]]:
        """The rack where two circuits of a path meet, and their ports there."""
        rack = (set(self.fabric.racks_of(circuit)) & set(self.fabric.racks_of(other))).pop()
        return rack, (self._end(circuit, rack), self._end(other, rack))

    def _end(self, circuit: Circuit, rack: RackId) -> PortId:
        return circuit.a if self.fabric.ports[circuit.a].rack == rack else circuit.b

    def _entry(self, rack: RackId, path: Path) -> int:
        """The ToR port at which ``path`` begins for ``rack``, an end of the path."""
        circuit = path.circuits[0 if rack == path.src else -1]
        return wired_port(self.fabric.place_of_port[self._end(circuit, rack)])

    # -- frames of the controller's own -----------------------------------------------------------

    def launch(self, server: Server, path: Path) -> tuple[DatapathId, int]:
        (switch,) = self.steering(server.rack)
        return switch.datapath, self._entry(server.rack, path)

    def announced(
        self, _server: Server, _vlans: Collection[VlanId]
    ) -> Iterator[tuple[int, VlanId | None]]:
        """The electrical port only, since only the electrical network learns."""
        yield Port.ELECTRICAL, None
