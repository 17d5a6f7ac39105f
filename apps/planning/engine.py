"""From demand to the next state of the network: the topology engine with this fabric's limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from apps.planning.rates import Rates
from apps.planning.reserved import beside_reserved, ends_of, idle, reserved_of
from apps.planning.single_paths import SinglePaths
from apps.planning.wanted_topology import Limits, as_wanted
from apps.planning.weeks import given_topologies
from hydra.errors import PlanError, UnknownName
from hydra.model import (
    Circuit,
    DemandMatrix,
    Fabric,
    NetworkState,
    Pair,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
)
from hydra.policy import Policy, SlotPolicy
from hydra.reconfiguration.plan import Plan, diff, pair_of, paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.service import CircuitShares, PlanRequest
from hydra.sharing.given_schedule import GivenSchedule
from hydra.sharing.slots import DUPLEX_ALONE, Week, WeekSlot
from topology.algorithms import CONTRIBUTED, algorithm, objection
from topology.bounds import plan_bound
from topology.carried import carried_mbps
from topology.direct import ForbiddenJoin
from topology.duplex import topologies
from topology.lightpaths import ring_topology
from topology.plan_checks import check_result
from topology.problem import (
    Budget,
    PlanResult,
    Reserved,
    Timing,
    measure,
    pair_demands,
)
from topology.weeks import week_states

SCHEDULER: Final = "tms-duplex"
"""The algorithm that plans the schedules of slotted sharing."""
_FAINT_MBPS: Final = 1e-3
"""A demand served last, without keeping other demand out."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    """The target state of a change, and its worth."""

    target: NetworkState
    disconnect_first: AbstractSet[Circuit]
    connect_last: AbstractSet[Circuit]
    """Both as in :class:`hydra.reconfiguration.plan.Plan`."""
    served_now_mbps: float
    served_then_mbps: float
    moving_mbps: Mapping[Pair, float]
    """Mbps now served of each pair that loses or changes a path."""

    def steps(self, fabric: Fabric, current: NetworkState) -> Plan:
        """The plan from ``current``, the state that the proposal was made for."""
        order = self.disconnect_first, self.connect_last
        return diff(fabric, current, self.target, lambda _old, _new: order)


def check_spines(fabric: Fabric, demand: DemandMatrix) -> None:
    """Raise PlanError if ``demand`` has a spine, a rack without servers, send or receive."""
    for spine in fabric.spines:
        if demand[spine].any() or demand[:, spine].any():
            raise PlanError(
                f"{fabric.racks[spine].name} is a spine without servers, and can't send or "
                "receive; give the demand between other racks"
            )


class Planning(SinglePaths):
    """Plans for a fabric. Pure: same inputs, same plan."""

    def __init__(self, fabric: Fabric, policy: Policy) -> None:
        super().__init__(fabric, policy)
        self.rates = Rates(fabric)

    def warm_up(self) -> None:
        """Make a plan for a tiny demand, so that the first real plan finds everything loaded."""
        demand = np.zeros((len(self._fabric.racks),) * 2)
        racks = [rack.id for rack in self._fabric.racks if not rack.spine]
        if len(racks) > 1:
            demand[racks[0], racks[1]] = 1.0
        self.propose(NetworkState(), PlanRequest(), demand, (), ())

    def propose(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
        *,
        expired: Callable[[], bool] = _never,
    ) -> PlannedChange:
        """The state of :meth:`for_demand`, and its worth. Raises PlanError, UnknownName."""
        wanted = demand if request.weights is None else request.weights
        target = self.for_demand(current, request, wanted, pins, blocked, expired=expired)
        plan = self.diff(current, target)
        now = self.rates.served(current.topology, demand, mice_electrical=request.mice_electrical)
        then = self.rates.served(target.topology, demand, mice_electrical=request.mice_electrical)
        return PlannedChange(
            target=target,
            disconnect_first=plan.disconnect_first,
            connect_last=plan.connect_last,
            served_now_mbps=float(now.sum()),
            served_then_mbps=float(then.sum()),
            moving_mbps={
                pair: float(now[pair] + now[pair[::-1]])
                for pair in paths_by_pair(current, plan.affected)
            },
        )

    def shares(
        self,
        target: Topology,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        *,
        expired: Callable[[], bool] = _never,
    ) -> CircuitShares:
        """Share of ``demand`` on circuits: of ``target``, and a bound for any plan.

        The bound is None if time is up. Raises PlanError.
        """
        one_way = self._fabric.one_way
        free = not pins and request.racks is None and request.planes is None
        if one_way:
            total = float(demand.sum())
            carried = float(carried_mbps(self._arrays, demand, target, Reserved()).sum())
            served = carried / total if total else 1.0
        else:
            served = measure(self._arrays, pair_demands(demand), target, Reserved()).served_share
        if expired():
            return CircuitShares(served, None)
        most = plan_bound(
            self._arrays, demand, self._policy.max_hops, one_way=one_way, whole_fabric=free
        )
        return CircuitShares(served, most)

    def for_demand(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
        *,
        expired: Callable[[], bool] = _never,
    ) -> NetworkState:
        """The state that serves ``demand`` best and keeps every reservation in place.

        Raises PlanError, UnknownName.
        """
        check_spines(self._fabric, demand)
        reserved = reserved_of(pins, current, blocked)
        if request.topology is not None:
            return self.toward(current, self._as_wanted(current, request, reserved, blocked))
        budget = self._budget(request, reserved, blocked, expired)
        chosen = self._chosen(request.algorithm)
        reason = objection(chosen, self._arrays, one_way=self._fabric.one_way)
        if reason is not None:
            raise PlanError(f"{chosen} can't plan for this fabric: {reason}")
        result = self._planned(chosen, demand, current.topology, reserved, budget)
        topology = result.topology
        if self._fabric.one_way:
            topology = ring_topology(self._arrays, result, current.topology, budget)
        return self.toward(current, topology)

    def _as_wanted(
        self,
        current: NetworkState,
        request: PlanRequest,
        reserved: Reserved,
        blocked: Collection[PortId],
    ) -> Topology:
        pinned = [path for path, _ in reserved.pinned]
        limits = Limits(self._policy.max_hops, self._most_paths)
        return as_wanted(self._fabric, current, request, pinned, blocked, limits)

    def week(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
        slots: SlotPolicy | GivenSchedule,
        night_s: float,
        horizon_s: float = math.inf,
        *,
        expired: Callable[[], bool] = _never,
    ) -> Week:
        """A schedule by which pairs with a demand share circuits, with the plan of every change; or
        a given schedule, for which ``demand`` is only the traffic expected on circuits.

        Reserved paths stand in all slots. Each plan is checked as in :meth:`diff`. The delivered
        rate of the week is the mean until ``horizon_s``. Raises PlanError, also if a week can't
        hold a night, or a given slot can't be set up.
        """
        if self._fabric.one_way:
            raise PlanError(DUPLEX_ALONE)
        check_spines(self._fabric, demand)
        reserved = reserved_of(pins, current, blocked)
        if isinstance(slots, GivenSchedule):

            def complete(topology: Topology) -> Topology:
                asked = replace(request, topology=topology)
                return self._as_wanted(current, asked, reserved, blocked)

            wanted = given_topologies(slots, complete, expired)
            lengths_s = [slot.length_s for slot in slots.slots]
            dark_s = night_s if len(wanted) > 1 else 0.0
            carried = [self._on_circuits(demand, topology, reserved) for topology in wanted]
            served_mbps = float(np.dot(np.array(lengths_s) - dark_s, carried)) / sum(lengths_s)
        else:
            budget = replace(
                self._budget(request, reserved, blocked, expired),
                timing=Timing(window_s=slots.week_s, switching_s=night_s, shortest_s=slots.slot_s),
            )
            result = self._planned(SCHEDULER, demand, current.topology, reserved, budget)
            wanted = topologies(self._arrays, result)
            dark_s = night_s if len(wanted) > 1 else 0.0
            lengths_s = [dark_s + slot.duration_s for slot in result.slots]
            served_mbps = result.served_share * float(demand.sum())
        states = week_states(self._marks, current, wanted)
        standing = Reserved(
            tuple(pinned for pinned in reserved.pinned if pinned[0] in current.vlans)
        )
        changes = zip(states, (*states[1:], states[0]), strict=True)
        planned = tuple(map(WeekSlot, states, lengths_s))
        return Week(
            slots=planned,
            changes=tuple(self.diff(old, new) for old, new in changes),
            night_s=night_s,
            served_mbps=served_mbps,
            served_before_mbps=self._on_circuits(demand, current.topology, standing),
            demand_mbps=float(demand.sum()),
            delivered_mbps=float(self.rates.delivered(planned, night_s, demand, horizon_s).sum()),
        )

    def _on_circuits(self, demand: DemandMatrix, topology: Topology, reserved: Reserved) -> float:
        """Mbps of ``demand`` that circuits of ``topology`` carry."""
        carried = carried_mbps(self._arrays, demand, topology, reserved)
        return float(np.minimum(demand, carried).sum())

    def _budget(
        self,
        request: PlanRequest,
        reserved: Reserved,
        blocked: Collection[PortId],
        expired: Callable[[], bool],
    ) -> Budget:
        off_limits = self._off_limits(request.use_planes)
        return Budget(
            self._policy.max_hops,
            paths_per_pair=self._paths_per_pair,
            disturbance_mbps=self._policy.disturbance_mbps,
            racks=request.racks,
            planes=request.planes,
            blocked_ports=(off_limits | frozenset(blocked)) - ends_of(reserved),
            expired=expired,
        )

    def _chosen(self, asked: str | None) -> str:
        """The algorithm to plan with.

        Raises UnknownName for a module named only by the request: plans must not import modules.
        """
        if asked is not None and ":" in asked and asked != self._policy.algorithm:
            raise UnknownName(
                f"algorithm {asked!r}: a request may name a module's only where policy.algorithm "
                f"names it; give it a name by an entry point of {CONTRIBUTED}, or set the policy"
            )
        return asked or self._policy.algorithm

    def _planned(
        self,
        chosen: str,
        demand: DemandMatrix,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> PlanResult:
        """The algorithm's result, checked. Raises PlanError, UnknownName."""
        try:
            result = algorithm(chosen)(self._arrays, demand, current, reserved, budget)
        except ForbiddenJoin as error:
            raise error.named(chosen, self._fabric) from error
        problems = check_result(self._arrays, demand, current, reserved, budget, result)
        if problems:
            raise PlanError(f"the plan of {chosen} is unsound: " + "; ".join(problems))
        return result

    def _off_limits(self, planes: frozenset[PlaneId] | None) -> frozenset[PortId]:
        if planes is None:
            return frozenset()
        return frozenset(port.id for port in self._fabric.ports if port.plane not in planes)

    def for_pins(
        self,
        current: NetworkState,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
        *,
        expired: Callable[[], bool] = _never,
    ) -> NetworkState:
        """:meth:`with_pins`, with other paths in place of displaced paths, if there is room.

        Raises PlanError.
        """
        target, gone = self.with_pins(current, pins, blocked)
        if not gone:
            return target
        reserved = reserved_of(pins, current, blocked)
        kept, _ = beside_reserved(reserved, current)
        wanted = [pair_of(path) for path in (*kept, *gone)]
        topology = self._find_room(current, reserved, kept, wanted, blocked, expired)
        try:
            return target if topology is None else self.toward(current, topology)
        except PlanError:
            return target  # there is room, but VLAN-IDs run out

    def _find_room(
        self,
        current: NetworkState,
        reserved: Reserved,
        kept: Sequence[Path],
        wanted: Sequence[Pair],
        blocked: Collection[PortId],
        expired: Callable[[], bool] = _never,
    ) -> Topology | None:
        """A topology with the reserved and kept paths, and as many wanted pairs as find room."""
        demand = np.zeros((len(self._fabric.racks),) * 2)
        for low, high in wanted:
            demand[low, high] = _FAINT_MBPS
        fixed = Reserved((*reserved.pinned, *((path, 0.0) for path in kept)))
        closed = frozenset(blocked) - ends_of(fixed)
        most = max([self._most_paths, *Counter(map(pair_of, kept)).values()])
        budget = Budget(
            self._policy.max_hops,
            blocked_ports=closed,
            boolean=False,
            paths_per_pair=most,
            expired=expired,
        )
        plan = algorithm(self._policy.algorithm)
        try:
            found = plan(self._arrays, demand, current.topology, fixed, budget).topology
        except PlanError:
            return None
        return Topology(found.circuits | idle(found.circuits, current), found.paths)

    def rejoined(
        self,
        current: NetworkState,
        pairs: Sequence[Pair],
        pins: Sequence[Pin],
        blocked: Collection[PortId],
    ) -> NetworkState:
        """A state with new paths for as many as possible of ``pairs``, which have no reservation.
        All other paths stay, as do circuits without a path, if their ports are not needed.
        """
        reserved = reserved_of(pins, current, blocked)
        pinned = {(path.src, path.dst) for path, _ in reserved.pinned}
        kept = [path for path in current.topology.paths if (path.src, path.dst) not in pinned]
        topology = self._find_room(current, reserved, kept, pairs, blocked)
        return current if topology is None else self.toward(current, topology)

    def ringed(
        self,
        current: NetworkState,
        wanted: Collection[tuple[RackId, RackId]],
        blocked: Collection[PortId],
    ) -> NetworkState:
        """A state with one-way paths for as many as possible of the ``wanted`` (from, to); all
        standing paths stay.
        """
        demand = np.zeros((len(self._fabric.racks),) * 2)
        for ends in wanted:
            demand[ends] = _FAINT_MBPS
        standing = Reserved(tuple((path, 0.0) for path in current.topology.paths))
        budget = Budget(
            self._policy.max_hops,
            blocked_ports=frozenset(blocked) - ends_of(standing),
            paths_per_pair=self._paths_per_pair,
        )
        result = self._planned(self._policy.algorithm, demand, current.topology, standing, budget)
        topology = ring_topology(self._arrays, result, current.topology, budget)
        return self.toward(current, topology)
