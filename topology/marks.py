"""Marks that distinguish a fabric's paths: VLANs of learning ToRs, or labels.

Code that turns a topology into a state, or checks a state, asks :func:`marks_of` the fabric.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from hydra.forwarding.substrate import substrate_of
from hydra.model import Circuit, Fabric, NetworkState, Topology
from topology.checks import check_labels, check_transit, check_vlans
from topology.labels import assign_labels
from topology.problem import FabricArrays
from topology.transit import TransitOrder, transit_order
from topology.vlan import allocate


class Marks(Protocol):
    def state(self, current: NetworkState, target: Topology) -> NetworkState:
        """``target`` with a VLAN-ID for every path. Raises PlanError if there are too few."""

    def order(self, old: NetworkState, new: NetworkState) -> TransitOrder:
        """Mirrors that can't move while ToRs change."""

    def problems(self, state: NetworkState) -> list[str]:
        """Problems with the VLAN-IDs of ``state``, found by independent code."""

    def transit_problems(
        self,
        old: NetworkState,
        new: NetworkState,
        disconnect_first: Collection[Circuit],
        connect_last: Collection[Circuit],
    ) -> list[str]:
        """Problems that could arise on the way from the old state to the new state."""


@dataclass(frozen=True, slots=True)
class VlanMarks:
    """VLANs, which may not loop at any time."""

    fabric: Fabric
    arrays: FabricArrays

    def state(self, current: NetworkState, target: Topology) -> NetworkState:
        return allocate(self.arrays, current, target, self.fabric.circuit_vlans)

    def order(self, old: NetworkState, new: NetworkState) -> TransitOrder:
        return transit_order(self.arrays, old, new)

    def problems(self, state: NetworkState) -> list[str]:
        return check_vlans(self.arrays, state, self.fabric.circuit_vlans)

    def transit_problems(
        self,
        old: NetworkState,
        new: NetworkState,
        disconnect_first: Collection[Circuit],
        connect_last: Collection[Circuit],
    ) -> list[str]:
        return check_transit(self.arrays, old, new, disconnect_first, connect_last)


@dataclass(frozen=True, slots=True)
class LabelMarks:
    """Labels, which differ between paths over the same circuit, and rest before reuse."""

    fabric: Fabric

    def state(self, current: NetworkState, target: Topology) -> NetworkState:
        return assign_labels(current, target, self.fabric.circuit_vlans)

    def order(self, _old: NetworkState, _new: NetworkState) -> TransitOrder:
        """No order at all: nothing floods, so nothing loops."""
        return TransitOrder()

    def problems(self, state: NetworkState) -> list[str]:
        return check_labels(state, self.fabric.circuit_vlans)

    def transit_problems(
        self,
        old: NetworkState,
        new: NetworkState,
        _disconnect_first: Collection[Circuit],
        _connect_last: Collection[Circuit],
    ) -> list[str]:
        left = {vlan for path, vlan in old.vlans.items() if new.vlans.get(path) != vlan}
        return [
            f"label {vlan} of path {path.src}-{path.dst} is being released by a different path"
            for path, vlan in new.vlans.items()
            if vlan in left and old.vlans.get(path) != vlan
        ]


def marks_of(fabric: Fabric) -> Marks:
    if substrate_of(fabric).retags:
        return VlanMarks(fabric, FabricArrays.of(fabric))
    return LabelMarks(fabric)
