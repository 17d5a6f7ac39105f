"""The desk: passes REST requests on to the part of the controller with the answer.

Each part of :class:`hydra.service.ControllerService` has a class here; the service documents the
methods and errors. All methods are for any thread.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from apps.controller.auditor import Auditor
from apps.controller.conductor import Conductor
from apps.controller.health import Health
from apps.controller.loop import Loop
from apps.controller.monitor import Monitor
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.policy_desk import PolicyDesk
from apps.controller.promises.admission import Admission
from apps.controller.promises.placement import Placement
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.rooms import Rooms
from apps.controller.slots import Slots
from apps.demand.load_recorder import LoadRecorder
from hydra.config.reload import Reload
from hydra.decisions.decision import Decision
from hydra.decisions.explanation import (
    MOST_HAPPENINGS,
    Evidence,
    Explanation,
    explain,
)
from hydra.demand.agent_protocol import AgentService
from hydra.demand.load import Load
from hydra.events import EventLog
from hydra.faults.condition import Condition
from hydra.faults.quarantine import Quarantined
from hydra.history import Happening, HappeningKind
from hydra.model import Fabric, NetworkState, PortId, RackId
from hydra.policy import CurrentPolicy, Policy, Sharing, SharingChoice
from hydra.reconfiguration.scheduler import Job
from hydra.reservations.bundle import Bundle
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Reservation, ReservationRequest, rack_pair
from hydra.reservations.shapes import ShapeRequest
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
from hydra.sharing.given import GivenSchedule
from hydra.sharing.slots import Schedule, Week


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReservationDesk:
    """Implements :class:`hydra.service.ReservationService`."""

    fabric: Fabric
    ledger: Ledger
    admission: Admission
    policing: Policing

    @property
    def events(self) -> EventLog:
        return self.ledger.events

    def reserve(self, request: ReservationRequest) -> Reservation:
        return self.admission.reserve(request)

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        return self.admission.reserve_all(requests, all_or_nothing=all_or_nothing)

    def reserve_shape(self, shape: ShapeRequest) -> GroupOutcome:
        return self.admission.reserve_shape(shape)

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        return self.admission.preview(request)

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        return self.admission.commit(reservation_id, seen)

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        return self.admission.modify(reservation_id, change, seen)

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        return self.admission.release(reservation_id, seen)

    def reservation(self, reservation_id: str) -> Reservation:
        return self.admission.reservation(reservation_id)

    def reservations(self) -> Sequence[Reservation]:
        return self.ledger.bookings.all()

    def group(self, group: str) -> Sequence[Reservation]:
        return self.ledger.bookings.group(group)

    def usage(self, owner: str) -> Usage:
        return self.ledger.bookings.usage(owner)

    def delivery(self, reservation_id: str) -> Delivery:
        one = self.reservation(reservation_id)
        if isinstance(one, Bundle):
            return delivery_of(one, self.policing.deliveries(one.parts))
        return self.policing.delivery(one)

    def deliveries(self) -> Sequence[Delivery]:
        return self.policing.deliveries(self.ledger.bookings.active())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlanningDesk:
    """Implements :class:`hydra.service.PlanningService`."""

    conductor: Conductor
    current_policy: CurrentPolicy
    ledger: Ledger
    loop: Loop
    monitor: Monitor
    load_recorder: LoadRecorder
    slots: Slots

    @property
    def policy(self) -> Policy:
        return self.current_policy.now

    def state(self) -> NetworkState:
        return self.ledger.network.state

    def demand(self) -> DemandReport:
        return self.monitor.demand()

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        return self.monitor.port_rates_mbps()

    def load(self, racks: Collection[RackId], most: int) -> Load:
        return self.load_recorder.load(racks, most)

    def plan(self, request: PlanRequest) -> PlanReport:
        return self.loop.plan(request)

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        return self.loop.reconfigure(request, trigger)

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        return self.ledger.log.reconfigurations()

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        return self.ledger.log.reconfiguration(reconfiguration_id)

    def stop(self, reconfiguration_id: str, by: str) -> Reconfiguration:
        return self.loop.stop(reconfiguration_id, by)

    def pause(self, reconfiguration_id: str, paused: bool) -> Reconfiguration:
        return self.loop.pause(reconfiguration_id, paused)

    def decisions(self) -> Sequence[Decision]:
        return self.ledger.log.decisions()

    def sharing(self) -> SharingChoice:
        return self.current_policy.sharing

    def schedule(self) -> Schedule:
        return self.slots.schedule()

    def give_schedule(self, given: GivenSchedule, *, dry_run: bool = False) -> Week:
        draft = self.slots.plan_given(given, partial(self.loop.begin_week, given=given))

        async def give() -> None:
            self.slots.give(given, draft)

        if not dry_run:
            self.conductor.ask(give)
        return draft.week

    def end_schedule(self) -> None:
        async def end() -> None:
            self.slots.end_given()

        self.conductor.ask(end)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OperationsDesk:
    """Implements :class:`hydra.service.OperationsService`."""

    agents: AgentService
    auditor: Auditor
    conductor: Conductor
    health: Health
    hear_people: Job
    """Reads people's answers to tasks, in the conductor's thread."""
    ledger: Ledger
    panels: PatchPanels
    placement: Placement
    policies: PolicyDesk
    quarantined: Quarantine
    reach: Reach

    def history(
        self,
        since_unix_s: float,
        before_unix_s: float,
        kinds: Collection[HappeningKind],
        most: int,
    ) -> Sequence[Happening]:
        return self.ledger.log.history(since_unix_s, before_unix_s, kinds, most)

    def note_login(self, operator: str, address: str) -> None:
        self.ledger.log.note(HappeningKind.LOGIN, f"{operator} (operator) came, from {address}")

    def devices(self) -> Collection[DeviceStatus]:
        return self.reach.absences.devices()

    def not_ready(self) -> Sequence[str]:
        return self.reach.not_ready()

    def missing(self) -> Sequence[str]:
        return self.reach.absences.missing()

    def conditions(self) -> Sequence[Condition]:
        return self.health.conditions()

    def drift(self) -> DriftReport:
        return self.conductor.ask(self.auditor.look)

    def reconcile(self) -> Reconciliation:
        return self.conductor.ask(self._mend)

    async def _mend(self) -> Reconciliation:
        done = await self.auditor.mend()
        if done.reconfigurations:
            await self.placement.restore()
        return done

    def share(self, sharing: Sharing) -> None:
        self.policies.share(sharing)

    def amend(self, changes: Mapping[str, object]) -> None:
        self.policies.amend(changes)

    def reload(self, *, dry_run: bool = False) -> Reload:
        return self.policies.reload(dry_run=dry_run)

    def tasks(self, device: str) -> Sequence[Task]:
        return self.panels.tasks(device)

    def settle_task(self, device: str, task_id: int, state: TaskState, note: str) -> Task:
        settled = self.panels.settle(device, task_id, state, note)
        self.conductor.put(self.hear_people)
        return settled

    def quarantine(self) -> Sequence[QuarantinedPort]:
        return [_seen_now(entry) for entry in self.quarantined.entries()]

    def set_aside(self, rack: str, tor_port: str, reason: str) -> QuarantinedPort:
        return _seen_now(self.quarantined.set_aside(rack, tor_port, reason))

    def clear_quarantine(self, rack: str, tor_port: str) -> QuarantinedPort:
        return _seen_now(self.quarantined.clear(rack, tor_port))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Desk(ReservationDesk, PlanningDesk, OperationsDesk):
    """Implements :class:`hydra.service.ControllerService`."""

    @classmethod
    def of(cls, rooms: Rooms) -> Desk:
        """The desk for ``rooms``."""
        return cls(
            fabric=rooms.fabric,
            current_policy=rooms.policy,
            ledger=rooms.ledger,
            admission=rooms.promises.admission,
            policing=rooms.policing,
            loop=rooms.loop,
            monitor=rooms.monitor,
            load_recorder=rooms.monitor.load_recorder,
            slots=rooms.slots,
            agents=rooms.agents,
            auditor=rooms.auditor,
            conductor=rooms.conductor,
            health=rooms.health,
            hear_people=rooms.withdrawals.hear_people,
            panels=rooms.panels,
            placement=rooms.promises.placement,
            policies=rooms.policies,
            quarantined=rooms.quarantine,
            reach=rooms.reach,
        )

    def explain(self, a: RackId, b: RackId) -> Explanation:
        seen = self.demand()
        evidence = Evidence(
            self.fabric,
            self.current_policy.in_force,
            self.state(),
            seen.rate_mbps,
            seen.estimated_mbps,
            self.reservations(),
            self.decisions(),
            self.ledger.network.builders(),
            seen.constrained,
            seen.predicted_mbps,
            seen.spilled,
            seen.expected_mbps,
            self.loop.changes_of(a, b),
            self.ledger.log.history_of(a, b, MOST_HAPPENINGS),
            self.quarantined.entries(),
            time.time(),
            seen.source is DemandSource.MEASURED,
            self.reach.absences.at_risk([rack_pair(a, b)], None, {a, b}),
        )
        return explain(evidence, a, b)


def delivery_of(bundle: Bundle, deliveries: Sequence[Delivery]) -> Delivery:
    """Summed rates of a bundle's parts; None if a part's rate is unknown."""
    there = [one.there_mbps for one in deliveries]
    back = [one.back_mbps for one in deliveries]
    unheld = sorted({name for one in deliveries for name in one.unheld})
    return Delivery(bundle, _together(there), _together(back), tuple(unheld))


def _together(rates_mbps: Sequence[float | None]) -> float | None:
    known = [mbps for mbps in rates_mbps if mbps is not None]
    return sum(known) if len(known) == len(rates_mbps) else None


def _seen_now(entry: Quarantined) -> QuarantinedPort:
    return QuarantinedPort(entry, on_trial=not entry.blocks(time.time()))
