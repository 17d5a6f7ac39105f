"""The controller: one conductor thread decides and acts, everything else asks or reports.

Reconfigurations, reservations, start-up and switch synchronisation are jobs of one queue, so they
are never interleaved. Reads take a lock for a moment and never wait for a device.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from apps.controller.auditor import Auditor
from apps.controller.bookings import Bookings
from apps.controller.classifier import Classifier
from apps.controller.devices import Devices
from apps.controller.ledger import Ledger
from apps.controller.mover import Mover
from apps.controller.policing import Policing
from apps.controller.prober import Prober
from apps.controller.quarantine import Quarantine
from apps.controller.runner import Runner
from apps.controller.slots import Slots, WeekDraft
from apps.controller.upkeep import Upkeep
from apps.demand.agent_desk import AgentDesk
from apps.demand.estimator import DemandEstimator
from apps.demand.poller import StatsPoller
from apps.demand.tor_counters import TorCounters
from apps.openflow.fleet import Fleet
from apps.openflow.framework import PortInfo, Post
from apps.planning.engine import PlannedChange, Planning
from apps.planning.periodic import TURN, PeriodicRequests
from apps.planning.planner import Planner
from apps.process.metrics import Metrics
from apps.process.tracing import Traces
from hydra.config import Loaded
from hydra.config.reload import Reload, amended, reload
from hydra.decisions.decision import Action, Decision, Verdict, seen_demand
from hydra.decisions.explanation import Builder, Evidence, Explanation, explain
from hydra.demand.agent_protocol import AgentService
from hydra.errors import DeviceUnavailable, HydraError, PlanError, UnknownName
from hydra.events import EventLog
from hydra.faults.quarantine import Quarantined
from hydra.faults.surveillance import LostPath
from hydra.forwarding.substrate import substrate_of
from hydra.journal import Journal, JournalError
from hydra.model import (
    Circuit,
    DatapathId,
    DemandMatrix,
    Fabric,
    NetworkState,
    Path,
    PlaneId,
    PortId,
    RackId,
)
from hydra.policy import Mode, Policy, Sharing
from hydra.reconfiguration.plan import Pair, Plan, directions, paths_by_pair
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Pin, Reservation, ReservationRequest
from hydra.roles import Task, TaskState
from hydra.service import (
    Delivery,
    DemandReport,
    DemandSource,
    DeviceStatus,
    DriftReport,
    GroupOutcome,
    PlanReport,
    PlanRequest,
    QuarantinedPort,
    Reconciliation,
    Reconfiguration,
    ReservationPreview,
)
from hydra.sharing.slots import DUPLEX_ALONE, Schedule
from hydra.worth import decide, doubting, judge, no_plan

LOG = logging.getLogger("hydra.controller")
_HOUSEKEEPING_S: Final = 0.25
_UPKEEP_S: Final = 2.0
_PATIENCE_S: Final = 60.0
_AnswerT = TypeVar("_AnswerT")
_PERIODIC: Final = "periodic"
_RESUME_S: Final = 10.0
"""Reservations wait this long after a start for switches that are still missing."""


class Controller:
    """Implements :class:`hydra.service.ControllerService` on a live network."""

    def __init__(
        self,
        loaded: Loaded,
        journal: Journal,
        post: Post,
        read_file: Callable[[], Loaded],
        traces: Traces | None = None,
        give_up: Callable[[HydraError], None] = LOG.critical,
    ) -> None:
        """``read_file`` reads the configuration file again, for :meth:`reload`; ``give_up`` ends
        the process: this controller is one too many.
        """
        fabric, policy = loaded.fabric, loaded.policy
        self._loaded = loaded
        self._read_file = read_file
        self._fabric = fabric
        self._policy = policy
        self.metrics = Metrics()
        self.fleet = Fleet(fabric, post)
        self.metrics.count_connections(lambda: len(self.fleet.connected()))
        self._devices = Devices(fabric, policy, self.metrics)
        self._planning = Planning(fabric, policy)
        self._planner = Planner(fabric, policy)
        self._estimator = DemandEstimator(fabric, policy)
        self._poller = StatsPoller(fabric, policy, self.fleet)
        self._tor_counters = TorCounters(fabric, policy, self._devices)
        self._ledger = Ledger(fabric, journal, self.metrics, traces)
        self._devices.tell_alarm = self._ledger.tell_alarm
        self._agents = AgentDesk(fabric, policy.agents, self.state)
        self._quarantine = Quarantine(fabric, journal, policy.quarantine_s)
        self._policing = Policing(fabric, self.fleet, policy.timeouts.vswitch_s)
        self._upkeep = Upkeep(
            fabric,
            policy,
            self.fleet,
            self._devices,
            self._ledger,
            self._quarantine,
            self._policing,
            give_up,
        )
        self._classifier = Classifier(
            fabric, self.fleet, self._agents.elephants, policy.timeouts.vswitch_s, policy.sharing
        )
        self._upkeep.classified = self._classifier.rules_for
        self._agents.elephants_wanted = policy.sharing.elephants_only
        self._agents.on_elephants = lambda server: self._jobs.put(
            lambda: self._classify((self._classifier.switch_of(server),))
        )
        self._rounds = PeriodicRequests(one_way=fabric.one_way)
        announcer = self._upkeep.announcer
        self._runner = Runner(
            fabric, policy, self.fleet, self._devices, journal, announcer, self.metrics
        )
        self._mover = Mover(
            fabric, policy, self._planning, self._runner, self._upkeep, self._ledger
        )
        self._slots = Slots(fabric, policy, self._mover, self._ledger, self._draft_week)
        self._keep_slots()
        self._prober = Prober(
            fabric,
            policy,
            self.fleet,
            self._upkeep.standing,
            self._upkeep.on_circuits,
            lambda lost: self._jobs.put(lambda: self._withdraw_lost_paths(lost)),
            self.metrics,
        )
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._bookings = Bookings(
            fabric,
            self._planning,
            self._mover,
            self._upkeep,
            self._ledger,
            policy.max_hops,
            policy.preemption_notice_s,
            self._jobs.put,
        )
        self._auditor = Auditor(
            fabric,
            policy,
            self.fleet,
            self._devices,
            self._ledger,
            self._upkeep,
            self._mover,
            self._planning,
        )
        self._thread = threading.Thread(target=self._conduct, name="conductor", daemon=True)
        self.fleet.watch(self._switch_connected, self._port_changed)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Raises HydraError if the journal can't be used, or another controller is at work."""
        self._devices.claim()
        self._ledger.load()
        self._quarantine.load()
        self._planner.start()
        self._thread.start()
        self._upkeep.announcer.start()
        self._poller.start()
        self._tor_counters.start()
        self._prober.start()
        self._policing.start()

    def stop(self) -> None:
        """End after the job under way; the network goes on as it is."""
        self._policing.stop()
        self._prober.stop()
        self._poller.stop()
        self._tor_counters.stop()
        self._upkeep.announcer.stop()
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self._upkeep.mastership.stop()
        self._planner.close()
        self._runner.close()
        self._devices.close()
        self._ledger.close()

    def alive(self) -> bool:
        """Whether somebody decides and acts."""
        return self._thread.is_alive()

    def _conduct(self) -> None:
        self._safely(self._upkeep.look_after, "upkeep")
        resume_s: float | None = time.monotonic() + _RESUME_S
        upkeep_s = time.monotonic() + _UPKEEP_S
        epoch_s = audit_s = time.monotonic()  # of the last one
        while True:
            if time.monotonic() >= upkeep_s:
                self._safely(self._upkeep.look_after, "upkeep")
                self._safely(self._hear_people, "people")
                if self._policy.sharing.elephants_only:  # agents fall silent, too
                    self._safely(self._classify_all, "upkeep")
                upkeep_s = time.monotonic() + _UPKEEP_S
            if resume_s is not None and (not self.not_ready() or time.monotonic() > resume_s):
                resume_s = None
                self._safely(self._bookings.resume, "bookings")
            if time.monotonic() >= epoch_s + self._policy.epoch_s:
                epoch_s = max(
                    epoch_s + self._policy.epoch_s, time.monotonic() - self._policy.epoch_s
                )
                if self._policy.mode is Mode.PERIODIC and not self._slotted:
                    self._safely(self._periodic, "periodic")
            audit_interval_s = self._policy.audit_interval_s
            if audit_interval_s and time.monotonic() >= audit_s + audit_interval_s:
                self._safely(self._audit, "audit")
                audit_s = time.monotonic()
            if resume_s is None:  # until then there may be no switches to begin or end with
                self._safely(self._bookings.keep_time, "bookings")
            self._safely(self._upkeep.hold_reserved, "policing")
            self._safely(self._slots.keep_time, "slots")
            try:
                job = self._jobs.get(timeout=self._slots.patience_s(_HOUSEKEEPING_S))
            except queue.Empty:
                continue
            if job is None:
                return
            self._safely(job, "job")

    def _safely(self, job: Callable[[], None], stage: str) -> None:
        """No job may end the conductor: what goes wrong is logged, the next one runs."""
        try:
            with self.metrics.stage(stage):
                job()
        except HydraError as error:
            self.metrics.job_failed()
            LOG.error("%s", error)
        except Exception:
            self.metrics.job_failed()
            LOG.exception("a job failed unexpectedly; the controller goes on")

    def _ask(self, question: Callable[[], _AnswerT]) -> _AnswerT:
        """Have the conductor answer between two jobs, for another thread that waits."""
        answer: Future[_AnswerT] = Future()

        def job() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._jobs.put(job)
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            raise DeviceUnavailable(
                "controller", f"busy with other changes for {_PATIENCE_S:g} s: ask again"
            ) from None

    # -- configuration ----------------------------------------------------------------------------

    def reload(self, *, dry_run: bool = False) -> Reload:
        """Read the configuration file again and apply what touches no traffic, or only say what.

        Raises ConfigError if it can't be used, and then goes on with what it has;
        DeviceUnavailable if changes under way take too long.
        """
        file = self._read_file()
        if dry_run:
            return reload(self._loaded, self._policy, file)[1]
        return self._ask(lambda: self._take_over(file))

    def reload_soon(self) -> None:
        """For a signal handler, which can't wait: the log says what came of it."""
        self._jobs.put(lambda: self._log_reload(self._take_over(self._read_file())))

    def amend(self, changes: Mapping[str, object]) -> None:
        """Go on with these values of the policy, until the next start or reload.

        Raises PlanError for slots where circuits are one-way, DeviceUnavailable if changes under
        way take too long.
        """
        if self._fabric.one_way and changes.get("sharing") in {Sharing.SLOTTED, "slotted"}:
            raise PlanError(DUPLEX_ALONE)
        self._ask(lambda: self._amend(changes))

    def _amend(self, changes: Mapping[str, object]) -> None:
        policy, done = amended(self._policy, changes)
        for change in done:
            LOG.info("asked for: %s is %s, was %s", change.key, change.after, change.before)
        self._follow(policy)

    def _take_over(self, file: Loaded) -> Reload:
        policy, done = reload(self._loaded, self._policy, file)
        self._follow(policy)
        return done

    def _follow(self, policy: Policy) -> None:
        self._policy = policy
        self._auditor.policy = self._mover.policy = self._policy
        self._quarantine.length_s = self._policy.quarantine_s
        self._agents.policy = self._policy.agents
        self._share(self._policy.sharing)

    # -- sharing ----------------------------------------------------------------------------------

    def share(self, sharing: Sharing) -> None:
        """Share circuits like this from now on, until the next start or reload.

        Raises PlanError for slots that can't be, DeviceUnavailable if changes under way take
        too long.
        """
        if sharing is Sharing.SLOTTED:
            self._slots.check()
        self._ask(lambda: self._share(sharing))

    def _share(self, sharing: Sharing) -> None:
        before = self._classifier.sharing
        if sharing is not before:
            LOG.info("circuits are shared %s, were %s", sharing.value, before.value)
        self._policy = replace(self._policy, sharing=sharing)
        self._auditor.policy = self._mover.policy = self._policy
        self._classifier.sharing = sharing
        self._agents.elephants_wanted = sharing.elephants_only
        self._keep_slots()
        self._classify_all()

    @property
    def _slotted(self) -> bool:
        return self._policy.mode is Mode.PERIODIC and self._policy.sharing is Sharing.SLOTTED

    def _keep_slots(self) -> None:
        """Follow the policy as it is now."""
        self._slots.policy = self._policy
        self._slots.run(self._slotted)

    def schedule(self) -> Schedule:
        return self._slots.schedule()

    def _draft_week(self, night_s: float) -> WeekDraft | None:
        """Raises PlanError."""
        seen = self.demand()
        if seen.source is DemandSource.NONE or not seen.estimated_mbps.any():
            return None
        request = self._upkeep.within_reach(PlanRequest())
        with self.metrics.stage("plan"):
            week = self._planner.week(
                self._ledger.state,
                request,
                seen.estimated_mbps,
                self._ledger.pins(),
                self._upkeep.blocked_ports(),
                self._policy.slots,
                night_s,
            )
        return WeekDraft(week, seen_demand(seen.rate_mbps, seen.estimated_mbps))

    def _classify_all(self) -> None:
        self._classify(self._classifier.switches)

    def _classify(self, datapaths: Iterable[DatapathId]) -> None:
        for failed in self._classifier.bring(datapaths, self._upkeep.ready_switches()):
            self._upkeep.forget_switch(failed)

    def _log_reload(self, done: Reload) -> None:
        for change in done.applied:
            LOG.info("reloaded: %s is %s, was %s", change.key, change.after, change.before)
        for change in done.waiting:
            LOG.warning("%s is %s after the next start", change.key, change.after)
        if not done.applied and not done.waiting:
            LOG.info("reloaded: nothing has changed")

    # -- drift ------------------------------------------------------------------------------------

    def drift(self) -> DriftReport:
        """Read all devices and compare; changes nothing. Waits for the change under way.

        Raises DeviceUnavailable if that takes too long.
        """
        return self._ask(self._auditor.look)

    def reconcile(self) -> Reconciliation:
        """Mend what :meth:`drift` finds. Raises DeviceUnavailable, JournalError."""
        return self._ask(self._mend)

    def _mend(self) -> Reconciliation:
        done = self._auditor.mend()
        if done.reconfigurations:
            self._bookings.restore()
        return done

    def _audit(self) -> None:
        if not self._upkeep.in_command:
            return
        before = self._ledger.state
        self._auditor.audit()
        if self._ledger.state != before:
            self._bookings.restore()

    # -- events, in the OpenFlow hub's thread -----------------------------------------------------

    def _switch_connected(self, datapath: DatapathId) -> None:
        self._upkeep.forget_switch(datapath)
        self._jobs.put(lambda: self._upkeep.synchronise((datapath,)))

    def _port_changed(self, datapath: DatapathId, port: PortInfo) -> None:
        self._jobs.put(self._upkeep.update_dead_uplinks)
        if datapath in self._fabric.rack_by_tor_datapath and not port.up:
            self._jobs.put(self._withdraw_dead_circuits)

    def _withdraw_dead_circuits(self) -> None:
        """Circuits lost their light: their pairs go electrical, and elsewhere if they can."""
        dead, reason = self._upkeep.dead_circuits()
        if dead:
            self._withdraw(dead, (), reason)

    def _withdraw_lost_paths(self, lost: Sequence[LostPath]) -> None:
        """Nothing comes through some paths, although there may be light."""
        state = self._ledger.state
        standing = [one for one in lost if state.vlans.get(one.path) == one.vlan]
        if standing:
            circuits = frozenset(circuit for one in standing for circuit in one.circuits)
            reason = "; ".join(one.reason for one in standing)
            self._upkeep.distrust(circuits, reason)
            self._withdraw(circuits, [one.path for one in standing], reason)

    def _withdraw(self, circuits: Collection[Circuit], paths: Collection[Path], why: str) -> None:
        """Divert the pairs on these circuits and paths at once, and then plan around them."""
        LOG.error("%s", why)
        before = directions(self._ledger.state)
        entry = self._ledger.enter("circuit lost", why)
        self._mover.move(entry, self._planning.reduced(self._ledger.state, circuits, paths))
        self._bookings.restore()
        self._bookings.rejoin(before - directions(self._ledger.state))

    # -- demand and plans -------------------------------------------------------------------------

    @property
    def fabric(self) -> Fabric:
        return self._fabric

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def agents(self) -> AgentService:
        return self._agents

    def state(self) -> NetworkState:
        return self._ledger.state

    def demand(self) -> DemandReport:
        age_s, stale, ready = self._poller.heard()
        source = DemandSource.MEASURED if ready else DemandSource.NONE
        with self.metrics.stage("estimate"):
            found = self._estimator.find(
                self._poller.sent(),
                self.port_rates_mbps(),
                self._poller.received_mbps(),
                self._agents.backlog(self._poller.counted),
                self.state(),
                time.monotonic(),
                mice_apart=self._policy.sharing.elephants_only,
            )
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
        )

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        return {**self._poller.port_rates_mbps(), **self._tor_counters.rates_mbps()}

    def _wanted(self, request: PlanRequest) -> DemandMatrix:
        """The request's demand, or the measured one; reserved pairs at least as reserved."""
        demand = request.demand
        if demand is None:
            report = self.demand()
            if report.source is DemandSource.NONE:
                how = (
                    "wait for two polls"
                    if self._poller.enabled
                    else "set policy.poll_interval_s above 0"
                )
                raise PlanError(f"no demand has been measured yet: {how}, or give a demand")
            demand = report.estimated_mbps
        return np.array(demand, dtype=np.float64)

    def plan(self, request: PlanRequest) -> PlanReport:
        """Dry run; changes nothing. Raises PlanError, UnknownName, DeviceUnavailable."""
        return self._plan(request, urgent=False)

    def _plan(self, request: PlanRequest, *, urgent: bool) -> PlanReport:
        started_s = time.monotonic()
        current = self.state()
        demand = self._wanted(request)
        request = self._upkeep.within_reach(request)
        with self.metrics.stage("plan"):
            proposal = self._planner.propose(
                current,
                request,
                demand,
                (*self._ledger.pins(), *self._held(request.hold)),
                self._upkeep.blocked_ports(),
                urgent=urgent,
            )
        plan = proposal.steps(self._fabric, current)
        self.metrics.planned(
            float(demand.sum()), proposal.served_now_mbps, proposal.served_then_mbps
        )
        return PlanReport(
            current=current,
            target=proposal.target,
            connect=plan.connect,
            disconnect=plan.disconnect,
            affected_pairs=plan.affected,
            retagged_ports=plan.retagged_ports,
            rules=self._rules(plan),
            served_mbps=proposal.served_then_mbps,
            demand_mbps=float(demand.sum()),
            verdict=self._judge(plan, proposal),
            planning_ms=(time.monotonic() - started_s) * 1000,
        )

    def _held(self, pairs: Collection[Pair]) -> list[Pin]:
        """What keeps the paths of these pairs that stand where they are.

        As many of them as a pair may have: the policy can have become stricter since. Of one-way
        circuits, all.
        """
        most = None if self._fabric.one_way else self._policy.paths_per_pair
        reserved = {(pin.src, pin.dst) for pin in self._ledger.pins()}
        return [
            Pin(*pair, path, 0.0, ())
            for pair, paths in paths_by_pair(self._ledger.state).items()
            if pair in pairs and pair not in reserved
            for path in paths[:most]
        ]

    def _rules(self, plan: Plan) -> int:
        steering = substrate_of(self._fabric).steering
        return sum(len(steering(a)) + len(steering(b)) for a, b in plan.affected)

    def _judge(self, plan: Plan, proposal: PlannedChange) -> Verdict:
        ages = [self._ledger.age_s(circuit) for circuit in plan.disconnect]
        return judge(
            self._policy,
            served_now_mbps=proposal.served_now_mbps,
            served_then_mbps=proposal.served_then_mbps,
            disturbed_mbps=proposal.disturbed_mbps,
            outage_s=self._mover.outage_s,
            youngest_circuit_s=min(ages, default=float("inf")),
        )

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        """Queue a reconfiguration; poll :meth:`reconfiguration` for its end."""
        self.plan(request)  # an impossible request is refused to its face
        entry = self._ledger.enter(trigger)
        self._jobs.put(lambda: self._reconfigure(entry, request))
        return entry

    def _reconfigure(self, entry: Reconfiguration, request: PlanRequest) -> None:
        try:
            report = self._plan(request, urgent=True)
            if request.only_if_it_pays:
                decision = self._decide(report, request, entry.trigger)
                if not report.verdict.pays:
                    self._ledger.decide(decision)
                    self._ledger.refuse(entry, f"does not pay: {report.verdict.reason}")
                    return
                self._ledger.decide(replace(decision, reconfiguration=entry.id))
            self._adopt(entry, report.target, request)
        except JournalError:
            raise  # recorded where it happened
        except HydraError as error:
            self._ledger.refuse(entry, str(error))

    def _adopt(self, entry: Reconfiguration, target: NetworkState, request: PlanRequest) -> None:
        execution = self._mover.move(entry, target)
        everything = request.racks is None and request.planes is None
        self._upkeep.people.wish(execution, alone=everything)
        self._ledger.keep_standing()

    def _periodic(self) -> None:
        """One round of monitor, plan, and reconfigure if it pays."""
        seen = self.demand()
        sharing = self._policy.sharing
        request = self._rounds.request(sharing, seen)
        if request is None:
            return
        largest = seen_demand(seen.rate_mbps, seen.estimated_mbps)
        try:
            report = self._plan(request, urgent=True)
        except PlanError as error:
            standing = self._ledger.state.topology.circuits
            self._ledger.decide(no_plan(str(error), standing, largest, _PERIODIC, time.time()))
            return
        if not request.only_if_it_pays:
            report = replace(report, verdict=replace(report.verdict, pays=True, reason=TURN))
        decision = decide(report, self._policy.algorithm, largest, _PERIODIC, time.time())
        decision = doubting(decision, self._fabric, seen)
        if decision.action is not Action.CHANGE:
            self._ledger.decide(decision)
        else:
            entry = self._ledger.enter(_PERIODIC, decision.reason)
            self._ledger.decide(replace(decision, reconfiguration=entry.id))
            self._adopt(entry, report.target, request)
        self._rounds.begun(sharing, self._ledger.state)

    def _decide(self, report: PlanReport, request: PlanRequest, trigger: str) -> Decision:
        seen = self.demand()
        wanted = seen.estimated_mbps if request.demand is None else request.demand
        largest = seen_demand(seen.rate_mbps, wanted)
        algorithm = request.algorithm or self._policy.algorithm
        return decide(report, algorithm, largest, trigger, time.time())

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        return self._ledger.reconfigurations()

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        """Raises UnknownName."""
        return self._ledger.reconfiguration(reconfiguration_id)

    def decisions(self) -> Sequence[Decision]:
        return self._ledger.decisions()

    def explain(self, a: RackId, b: RackId) -> Explanation:
        """Why these two racks are joined as they are."""
        seen = self.demand()
        builders = {
            circuit: Builder(one.id, one.trigger)
            for one in reversed(self.reconfigurations())
            for circuit in one.connected
        }
        evidence = Evidence(
            self._fabric,
            self._policy,
            self.state(),
            seen.rate_mbps,
            seen.estimated_mbps,
            self.reservations(),
            self.decisions(),
            builders,
        )
        return explain(evidence, a, b)

    # -- reservations and devices -----------------------------------------------------------------

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Admit and queue. Raises AdmissionError, UnknownName, DeviceUnavailable."""
        return self._bookings.reserve(request)

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        """Admit many as one group. Raises what :meth:`reserve` raises."""
        return self._bookings.reserve_all(requests, all_or_nothing=all_or_nothing)

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        """Dry run of :meth:`reserve`; raises what it raises."""
        return self._bookings.preview(request)

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Make a held reservation one that stays. Raises UnknownName, LifecycleError, Changed."""
        return self._bookings.commit(reservation_id, seen)

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        """Change a reservation without an interruption. Raises what is in its way."""
        return self._bookings.modify(reservation_id, change, seen)

    def group(self, group: str) -> Sequence[Reservation]:
        """Raises UnknownName."""
        return self._ledger.group(group)

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Raises UnknownName, LifecycleError, Changed."""
        return self._bookings.release(reservation_id, seen)

    def delivery(self, reservation_id: str) -> Delivery:
        """Raises UnknownName."""
        return self._policing.delivery(self._ledger.reservation(reservation_id))

    def deliveries(self) -> Sequence[Delivery]:
        """Of all that have, or are getting, circuits."""
        return self._policing.deliveries(self._ledger.active())

    def usage(self, owner: str) -> Usage:
        """What a tenant has, to be held against its quota."""
        return self._ledger.usage(owner)

    def reservations(self) -> Sequence[Reservation]:
        return self._ledger.reservations()

    def reservation(self, reservation_id: str) -> Reservation:
        """Raises UnknownName."""
        return self._ledger.reservation(reservation_id)

    @property
    def events(self) -> EventLog:
        return self._ledger.events

    def devices(self) -> Collection[DeviceStatus]:
        return self._upkeep.devices()

    def tasks(self, device: str) -> Sequence[Task]:
        """What people were asked to do at an optical switch, oldest first."""
        return self._devices.tasks(self._plane(device))

    def settle_task(self, device: str, task_id: int, state: TaskState, note: str) -> Task:
        """A person says what became of a task."""
        settled = self._devices.settle_task(self._plane(device), task_id, state, note)
        self._jobs.put(self._hear_people)
        return settled

    def _hear_people(self) -> None:
        """Go on with what waited for people, and around what they could not do."""
        people = self._upkeep.people
        settled = people.settled()
        if not settled:
            return
        for one in settled:
            if one.task.state is TaskState.FAILED:
                self._quarantine.put(people.ports_of(one), one.told)
        self._bookings.restore()
        told = "; ".join(one.told for one in settled)
        self._bookings.join(people.ready(), told)

    def _plane(self, name: str) -> PlaneId:
        plane = self._fabric.plane_by_name.get(name)
        if plane is None:
            raise UnknownName(f"there is no optical switch {name!r}")
        return plane.id

    def quarantine(self) -> Sequence[QuarantinedPort]:
        return [self._seen_now(entry) for entry in self._quarantine.entries()]

    def set_aside(self, rack: str, tor_port: str, reason: str) -> QuarantinedPort:
        """Leave a port out of planning until it is cleared. Raises UnknownName, JournalError."""
        return self._seen_now(self._quarantine.set_aside(rack, tor_port, reason))

    def clear_quarantine(self, rack: str, tor_port: str) -> QuarantinedPort:
        """Returns what it was. Raises UnknownName."""
        return self._seen_now(self._quarantine.clear(rack, tor_port))

    def _seen_now(self, entry: Quarantined) -> QuarantinedPort:
        return QuarantinedPort(entry, on_trial=not entry.blocks(time.time()))

    def not_ready(self) -> Sequence[str]:
        """What is still missing before the controller can do its job; empty when ready."""
        return self._upkeep.not_ready()
