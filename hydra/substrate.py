"""The substrate: which rules and which port VLANs turn a plan into a network.

The rest of the core speaks of pairs, paths and VLANs; how servers are attached, and who tells
circuits apart, is known here only. :func:`substrate_of` is asked wherever it matters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from hydra.model import (
    DatapathId,
    Fabric,
    NetworkState,
    Rack,
    RackId,
    Server,
    SubstrateKind,
    VlanId,
)
from hydra.pipeline import Port, RuleKind
from hydra.roles import PortVlans
from hydra.rules import (
    FlowRule,
    account_rules,
    circuit_rule,
    circuit_rules,
    constant,
    default_rules,
    divert_rule,
    host_rules,
    own_rack_rules,
    uplink_exceptions,
)


@dataclass(frozen=True, slots=True)
class Steering:
    """A switch that decides which network takes what a rack sends."""

    datapath: DatapathId
    name: str
    """Of the server, where it is a server's."""
    rack: RackId


class Substrate(Protocol):
    """How one fabric carries out what is planned."""

    @property
    def dead_uplink(self) -> str:
        """What is wrong with a server whose uplink to the ToR has no carrier, in words."""

    @property
    def untagged_ports(self) -> tuple[Port, ...]:
        """Where a vswitch announces its host untagged: to its rack, and electrically."""

    def owned(self) -> Mapping[DatapathId, str]:
        """Switches that hold our rules and no others, with their names."""

    def rules(
        self, datapath: DatapathId, state: NetworkState, dead: Collection[str]
    ) -> Iterator[FlowRule]:
        """All rules that an owned switch holds in ``state``, outside reconfigurations.

        ``dead`` names servers whose uplink to the ToR has no carrier.
        """

    def server_rules(self, server: Server, dead: Collection[str], /) -> Iterator[FlowRule]:
        """The rules of a vswitch that do not depend on circuits."""

    def tor_rules(self) -> Iterator[FlowRule]:
        """What every ToR that is connected by OpenFlow, and not owned, holds beside its own."""

    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        """The switches that hold the divert and circuit rules for what ``rack`` sends."""

    def divert(self, to: RackId, epoch: int) -> FlowRule:
        """At a steering switch: all that its rack sends to another goes electrical."""

    def steer(self, to: RackId, vlan: VlanId, epoch: int) -> FlowRule:
        """At a steering switch: what its rack sends to another takes the circuits of ``vlan``.

        Its match is the same whatever the VLAN and the epoch: any such rule removes any other.
        """

    def fixed_ports(self, rack: RackId) -> dict[str, PortVlans]:
        """VLAN membership of a rack's ToR ports that no reconfiguration touches, by name."""

    def electrical_mbps(self, rack: Rack) -> float:
        """Between a rack and the electrical network, in each direction."""


@dataclass(frozen=True, slots=True)
class DualHomedVlan:
    """Servers tag circuits; one uplink to the ToR, and one to the electrical network."""

    fabric: Fabric

    @property
    def dead_uplink(self) -> str:
        return "optical uplink down"

    @property
    def untagged_ports(self) -> tuple[Port, ...]:
        return (Port.OPTICAL, Port.ELECTRICAL)

    def server_rules(self, server: Server, dead: Collection[str], /) -> Iterator[FlowRule]:
        """Servers with a dead uplink are reached, and answer, electrically."""
        yield from host_rules(server, _FROM_TWO_UPLINKS)
        yield from own_rack_rules(self.fabric, server, server.name in dead)
        yield from account_rules(self.fabric, server)
        yield from default_rules()
        yield from uplink_exceptions(self.fabric, server, dead)

    def owned(self) -> Mapping[DatapathId, str]:
        return _vswitch_names(self.fabric)

    def rules(
        self, datapath: DatapathId, state: NetworkState, dead: Collection[str]
    ) -> Iterator[FlowRule]:
        server = self.fabric.server_by_datapath[datapath]
        yield from self.server_rules(server, dead)
        yield from circuit_rules(state, server)

    def tor_rules(self) -> Iterator[FlowRule]:
        yield constant(RuleKind.TOR_NORMAL)

    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        return _vswitches(self.fabric, rack)

    def divert(self, to: RackId, epoch: int) -> FlowRule:
        return divert_rule(to, epoch)

    def steer(self, to: RackId, vlan: VlanId, epoch: int) -> FlowRule:
        return circuit_rule(to, vlan, epoch)

    def fixed_ports(self, rack: RackId) -> dict[str, PortVlans]:
        return _server_ports(self.fabric, rack)

    def electrical_mbps(self, rack: Rack) -> float:
        return len(rack.servers) * self.fabric.electrical_rate_mbps


@dataclass(frozen=True, slots=True)
class SingleHomedVlan:
    """Servers tag circuits on their one uplink; untagged, a ToR hands frames to the electrical
    network behind it.

    The rack's own VLAN reaches out to it, tagged on the ToR's electrical port, and is the same
    VLAN in every rack: a server in the own rack and one elsewhere are reached alike.
    """

    fabric: Fabric

    @property
    def dead_uplink(self) -> str:
        return "uplink down"

    @property
    def untagged_ports(self) -> tuple[Port, ...]:
        return (Port.OPTICAL,)

    def server_rules(self, server: Server, _dead: Collection[str], /) -> Iterator[FlowRule]:
        """There is no way around a dead uplink, so none changes anything."""
        yield from host_rules(server, _FROM_ONE_UPLINK)
        yield from own_rack_rules(self.fabric, server, uplink_dead=False)
        yield from account_rules(self.fabric, server)
        yield from default_rules()

    def owned(self) -> Mapping[DatapathId, str]:
        return _vswitch_names(self.fabric)

    def rules(
        self, datapath: DatapathId, state: NetworkState, dead: Collection[str]
    ) -> Iterator[FlowRule]:
        server = self.fabric.server_by_datapath[datapath]
        yield from self.server_rules(server, dead)
        yield from circuit_rules(state, server)

    def tor_rules(self) -> Iterator[FlowRule]:
        yield constant(RuleKind.TOR_NORMAL)

    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        return _vswitches(self.fabric, rack)

    def divert(self, to: RackId, epoch: int) -> FlowRule:
        return divert_rule(to, epoch)

    def steer(self, to: RackId, vlan: VlanId, epoch: int) -> FlowRule:
        return circuit_rule(to, vlan, epoch)

    def fixed_ports(self, rack: RackId) -> dict[str, PortVlans]:
        tor = self.fabric.racks[rack].tor
        ports = _server_ports(self.fabric, rack)
        if tor.electrical_port is not None:
            ports[tor.electrical_port] = PortVlans(frozenset({tor.native_vlan}))
        return ports

    def electrical_mbps(self, rack: Rack) -> float:
        return self.fabric.electrical_rate_mbps if rack.servers else 0.0


def substrate_of(fabric: Fabric) -> Substrate:
    return _SUBSTRATES[fabric.substrate](fabric)


def _vswitch_names(fabric: Fabric) -> Mapping[DatapathId, str]:
    return {dp: server.vswitch.bridge for dp, server in fabric.server_by_datapath.items()}


def _vswitches(fabric: Fabric, rack: RackId) -> tuple[Steering, ...]:
    return tuple(
        Steering(server.vswitch.datapath_id, server.name, rack)
        for server in fabric.racks[rack].servers
    )


def _server_ports(fabric: Fabric, rack: RackId) -> dict[str, PortVlans]:
    """Server-facing ports carry the rack's own VLAN and every circuit's.

    Constant, so that a reconfiguration only retags optical ports.
    """
    first, last = fabric.circuit_vlans.first, fabric.circuit_vlans.last
    circuits = frozenset(VlanId(vlan) for vlan in range(first, last + 1))
    this = fabric.racks[rack]
    vlans = PortVlans(circuits, native=this.tor.native_vlan)
    return {server.tor_port: vlans for server in this.servers}


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
_SUBSTRATES: Final[Mapping[SubstrateKind, type[DualHomedVlan] | type[SingleHomedVlan]]] = {
    SubstrateKind.DUAL_HOMED_VLAN: DualHomedVlan,
    SubstrateKind.SINGLE_HOMED_VLAN: SingleHomedVlan,
}
