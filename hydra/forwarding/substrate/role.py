"""What the rest of the core asks of a substrate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hydra.forwarding.rules import FlowRule, Lane, in_lanes
from hydra.model import (
    DatapathId,
    NetworkState,
    Path,
    PortId,
    Rack,
    RackId,
    Server,
    VlanId,
)
from hydra.roles import PortVlans


@dataclass(frozen=True, slots=True)
class Steering:
    """A switch that decides which network takes what servers of a rack send."""

    datapath: DatapathId
    name: str
    """Of the server, where it is a server's; of the rack, where it is the ToR."""
    rack: RackId
    servers: tuple[Server, ...]
    """Those whose traffic it steers."""


@dataclass(frozen=True, slots=True)
class PortNames:
    """A switch's ports by purpose (:class:`hydra.forwarding.pipeline.Port`); empty: none such."""

    host: str = ""
    optical: str = ""
    electrical: str = ""
    servers: tuple[str, ...] = ()
    """By place in the rack (:func:`hydra.forwarding.pipeline.server_port`)."""
    wired: tuple[str, ...] = ()
    """By place among the rack's optical ports (:func:`hydra.forwarding.pipeline.wired_port`)."""

    @property
    def every(self) -> tuple[str, ...]:
        """Each port that there is, once."""
        names = (self.host, self.optical, self.electrical, *self.servers, *self.wired)
        return tuple(dict.fromkeys(name for name in names if name))


class Substrate(Protocol):
    """How one fabric carries out what is planned."""

    @property
    def dead_uplink(self) -> str:
        """What is wrong with a server whose uplink to the ToR has no carrier, in words."""

    @property
    def retags(self) -> bool:
        """Whether a path's VLAN is one of ToR ports, which learn and flood in it: it may not loop.

        Otherwise it is a label by which ToRs tell apart what comes from a circuit.
        """

    @property
    def detours(self) -> bool:
        """Whether servers with a dead uplink have another way, by rules that others hold."""

    def owned(self) -> Mapping[DatapathId, str]:
        """Switches that hold our rules and no others, with their names."""

    def ports(self, datapath: DatapathId) -> PortNames:
        """The ports that rules of a switch may name; none where it is not ours."""

    def rules(
        self, datapath: DatapathId, state: NetworkState, dead: Collection[str]
    ) -> Iterator[FlowRule]:
        """All rules that an owned switch holds in ``state``, outside reconfigurations.

        ``dead`` names servers whose uplink to the ToR has no carrier.
        """

    def path_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        """Those of them that are about the paths of ``state``."""

    def tor_rules(self) -> Iterator[FlowRule]:
        """What every ToR that is connected by OpenFlow, and not owned, holds beside its own."""

    def steering(self, rack: RackId) -> tuple[Steering, ...]:
        """The switches that hold the divert and circuit rules for what ``rack`` sends."""

    def divert(self, to: RackId, epoch: int) -> FlowRule:
        """At a steering switch: all that its rack sends to another goes electrical."""

    def steer(
        self, rack: RackId, to: RackId, lanes: Sequence[Lane], epoch: int
    ) -> Sequence[FlowRule]:
        """At a steering switch of ``rack``: each flow to another takes one of ``lanes``, which
        stand in the same order at both ends (:func:`hydra.forwarding.rules.in_lanes`). Without
        any, none.
        """

    def for_server(self, rule: FlowRule, server: Server) -> FlowRule:
        """``rule`` of a vswitch, as the switch that steers for ``server`` holds it for that one."""

    def relays(self, path: Path, vlan: VlanId, epoch: int) -> Mapping[DatapathId, list[FlowRule]]:
        """By switch, the rules that pass on what others send along ``path``."""

    def launch(self, server: Server, path: Path) -> tuple[DatapathId, int]:
        """The switch and its port at which what ``server`` sends enters ``path``."""

    def announced(
        self, server: Server, vlans: Collection[VlanId]
    ) -> Iterator[tuple[int, VlanId | None]]:
        """The ports, of the switch that steers for it, and tags by which switches that learn are
        told of a server; ``vlans`` lead to it.
        """

    def fixed_ports(self, rack: RackId) -> dict[str, PortVlans]:
        """VLAN membership of a rack's ToR ports that no reconfiguration touches, by name."""

    def closed_ports(self, servers: Collection[Server]) -> dict[str, PortVlans]:
        """The ports at their ToR, by name, as they take nothing that servers tag for circuits."""

    def trunks(self, state: NetworkState) -> Mapping[PortId, PortVlans]:
        """VLAN membership of optical ports in ``state``; of none where ports have no VLANs."""

    def electrical_mbps(self, rack: Rack) -> float:
        """Between a rack and the electrical network, in each direction."""


def steering_rules(
    steer: Callable[[RackId, RackId, Sequence[Lane], int], Sequence[FlowRule]],
    state: NetworkState,
    rack: RackId,
) -> Iterator[FlowRule]:
    """What a switch that steers for ``rack`` holds for the paths that begin or end there.

    ``steer`` is the substrate's (:meth:`Substrate.steer`).
    """
    mine = (path for path in state.topology.paths if rack in (path.src, path.dst))
    for (sender, to), lanes in in_lanes(mine, state.vlans).items():
        if sender == rack:
            yield from steer(rack, to, lanes, state.epoch)
