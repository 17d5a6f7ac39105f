"""The desk: passes REST requests on to the part of the controller with the answer.

Each part of :class:`hydra.service.ControllerService` has a class here; the service documents the
methods and errors. All methods are for any thread.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from apps.controller.wiring import Rooms
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
from hydra.policy import Policy, Sharing, SharingChoice
from hydra.reservations.availability import Available
from hydra.reservations.bundle import Bundle
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Reservation, ReservationRequest, rack_pair
from hydra.reservations.shapes import Shape, ShapeRequest
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
from hydra.sharing.given_schedule import GivenSchedule
from hydra.sharing.slots import Schedule, Week


class _OfRooms:
    """A part of the desk: passes requests on to the controller's rooms."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self.fabric: Fabric = rooms.fabric
        self.agents: AgentService = rooms.agents


class ReservationDesk(_OfRooms):
    """Implements :class:`hydra.service.ReservationService`."""

    @property
    def events(self) -> EventLog:
        return self._rooms.ledger.events

    def reserve(self, request: ReservationRequest) -> Reservation:
        return self._rooms.admission.reserve(request)

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        return self._rooms.admission.reserve_all(requests, all_or_nothing=all_or_nothing)

    def reserve_shape(self, shape: ShapeRequest) -> GroupOutcome:
        return self._rooms.shapes.reserve(shape)

    def availability(self, request: ReservationRequest) -> Sequence[Available]:
        return self._rooms.admission.availability(request)

    def shape(self, shape_id: str) -> Shape:
        return self._rooms.shapes.shape(shape_id)

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        return self._rooms.admission.preview(request)

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        return self._rooms.admission.commit(reservation_id, seen)

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        return self._rooms.admission.modify(reservation_id, change, seen)

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        return self._rooms.admission.release(reservation_id, seen)

    def release_group(self, group: str) -> Sequence[Reservation]:
        return self._rooms.admission.release_group(group)

    def reservation(self, reservation_id: str) -> Reservation:
        return self._rooms.admission.reservation(reservation_id)

    def reservations(self) -> Sequence[Reservation]:
        return self._rooms.ledger.bookings.all()

    def group(self, group: str) -> Sequence[Reservation]:
        return self._rooms.ledger.bookings.group(group)

    def usage(self, owner: str) -> Usage:
        return self._rooms.ledger.bookings.usage(owner)

    def delivery(self, reservation_id: str) -> Delivery:
        reservation = self.reservation(reservation_id)
        if isinstance(reservation, Bundle):
            return delivery_of(reservation, self._rooms.policing.deliveries(reservation.parts))
        return self._rooms.policing.delivery(reservation)

    def deliveries(self) -> Sequence[Delivery]:
        return self._rooms.policing.deliveries(self._rooms.ledger.bookings.active())


class PlanningDesk(_OfRooms):
    """Implements :class:`hydra.service.PlanningService`."""

    @property
    def policy(self) -> Policy:
        return self._rooms.policy.now

    def state(self) -> NetworkState:
        return self._rooms.ledger.network.state

    def demand(self) -> DemandReport:
        return self._rooms.monitor.demand()

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        return self._rooms.monitor.port_rates_mbps()

    def load(self, racks: Collection[RackId], most: int) -> Load:
        return self._rooms.monitor.load_recorder.load(racks, most)

    def plan(self, request: PlanRequest) -> PlanReport:
        return self._rooms.loop.plan(request)

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        return self._rooms.loop.reconfigure(request, trigger)

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        return self._rooms.ledger.log.reconfigurations()

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        return self._rooms.ledger.log.reconfiguration(reconfiguration_id)

    def stop(self, reconfiguration_id: str, by: str) -> Reconfiguration:
        return self._rooms.loop.stop(reconfiguration_id, by)

    def pause(self, reconfiguration_id: str, paused: bool) -> Reconfiguration:
        return self._rooms.loop.pause(reconfiguration_id, paused)

    def decisions(self) -> Sequence[Decision]:
        return self._rooms.ledger.log.decisions()

    def sharing(self) -> SharingChoice:
        return self._rooms.policy.sharing

    def schedule(self) -> Schedule:
        return self._rooms.slots.schedule()

    def give_schedule(self, given: GivenSchedule, *, dry_run: bool = False) -> Week:
        draft = self._rooms.slots.plan_given(
            given, partial(self._rooms.loop.begin_week, given=given)
        )

        async def give() -> None:
            self._rooms.slots.give(given, draft)

        if not dry_run:
            self._rooms.conductor.ask(give)
        return draft.week

    def end_schedule(self) -> None:
        async def end() -> None:
            self._rooms.slots.end_given()

        self._rooms.conductor.ask(end)


class OperationsDesk(_OfRooms):
    """Implements :class:`hydra.service.OperationsService`."""

    def history(
        self,
        since_unix_s: float,
        before_unix_s: float,
        kinds: Collection[HappeningKind],
        most: int,
    ) -> Sequence[Happening]:
        return self._rooms.ledger.log.history(since_unix_s, before_unix_s, kinds, most)

    def note_login(self, operator: str, address: str) -> None:
        self._rooms.ledger.log.note(
            HappeningKind.LOGIN, f"{operator} (operator) came, from {address}"
        )

    def devices(self) -> Collection[DeviceStatus]:
        return self._rooms.reach.absences.devices()

    def not_ready(self) -> Sequence[str]:
        planner = self._rooms.planner.not_ready()
        return [*self._rooms.reach.not_ready(), *([planner] if planner else ())]

    def missing(self) -> Sequence[str]:
        return self._rooms.reach.absences.missing()

    def conditions(self) -> Sequence[Condition]:
        return self._rooms.health.conditions()

    def drift(self) -> DriftReport:
        return self._rooms.conductor.ask(self._rooms.auditor.look)

    def reconcile(self) -> Reconciliation:
        return self._rooms.conductor.ask(self._mend)

    async def _mend(self) -> Reconciliation:
        done = await self._rooms.auditor.mend()
        if done.reconfigurations:
            await self._rooms.placement.restore()
        return done

    def share(self, sharing: Sharing) -> None:
        self._rooms.policies.share(sharing)

    def amend(self, changes: Mapping[str, object]) -> None:
        self._rooms.policies.amend(changes)

    def reload(self, *, dry_run: bool = False) -> Reload:
        return self._rooms.policies.reload(dry_run=dry_run)

    def tasks(self, device: str) -> Sequence[Task]:
        return self._rooms.panels.tasks(device)

    def settle_task(self, device: str, task_id: int, state: TaskState, note: str) -> Task:
        # The conductor reads people's answers.
        settled = self._rooms.panels.settle(device, task_id, state, note)
        self._rooms.conductor.put(self._rooms.withdrawals.retry_manual_paths)
        return settled

    def quarantine(self) -> Sequence[QuarantinedPort]:
        return [_seen_now(entry) for entry in self._rooms.quarantine.entries()]

    def set_aside(self, rack: str, tor_port: str, reason: str) -> QuarantinedPort:
        return _seen_now(self._rooms.quarantine.set_aside(rack, tor_port, reason))

    def clear_quarantine(self, rack: str, tor_port: str) -> QuarantinedPort:
        return _seen_now(self._rooms.quarantine.clear(rack, tor_port))


class Desk(ReservationDesk, PlanningDesk, OperationsDesk):
    """Implements :class:`hydra.service.ControllerService`."""

    def explain(self, a: RackId, b: RackId) -> Explanation:
        seen = self.demand()
        evidence = Evidence(
            self.fabric,
            self._rooms.policy.in_force,
            self.state(),
            seen.rate_mbps,
            seen.estimated_mbps,
            self.reservations(),
            self.decisions(),
            self._rooms.ledger.network.builders(),
            seen.constrained,
            seen.predicted_mbps,
            seen.spilled,
            seen.expected_mbps,
            self._rooms.loop.changes_of(a, b),
            self._rooms.ledger.log.history_of(a, b, MOST_HAPPENINGS),
            self._rooms.quarantine.entries(),
            time.time(),
            seen.source is DemandSource.MEASURED,
            self._rooms.reach.absences.at_risk([rack_pair(a, b)], None, {a, b}),
        )
        return explain(evidence, a, b)


def delivery_of(bundle: Bundle, deliveries: Sequence[Delivery]) -> Delivery:
    """Summed rates of a bundle's parts; None if a part's rate is unknown."""
    forward_mbps = [delivery.there_mbps for delivery in deliveries]
    back = [delivery.back_mbps for delivery in deliveries]
    unheld = sorted({name for delivery in deliveries for name in delivery.unheld})
    return Delivery(
        bundle, there_mbps=_together(forward_mbps), back_mbps=_together(back), unheld=tuple(unheld)
    )


def _together(rates_mbps: Sequence[float | None]) -> float | None:
    known = [mbps for mbps in rates_mbps if mbps is not None]
    return sum(known) if len(known) == len(rates_mbps) else None


def _seen_now(entry: Quarantined) -> QuarantinedPort:
    return QuarantinedPort(entry, on_trial=not entry.blocks(time.time()))
