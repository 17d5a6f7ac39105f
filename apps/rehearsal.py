"""The periodic mode without a network: demand in, decisions out, on a clock that is an argument.

It plans, weighs and decides by the same code as the controller; what it decides stands at once, and
costs the outage that it is told to expect.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Final

from apps.planning import Planning
from hydra.decisions import Action, Decision, seen_demand
from hydra.elephants import ElephantWatch
from hydra.errors import PlanError
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState
from hydra.policy import Policy
from hydra.service import PlanReport, PlanRequest
from hydra.worth import decide, judge, no_plan

TRIGGER: Final = "rehearsal"


@dataclass(slots=True)
class Rehearsal:
    """One policy's way through a demand that changes."""

    fabric: Fabric
    policy: Policy
    outage_s: float
    state: NetworkState = field(default_factory=NetworkState)
    planning: Planning = field(init=False)
    _elephants: ElephantWatch = field(init=False)
    _born_s: dict[Circuit, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.planning = Planning(self.fabric, self.policy)
        self._elephants = self.planning.elephant_watch()

    def step(self, now_s: float, rates_mbps: DemandMatrix) -> Decision:
        """One round: decide, and change if that pays. Raises UnknownName for the algorithm."""
        demand = self.planning.estimate(self._elephants.elephants(rates_mbps))
        largest = seen_demand(rates_mbps, demand)
        try:
            report = self._plan(now_s, demand)
        except PlanError as error:
            standing = self.state.topology.circuits
            return no_plan(str(error), standing, largest, TRIGGER, now_s)
        decision = decide(report, self.policy.algorithm, largest, TRIGGER, now_s)
        if decision.action is Action.CHANGE:
            self.state = report.target
            for circuit in report.disconnect:
                self._born_s.pop(circuit, None)
            self._born_s.update(dict.fromkeys(report.connect, now_s))
        return decision

    def _plan(self, now_s: float, demand: DemandMatrix) -> PlanReport:
        """Raises PlanError."""
        started_s = time.monotonic()
        deadline_s = started_s + self.policy.planning_budget_ms / 1000
        proposal = self.planning.propose(
            self.state,
            PlanRequest(),
            demand,
            pins=(),
            blocked=(),
            expired=lambda: time.monotonic() > deadline_s,
        )
        plan = proposal.steps(self.fabric, self.state)
        ages_s = [now_s - self._born_s.get(circuit, -math.inf) for circuit in plan.disconnect]
        verdict = judge(
            self.policy,
            served_now_mbps=proposal.served_now_mbps,
            served_then_mbps=proposal.served_then_mbps,
            disturbed_mbps=proposal.disturbed_mbps,
            outage_s=self.outage_s,
            youngest_circuit_s=min(ages_s, default=math.inf),
        )
        return PlanReport(
            current=self.state,
            target=proposal.target,
            connect=plan.connect,
            disconnect=plan.disconnect,
            affected_pairs=plan.affected,
            retagged_ports=plan.retagged_ports,
            rules=0,
            served_mbps=proposal.served_then_mbps,
            demand_mbps=float(demand.sum()),
            verdict=verdict,
            planning_ms=(time.monotonic() - started_s) * 1000,
        )
