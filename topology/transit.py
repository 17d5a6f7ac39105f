"""Order of mirrors and VLAN tags in a change, so that no VLAN ever closes a loop.

While a reconfiguration is under way, each ToR port carries its old VLANs, its new VLANs or both,
and each circuit is up or not, in any combination. A VLAN's broadcast domain is all circuits with
two end ports that carry the VLAN at the moment, planned or not. But two circuits that share a port
never exist together, because an optical switch tears down before it sets up. So a loop can arise
exactly if the old and new circuits between a VLAN's old and new ports contain a cycle of circuits
no two of which share a port.

A good choice of VLAN-IDs avoids most such cycles, but not all: a new circuit may join two ports
that still carry a VLAN they are about to leave. The remaining cycles are avoided by order.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydra.circuit_arrays import Circuits, CircuitTable
from hydra.model import Circuit, NetworkState
from hydra.path_arrays import lanes_of, numbered
from topology import _native
from topology.problem import FabricArrays


@dataclass(frozen=True, slots=True)
class TransitOrder:
    """Circuits that can't change in parallel with the retagging; both sets are usually empty.

    Retagging, and every other mirror, may go in any order in between.
    """

    disconnect_first: AbstractSet[Circuit] = frozenset()
    """Old circuits to tear down before any port is retagged."""
    connect_last: AbstractSet[Circuit] = frozenset()
    """New circuits to set up after every port has been retagged."""


def transit_order(fabric: FabricArrays, old: NetworkState, new: NetworkState) -> TransitOrder:
    """Circuits that must change before or after the retagging from ``old`` to ``new``.

    VLAN by VLAN, circuits that stay are taken first, then leaving circuits, then new circuits; a
    circuit that could close a loop with earlier circuits is held back. Circuits that stay are never
    held back: an allocation keeps them loop-free in every VLAN.
    """
    before, after = old.topology.circuits, new.topology.circuits
    going, coming = before - after, after - before
    groups = [CircuitTable.of(Circuits.of(group)) for group in (before & after, going, coming)]
    circuits, n_staying = CircuitTable.joined(groups), len(groups[0])
    is_fixed = np.zeros(len(circuits), dtype=np.uint8)
    is_fixed[:n_staying] = 1
    is_held = np.zeros(len(circuits), dtype=np.uint8)
    n_vlans, carries = _ports_carrying(fabric, old, new)
    _native.hold_circuits_back(
        fabric.n_racks,
        fabric.port_rack,
        circuits.a,
        circuits.b,
        is_fixed,
        n_vlans,
        carries,
        is_held,
    )
    held = Circuits.of(circuits.chosen(np.flatnonzero(is_held)).circuits())
    return TransitOrder(disconnect_first=held & going, connect_last=held & coming)


def _ports_carrying(fabric: FabricArrays, *states: NetworkState) -> tuple[int, NDArray[np.uint64]]:
    """(Number of VLANs; the bit sets of VLANs that ports carry in any state, in a row)."""
    marked = [lanes_of(state) for state in states]
    vlans, places = numbered(np.concatenate([lanes.vlan for lanes in marked]))
    carries = np.zeros(fabric.n_ports * -(-len(vlans) // 64), dtype=np.uint64)
    ends = np.cumsum([len(lanes) for lanes in marked])
    for lanes, place in zip(marked, np.split(places, ends[:-1]), strict=True):
        table = lanes.paths.table
        _native.carry_vlans(
            fabric.n_ports, len(vlans), table.start, table.hop_a, table.hop_b, place, carries
        )
    return len(vlans), carries
