"""Servers that tag frames for circuits, on ToRs that learn: ToR ports are in the VLANs of paths."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hydra.forwarding.pipeline import Port, RuleKind
from hydra.forwarding.rules import (
    BY_UPLINK,
    FlowRule,
    Lane,
    account_rules,
    circuit_rules,
    constant,
    default_rules,
    host_rules,
    own_rack_rules,
    uplink_exceptions,
)
from hydra.forwarding.substrate.role import PortNames, Steering, Substrate
from hydra.model import (
    DatapathId,
    NetworkState,
    Path,
    PortId,
    Rack,
    RackId,
    Server,
    VlanId,
    VSwitch,
)
from hydra.policy import SourceCheck
from hydra.roles import PortVlans


@dataclass(frozen=True, slots=True)
class _TaggingServers(Substrate):
    """Common part of the substrates whose servers have a vswitch, however they are attached."""

    retags = True
    tells_rounds = True

    _steering: dict[RackId, tuple[Steering, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Steering switches of racks that were asked for."""

    def owned(self) -> Mapping[DatapathId, str]:
        return self.fabric.vswitch_names

    def ports(self, datapath: DatapathId) -> PortNames:
        server = self.fabric.server_by_datapath.get(datapath)
        if server is None:
            return PortNames()
        vswitch = vswitch_of(server)
        return PortNames(vswitch.host_port, vswitch.optical_port, vswitch.electrical_port)

    def path_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        yield from self.steering_rules(state, self.fabric.server_by_datapath[datapath].rack)

    def common_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        yield from account_rules(self.fabric, self.fabric.server_by_datapath[datapath].rack)
        yield from default_rules()
        yield from self.path_rules(datapath, state)

    def tor_rules(self) -> Iterator[FlowRule]:
        yield constant(RuleKind.TOR_NORMAL)

    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        known = self._steering.get(rack)
        if known is None:
            known = self._steering[rack] = tuple(
                Steering(vswitch_of(server).datapath_id, server.name, rack, (server,))
                for server in self.fabric.racks[rack].servers
            )
        return known

    def steer(
        self, _rack: RackId, to: RackId, lanes: Sequence[Lane], epoch: int
    ) -> Sequence[FlowRule]:
        return circuit_rules(BY_UPLINK, to, [(vlan,) for _, vlan in lanes], epoch)

    def launch(self, server: Server, _path: Path) -> tuple[DatapathId, int]:
        return vswitch_of(server).datapath_id, Port.OPTICAL

    def fixed_ports(self, rack: RackId) -> dict[str, PortVlans]:
        """Server-facing ports carry the rack's own VLAN and every circuit's.

        Constant, so that a reconfiguration only retags optical ports.
        """
        circuits = _from_to(self.fabric.circuit_vlans.first, self.fabric.circuit_vlans.last)
        this = self.fabric.racks[rack]
        vlans = PortVlans(circuits, native=this.tor.native_vlan)
        return {server.tor_port: vlans for server in this.servers}

    def closed_ports(self, servers: Collection[Server]) -> dict[str, PortVlans]:
        parked = frozenset({self.fabric.parking_vlan})  # no VLAN at all means all of them to some
        return {
            server.tor_port: PortVlans(parked, self.fabric.racks[server.rack].tor.native_vlan)
            for server in servers
        }

    def trunks(self, state: NetworkState) -> Mapping[PortId, PortVlans]:
        """The VLANs of each port's paths, or the parking VLAN alone."""
        tagged: dict[PortId, set[VlanId]] = {}
        for path in state.topology.paths:
            vlan = state.vlans[path]
            for circuit in path.circuits:
                tagged.setdefault(circuit.a, set()).add(vlan)
                tagged.setdefault(circuit.b, set()).add(vlan)
        trunks = dict.fromkeys(self.fabric.port_ids, _parked(self.fabric.parking_vlan))
        trunks.update((end, _trunk(frozenset(vlans))) for end, vlans in tagged.items())
        return trunks


@dataclass(frozen=True, slots=True)
class DualHomedVlan(_TaggingServers):
    """Servers tag circuits; one uplink to the ToR, and one to the electrical network."""

    dead_uplink = "optical uplink down"
    detours = True

    def own_rules(
        self, datapath: DatapathId, dead: Collection[str], source_check: SourceCheck
    ) -> Iterator[FlowRule]:
        """Servers with a dead uplink are reached electrically, and answer the same way."""
        server = self.fabric.server_by_datapath[datapath]
        yield from host_rules(self.fabric, server, _FROM_TWO_UPLINKS, source_check)
        yield from own_rack_rules(self.fabric, server, server.name in dead)
        yield from uplink_exceptions(self.fabric, server, dead)

    def announced(
        self, _server: Server, vlans: Collection[VlanId]
    ) -> Iterator[tuple[int, VlanId | None]]:
        for vlan in vlans:
            yield Port.OPTICAL, vlan
        yield Port.OPTICAL, None
        yield Port.ELECTRICAL, None

    def electrical_mbps(self, rack: Rack) -> float:
        return len(rack.servers) * self.fabric.electrical_rate_mbps


@dataclass(frozen=True, slots=True)
class SingleHomedVlan(_TaggingServers):
    """Servers tag frames for circuits on their one uplink; a ToR hands untagged ones to the
    electrical network behind it.

    The rack's own VLAN continues there, tagged on the ToR's electrical port, and is the same VLAN
    in every rack: servers in the own rack and in others are reached alike.
    """

    def own_rules(
        self, datapath: DatapathId, _dead: Collection[str], source_check: SourceCheck
    ) -> Iterator[FlowRule]:
        """``_dead`` changes nothing: there is no way around a dead uplink."""
        server = self.fabric.server_by_datapath[datapath]
        yield from host_rules(self.fabric, server, _FROM_ONE_UPLINK, source_check)
        yield from own_rack_rules(self.fabric, server, uplink_dead=False)

    def announced(
        self, _server: Server, vlans: Collection[VlanId]
    ) -> Iterator[tuple[int, VlanId | None]]:
        for vlan in vlans:
            yield Port.OPTICAL, vlan
        yield Port.OPTICAL, None

    def fixed_ports(self, rack: RackId) -> dict[str, PortVlans]:
        tor = self.fabric.racks[rack].tor
        ports = _TaggingServers.fixed_ports(self, rack)
        if tor.electrical_port is not None:
            ports[tor.electrical_port] = PortVlans(frozenset({tor.native_vlan}))
        return ports


@lru_cache(maxsize=4)
def _parked(vlan: VlanId) -> PortVlans:
    """The VLANs of a port without a circuit: one object for all, which is soon compared."""
    return PortVlans(frozenset({vlan}))


@lru_cache(maxsize=4096)
def _trunk(vlans: frozenset[VlanId]) -> PortVlans:
    """The VLANs of a port with circuits: those of another state are soon compared with them."""
    return PortVlans(vlans)


@lru_cache(maxsize=4)
def _from_to(first: int, last: int) -> frozenset[VlanId]:
    """VLANs of a range; thousands, asked for by each rack, and always the same."""
    return frozenset(VlanId(vlan) for vlan in range(first, last + 1))


def vswitch_of(server: Server) -> VSwitch:
    """Raises LookupError for a plain server, which these substrates do not have."""
    if server.vswitch is None:
        raise LookupError(f"server {server.name} has no vswitch")
    return server.vswitch


_FROM_TWO_UPLINKS: Final = (
    RuleKind.UPLINK_PROBE,
    RuleKind.UPLINK_TAGGED,
    RuleKind.UPLINK_UNTAGGED,
    RuleKind.UPLINK_DROP,
    RuleKind.ELECTRICAL_ANNOUNCE_DROP,
    RuleKind.ELECTRICAL_UNICAST,
    RuleKind.ELECTRICAL_GROUP,
)
_FROM_ONE_UPLINK: Final = (
    RuleKind.UPLINK_PROBE,
    RuleKind.UPLINK_TAGGED,
    RuleKind.UPLINK_UNTAGGED,
    RuleKind.UPLINK_ANNOUNCE_DROP,
    RuleKind.UPLINK_GROUP,
    RuleKind.UPLINK_DROP,
)
