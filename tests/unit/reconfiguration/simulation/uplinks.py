"""Servers' uplinks, ToRs that stand still in front of them, and tables that vswitches still forward
by after they have replaced them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain

from hydra.forwarding.rules import FlowRule, Lane
from hydra.forwarding.substrate import Steering
from hydra.model import DatapathId, Fabric, NetworkState, RackId, Server, VlanId
from tests.unit.reconfiguration.simulation.clock import Clock
from tests.unit.reconfiguration.simulation.wiring import Sent


@dataclass(slots=True)
class Stale:
    """A table that a switch has replaced, and still forwards some packets by."""

    until_s: float
    cached_until_s: float
    """Until when it sends by it; after that, frames of earlier wait in front of a ToR."""
    table: Mapping[object, FlowRule]
    sent: Sent | None = None
    """What follows from it, once anybody has asked."""
    lost: set[RackId] = field(default_factory=set)
    """Racks where nobody could take anything once it was replaced: whatever was on its way there by
    then counts as lost, though servers there are let in again before it would have come.
    """
    given_up: set[tuple[RackId, VlanId]] = field(default_factory=set)
    """Racks, and the VLAN on which a leader has given up what waits for them."""


class Uplinks(Clock):
    """What lies between a vswitch and its ToR."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        super().__init__(fabric, state, rng)
        self.names = dict(self.substrate.owned())
        """Switches that hold rules of circuits, by datapath."""
        self.switch_of: dict[str, Steering] = {}
        for rack in fabric.racks:
            for switch in self.substrate.steering(rack.id):
                self.names[switch.datapath] = switch.name
                self.switch_of |= dict.fromkeys((s.name for s in switch.servers), switch)
        self.dead_uplinks: set[str] = set()
        self.closed: set[str] = set()
        """Servers from whom their ToR takes nothing for circuits."""
        self.stale: dict[DatapathId, list[Stale]] = {}
        self.lags_until_s: dict[DatapathId, float] = {}
        """Until when vswitches forward by cached flows."""
        self.still_until_s: dict[RackId, float] = {}
        """Until when ToRs stand still."""
        self.still_and_telling: set[RackId] = set()
        """Racks whose ToR tells its counters while it stands still: these do, too."""
        self.rack_of = (
            {self.switch_of[s.name].datapath: s.rack for s in fabric.servers}
            if self.substrate.retags
            else {}
        )
        """By vswitch, the rack whose learning ToR its frames pass."""

    def stands_still(self, rack: RackId) -> bool:
        """Whether a rack's ToR stands still: what was sent to it waits, and it tells nothing."""
        return self.now_s < self.still_until_s.get(rack, 0.0)

    def cached(self, datapath: DatapathId) -> list[Stale]:
        """Tables that a vswitch has replaced and still forwards some packets by."""
        entries = self.stale.get(datapath)
        if not entries:
            return []
        entries = [one for one in entries if self.now_s < one.until_s]
        if entries:
            self.stale[datapath] = entries
        else:
            del self.stale[datapath]
        return entries

    def lose_waiting(self, lanes: Collection[Lane]) -> None:
        """Let frames be lost that wait for these in front of ToRs which stand still."""
        ways = [(pair, vlan) for path, vlan in lanes for pair in path.directions]
        for datapath, rack in self.rack_of.items():
            for one in self.cached(datapath) if self.stands_still(rack) else ():
                one.given_up.update((to, vlan) for (here, to), vlan in ways if here == rack)

    def uplink_back(self, server: Server) -> None:
        """A vswitch's uplink that was down is up. No frame of it waits in front of the ToR."""
        datapath = self.switch_of[server.name].datapath
        self.stale[datapath] = [
            one for one in self.stale.get(datapath, ()) if self.now_s < one.cached_until_s
        ]
        self.let_in([server])
        self.dead_uplinks.discard(server.name)

    def reopen(self, servers: Collection[Server]) -> None:
        """Take again from servers what they send by circuit, and give them what is sent to them."""
        self.let_in(servers)
        self.closed.difference_update(server.name for server in servers)

    def let_in(self, servers: Collection[Server]) -> None:
        off = self.dead_uplinks | self.closed
        for rack in {server.rack for server in servers}:
            if all(server.name in off for server in self.fabric.racks[rack].servers):
                for one in chain.from_iterable(self.stale.values()):
                    one.lost.add(rack)
