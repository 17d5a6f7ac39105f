"""The periodic mode without a network: demand in, decisions out, on a clock that is an argument.

The rehearsal plans, weighs and decides by the controller's own code. A decision takes effect at
once, and costs the given outage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from apps.planning.answers import PlanningAnswer
from apps.planning.engine import SCHEDULER, PlannedChange, Planning
from apps.planning.rates import Rates
from apps.planning.rounds import NetworkNow, Round, Rounds
from hydra.decisions.decision import Action, Decision, SeenDemand, seen_demand
from hydra.demand.elephants import ElephantWatch
from hydra.demand.prediction import Forecast
from hydra.errors import PlanError
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, PortId
from hydra.policy import (
    CurrentPolicy,
    DemandBasis,
    Mode,
    Policy,
    Sharing,
    Transition,
)
from hydra.reconfiguration.course_choice import Way, Ways
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.moving_aside import Spare
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.run import all_ready
from hydra.reservations.reservation import Pin
from hydra.service import DemandReport, DemandSource, PlanRequest
from hydra.sharing.slots import Week, too_short
from hydra.worth import choose_sharing, decide_week, keep, no_plan
from topology.estimator import surety

TRIGGER: Final = "rehearsal"
_NO_BACKLOG: Final = (
    "policy.demand is backlog, and no trace has sockets' queues: rehearse estimate or rate"
)


@dataclass(slots=True)
class Rehearsal:
    """The run of a policy through a changing demand, in periodic mode, regardless of the policy's
    mode.
    """

    fabric: Fabric
    policy: Policy
    outage_s: float
    state: NetworkState = field(default_factory=NetworkState)
    planning: Planning = field(init=False)
    week: Week | None = field(init=False, default=None)
    """Schedule in force if circuits are shared by slots."""
    _current: CurrentPolicy = field(init=False)
    _elephants: ElephantWatch = field(init=False)
    _rounds: Rounds = field(init=False)
    _forecast: Forecast = field(init=False)
    _rates_mbps: DemandMatrix = field(init=False)
    _estimated_mbps: DemandMatrix = field(init=False)
    _expected_mbps: DemandMatrix | None = field(init=False)
    _born_s: dict[Circuit, float] = field(init=False, default_factory=dict)
    _last_answer: PlanningAnswer | None = field(init=False, default=None)
    _drafted: tuple[NetworkState, DemandMatrix, Week] | None = field(init=False, default=None)
    """(state, demand, week) of the last planned week."""

    def __post_init__(self) -> None:
        self.policy = replace(self.policy, mode=Mode.PERIODIC)
        self.planning = Planning(self.fabric, self.policy)
        self._elephants = ElephantWatch(
            threshold_mbps=self.policy.elephant_mbps, release=self.policy.elephant_release
        )
        policy = self._current = CurrentPolicy(self.policy)
        self._rounds, self._forecast = Rounds(self.fabric, policy), Forecast(policy)

    @property
    def period_s(self) -> float:
        """Time between rounds."""
        return self.policy.slots.week_s if self.policy.slotted else self.policy.epoch_s

    @property
    def prediction_error(self) -> float | None:
        """Absolute errors of the prediction, as a share of the actual demand; None: unknown."""
        return self._forecast.latest_report().error_share

    def see(
        self,
        now_s: float,
        rates_mbps: DemandMatrix,
        wanted_mbps: DemandMatrix | None = None,
        expected_mbps: DemandMatrix | None = None,
    ) -> None:
        """Take in a reading; :meth:`step` decides by the last reading.

        ``wanted_mbps`` None: unknown. Each elephant pair then wants the max-min fair share of an
        ideal switch, or the measured rate, depending on ``policy.demand``. ``expected_mbps`` is the
        mean of the possible demand; None: full resources are unknown, and :func:`surety` estimates
        the mean.
        """
        estimates = self.policy.demand is DemandBasis.ESTIMATE
        if wanted_mbps is None:
            wanted_mbps = self._elephants.elephants(rates_mbps)
            if estimates:
                wanted_mbps = self.planning.rates.estimate(wanted_mbps)
        if expected_mbps is None and estimates:
            expected_mbps = wanted_mbps * surety(rates_mbps, wanted_mbps)
        self._rates_mbps = rates_mbps
        self._estimated_mbps, self._expected_mbps = wanted_mbps, expected_mbps
        self._forecast.see(self._estimated_mbps, now_s)

    def step(self, now_s: float) -> Decision:
        """Make a round: decide, and change if the change pays. Raises UnknownName for the
        algorithm.
        """
        report = self._forecast.latest_report()
        seen = DemandReport(
            DemandSource.MEASURED,
            self._rates_mbps,
            self._estimated_mbps,
            0.0,
            (),
            basis=self.policy.demand,
            predicted_mbps=report.predicted_mbps,
            expected_mbps=self._expected_mbps,
        )
        demand = seen.planned_mbps
        if seen.basis is DemandBasis.BACKLOG:
            return no_plan(_NO_BACKLOG, self.state.topology.circuits, (), TRIGGER, now_s)
        if self.policy.slotted:
            largest = seen_demand(self._rates_mbps, demand, seen.counted_on_mbps)
            return self._slotted(now_s, demand, largest)
        slots_on = self.week is not None
        standing = NetworkNow(
            state=self.state,
            outage_s=self.outage_s,
            age_s=lambda circuit: (
                math.inf if slots_on else now_s - self._born_s.get(circuit, -math.inf)
            ),
            way=self._way,
        )
        done = self._rounds.periodic(
            standing,
            seen,
            lambda request: self._rounds.plan(
                standing, request, demand if request.demand is None else request.demand,
                self._propose,
            ),
            TRIGGER,
            now_s,
        )  # fmt: skip
        if self.policy.sharing is Sharing.AUTO:
            largest = seen_demand(self._rates_mbps, demand, seen.counted_on_mbps)
            slotted = self._choose(done, demand, largest, now_s)
            if slotted is not None:
                return slotted
        if done.report is not None and done.decision.action is Action.CHANGE:
            plan = done.report.plan
            self.state = plan.target
            for circuit in plan.disconnect:
                self._born_s.pop(circuit, None)
            self._born_s.update(dict.fromkeys(plan.connect, now_s))
        if done.report is not None:
            self._rounds.begun(self.state)
        return done.decision

    def _propose(
        self,
        state: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
    ) -> PlannedChange:
        """The plan; the plan of the round before if nothing has changed since."""
        answer = self._last_answer
        if answer is None or not answer.is_for(state, request, demand, pins, blocked):
            self._last_answer = answer = PlanningAnswer(
                current=state,
                request=request,
                demand=demand,
                pins=pins,
                blocked=blocked,
                change=self.planning.propose(
                    state, request, demand, pins, blocked, expired=self._deadline()
                ),
            )
        return answer.change

    def served_mbps(
        self, judge_by: Rates, wanted: DemandMatrix, *, catches_up: bool = True
    ) -> float:
        """Mbps served until the next round; for a week the mean, nights included.

        ``catches_up`` as in :meth:`Rates.delivered`.
        """
        week = self.week
        if week is None or len(week.slots) < 2:
            return float(judge_by.served(self.state.topology, wanted).sum())
        delivered = judge_by.delivered(week.slots, week.night_s, wanted, catches_up=catches_up)
        return float(delivered.sum())

    def _choose(
        self,
        done: Round,
        demand: DemandMatrix,
        largest: tuple[SeenDemand, ...],
        now_s: float,
    ) -> Decision | None:
        """Choose between the round's standing topology and a week; None: the topology."""
        week: Week | None = None

        def draft() -> Week | None:
            nonlocal week
            week = self._plan_week(demand) if demand.any() else None
            return week

        policy, before = self._current.now, self._current.choice
        self._current.choice = choose_sharing(policy, before, done.decision, done.report, draft)
        if self._current.choice.sharing is Sharing.SLOTTED and week is not None:
            return self._follow(week, largest, now_s)
        self.week = None
        return None

    def _slotted(
        self, now_s: float, demand: DemandMatrix, largest: tuple[SeenDemand, ...]
    ) -> Decision:
        """Plan a week and decide on the week."""
        standing = self.state.topology.circuits
        if not demand.any():
            return keep("no pair wants a circuit", standing, largest, TRIGGER, now_s)
        try:
            week = self._plan_week(demand)
        except PlanError as error:
            return no_plan(str(error), standing, largest, TRIGGER, now_s, float(demand.sum()))
        return self._follow(week, largest, now_s)

    def _plan_week(self, demand: DemandMatrix) -> Week:
        """Plan a week. Raises PlanError, also if slots leave no day."""
        problem = too_short(self.fabric, self.policy, self.outage_s)
        if problem is not None:
            raise PlanError(problem)
        if self._drafted is not None:
            state, planned_for, week = self._drafted
            if state == self.state and np.array_equal(planned_for, demand):
                return week
        week = self.planning.week(
            self.state, PlanRequest(), demand, (), (), self.policy.slots, self.outage_s,
            self.policy.gain_horizon_s, expired=self._deadline(),
        )  # fmt: skip
        self._drafted = self.state, demand.copy(), week
        return week

    def _follow(self, week: Week, largest: tuple[SeenDemand, ...], now_s: float) -> Decision:
        """Decide to follow ``week``, or to keep the present week if the two are much alike."""
        standing = self.state.topology.circuits
        if self.week is not None and week.much_like(self.week, self.policy.slots.slot_s):
            return keep("the week goes on", standing, largest, TRIGGER, now_s, week.demand_mbps)
        self.week, self.state = week, week.slots[0].state
        return decide_week(week, SCHEDULER, standing, largest, TRIGGER, now_s)

    def _way(self, plan: Plan) -> Way:
        """The courses of a plan if all switches are ready."""
        expired = self._deadline()
        detours = Detours(
            fabric=self.fabric,
            max_hops=self.policy.max_hops,
            closed=frozenset(),
            toward=self.planning.toward,
            expired=expired,
        )
        share = self.policy.divert_share
        ways = Ways(
            fabric=self.fabric,
            conditions=all_ready(self.fabric),
            spare=Spare(detours=detours, sent_mbps=self._rates_mbps, share=share),
            in_light=self.policy.transition is Transition.HITLESS and self.week is None,
        )
        return ways.way(plan.current, plan.target)

    def _deadline(self) -> Callable[[], bool]:
        deadline_s = time.monotonic() + self.policy.planning_budget_ms / 1000
        return lambda: time.monotonic() > deadline_s
