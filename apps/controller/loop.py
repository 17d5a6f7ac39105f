"""Monitor, plan, decide, reconfigure: the loop of HydRA (section III), and requests to it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.slots import WeekDraft
from apps.controller.stages.beside import StagesBeside
from apps.controller.stages.staging import Staging
from apps.demand.agent_desk import AgentDesk
from apps.demand.estimator import DemandEstimator, Found
from apps.demand.poller import StatsPoller
from apps.demand.tor_counters import TorCounters
from apps.planning.engine import PlannedChange
from apps.planning.planner import Planner
from apps.planning.rounds import Round, Rounds, Standing
from apps.process.metrics import Metrics
from hydra.decisions.decision import Action, Decision, seen_demand
from hydra.demand.prediction import Forecast
from hydra.errors import HydraError, PlanError
from hydra.forwarding.substrate import substrate_of
from hydra.journal import JournalError
from hydra.journal_format import Unfinished
from hydra.model import DemandMatrix, Fabric, NetworkState, PortId, RackId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Pair, Plan, paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.service import (
    CircuitShares,
    DemandReport,
    DemandSource,
    PlanReport,
    PlanRequest,
    Reconfiguration,
)
from hydra.sharing.spill import Room, Spills
from hydra.staged_changes import Asker
from hydra.worth import decide

LOG = logging.getLogger("hydra.loop")
_PERIODIC: Final = "periodic"
_PATIENCE_S: Final = 60.0
"""Time after a start in which two polls have to have been made."""


@dataclass(frozen=True, slots=True)
class _Told:
    """The planner's last answer to somebody who waited for it, and what that rests on."""

    current: NetworkState
    request: PlanRequest
    demand: DemandMatrix
    pins: Sequence[Pin]
    blocked: Collection[PortId]
    change: PlannedChange

    def is_for(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
    ) -> bool:
        """True if the planner would be asked the same again."""
        return (
            self.current == current
            and _but_numbers(self.request) == _but_numbers(request)
            and _same(self.request.weights, request.weights)
            and _same(self.demand, demand)
            and self.pins == pins
            and self.blocked == blocked
        )


def _but_numbers(request: PlanRequest) -> PlanRequest:
    """The request without its matrices, which ``==`` does not tell apart."""
    return replace(request, demand=None, weights=None)


def _same(one: DemandMatrix | None, other: DemandMatrix | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


@dataclass(eq=False, repr=False)
class Loop:
    """:meth:`periodic`, :meth:`foretell` and :meth:`draft_week` are for the conductor's thread.

    The rest is for any.
    """

    _fabric: Fabric
    _policy: CurrentPolicy
    _metrics: Metrics
    _planner: Planner
    _estimator: DemandEstimator
    _poller: StatsPoller
    _tor_counters: TorCounters
    _agents: AgentDesk
    _policing: Policing
    ledger: InitVar[Ledger]
    _reach: Reach
    _mover: Mover
    _staging: Staging
    _stages_beside: StagesBeside
    _panels: PatchPanels
    _spills: Spills
    _enqueue: Callable[[Callable[[], None]], None]
    """Has a change that only waits call what it may let in."""
    _asked_for: dict[str, tuple[Reconfiguration, PlanRequest]] = field(
        default_factory=dict, init=False
    )
    """What waits for its turn, by id, in the order in which it was asked for."""
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)
    _tried_beside: tuple[object, ...] = field(default=(), init=False)
    """What was last looked at between the steps of changes, with these."""
    _told: _Told | None = field(default=None, init=False)
    _cut_off: list[Unfinished] = field(default_factory=list, init=False)
    _patient_until_s: float = field(default=0.0, init=False)

    def __post_init__(self, ledger: Ledger) -> None:
        self._shares_by_slots: Callable[[Round], bool] = lambda _done: False
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._substrate = substrate_of(self._fabric)
        self._forecast = Forecast(self._policy)
        self._rounds = Rounds(self._fabric, self._policy)

    def let_choose(self, shares_by_slots: Callable[[Round], bool]) -> None:
        """``shares_by_slots`` is True if slots take the place of the round's decision."""
        self._shares_by_slots = shares_by_slots

    def take_over(self, unfinished: Sequence[Unfinished]) -> None:
        """Changes to :meth:`resume`, from the journal."""
        self._cut_off = list(unfinished)
        self._patient_until_s = time.monotonic() + _PATIENCE_S

    # -- monitor ----------------------------------------------------------------------------------

    def demand(self) -> DemandReport:
        """Demand as measured and estimated now."""
        age_s, stale, ready = self._poller.heard()
        source = DemandSource.MEASURED if ready else DemandSource.NONE
        found = self._find()
        troubles = {
            **self._estimator.troubles(),
            **self._tor_counters.troubles(),
            **self._poller.troubles(),
            **self._agents.troubles(),
        }
        return DemandReport(
            source,
            found.sent_mbps,
            found.wanted_mbps,
            age_s,
            stale,
            troubles,
            found.backlog_mbps,
            found.constrained,
            self._poller.unsure(),
            found.basis,
            *self._forecast.told(),
            spilled=self._spills.shares(),
            expected_mbps=found.expected_mbps,
        )

    def _find(self) -> Found:
        with self._metrics.stage("estimate"):
            return self._estimator.find(
                self._poller.sent(),
                self.port_rates_mbps(),
                self._poller.received_mbps(),
                self._agents.backlog(self._poller.counted),
                self._network.state,
                time.monotonic(),
                self._policing.held_back(),
                self._spills.shares(),
            )

    def room(self) -> Room | None:
        """Room of pairs on both networks now; None: not measured, or the policy forbids it."""
        _, _, ready = self._poller.heard()
        room = self._find().room if ready else None
        if room is None:
            return None
        unsure = self._poller.unsure()
        return replace(room, full=room.full & ~unsure)

    def foretell(self) -> None:
        """Take the demand of now into the prediction of what comes."""
        seen = self.demand()
        if seen.source is DemandSource.MEASURED:
            self._forecast.see(seen.estimated_mbps, time.monotonic())

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        """Mbps that each optical ToR port sends, as last polled; absent where unknown."""
        return {**self._poller.port_rates_mbps(), **self._tor_counters.rates_mbps()}

    def _sent_mbps(self) -> DemandMatrix | None:
        """Mbps from rack to rack as counted, shape (N, N); None before two polls."""
        _, _, ready = self._poller.heard()
        return self._poller.rates_mbps() if ready else None

    def _wanted(self, request: PlanRequest) -> DemandMatrix:
        """The request's demand, or the measured one. Raises PlanError before there is one."""
        if request.demand is not None:
            return np.array(request.demand, dtype=np.float64)
        return np.array(self._measured().planned_mbps, dtype=np.float64)

    def _measured(self) -> DemandReport:
        """The demand as measured. Raises PlanError before there is any."""
        report = self.demand()
        if report.source is DemandSource.NONE:
            how = "set policy.poll_interval_s above 0"
            if self._poller.enabled:
                how = "wait for two polls"
            raise PlanError(f"no demand has been measured yet: {how}, or give a demand")
        return report

    # -- plan -------------------------------------------------------------------------------------

    def plan(
        self, request: PlanRequest, *, urgent: bool = False, shares: bool = True
    ) -> PlanReport:
        """Dry run; changes nothing. Raises PlanError, UnknownName, DeviceUnavailable.

        An urgent one foresees no stages. ``shares``: whether to compute shares on circuits, which
        an urgent one does not.
        """
        if request.demand is None:
            seen = self._measured()
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
        at_risk = self._reach.at_risk(pairs, request.planes, racks)
        if urgent:
            return replace(report, rules=rules, at_risk=at_risk)
        return replace(
            report,
            rules=rules,
            at_risk=at_risk,
            stages=self._staging.foresee(report.plan, self._sent_mbps()),
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
        """The answer that a caller was told goes for its job, if nothing has changed meanwhile."""
        told = self._told
        if urgent and told is not None and told.is_for(current, request, demand, pins, blocked):
            return told.change
        with self._metrics.stage("plan"):
            found = self._planner.propose(current, request, demand, pins, blocked, urgent=urgent)
        self._metrics.planned(float(demand.sum()), found.served_now_mbps, found.served_then_mbps)
        if not urgent:
            self._told = _Told(current, request, demand, pins, blocked, found)
        return found

    def _standing(self) -> Standing:
        """The network now; circuits of slots may all go, whatever their age."""
        slotted = self._policy.in_force.slotted
        return Standing(
            self._network.state,
            self._mover.outage_s,
            (lambda _circuit: math.inf) if slotted else self._network.age_s,
            self._bookings.pins(),
            self._reach.blocked_ports(),
        )

    def draft_week(self, night_s: float) -> WeekDraft | None:
        """A schedule for the demand of now; None if there is no demand. Raises PlanError."""
        seen = self.demand()
        if seen.source is DemandSource.NONE or not seen.planned_mbps.any():
            return None
        request = self._reach.within_reach(PlanRequest())
        with self._metrics.stage("plan"):
            week = self._planner.week(
                self._network.state,
                request,
                seen.planned_mbps,
                self._bookings.pins(),
                self._reach.blocked_ports(),
                self._policy.now.slots,
                night_s,
                self._policy.now.gain_horizon_s,
            )
        largest = seen_demand(seen.rate_mbps, seen.planned_mbps, seen.counted_on_mbps)
        return WeekDraft(week, largest)

    # -- decide and reconfigure -------------------------------------------------------------------

    def round(self) -> Round:
        """A round of monitor and plan, which changes nothing."""
        return self._rounds.periodic(
            self._standing(),
            self.demand(),
            lambda request: self.plan(request, urgent=True),
            _PERIODIC,
            time.time(),
        )

    def periodic(self) -> None:
        """A round of monitor, plan, and reconfigure if it pays; none between a change's stages."""
        if self._staging.under_way or self._cut_off:
            return
        done = self.round()
        if not self._shares_by_slots(done):  # else slots begin when the conductor looks at them
            self.act(done)

    def act(self, done: Round) -> None:
        """Record the decision of a round, and carry it out; not between a change's stages."""
        if self._staging.under_way or self._cut_off or done.request is None:
            return
        if done.report is None or done.decision.action is not Action.CHANGE:
            self._log.decide(done.decision)
        else:
            entry = self._log.enter(_PERIODIC, done.decision.reason)
            self._log.decide(replace(done.decision, reconfiguration=entry.id))
            asker = self._asker(entry, done.request)
            self._staging.carry_out(entry, done.report.plan, asker)
        if done.report is not None:
            self._rounds.begun(self._network.state)

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        """Queue a reconfiguration; the ledger has its outcome. Raises what :meth:`plan` raises."""
        self.plan(request, shares=False)  # an impossible request is refused to its face
        with self._asking:  # all have their turns in this order
            entry = self._log.enter(trigger)
            self._asked_for[entry.id] = entry, request
            self._enqueue(lambda: self._reconfigure(entry))
        self._log.write_entered()  # whoever asked is told of it, over a restart too
        return entry

    def beside(self) -> bool:
        """Make what was asked for first, of all that waits for its turn, beside a change that goes
        at the pace of slow switches, or else the next stage of another; True if the network was
        changed.

        What that touches, or would have to wait for the same switches, has its turn, and so has all
        that would be refused now.
        """
        return self._asked_beside() or self._stages_beside.next_stages()

    def _asked_beside(self) -> bool:
        first, under_way = tuple(self._asked_for.values())[:1], self._network.under_way
        if not first or not under_way[-1].slow:
            return False
        ((entry, request),) = first
        looked_at = (under_way, self._network.state, entry.id)
        if looked_at == self._tried_beside:
            return False
        self._tried_beside = looked_at
        decision: Decision | None = None

        def begin() -> None:
            del self._asked_for[entry.id]
            if decision is not None:
                self._log.decide(replace(decision, reconfiguration=entry.id))

        try:
            report = self.plan(request, urgent=True)
            if request.only_if_it_pays:
                if not report.verdict.pays:
                    return False
                decision = self._decide(report, request, entry.trigger)
            asker = self._asker(entry, request)
            return self._stages_beside.carry_out(entry, report.plan, asker, begin)
        except HydraError as error:
            if entry.id not in self._asked_for:
                raise  # it breaks off what is under way, too
            LOG.debug("reconfiguration %s keeps its turn: %s", entry.id, error)
            return False

    def resume(self) -> None:
        """Go on with changes that a restart has cut off, once traffic is measured again: a duty.

        Periodic decisions wait for it.
        """
        if not self._cut_off:
            return
        sent_mbps = self._sent_mbps()
        patient = time.monotonic() < self._patient_until_s
        if sent_mbps is None and self._poller.enabled and patient:
            return
        while self._cut_off:
            self._staging.resume(self._cut_off[0], self._asker_of(self._cut_off[0]), sent_mbps)
            del self._cut_off[0]

    def _asker_of(self, change: Unfinished) -> Asker:
        """Who asked for it is not known in full any more: nobody can plan it anew."""

        def moved(execution: Execution, _first: bool) -> None:
            self._panels.wish(execution, alone=False)
            self._reservations.keep_standing()

        recurs = change.trigger == _PERIODIC

        def wanted_mbps() -> DemandMatrix | None:
            return self._wanted(PlanRequest()) if recurs else None

        return Asker(self._sent_mbps, None, wanted_mbps, recurs, moved)

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

    def _reconfigure(self, entry: Reconfiguration) -> None:
        _, request = self._asked_for.pop(entry.id, (entry, None))
        if request is None:  # it was begun beside another
            self._staging.go_on(entry)
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
            self._staging.carry_out(entry, report.plan, self._asker(entry, request))
        except JournalError:
            raise  # recorded where it happened
        except HydraError as error:
            self._log.refuse(entry, str(error))

    def _decide(self, report: PlanReport, request: PlanRequest, trigger: str) -> Decision:
        seen = self.demand()
        if request.demand is None:
            largest = seen_demand(seen.rate_mbps, seen.planned_mbps, seen.counted_on_mbps)
        else:
            expected = request.demand if request.weights is None else request.weights
            largest = seen_demand(seen.rate_mbps, request.demand, expected)
        algorithm = request.algorithm or self._policy.now.algorithm
        return decide(report, algorithm, largest, trigger, time.time())

    def _asker(self, entry: Reconfiguration, request: PlanRequest) -> Asker:
        everything = request.racks is None and request.planes is None

        def moved(execution: Execution, first: bool) -> None:
            goal = paths_by_pair(execution.wanted)

            def planned(pair: Pair) -> bool:
                return pair in goal and (request.racks is None or request.racks.issuperset(pair))

            self._panels.wish(execution, alone=everything and first)
            self._reservations.keep_standing(planned)

        by_worth = request.only_if_it_pays

        def plan() -> Plan | None:
            again = self.plan(request, urgent=True)
            return again.plan if again.verdict.pays or not by_worth else None

        def wanted_mbps() -> DemandMatrix | None:
            return self._wanted(request) if request.demand is None else None

        recurs = entry.trigger == _PERIODIC
        return Asker(self._sent_mbps, plan, wanted_mbps, recurs, moved)
