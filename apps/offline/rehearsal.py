"""The periodic mode without a network: demand in, decisions out, on a clock that is an argument.

It plans, weighs and decides by the same code as the controller. A decision takes effect at once,
and costs the outage that it is told to expect.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from apps.planning.engine import SCHEDULER, Planning
from apps.planning.periodic import TURN, PeriodicRequests
from hydra.decisions.decision import Action, Decision, SeenDemand, seen_demand
from hydra.demand.elephants import ElephantWatch
from hydra.errors import PlanError
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, Topology
from hydra.policy import Policy, Sharing
from hydra.reconfiguration.plan import paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.service import DemandReport, DemandSource, PlanReport, PlanRequest
from hydra.sharing.slots import Week
from hydra.worth import decide, decide_week, judge, keep, no_plan

TRIGGER: Final = "rehearsal"


@dataclass(slots=True)
class Rehearsal:
    """A policy's way through a changing demand."""

    fabric: Fabric
    policy: Policy
    outage_s: float
    state: NetworkState = field(default_factory=NetworkState)
    planning: Planning = field(init=False)
    week: Week | None = field(init=False, default=None)
    """Schedule that is carried out if circuits are shared by slots."""
    _elephants: ElephantWatch = field(init=False)
    _rounds: PeriodicRequests = field(init=False)
    _born_s: dict[Circuit, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.planning = Planning(self.fabric, self.policy)
        self._elephants = self.planning.elephant_watch()
        self._rounds = PeriodicRequests(one_way=self.fabric.one_way)

    @property
    def period_s(self) -> float:
        """Time between rounds."""
        slotted = self.policy.sharing is Sharing.SLOTTED
        return self.policy.slots.week_s if slotted else self.policy.epoch_s

    def step(self, now_s: float, rates_mbps: DemandMatrix) -> Decision:
        """Make a round: decide, and change if that pays. Raises UnknownName for the algorithm."""
        demand = self.planning.estimate(self._elephants.elephants(rates_mbps))
        largest = seen_demand(rates_mbps, demand)
        sharing = self.policy.sharing
        standing = self.state.topology.circuits
        try:
            if sharing is Sharing.SLOTTED:
                return self._plan_week(now_s, demand, largest)
            seen = DemandReport(DemandSource.MEASURED, rates_mbps, demand, 0.0, ())
            request = self._rounds.request(sharing, seen)
            if request is None:
                return keep("nobody wants a circuit", standing, largest, TRIGGER, now_s)
            report = self._plan(now_s, request)
        except PlanError as error:
            return no_plan(str(error), standing, largest, TRIGGER, now_s)
        if not request.only_if_it_pays:
            report = replace(report, verdict=replace(report.verdict, pays=True, reason=TURN))
        decision = decide(report, self.policy.algorithm, largest, TRIGGER, now_s)
        if decision.action is Action.CHANGE:
            self.state = report.target
            for circuit in report.disconnect:
                self._born_s.pop(circuit, None)
            self._born_s.update(dict.fromkeys(report.connect, now_s))
        self._rounds.begun(sharing, self.state)
        return decision

    def served_mbps(self, judge_by: Planning, wanted: DemandMatrix) -> float:
        """Mbps served until the next round; of a week the mean, nights included."""

        def served(topology: Topology) -> float:
            return float(judge_by.served(topology, wanted).sum())

        week = self.week
        if week is None or len(week.slots) < 2:
            return served(self.state.topology)
        topologies = [slot.state.topology for slot in week.slots]
        served_mbit = 0.0
        for slot, before in zip(week.slots, (topologies[-1], *topologies), strict=False):
            by_day = slot.state.topology
            both = tuple(path for path in by_day.paths if path in before.paths)
            by_night = Topology(by_day.circuits & before.circuits, both)
            served_mbit += week.night_s * served(by_night)
            served_mbit += (slot.length_s - week.night_s) * served(by_day)
        return served_mbit / week.period_s

    def _plan_week(
        self, now_s: float, demand: DemandMatrix, largest: tuple[SeenDemand, ...]
    ) -> Decision:
        """Plan a week and decide on it. Raises PlanError."""
        standing = self.state.topology.circuits
        if not demand.any():
            return keep("nobody wants a circuit", standing, largest, TRIGGER, now_s)
        slots = self.policy.slots
        week = self.planning.week(
            self.state, PlanRequest(), demand, (), (), slots, self.outage_s,
            expired=self._deadline(),
        )  # fmt: skip
        if self.week is not None and week.much_like(self.week, slots.slot_s):
            return keep("the week goes on", standing, largest, TRIGGER, now_s)
        self.week, self.state = week, week.slots[0].state
        return decide_week(week, SCHEDULER, standing, largest, TRIGGER, now_s)

    def _deadline(self) -> Callable[[], bool]:
        deadline_s = time.monotonic() + self.policy.planning_budget_ms / 1000
        return lambda: time.monotonic() > deadline_s

    def _plan(self, now_s: float, request: PlanRequest) -> PlanReport:
        """Plan once, and weigh the plan. Raises PlanError."""
        started_s = time.monotonic()
        demand = request.demand
        if demand is None:
            raise PlanError("nothing was measured")
        held = [
            Pin(*pair, path, 0.0, ())
            for pair, paths in paths_by_pair(self.state).items()
            if pair in request.hold
            for path in paths
        ]
        proposal = self.planning.propose(
            self.state, request, demand, pins=held, blocked=(), expired=self._deadline()
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
