"""Substrate: the base class of translations from plans to rules and port VLANs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hydra.forwarding.match_action import Port, server_port, wired_port
from hydra.forwarding.rules import ROUND_RULES, FlowRule, Lane, divert_rule, in_lanes
from hydra.forwarding.trunks import Trunks
from hydra.model import (
    DatapathId,
    Fabric,
    NetworkState,
    Path,
    Rack,
    RackId,
    Server,
    VlanId,
)
from hydra.policy import SourceCheck
from hydra.roles import PortVlans


@dataclass(frozen=True, slots=True)
class Steering:
    """A switch that assigns the traffic of a rack's servers to a network."""

    datapath: DatapathId
    name: str
    """Name of the server (vswitch) or of the rack (ToR)."""
    rack: RackId
    servers: tuple[Server, ...]
    """Servers whose traffic the switch steers."""

    def __hash__(self) -> int:
        return self.datapath  # cheap: thousands of objects serve as keys repeatedly


@dataclass(frozen=True, slots=True)
class PortNames:
    """Ports of a switch by purpose (:class:`~hydra.forwarding.match_action.Port`); empty: none."""

    host: str = ""
    optical: str = ""
    electrical: str = ""
    servers: tuple[str, ...] = ()
    """Server ports by place in the rack (:func:`hydra.forwarding.match_action.server_port`)."""
    wired: tuple[str, ...] = ()
    """Ports on planes by place in the rack (:func:`hydra.forwarding.match_action.wired_port`)."""
    protected: bool = False
    """True if the electrical port and the wired ports are protected ports of Open vSwitch."""

    @property
    def every(self) -> tuple[str, ...]:
        """All ports without duplicates."""
        names = (self.host, self.optical, self.electrical, *self.servers, *self.wired)
        return tuple(dict.fromkeys(name for name in names if name))

    def symbols(self, names: Collection[str]) -> frozenset[int]:
        """The symbolic ports by which rules refer to ports with these names."""
        single = {Port.HOST: self.host, Port.OPTICAL: self.optical}
        single[Port.ELECTRICAL] = self.electrical
        found = {symbol for symbol, name in single.items() if name in names}
        servers = {server_port(at) for at, name in enumerate(self.servers) if name in names}
        wired = {wired_port(at) for at, name in enumerate(self.wired) if name in names}
        return frozenset({*found, *servers, *wired, *([Port.SERVERS] if servers else [])})


@dataclass(frozen=True, slots=True)
class Substrate(ABC):
    """Translation of plans to rules and port VLANs for a fabric."""

    fabric: Fabric

    dead_uplink: ClassVar[str] = "uplink down"
    """Description of a server whose uplink to the ToR has no carrier."""
    retags: ClassVar[bool] = False
    """True if the VLAN of a path is set on ToR ports, which learn and flood: the path must not
    loop.

    Otherwise the VLAN is a label by which ToRs distinguish frames from a circuit.
    """
    detours: ClassVar[bool] = False
    """True if rules of other servers can lead around a dead uplink."""
    reports_rounds: ClassVar[bool] = False
    """True if steering switches are Open vSwitch with round rules, which signal that all cached
    flows have been revalidated. For other switches, a barrier reply suffices.
    """

    # -- switches ---------------------------------------------------------------------------------

    @abstractmethod
    def owned(self) -> Mapping[DatapathId, str]:
        """Switches that hold only rules of HydRA, with names."""

    @abstractmethod
    def ports(self, datapath: DatapathId) -> PortNames:
        """Ports that rules of a switch may use; none for a switch that HydRA does not own."""

    @abstractmethod
    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        """Switches with the divert and circuit rules for traffic from ``rack``."""

    # -- rules ------------------------------------------------------------------------------------

    def rules(
        self,
        datapath: DatapathId,
        state: NetworkState,
        dead: Collection[str],
        source_check: SourceCheck = SourceCheck.ON,
    ) -> Iterator[FlowRule]:
        """All rules that an owned switch holds in ``state``, outside reconfigurations.

        ``dead`` names servers whose uplink to the ToR has no carrier. ``source_check`` is the check
        of frames from servers.
        """
        yield from self.own_rules(datapath, dead, source_check)
        yield from self.common_rules(datapath, state)
        if self.reports_rounds:
            yield from ROUND_RULES.rules

    @abstractmethod
    def own_rules(
        self, datapath: DatapathId, dead: Collection[str], source_check: SourceCheck
    ) -> Iterator[FlowRule]:
        """Rules of an owned switch that its rack does not share."""

    @abstractmethod
    def common_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        """Rules that all owned switches of a rack share, without the round rules."""

    @abstractmethod
    def path_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        """The common rules that depend on the paths of ``state``."""

    def steering_rules(self, state: NetworkState, rack: RackId) -> Iterator[FlowRule]:
        """Rules of a steering switch of ``rack`` for the paths that begin or end there."""
        paths = (path for path in state.topology.paths if rack in (path.src, path.dst))
        for (sender, to), lanes in in_lanes(paths, state.vlans).items():
            if sender == rack:
                yield from self.steer(rack, to, lanes, state.epoch)

    def tor_rules(self) -> Iterator[FlowRule]:
        """Additional rules of every ToR with an OpenFlow connection that HydRA does not own."""
        yield from ()

    def divert(self, to: RackId, epoch: int) -> FlowRule:
        """The rule of a steering switch that sends traffic for rack ``to`` electrical."""
        return divert_rule(to, epoch)

    @abstractmethod
    def steer(
        self, rack: RackId, to: RackId, lanes: Sequence[Lane], epoch: int
    ) -> Sequence[FlowRule]:
        """Rules of a steering switch of ``rack`` that spread flows to ``to`` over ``lanes``. The
        lanes have the same order at both ends (:func:`hydra.forwarding.rules.in_lanes`). No lanes,
        no rules.
        """

    def for_server(self, rule: FlowRule, _server: Server) -> FlowRule:
        """Adapt ``rule`` of a vswitch to the switch that steers for ``server``, for this server
        only.
        """
        return rule

    def relays(
        self, _path: Path, _vlan: VlanId, _epoch: int
    ) -> Mapping[DatapathId, list[FlowRule]]:
        """Rules by switch that relay frames along ``path``."""
        return {}

    # -- frames of the controller's own -----------------------------------------------------------

    @abstractmethod
    def launch(self, server: Server, path: Path) -> tuple[DatapathId, int]:
        """The switch and the ingress port at which frames from ``server`` enter ``path``."""

    @abstractmethod
    def announced(
        self, server: Server, vlans: Collection[VlanId]
    ) -> Iterator[tuple[int, VlanId | None]]:
        """The (port, tag) pairs at which the steering switch announces a server to learning
        switches; ``vlans`` lead to the server.
        """

    # -- ports and rates --------------------------------------------------------------------------

    def fixed_ports(self, _rack: RackId) -> dict[str, PortVlans]:
        """Constant VLAN membership of ToR ports of a rack, by name; no reconfiguration changes
        these ports.
        """
        return {}

    def closed_ports(self, _servers: Collection[Server]) -> dict[str, PortVlans]:
        """Membership, by port name, that closes the ToR ports of servers to frames for circuits."""
        return {}

    def trunks(self, _state: NetworkState) -> Trunks:
        """VLAN membership of optical ports in ``state``; empty for a substrate without VLANs."""
        return Trunks.of(NetworkState(), 0, self.fabric.parking_vlan)

    def electrical_mbps(self, rack: Rack) -> float:
        """Rate between a rack and the electrical network in Mb/s, in each direction."""
        return self.fabric.electrical_rate_mbps if rack.servers else 0.0
