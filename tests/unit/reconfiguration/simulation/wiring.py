"""Consequences of mirrors, ToRs' VLANs and relays in the simulated network."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from hydra.model import OpticalPort, PortId, RackId, VlanId

if TYPE_CHECKING:
    from tests.unit.reconfiguration.simulation.network import Network

Way = tuple[VlanId, int]
"""A tag, and the port by which tagged frames leave the steering switch."""
Sent = tuple[tuple[RackId, Way], ...]
"""Racks reached by circuit, each with a way; several ways to a rack are several entries."""
Link = tuple[OpticalPort, OpticalPort, bool]
"""Two ports joined by light; True: in both directions."""


def root(tree: dict[RackId, RackId], rack: RackId) -> RackId:
    while tree[rack] != rack:
        rack = tree[rack]
    return rack


class Wiring:
    """Consequences of mirrors, ToRs' VLANs and relays, as long as these stay unchanged."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._mirrors = {plane: set(lit) for plane, lit in network.mirrors.items()}
        self._vlans = dict(network.vlans)
        self._rule_changes = network.rule_changes
        self._islands: dict[VlanId, dict[RackId, RackId]] = {}
        self._arrives: dict[tuple[Way, RackId, RackId], bool] = {}
        self._dark: dict[frozenset[VlanId], frozenset[PortId]] = {}
        self.seen: dict[str, Sent] = {}
        """By server, its rules when a check last showed the arrival of all its frames."""
        self.all_seen: object = None
        """:meth:`Network.senders` when a check last showed the arrival of all frames."""

    def holds(self) -> bool:
        """True if nothing has changed."""
        network = self._network
        return (
            self._mirrors == network.mirrors
            and self._vlans == network.vlans
            and (network.substrate.retags or self._rule_changes == network.rule_changes)
        )

    @cached_property
    def links(self) -> list[Link]:
        return self._network.links()

    @cached_property
    def loops(self) -> tuple[VlanId, ...]:
        return tuple(self._network.loops(self.links))

    def arrives(self, way: Way, here: RackId, there: RackId) -> bool:
        """:meth:`Network.arrives`."""
        key = (way, here, there)
        if key not in self._arrives:
            self._arrives[key] = self._found_to_arrive(way, here, there)
        return self._arrives[key]

    def _found_to_arrive(self, way: Way, here: RackId, there: RackId) -> bool:
        if not self._network.substrate.retags:
            return self._network.arrives(way, here, there)
        vlan = way[0]
        if vlan not in self._islands:
            self._islands[vlan] = self._network.islands(vlan, self.links)
        tree = self._islands[vlan]
        return root(tree, here) == root(tree, there)

    def dark(self, vlans: Collection[VlanId]) -> frozenset[PortId]:
        """Ports without light in any of these VLANs."""
        key = frozenset(vlans)
        if key not in self._dark:
            lit = {
                (plane, cross.egress)
                for plane, crosses in self._mirrors.items()
                for cross in crosses
            }
            self._dark[key] = frozenset(
                port.id
                for port in self._network.fabric.ports
                if (its := self._vlans.get(port.id)) is not None
                and not key.isdisjoint(its.tagged)
                and (port.plane, port.egress) not in lit
            )
        return self._dark[key]
