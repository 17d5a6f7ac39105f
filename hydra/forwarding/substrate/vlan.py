"""Servers that tag frames for circuits, and learning ToRs: ToR ports are members of the path
VLANs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hydra.forwarding.match_action import Port
from hydra.forwarding.pipeline import RuleKind
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
from hydra.forwarding.substrate.base import PortNames, Steering, Substrate
from hydra.forwarding.trunks import Trunks
from hydra.model import (
    DatapathId,
    NetworkState,
    Path,
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
    """Common part of the substrates whose servers have a vswitch."""

    retags = True
    reports_rounds = True

    _steering: dict[RackId, tuple[Steering, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cached result of :meth:`steering` by rack."""

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
        """Server-facing ports carry the native VLAN of the rack and every circuit VLAN.

        Constant, so that a reconfiguration only retags optical ports.
        """
        circuits = _from_to(self.fabric.circuit_vlans.first, self.fabric.circuit_vlans.last)
        rack_model = self.fabric.racks[rack]
        vlans = PortVlans(circuits, native=rack_model.tor.native_vlan)
        return {server.tor_port: vlans for server in rack_model.servers}

    def closed_ports(self, servers: Collection[Server]) -> dict[str, PortVlans]:
        parked = frozenset({self.fabric.parking_vlan})  # some ToRs take an empty list for all VLANs
        return {
            server.tor_port: PortVlans(parked, self.fabric.racks[server.rack].tor.native_vlan)
            for server in servers
        }

    def trunks(self, state: NetworkState) -> Trunks:
        return Trunks.of(state, len(self.fabric.ports), self.fabric.parking_vlan)


@dataclass(frozen=True, slots=True)
class DualHomedVlan(_TaggingServers):
    """Servers tag frames for circuits; each has an uplink to the ToR and an electrical uplink."""

    dead_uplink = "optical uplink down"
    detours = True

    def own_rules(
        self, datapath: DatapathId, dead: Collection[str], source_check: SourceCheck
    ) -> Iterator[FlowRule]:
        """Servers with a dead uplink send and receive electrically."""
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
    """Servers tag frames for circuits on a single uplink; a ToR forwards untagged frames to the
    electrical network.

    The native VLAN of the rack continues there, tagged on the electrical port of the ToR, and is
    the same in every rack. So servers reach the own rack and other racks alike.
    """

    def own_rules(
        self, datapath: DatapathId, _dead: Collection[str], source_check: SourceCheck
    ) -> Iterator[FlowRule]:
        """``_dead`` has no effect: a dead uplink has no detour."""
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
def _from_to(first: int, last: int) -> frozenset[VlanId]:
    """VLANs of a range, cached: each rack asks for the same thousands of VLANs."""
    return frozenset(VlanId(vlan) for vlan in range(first, last + 1))


def vswitch_of(server: Server) -> VSwitch:
    """The vswitch of ``server``. Raises LookupError for a server without a vswitch, which these
    substrates do not have.
    """
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
