"""A round, by whichever clock: a request is planned for, judged and decided.

The controller runs rounds on the network, a rehearsal on a demand that is played to it.
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
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, PortId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.plan import Pair, paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.service import DemandReport, PlanReport, PlanRequest
from hydra.worth import decide, doubting, judge, keep, no_plan

Propose = Callable[
    [NetworkState, PlanRequest, DemandMatrix, Sequence[Pin], Collection[PortId]], PlannedChange
]
"""Signature of :meth:`apps.planning.engine.Planning.propose` with its time limit bound."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The network as a round finds it."""

    state: NetworkState
    outage_s: float
    """Seconds for which a change is expected to keep moved pairs off circuits."""
    age_s: Callable[[Circuit], float]
    pins: tuple[Pin, ...] = ()
    blocked: frozenset[PortId] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Round:
    decision: Decision
    report: PlanReport | None
    """None: nothing was planned."""
    request: PlanRequest | None
    """None: nobody wanted a circuit."""


class Rounds:
    """Pure, but for what ``propose`` does: the same round gives the same decision."""

    def __init__(self, fabric: Fabric, policy: CurrentPolicy) -> None:
        self._fabric = fabric
        self._policy = policy
        slowest_mbps = min((port.rate_mbps for port in fabric.ports), default=math.inf)
        self._requests = PeriodicRequests(one_way=fabric.one_way, slowest_mbps=slowest_mbps)

    def periodic(
        self,
        standing: Standing,
        seen: DemandReport,
        propose: Callable[[PlanRequest], PlanReport],
        trigger: str,
        unix_s: float,
    ) -> Round:
        """A round of the periodic mode; :meth:`begun` once its decision is carried out."""
        sharing = self._policy.now.sharing
        largest = seen_demand(seen.rate_mbps, seen.planned_mbps, seen.counted_on_mbps)
        circuits = standing.state.topology.circuits
        request = self._requests.request(sharing, seen)
        if request is None:
            total_mbps = float(seen.planned_mbps.sum())
            reason = "nobody wants a circuit"
            nobody = keep(reason, circuits, largest, trigger, unix_s, total_mbps)
            return Round(nobody, None, None)
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
        """Note that a round is over: the circuits of ``state`` stand until the next."""
        self._requests.begun(self._policy.now.sharing, state)

    def plan(
        self, standing: Standing, request: PlanRequest, demand: DemandMatrix, propose: Propose
    ) -> PlanReport:
        """Plan for ``demand``, Mbps of shape (N, N), and judge. Raises what ``propose`` does.

        ``rules`` of the report is 0: fabrics without switches have rounds, too.
        """
        started_s = time.monotonic()
        pins = (*standing.pins, *self._held(standing, request.hold))
        proposal = propose(standing.state, request, demand, pins, standing.blocked)
        plan = proposal.steps(self._fabric, standing.state)
        ages_s = map(standing.age_s, plan.disconnect)
        verdict = judge(
            self._policy.now,
            served_now_mbps=proposal.served_now_mbps,
            served_then_mbps=proposal.served_then_mbps,
            disturbed_mbps=proposal.disturbed_mbps,
            outage_s=standing.outage_s,
            youngest_circuit_s=min(ages_s, default=math.inf),
        )
        return PlanReport(
            plan=plan,
            rules=0,
            served_mbps=proposal.served_then_mbps,
            demand_mbps=float(demand.sum()),
            verdict=verdict,
            planning_ms=(time.monotonic() - started_s) * 1000,
        )

    def _held(self, standing: Standing, pairs: Collection[Pair]) -> list[Pin]:
        """Pins that keep the standing paths of these pairs, if they have no reservation.

        A pair keeps at most as many paths as it may have now: the policy can have become stricter.
        Over one-way circuits it keeps all.
        """
        most = self._fabric.paths_per_pair(self._policy.now.paths_per_pair)
        reserved = {(pin.src, pin.dst) for pin in standing.pins}
        return [
            Pin(*pair, path, 0.0, ())
            for pair, paths in paths_by_pair(standing.state).items()
            if pair in pairs and pair not in reserved
            for path in paths[:most]
        ]
