"""A round, by any clock: plan for a request, judge the plan, decide.

The controller runs rounds on the network, a rehearsal on a played demand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from apps.planning.engine import PlannedChange
from apps.planning.periodic import TURN, PeriodicRequests
from hydra.decisions.decision import Decision, seen_demand
from hydra.errors import PlanError
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, Pair, PortId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.course_choice import Way
from hydra.reconfiguration.plan import Plan, pair_of, paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.rings import rings_of
from hydra.service import DemandReport, PlanReport, PlanRequest
from hydra.worth import decide, doubting, judge, keep, no_plan

Propose = Callable[
    [NetworkState, PlanRequest, DemandMatrix, Sequence[Pin], Collection[PortId]], PlannedChange
]
"""Signature of :meth:`apps.planning.engine.Planning.propose` with its time limit bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkNow:
    """The network at the start of a round."""

    state: NetworkState
    outage_s: float
    """Expected time, in seconds, for which a change keeps moved pairs off circuits."""
    age_s: Callable[[Circuit], float]
    way: Callable[[Plan], Way]
    """The courses of a plan."""
    pins: tuple[Pin, ...] = ()
    blocked: frozenset[PortId] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Round:
    decision: Decision
    report: PlanReport | None
    """None: no plan was made."""
    request: PlanRequest | None
    """None: no pair wanted a circuit."""


class Rounds:
    """Pure, except for ``propose``: the same round gives the same decision."""

    def __init__(self, fabric: Fabric, policy: CurrentPolicy) -> None:
        self._fabric = fabric
        self._policy = policy
        slowest_mbps = min((port.rate_mbps for port in fabric.ports), default=math.inf)
        self._requests = PeriodicRequests(one_way=fabric.one_way, slowest_mbps=slowest_mbps)

    def periodic(
        self,
        standing: NetworkNow,
        seen: DemandReport,
        propose: Callable[[PlanRequest], PlanReport],
        trigger: str,
        unix_s: float,
    ) -> Round:
        """A round of the periodic mode; call :meth:`begun` once the decision is carried out."""
        sharing = self._policy.in_force.sharing
        largest = seen_demand(seen.rate_mbps, seen.planned_mbps, seen.counted_on_mbps)
        circuits = standing.state.topology.circuits
        request = self._requests.request(sharing, seen)
        if request is None:
            total_mbps = float(seen.planned_mbps.sum())
            reason = "no pair wants a circuit"
            no_proposal = keep(reason, circuits, largest, trigger, unix_s, total_mbps)
            return Round(no_proposal, None, None)
        try:
            report = propose(request)
        except PlanError as error:
            demand = seen.planned_mbps if request.demand is None else request.demand
            total_mbps = float(np.sum(demand))
            decision = no_plan(str(error), circuits, largest, trigger, unix_s, total_mbps)
            return Round(decision, None, request)
        if not request.only_if_it_pays:
            report = replace(report, verdict=replace(report.verdict, pays=True, reason=TURN))
        decision = decide(report, self._policy.now.algorithm, largest, trigger, unix_s)
        decision = doubting(decision, self._fabric, seen)
        return Round(decision, report, request)

    def begun(self, state: NetworkState) -> None:
        """Note that a round is over: the circuits of ``state`` stand until the next round."""
        self._requests.begun(self._policy.in_force.sharing, state)

    def plan(
        self, standing: NetworkNow, request: PlanRequest, demand: DemandMatrix, propose: Propose
    ) -> PlanReport:
        """Plan for ``demand``, Mbps of shape (N, N), and judge. Raises the errors of ``propose``.

        If the plan is carried out only if it pays, young circuits stay: pairs on circuits younger
        than ``policy.minimum_circuit_life_s`` keep their paths. ``rules`` of the report is 0, since
        fabrics without switches have rounds, too.
        """
        started_s = time.monotonic()
        young = self._young(standing) if request.only_if_it_pays else frozenset()
        on_young = self._pairs_on(standing, young)
        pins = (*standing.pins, *self._held(standing, on_young.union(request.hold)))
        proposal = propose(standing.state, request, demand, pins, standing.blocked)
        plan = proposal.steps(self._fabric, standing.state)
        way = standing.way(plan)
        verdict = judge(
            self._policy.now,
            served_now_mbps=proposal.served_now_mbps,
            served_then_mbps=proposal.served_then_mbps,
            disturbed_mbps=way.cost_mbps(lambda pair: proposal.moving_mbps.get(pair, 0.0)),
            outage_s=standing.outage_s,
            young_circuits=len(young),
        )
        return PlanReport(
            plan=plan,
            rules=0,
            served_mbps=proposal.served_then_mbps,
            demand_mbps=float(demand.sum()),
            verdict=verdict,
            planning_ms=(time.monotonic() - started_s) * 1000,
            way=way,
        )

    def _young(self, standing: NetworkNow) -> frozenset[Circuit]:
        """Circuits younger than their minimum life, and circuits in rings with them."""
        life_s, circuits = self._policy.now.minimum_circuit_life_s, standing.state.topology.circuits
        return rings_of(
            [circuit for circuit in circuits if standing.age_s(circuit) < life_s], circuits
        )

    def _pairs_on(self, standing: NetworkNow, circuits: frozenset[Circuit]) -> frozenset[Pair]:
        paths = standing.state.topology.paths if circuits else ()
        return frozenset(pair_of(path) for path in paths if not circuits.isdisjoint(path.circuits))

    def _held(self, standing: NetworkNow, pairs: Collection[Pair]) -> list[Pin]:
        """Pins that keep the standing paths of ``pairs`` without a reservation.

        A pair keeps at most as many paths as the present policy allows, since the policy may have
        become stricter. Over one-way circuits, a pair keeps all paths.
        """
        most = self._fabric.paths_per_pair(self._policy.now.paths_per_pair)
        reserved = {(pin.src, pin.dst) for pin in standing.pins}
        return [
            Pin(*pair, path, 0.0, ())
            for pair, paths in paths_by_pair(standing.state).items()
            if pair in pairs and pair not in reserved
            for path in paths[:most]
        ]
