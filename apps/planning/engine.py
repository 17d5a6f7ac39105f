"""From demand to the next state of the network: the topology engine with this fabric's limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from apps.planning.reserved import beside_reserved, ends_of, idle, reserved_of, touches, until
from apps.planning.wanted import Limits, as_wanted
from apps.planning.weeks import given_topologies, joined, nights_and_days
from hydra.demand.elephants import ElephantWatch
from hydra.errors import PlanError, UnknownName
from hydra.forwarding.substrate import substrate_of
from hydra.model import (
    EMPTY_TOPOLOGY,
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
from hydra.path_arrays import Paths, no_cycles
from hydra.policy import MOST_PATHS_PER_PAIR, Policy, SlotPolicy
from hydra.reconfiguration.plan import Pair, Plan, diff, pair_of, paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.rings import whole_rings
from hydra.service import CircuitShares, PlanRequest
from hydra.sharing.given import GivenSchedule
from hydra.sharing.slots import DUPLEX_ALONE, Week, WeekSlot
from topology.algorithms import CONTRIBUTED, algorithm, objection
from topology.bounds import plan_bound
from topology.carried import carried_mbps
from topology.checks import check_topology
from topology.demand import estimate_maxmin, served_mbps
from topology.duplex import topologies
from topology.lightpaths import ring_topology
from topology.marks import marks_of
from topology.plan_checks import check_result
from topology.problem import (
    Budget,
    FabricArrays,
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
    disconnect_first: frozenset[Circuit]
    connect_last: frozenset[Circuit]
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
                f"{fabric.racks[spine].name} is a spine: it has no servers, so it can't send or "
                "receive; give the demand between racks"
            )


class Planning:
    """Plans for a fabric. Pure: same inputs, same plan."""

    def __init__(self, fabric: Fabric, policy: Policy) -> None:
        self._fabric = fabric
        self._policy = policy
        self._arrays = FabricArrays.of(fabric)
        self._marks = marks_of(fabric)
        self._paths_per_pair = fabric.paths_per_pair(policy.paths_per_pair)
        self._most_paths = self._paths_per_pair or MOST_PATHS_PER_PAIR
        servers = np.array([len(rack.servers) for rack in fabric.racks], dtype=np.float64)
        self._rack_mbps = servers * fabric.server_rate_mbps
        substrate = substrate_of(fabric)
        self._electrical_mbps = np.array(
            [substrate.electrical_mbps(rack) for rack in fabric.racks], dtype=np.float64
        )

    def elephant_watch(self) -> ElephantWatch:
        """A new watch without elephants."""
        return ElephantWatch(self._policy.elephant_mbps, self._policy.elephant_release)

    def estimate(self, elephants_mbps: DemandMatrix) -> DemandMatrix:
        """Mbps that the flows behind the elephants' rates would take on an ideal switch."""
        return estimate_maxmin(elephants_mbps, self._rack_mbps, self._rack_mbps, 0.0)

    def served(
        self, topology: Topology, demand: DemandMatrix, *, mice_apart: bool = False
    ) -> DemandMatrix:
        """Mbps, shape (N, N), of ``demand`` that each pair would get under ``topology``.

        ``mice_apart``: pairs with a path also use the electrical network, for all but elephants.
        """
        electrical = self._electrical_mbps
        served = served_mbps(self._arrays, topology, demand, electrical, electrical)
        if not mice_apart:
            return served
        on_circuits = np.where(joined(served.shape, topology), served, 0.0)
        left = np.maximum(0.0, demand - on_circuits)
        by_packets = served_mbps(self._arrays, EMPTY_TOPOLOGY, left, electrical, electrical)
        return on_circuits + by_packets

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
        now = self.served(current.topology, demand, mice_apart=request.mice_apart)
        then = self.served(target.topology, demand, mice_apart=request.mice_apart)
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
        a given schedule, for which ``demand`` tells only what circuits are expected to carry.

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
                timing=Timing(slots.week_s, night_s, slots.slot_s),
            )
            result = self._planned(SCHEDULER, demand, current.topology, reserved, budget)
            wanted = topologies(self._arrays, result)
            dark_s = night_s if len(wanted) > 1 else 0.0
            lengths_s = [dark_s + slot.duration_s for slot in result.slots]
            served_mbps = result.served_share * float(demand.sum())
        states = week_states(self._marks, current, wanted)
        standing = Reserved(tuple(one for one in reserved.pinned if one[0] in current.vlans))
        changes = zip(states, (*states[1:], states[0]), strict=True)
        planned = tuple(map(WeekSlot, states, lengths_s))
        return Week(
            slots=planned,
            changes=tuple(self.diff(old, new) for old, new in changes),
            night_s=night_s,
            served_mbps=served_mbps,
            served_before_mbps=self._on_circuits(demand, current.topology, standing),
            demand_mbps=float(demand.sum()),
            delivered_mbps=float(self.delivered(planned, night_s, demand, horizon_s).sum()),
        )

    def _on_circuits(self, demand: DemandMatrix, topology: Topology, reserved: Reserved) -> float:
        """Mbps of ``demand`` that circuits of ``topology`` carry."""
        carried = carried_mbps(self._arrays, demand, topology, reserved)
        return float(np.minimum(demand, carried).sum())

    def delivered(
        self,
        slots: Sequence[WeekSlot],
        night_s: float,
        demand: DemandMatrix,
        horizon_s: float = math.inf,
        *,
        catches_up: bool = True,
    ) -> DemandMatrix:
        """Mbps, shape (N, N): mean rate by slots and the electrical network until ``horizon_s``.

        If traffic ``catches_up``, a pair with light for a part of the time sends its backlog by
        day, as fast as circuits and its servers' links allow. If a week is longer than the horizon,
        only the first slots count.
        """
        parts = until(nights_and_days(slots, night_s), horizon_s)
        period_s = sum(lasts_s for lasts_s, _ in parts)
        light_s = sum(
            (lasts_s * joined(demand.shape, topology) for lasts_s, topology in parts),
            np.zeros_like(demand),
        )
        fastest = np.minimum(self._rack_mbps[:, None], self._rack_mbps)
        hurried = np.divide(demand * period_s, light_s, out=demand.copy(), where=light_s > 0)
        hurried = np.maximum(demand, np.minimum(hurried, fastest)) if catches_up else demand
        carried_mbit = np.zeros_like(demand)
        for lasts_s, topology in parts:
            wanted = np.where(joined(demand.shape, topology), hurried, demand)
            carried_mbit += lasts_s * self.served(topology, wanted)
        delivered: DemandMatrix = np.minimum(demand, carried_mbit / period_s)
        return delivered

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
        result = algorithm(chosen)(self._arrays, demand, current, reserved, budget)
        problems = check_result(self._arrays, demand, current, reserved, budget, result)
        if problems:
            raise PlanError(f"what {chosen} planned is unsound: " + "; ".join(problems))
        return result

    def _off_limits(self, planes: frozenset[PlaneId] | None) -> frozenset[PortId]:
        if planes is None:
            return frozenset()
        return frozenset(port.id for port in self._fabric.ports if port.plane not in planes)

    def with_pins(
        self, current: NetworkState, pins: Sequence[Pin], blocked: Collection[PortId]
    ) -> tuple[NetworkState, tuple[Path, ...]]:
        """``current`` with every pin on its path, and the paths displaced by pins.

        A displaced path has no reservation, and a pin needs its ports; all other paths stay.
        Circuits without a path stay if no pin needs their ports: between two stages of a change,
        such circuits wait for their pairs. No algorithm runs: only choosing VLAN-IDs takes time.
        Raises PlanError if VLAN-IDs run out.
        """
        reserved = reserved_of(pins, current, blocked)
        kept, gone = beside_reserved(reserved, current)
        paths = tuple(sorted([*kept, *(path for path, _ in reserved.pinned)]))
        return self.toward(current, _on_rings(paths, current)), tuple(gone)

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

    def without_circuits(self, current: NetworkState, lost: Collection[Circuit]) -> NetworkState:
        """``current`` less ``lost`` circuits, their paths, and circuits used only by the latter."""
        return self.reduced(current, lost, ())

    def reduced(
        self, current: NetworkState, lost: Collection[Circuit], lost_paths: Collection[Path]
    ) -> NetworkState:
        """``current`` without the ``lost`` circuits, every path over them, ``lost_paths``, and
        circuits used only by such paths.
        """
        paths = tuple(
            path
            for path in current.topology.paths
            if path not in lost_paths and set(lost).isdisjoint(path.circuits)
        )
        return self.toward(current, _on_rings(paths, current, lost))

    def toward(self, current: NetworkState, topology: Topology) -> NetworkState:
        """The state after ``current`` with ``topology``. Raises PlanError if VLAN-IDs run out."""
        if topology == current.topology:
            return current
        return self._marks.state(current, topology)

    def restored(
        self, current: NetworkState, topology: Topology, blocked: Collection[PortId]
    ) -> NetworkState:
        """``current`` with the paths of an earlier ``topology`` that need no ``blocked`` port."""
        standing = set(current.topology.paths)
        paths = tuple(p for p in topology.paths if p in standing or not touches(p, blocked))
        return self.toward(current, _on_rings(paths, current))

    def joined(
        self, current: NetworkState, wished: Collection[Path], blocked: Collection[PortId]
    ) -> NetworkState:
        """``current`` with the ``wished`` paths that fit beside standing paths: the ports are free
        and not ``blocked``, and the pair may have a further path.
        """
        paths = list(current.topology.paths)
        user = {half: c for c in current.topology.circuits for half in c.halves}
        having = Counter(map(pair_of, paths))
        for path in sorted(set(wished).difference(paths)):
            halves = {half: circuit for circuit in path.circuits for half in circuit.halves}
            if (
                having[pair_of(path)] < self._most_paths
                and not touches(path, blocked)
                and all(user.get(half, circuit) == circuit for half, circuit in halves.items())
            ):
                paths.append(path)
                user |= halves
                having[pair_of(path)] += 1
        return self.toward(current, _on_rings(sorted(paths), current))

    def order_of(
        self, old: NetworkState, new: NetworkState
    ) -> tuple[frozenset[Circuit], frozenset[Circuit]]:
        order = self._marks.order(old, new)
        return order.disconnect_first, order.connect_last

    def diff(self, current: NetworkState, target: NetworkState) -> Plan:
        """The plan from one state to the other, checked by code independent of the planners.

        Raises PlanError if any check fails; nothing has moved then.
        """
        with no_cycles():
            plan = diff(self._fabric, current, target, self.order_of)
            problems = self._problems(plan)
        if problems:
            raise PlanError("the planned topology is unsound: " + "; ".join(problems))
        return plan

    def _problems(self, plan: Plan) -> list[str]:
        current, target = plan.current, plan.target
        # Standing paths may stay, even if the policy has become stricter since.
        most = max(self._most_paths, _most_paths(current))
        return [
            *check_topology(
                self._arrays,
                target.topology,
                self._policy.max_hops,
                paths_per_pair=most,
                standing=current.vlans,
            ),
            *self._marks.problems(target),
            *self._marks.transit_problems(
                current, target, plan.disconnect_first, plan.connect_last
            ),
        ]


def _on_rings(
    paths: Sequence[Path], current: NetworkState, lost: Collection[Circuit] = ()
) -> Topology:
    """A topology of ``paths``, in order, and their circuits, as far as rings are complete.

    Standing circuits without a path that are not ``lost`` stay if their ports are free.
    """
    needed = {circuit for path in paths for circuit in path.circuits}
    circuits = whole_rings(needed | idle(needed, current, lost))
    return Topology(circuits, tuple(path for path in paths if circuits.issuperset(path.circuits)))


def _most_paths(state: NetworkState) -> int:
    """The largest number of paths of a pair."""
    _, count = np.unique(Paths.of(state.topology.paths).table.pair_codes(), return_counts=True)
    return int(count.max(initial=0))
