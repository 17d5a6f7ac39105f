"""Substrate: the base class by which the core turns plans into rules and port VLANs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hydra.forwarding.pipeline import Port, server_port, wired_port
from hydra.forwarding.rules import ROUND_RULES, FlowRule, Lane, divert_rule, in_lanes
from hydra.model import (
    DatapathId,
    Fabric,
    NetworkState,
    Path,
    PortId,
    Rack,
    RackId,
    Server,
    VlanId,
)
from hydra.policy import SourceCheck
from hydra.roles import PortVlans


@dataclass(frozen=True, slots=True)
class Steering:
    """A switch that decides which network takes the traffic of servers of a rack."""

    datapath: DatapathId
    name: str
    """Name of the server whose vswitch it is, or of the rack whose ToR it is."""
    rack: RackId
    servers: tuple[Server, ...]
    """Servers whose traffic it steers."""

    def __hash__(self) -> int:
        return self.datapath  # not of all its servers: thousands are keys, again and again


@dataclass(frozen=True, slots=True)
class PortNames:
    """A switch's ports by purpose (:class:`hydra.forwarding.pipeline.Port`); empty: none."""

    host: str = ""
    optical: str = ""
    electrical: str = ""
    servers: tuple[str, ...] = ()
    """Server ports by place in the rack (:func:`hydra.forwarding.pipeline.server_port`)."""
    wired: tuple[str, ...] = ()
    """Ports on planes by place among the rack's (:func:`hydra.forwarding.pipeline.wired_port`)."""

    @property
    def every(self) -> tuple[str, ...]:
        """All ports, each once."""
        names = (self.host, self.optical, self.electrical, *self.servers, *self.wired)
        return tuple(dict.fromkeys(name for name in names if name))

    def symbols(self, names: Collection[str]) -> frozenset[int]:
        """The symbolic ports by which rules name the ports with these names."""
        single = {Port.HOST: self.host, Port.OPTICAL: self.optical}
        single[Port.ELECTRICAL] = self.electrical
        found = {symbol for symbol, name in single.items() if name in names}
        servers = {server_port(at) for at, name in enumerate(self.servers) if name in names}
        wired = {wired_port(at) for at, name in enumerate(self.wired) if name in names}
        return frozenset({*found, *servers, *wired, *([Port.SERVERS] if servers else [])})


@dataclass(frozen=True, slots=True)
class Substrate(ABC):
    """A fabric's way of carrying out what is planned."""

    fabric: Fabric

    dead_uplink: ClassVar[str] = "uplink down"
    """The trouble of a server whose uplink to the ToR has no carrier, in words."""
    retags: ClassVar[bool] = False
    """True if a path's VLAN is set on ToR ports, which learn and flood in it: it may not loop.

    Otherwise the VLAN is a label by which ToRs tell apart the frames that come from a circuit.
    """
    detours: ClassVar[bool] = False
    """True if other servers' rules can give a server with a dead uplink another way."""
    tells_rounds: ClassVar[bool] = False
    """True if steering switches are Open vSwitch, and hold the rules that tell when they have
    looked at all their cached flows. Of others, a barrier is believed.
    """

    # -- switches ---------------------------------------------------------------------------------

    @abstractmethod
    def owned(self) -> Mapping[DatapathId, str]:
        """Switches that hold our rules and no others, with their names."""

    @abstractmethod
    def ports(self, datapath: DatapathId) -> PortNames:
        """The ports that rules of a switch may name; none where it is not ours."""

    @abstractmethod
    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        """The switches that hold the divert and circuit rules for what ``rack`` sends."""

    # -- rules ------------------------------------------------------------------------------------

    def rules(
        self,
        datapath: DatapathId,
        state: NetworkState,
        dead: Collection[str],
        source_check: SourceCheck = SourceCheck.ON,
    ) -> Iterator[FlowRule]:
        """All rules that an owned switch holds in ``state``, outside reconfigurations.

        ``dead`` names servers whose uplink to the ToR has no carrier. ``source_check``
        says what it takes from servers.
        """
        yield from self.own_rules(datapath, dead, source_check)
        yield from self.common_rules(datapath, state)
        if self.tells_rounds:
            yield from ROUND_RULES.rules

    @abstractmethod
    def own_rules(
        self, datapath: DatapathId, dead: Collection[str], source_check: SourceCheck
    ) -> Iterator[FlowRule]:
        """The rules of an owned switch that others in its rack do not hold, or not all of them."""

    @abstractmethod
    def common_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        """The other rules of an owned switch, but those that tell of rounds: all owned switches of
        its rack hold them alike.
        """

    @abstractmethod
    def path_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        """The rules among them that are about the paths of ``state``."""

    def steering_rules(self, state: NetworkState, rack: RackId) -> Iterator[FlowRule]:
        """Rules of a switch that steers for ``rack`` for the paths that begin or end there."""
        mine = (path for path in state.topology.paths if rack in (path.src, path.dst))
        for (sender, to), lanes in in_lanes(mine, state.vlans).items():
            if sender == rack:
                yield from self.steer(rack, to, lanes, state.epoch)

    def tor_rules(self) -> Iterator[FlowRule]:
        """Additional rules of every ToR that is connected by OpenFlow and not owned."""
        yield from ()

    def divert(self, to: RackId, epoch: int) -> FlowRule:
        """The rule of a steering switch that sends its rack's traffic for ``to`` electrical."""
        return divert_rule(to, epoch)

    @abstractmethod
    def steer(
        self, rack: RackId, to: RackId, lanes: Sequence[Lane], epoch: int
    ) -> Sequence[FlowRule]:
        """Rules of a steering switch of ``rack``: each flow to ``to`` takes one of ``lanes``, which
        stand in the same order at both ends (:func:`hydra.forwarding.rules.in_lanes`). No lanes,
        no rules.
        """

    def for_server(self, rule: FlowRule, _server: Server) -> FlowRule:
        """``rule`` of a vswitch as the switch that steers for ``server`` holds it, for it alone."""
        return rule

    def relays(
        self, _path: Path, _vlan: VlanId, _epoch: int
    ) -> Mapping[DatapathId, list[FlowRule]]:
        """Rules by switch that pass on what others send along ``path``."""
        return {}

    # -- frames of the controller's own -----------------------------------------------------------

    @abstractmethod
    def launch(self, server: Server, path: Path) -> tuple[DatapathId, int]:
        """The switch and its port at which what ``server`` sends enters ``path``."""

    @abstractmethod
    def announced(
        self, server: Server, vlans: Collection[VlanId]
    ) -> Iterator[tuple[int, VlanId | None]]:
        """The (port, tag) at which the switch that steers for a server tells learning switches of
        it; ``vlans`` lead to the server.
        """

    # -- ports and rates --------------------------------------------------------------------------

    def fixed_ports(self, _rack: RackId) -> dict[str, PortVlans]:
        """VLAN membership of a rack's ToR ports that no reconfiguration touches, by name."""
        return {}

    def closed_ports(self, _servers: Collection[Server]) -> dict[str, PortVlans]:
        """Membership, by port name, that closes these servers' ToR ports to frames for circuits."""
        return {}

    def trunks(self, _state: NetworkState) -> Mapping[PortId, PortVlans]:
        """VLAN membership of optical ports in ``state``; empty if they have no VLANs."""
        return {}

    def electrical_mbps(self, rack: Rack) -> float:
        """Rate between a rack and the electrical network, in each direction."""
        return self.fabric.electrical_rate_mbps if rack.servers else 0.0
