"""Order of mirrors and VLAN tags in a change, so that no VLAN ever closes a loop.

While a reconfiguration is under way, each ToR port carries its old VLANs, its new ones or both, and
each circuit is up or not, in any combination. A VLAN's broadcast domain is all circuits that join
two ports which carry it at that moment, planned or not. But two circuits that share a port never
exist together, because an optical switch tears down before it sets up. So a loop can arise exactly
if the old and new circuits between a VLAN's old and new ports contain a cycle of circuits no two of
which share a port.

A good choice of VLAN-IDs avoids most such cycles, but not all: a new circuit may join two ports
that still carry a VLAN they are about to leave. These are avoided by order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hydra.model import Circuit, NetworkState, PortId, VlanId
from topology.problem import FabricArrays


@dataclass(frozen=True, slots=True)
class TransitOrder:
    """Circuits that can't change in parallel with the retagging; both sets are usually empty.

    Retagging, and every other mirror, may go in any order in between.
    """

    disconnect_first: frozenset[Circuit] = frozenset()
    """Old circuits to tear down before any port is retagged."""
    connect_last: frozenset[Circuit] = frozenset()
    """New circuits to set up after every port has been retagged."""


def vlan_ports(*states: NetworkState) -> dict[VlanId, set[PortId]]:
    """The ports that carry each VLAN in any of ``states``."""
    ports: dict[VlanId, set[PortId]] = {}
    for state in states:
        for path, vlan in state.vlans.items():
            at = ports.setdefault(vlan, set())
            for circuit in path.circuits:
                at.update((circuit.a, circuit.b))
    return ports


def transit_order(fabric: FabricArrays, old: NetworkState, new: NetworkState) -> TransitOrder:
    """Circuits that must change before or after the retagging from ``old`` to ``new``.

    VLAN by VLAN, circuits that stay are taken first, then those that go, then those that come; a
    circuit that could close a loop with those before it is held back. Circuits that stay never are:
    an allocation keeps them loop-free in every VLAN.
    """
    ports_of = vlan_ports(old, new)
    held: set[Circuit] = set()
    phases = _Phases.of(old, new)
    for vlan in sorted(ports_of):
        domain = _Domain(fabric)
        for circuit in phases.between(ports_of[vlan]):
            if circuit in held:
                continue
            if circuit not in phases.staying and domain.closes_loop(circuit):
                held.add(circuit)
            else:
                domain.add(circuit)
    return TransitOrder(
        disconnect_first=frozenset(held & phases.going),
        connect_last=frozenset(held & phases.coming),
    )


@dataclass(frozen=True, slots=True)
class _Phases:
    staying: frozenset[Circuit]
    going: frozenset[Circuit]
    coming: frozenset[Circuit]
    at_port: Mapping[PortId, tuple[Circuit, ...]]

    @classmethod
    def of(cls, old: NetworkState, new: NetworkState) -> _Phases:
        before, after = old.topology.circuits, new.topology.circuits
        at_port: dict[PortId, tuple[Circuit, ...]] = {}
        for circuit in before | after:
            for port in (circuit.a, circuit.b):
                at_port[port] = (*at_port.get(port, ()), circuit)
        return cls(before & after, before - after, after - before, at_port)

    def between(self, ports: set[PortId]) -> Iterator[Circuit]:
        """Circuits with both ends among ``ports``: those that stay, then go, then come."""
        found = {
            circuit
            for port in ports
            for circuit in self.at_port.get(port, ())
            if circuit.a in ports and circuit.b in ports
        }
        for phase in (self.staying, self.going, self.coming):
            yield from sorted(found & phase)


class _Domain:
    """The circuits that may carry one VLAN, as a graph on racks."""

    def __init__(self, fabric: FabricArrays) -> None:
        self._fabric = fabric
        self._component: dict[int, int] = {}
        self._links: dict[int, list[tuple[int, Circuit]]] = {}

    def add(self, circuit: Circuit) -> None:
        a, b = self._fabric.racks_of(circuit)
        self._links.setdefault(a, []).append((b, circuit))
        self._links.setdefault(b, []).append((a, circuit))
        self._component[self._root(a)] = self._root(b)

    def closes_loop(self, circuit: Circuit) -> bool:
        """True if circuits that don't share a port with ``circuit`` already join its two ends."""
        a, b = self._fabric.racks_of(circuit)
        if self._root(a) != self._root(b):
            return False
        seen: set[int] = {a}
        queue: deque[int] = deque(seen)
        while queue:
            for rack in self._neighbours(queue.popleft(), avoid={circuit.a, circuit.b}):
                if rack == b:
                    return True
                if rack not in seen:
                    seen.add(rack)
                    queue.append(rack)
        return False

    def _neighbours(self, rack: int, avoid: set[PortId]) -> Iterator[int]:
        for other, circuit in self._links.get(rack, ()):
            if avoid.isdisjoint((circuit.a, circuit.b)):
                yield other

    def _root(self, rack: int) -> int:
        while (parent := self._component.get(rack, rack)) != rack:
            self._component[rack] = self._component.get(parent, parent)
            rack = parent
        return rack
