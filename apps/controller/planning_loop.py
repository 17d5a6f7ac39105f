"""Measure, plan, decide, reconfigure: the loop of HydRA (section III), and requests to the loop."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from apps.controller.course_choice import PresentWays
from apps.controller.demand_sources import DemandSources
from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.slots import WeekUnderWay
from apps.controller.stages.early_stages import EarlyStages
from apps.controller.stages.staging import Staging
from apps.planning.answers import PlanningAnswer
from apps.planning.engine import PlannedChange
from apps.planning.planner import Planner
from apps.planning.rounds import NetworkNow, Round, Rounds
from apps.process.metrics import Metrics
from hydra.decisions.decision import Action, Decision, seen_demand
from hydra.errors import HydraError, PlanError
from hydra.forwarding.substrate import substrate_of
from hydra.journal import JournalError
from hydra.journal_format import Unfinished
from hydra.model import DemandMatrix, Fabric, NetworkState, Pair, PortId, RackId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.change_result import ChangeResult
from hydra.reconfiguration.plan import Plan, pair_of, paths_by_pair
from hydra.reconfiguration.scheduler import Job, Work
from hydra.reservations.reservation import Pin, rack_pair
from hydra.service import (
    CircuitShares,
    DemandSource,
    PlanReport,
    PlanRequest,
    Reconfiguration,
)
from hydra.sharing.given_schedule import GivenSchedule
from hydra.staged_changes import Asker
from hydra.worth import decide

LOG = logging.getLogger("hydra.loop")
_PERIODIC: Final = "periodic"
_PATIENCE_S: Final = 60.0
"""Longest wait after a start for two polls."""


class PlanningLoop:
    """:meth:`round`, :meth:`act` and :meth:`begin_week` are for a single thread.

    The rest is for any thread.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        metrics: Metrics,
        planner: Planner,
        week_planner: Planner,
        monitor: DemandSources,
        ledger: Ledger,
        reach: Reach,
        mover: Mover,
        ways: PresentWays,
        staging: Staging,
        early_stages: EarlyStages,
        panels: PatchPanels,
        enqueue: Callable[[Job], None],
    ) -> None:
        """``enqueue`` queues a job for the conductor."""
        self._fabric, self._policy, self._metrics = fabric, policy, metrics
        self._planner, self._week_planner, self._monitor = planner, week_planner, monitor
        self._reach, self._mover, self._staging = reach, mover, staging
        self._early_stages, self._panels, self._enqueue = early_stages, panels, enqueue
        self._ways = ways
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._substrate = substrate_of(fabric)
        self._rounds = Rounds(fabric, policy)
        self._asked_for: dict[str, tuple[Reconfiguration, PlanRequest]] = {}
        """Waiting requests, by id, in order of arrival."""
        self._asking = threading.Lock()
        self._tried_beside: tuple[object, ...] = ()
        """Changes under way, state and request at the last attempt to begin beside them."""
        self._last_answer: PlanningAnswer | None = None
        self._cut_off: list[Unfinished] = []
        self._patient_until_s = 0.0

    def take_over(self, unfinished: Sequence[Unfinished]) -> None:
        """Changes to :meth:`resume`, from the journal."""
        self._cut_off = list(unfinished)
        self._patient_until_s = time.monotonic() + _PATIENCE_S

    # -- plan -------------------------------------------------------------------------------------

    def _wanted(self, request: PlanRequest) -> DemandMatrix:
        """The request's demand, or the measured demand. Raises PlanError if neither is known."""
        if request.demand is not None:
            return np.array(request.demand, dtype=np.float64)
        return np.array(self._monitor.measured().planned_mbps, dtype=np.float64)

    def plan(
        self, request: PlanRequest, *, urgent: bool = False, shares: bool = True
    ) -> PlanReport:
        """Dry run; changes nothing. Raises PlanError, UnknownName, DeviceUnavailable.

        ``urgent``: no stages are foreseen, and no shares computed. ``shares``: whether to compute
        shares on circuits.
        """
        if request.demand is None:
            seen = self._monitor.measured()
            demand = np.array(seen.planned_mbps, dtype=np.float64)
            request = replace(request, weights=seen.counted_on_mbps)
        else:
            demand = self._wanted(request)
        within = self._reach.within_reach(request)

        propose = partial(self._propose, urgent)
        report = self._rounds.plan(self._standing(), within, demand, propose)
        steering, pairs = self._substrate.steering, report.plan.affected
        rules = sum(len(steering(a)) + len(steering(b)) for a, b in pairs)
        racks = {RackId(int(rack)) for rack in np.flatnonzero(demand.any(0) | demand.any(1))}
        at_risk = self._reach.absences.at_risk(pairs, request.planes, racks)
        report = replace(report, rules=rules, at_risk=at_risk)
        if urgent:
            return report
        return replace(
            report,
            stages=self._staging.foresee(report.plan, self._monitor.sent_mbps()),
            on_circuits=self._shares(report.plan.target, request, demand) if shares else None,
        )

    def _shares(
        self, target: NetworkState, request: PlanRequest, demand: DemandMatrix
    ) -> CircuitShares | None:
        """Shares on circuits for a dry run; None, with a warning, if the planner has no time."""
        try:
            return self._planner.shares(target.topology, request, demand, self._standing().pins)
        except PlanError as error:
            LOG.warning("dry run: no bound beside the plan: %s", error)
            return None

    def _propose(
        self,
        urgent: bool,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
    ) -> PlannedChange:
        """The proposed change. An urgent job reuses the change shown to the caller, if still
        valid.
        """
        answer = self._last_answer
        if urgent and answer is not None and answer.is_for(current, request, demand, pins, blocked):
            return answer.change
        with self._metrics.stage("plan"):
            found = self._planner.propose(current, request, demand, pins, blocked, urgent=urgent)
        self._metrics.planned(float(demand.sum()), found.served_now_mbps, found.served_then_mbps)
        if not urgent:
            self._last_answer = PlanningAnswer(
                current=current,
                request=request,
                demand=demand,
                pins=pins,
                blocked=blocked,
                change=found,
            )
        return found

    def _standing(self) -> NetworkNow:
        """The network now; circuits of slots may go at any age."""
        slotted = self._policy.in_force.slotted
        return NetworkNow(
            state=self._network.state,
            outage_s=self._mover.outage_s,
            age_s=(lambda _circuit: math.inf) if slotted else self._network.age_s,
            pins=self._bookings.pins(),
            blocked=self._reach.blocked_ports(),
            way=self._ways.way,
        )

    def _wanted_pairs(self, request: PlanRequest) -> set[Pair]:
        """Pairs in the topology or demand of the request, or else in the measured demand."""
        if request.topology is not None:
            return {pair_of(path) for path in request.topology.paths}
        demand = self._monitor.demand().planned_mbps if request.demand is None else request.demand
        return {rack_pair(RackId(a), RackId(b)) for a, b in np.argwhere(demand > 0)}

    def begin_week(self, night_s: float, given: GivenSchedule | None = None) -> WeekUnderWay:
        """Plan a schedule for the present demand, in a separate process; no change waits.

        ``given``: plan the changes of this schedule instead.
        """
        seen = self._monitor.demand()
        wanted = seen.source is not DemandSource.NONE and seen.planned_mbps.any()
        if given is None and not wanted:
            return WeekUnderWay.not_wanted()
        current = self._network.state
        week = self._week_planner.begin_week(
            current,
            self._reach.within_reach(PlanRequest()),
            seen.planned_mbps,
            self._bookings.pins(),
            self._reach.blocked_ports(),
            given or self._policy.now.slots,
            night_s,
            self._policy.now.gain_horizon_s,
        )
        largest = seen_demand(seen.rate_mbps, seen.planned_mbps, seen.counted_on_mbps)
        return WeekUnderWay(week, largest, current)

    # -- decide and reconfigure -------------------------------------------------------------------

    def round(self) -> Round:
        """A round of monitor and plan, without changes."""
        return self._rounds.periodic(
            self._standing(),
            self._monitor.demand(),
            lambda request: self.plan(request, urgent=True),
            _PERIODIC,
            time.time(),
        )

    @property
    def between_stages(self) -> bool:
        """True while a change has further stages: no round, and no decision of a round."""
        return self._staging.under_way or bool(self._cut_off)

    async def act(self, done: Round) -> None:
        """Record the decision of a round, and carry it out, unless :attr:`between_stages`."""
        if self.between_stages or done.request is None:
            return
        if done.report is None or done.decision.action is not Action.CHANGE:
            self._log.decide(done.decision)
        else:
            entry = self._log.enter(_PERIODIC, done.decision.reason)
            self._log.decide(replace(done.decision, reconfiguration=entry.id))
            asker = self._asker(entry, done.request)
            await self._staging.carry_out(entry, done.report.plan, asker)
        if done.report is not None:
            self._rounds.begun(self._network.state)

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        """Queue a reconfiguration; the ledger has the outcome. Raises errors of :meth:`plan`."""
        self.plan(request, shares=False)  # refuse an impossible request at once
        with self._asking:  # turns follow this order
            entry = self._log.enter(trigger)
            self._asked_for[entry.id] = entry, request
            self._enqueue(lambda: self._reconfigure(entry))
        self._log.write_entered()  # the caller's answer has to survive a restart
        return entry

    def beside(self) -> Work[None] | None:
        """Begin the first waiting request beside a change slowed by switches, if possible.

        A request keeps its turn if the change meets changes under way, waits for the same switches,
        or would be refused now.
        """
        first, under_way = tuple(self._asked_for.values())[:1], self._network.under_way
        if not first or not under_way[-1].slow:
            return None
        ((entry, request),) = first
        looked_at = (under_way, self._network.state, entry.id)
        if looked_at == self._tried_beside:
            return None
        self._tried_beside = looked_at
        decision: Decision | None = None
        try:
            report = self.plan(request, urgent=True)
            if request.only_if_it_pays:
                if not report.verdict.pays:
                    return None
                decision = self._decide(report, request, entry.trigger)
            asker = self._asker(entry, request)
            work = self._early_stages.carry_out(entry, report.plan, asker)
        except HydraError as error:
            LOG.debug("reconfiguration %s waits for its turn: %s", entry.id, error)
            return None
        if work is not None:
            del self._asked_for[entry.id]
            if decision is not None:
                self._log.decide(replace(decision, reconfiguration=entry.id))
        return work

    def resume(self) -> None:
        """Continue changes cut off by a restart, once traffic is measured again: a duty.

        Periodic decisions wait until then.
        """
        if not self._cut_off:
            return
        sent_mbps = self._monitor.sent_mbps()
        patient = time.monotonic() < self._patient_until_s
        if sent_mbps is None and self._monitor.polls and patient:
            return
        while self._cut_off:
            self._staging.resume(self._cut_off[0], self._asker_of(self._cut_off[0]), sent_mbps)
            del self._cut_off[0]

    def _asker_of(self, change: Unfinished) -> Asker:
        """The asker of a change cut off by a restart. The original request is lost, so that the
        change can't be planned anew.
        """

        def moved(done: ChangeResult, _first: bool) -> None:
            self._panels.wish(done.courses[-1], alone=False)
            self._reservations.keep_standing()

        recurs = change.trigger == _PERIODIC

        def wanted_mbps() -> DemandMatrix | None:
            return self._wanted(PlanRequest()) if recurs else None

        return Asker(self._monitor.sent_mbps, None, wanted_mbps, recurs, moved)

    @property
    def resuming(self) -> bool:
        """True as long as there are changes to :meth:`resume`."""
        return bool(self._cut_off)

    def stop(self, reconfiguration_id: str, by: str) -> Reconfiguration:
        """End a change after the stage under way. Raises UnknownName, LifecycleError."""
        self._staging.stop(self._log.reconfiguration(reconfiguration_id), by)
        return self._log.reconfiguration(reconfiguration_id)

    def pause(self, reconfiguration_id: str, paused: bool) -> Reconfiguration:
        """Begin no further stage of a change, or go on. Raises UnknownName, LifecycleError."""
        self._staging.pause(self._log.reconfiguration(reconfiguration_id), paused)
        return self._log.reconfiguration(reconfiguration_id)

    def changes_of(self, a: RackId, b: RackId) -> Sequence[str]:
        """As :meth:`Staging.changes_of`."""
        return self._staging.changes_of(a, b)

    async def _reconfigure(self, entry: Reconfiguration) -> None:
        _, request = self._asked_for.pop(entry.id, (entry, None))
        if request is None:  # begun beside another change
            await self._staging.go_on(entry)
            return
        try:
            report = self.plan(request, urgent=True)
            if request.only_if_it_pays:
                decision = self._decide(report, request, entry.trigger)
                if not report.verdict.pays:
                    self._log.decide(decision)
                    self._log.refuse(entry, f"does not pay: {report.verdict.reason}")
                    return
                self._log.decide(replace(decision, reconfiguration=entry.id))
            await self._staging.carry_out(entry, report.plan, self._asker(entry, request))
        except JournalError:
            raise  # recorded where the error happened
        except HydraError as error:
            self._log.refuse(entry, str(error))

    def _decide(self, report: PlanReport, request: PlanRequest, trigger: str) -> Decision:
        seen = self._monitor.demand()
        if request.demand is None:
            largest = seen_demand(seen.rate_mbps, seen.planned_mbps, seen.counted_on_mbps)
        else:
            expected = request.demand if request.weights is None else request.weights
            largest = seen_demand(seen.rate_mbps, request.demand, expected)
        algorithm = request.algorithm or self._policy.now.algorithm
        return decide(report, algorithm, largest, trigger, time.time())

    def _asker(self, entry: Reconfiguration, request: PlanRequest) -> Asker:
        everything = request.racks is None and request.planes is None
        wanted = self._wanted_pairs(request)

        def moved(done: ChangeResult, first: bool) -> None:
            goal = paths_by_pair(done.wanted)

            def planned(pair: Pair) -> bool:
                # The goal also has paths of reservations, and paths that no switch lets go now.
                within = request.racks is None or request.racks.issuperset(pair)
                return within and pair in goal and pair in wanted

            self._panels.wish(done.courses[-1], alone=everything and first)
            self._reservations.keep_standing(planned)

        by_worth = request.only_if_it_pays

        def plan() -> Plan | None:
            new_plan = self.plan(request, urgent=True)
            wanted.update(self._wanted_pairs(request))
            return new_plan.plan if new_plan.verdict.pays or not by_worth else None

        def wanted_mbps() -> DemandMatrix | None:
            return self._wanted(request) if request.demand is None else None

        recurs = entry.trigger == _PERIODIC
        return Asker(self._monitor.sent_mbps, plan, wanted_mbps, recurs, moved)
