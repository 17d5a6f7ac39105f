"""From demand to the next state of the network: the topology engine with this fabric's limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from hydra.errors import AdmissionError, PlanError
from hydra.model import (
    Circuit,
    DemandMatrix,
    Fabric,
    NetworkState,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
)
from hydra.plan import Pair, Plan, diff, paths_by_pair
from hydra.policy import Policy
from hydra.reservations import Pin, explain_refusal
from hydra.service import PlanRequest
from topology.algorithms import algorithm
from topology.checks import check_topology, check_transit, check_vlans
from topology.demand import estimate_maxmin, served_mbps
from topology.problem import Budget, FabricArrays, Reserved
from topology.transit import transit_order
from topology.vlan import allocate

_FAINT_MBPS = 1e-3
"""A demand that is served last and keeps out nobody."""


class Planning:
    """Pure apart from the fabric that it is about: same inputs, same plan."""

    def __init__(self, fabric: Fabric, policy: Policy) -> None:
        self._fabric = fabric
        self._policy = policy
        self._arrays = FabricArrays.of(fabric)
        servers = np.array([len(rack.servers) for rack in fabric.racks], dtype=np.float64)
        self._rack_mbps = servers * fabric.server_rate_mbps
        self._electrical_mbps = servers * fabric.electrical_rate_mbps

    def estimate(self, rates_mbps: DemandMatrix) -> DemandMatrix:
        """What the flows behind these rates would take on an ideal switch."""
        return estimate_maxmin(
            rates_mbps, self._rack_mbps, self._rack_mbps, self._policy.elephant_mbps
        )

    def served(self, topology: Topology, demand: DemandMatrix) -> DemandMatrix:
        """What each pair would get of ``demand`` under ``topology``."""
        electrical = self._electrical_mbps
        return served_mbps(self._arrays, topology, demand, electrical, electrical)

    def for_demand(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
    ) -> NetworkState:
        """The state that serves ``demand`` best and keeps every reservation where it is.

        Raises PlanError, UnknownName.
        """
        held = {
            end
            for pin in pins
            if pin.path is not None
            for circuit in pin.path.circuits
            for end in (circuit.a, circuit.b)
        }
        budget = Budget(
            self._policy.max_hops,
            racks=request.racks,
            planes=request.planes,
            blocked_ports=frozenset(blocked) | (self._off_limits(request.use_planes) - held),
        )
        plan = algorithm(request.algorithm or self._policy.algorithm)
        result = plan(self._arrays, demand, current.topology, _reserved(pins, blocked), budget)
        return self._allocate(current, result.topology)

    def _off_limits(self, planes: frozenset[PlaneId] | None) -> frozenset[PortId]:
        if planes is None:
            return frozenset()
        return frozenset(port.id for port in self._fabric.ports if port.plane not in planes)

    def for_reservation(
        self,
        current: NetworkState,
        pin: Pin,
        others: Sequence[Pin],
        blocked: Collection[PortId],
    ) -> NetworkState:
        """The state that adds a path for ``pin`` and keeps the others' paths.

        Disturbs nobody if it can; else takes circuits that nobody reserved. Raises AdmissionError.
        """
        demand = np.zeros((len(self._fabric.racks),) * 2)
        for low, high in paths_by_pair(current):
            demand[low, high] = _FAINT_MBPS  # what nobody reserved stays where there is room
        demand[pin.src, pin.dst] = demand[pin.dst, pin.src] = pin.bandwidth_mbps
        budget = Budget(self._policy.max_hops, blocked_ports=frozenset(blocked), boolean=False)
        held = {(other.src, other.dst): other.bandwidth_mbps for other in others}
        everything = Reserved(
            tuple(
                (path, held.get(pair, 0.0))
                for pair, path in paths_by_pair(current).items()
                if pair != (pin.src, pin.dst) and not _touches(path, blocked)
            )
        )
        present = paths_by_pair(current).get((pin.src, pin.dst))
        if (
            present is not None
            and self._residual_mbps(present, everything) >= pin.bandwidth_mbps - 1e-6
            and not _touches(present, blocked)
        ):
            return current
        plan = algorithm(self._policy.algorithm)
        for reserved in (everything, _reserved(others, blocked)):
            try:
                result = plan(self._arrays, demand, current.topology, reserved, budget)
                target = self._allocate(current, result.topology)
            except PlanError:
                continue
            if (pin.src, pin.dst) in paths_by_pair(target):
                return target
        raise AdmissionError(
            explain_refusal(self._fabric, pin.src, pin.dst, pin.bandwidth_mbps, others)
        )

    def rejoined(
        self, current: NetworkState, pair: Pair, pins: Sequence[Pin], blocked: Collection[PortId]
    ) -> NetworkState:
        """The state in which ``pair``, which nobody reserved, has a path again.

        Raises AdmissionError if it can't have one without disturbing reservations.
        """
        pin = Pin(*pair, path=None, bandwidth_mbps=_FAINT_MBPS, reservations=())
        return self.for_reservation(current, pin, pins, blocked)

    def _residual_mbps(self, path: Path, reserved: Reserved) -> float:
        residual = {circuit: self._fabric.rate_of(circuit) for circuit in path.circuits}
        for other, rate_mbps in reserved.pinned:
            for circuit in residual.keys() & set(other.circuits):
                residual[circuit] -= rate_mbps
        return min(residual.values())

    def without_circuits(self, current: NetworkState, lost: Collection[Circuit]) -> NetworkState:
        """``current`` less these circuits, every path over them, and what only those used."""
        return self.reduced(current, lost, ())

    def reduced(
        self, current: NetworkState, lost: Collection[Circuit], lost_paths: Collection[Path]
    ) -> NetworkState:
        """``current`` less these circuits, every path over them, ``lost_paths``, and what only
        those used.
        """
        paths = tuple(
            path
            for path in current.topology.paths
            if path not in lost_paths and set(lost).isdisjoint(path.circuits)
        )
        circuits = frozenset(circuit for path in paths for circuit in path.circuits)
        return self._allocate(current, Topology(circuits, paths))

    def restored(
        self, current: NetworkState, topology: Topology, blocked: Collection[PortId]
    ) -> NetworkState:
        """``current`` with those paths of an earlier ``topology`` that do not need ``blocked``."""
        standing = set(current.topology.paths)
        paths = tuple(p for p in topology.paths if p in standing or not _touches(p, blocked))
        circuits = frozenset(circuit for path in paths for circuit in path.circuits)
        return self._allocate(current, Topology(circuits, paths))

    def without_pair(self, current: NetworkState, pair: tuple[RackId, RackId]) -> NetworkState:
        """``current`` less the path of ``pair`` and the circuits that only it used."""
        paths = tuple(path for path in current.topology.paths if (path.src, path.dst) != pair)
        circuits = frozenset(circuit for path in paths for circuit in path.circuits)
        return self._allocate(current, Topology(circuits, paths))

    def _allocate(self, current: NetworkState, topology: Topology) -> NetworkState:
        if topology == current.topology:
            return current
        return allocate(self._arrays, current, topology, self._fabric.circuit_vlans)

    def order_of(
        self, old: NetworkState, new: NetworkState
    ) -> tuple[frozenset[Circuit], frozenset[Circuit]]:
        order = transit_order(self._arrays, old, new)
        return order.disconnect_first, order.connect_last

    def diff(self, current: NetworkState, target: NetworkState) -> Plan:
        """The plan from one state to the other, checked by code the planners do not share.

        Raises PlanError if any check fails: nothing has moved then.
        """
        plan = diff(self._fabric, current, target, self.order_of)
        problems = [
            *check_topology(self._fabric, target.topology, self._policy.max_hops),
            *check_vlans(self._fabric, target, self._fabric.circuit_vlans),
            *check_transit(self._fabric, current, target, plan.disconnect_first, plan.connect_last),
        ]
        if problems:
            raise PlanError("the planned topology is unsound: " + "; ".join(problems))
        return plan


def _touches(path: Path, ports: Collection[PortId]) -> bool:
    return any(circuit.a in ports or circuit.b in ports for circuit in path.circuits)


def _reserved(pins: Sequence[Pin], blocked: Collection[PortId]) -> Reserved:
    """What has to stay: the reserved paths, except those on ports that are out of use."""
    return Reserved(
        tuple(
            (pin.path, pin.bandwidth_mbps)
            for pin in pins
            if pin.path is not None and not _touches(pin.path, blocked)
        )
    )
