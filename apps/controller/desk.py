"""The desk: takes what REST asks of the controller to the room that answers it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from apps.controller.auditor import Auditor
from apps.controller.conductor import Conductor
from apps.controller.health import Health
from apps.controller.loop import Loop
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.policy_desk import PolicyDesk
from apps.controller.promises.admission import Admission
from apps.controller.promises.placement import Placement
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.slots import Slots
from apps.demand.load_recorder import LoadRecorder
from hydra.decisions.explanation import (
    MOST_HAPPENINGS,
    Evidence,
    Explanation,
    explain,
)
from hydra.demand.agent_protocol import AgentService
from hydra.faults.quarantine import Quarantined
from hydra.history import HappeningKind
from hydra.model import Fabric, NetworkState, RackId
from hydra.policy import CurrentPolicy, Policy
from hydra.reservations.bundle import Bundle
from hydra.reservations.reservation import rack_pair
from hydra.roles import Task, TaskState
from hydra.service import Delivery, DemandSource, DriftReport, QuarantinedPort, Reconciliation


class Desk:
    """Implements :class:`hydra.service.ControllerService`, for any thread.

    A question that one room answers goes straight there; questions that take several are methods.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        conductor: Conductor,
        ledger: Ledger,
        loop: Loop,
        load_recorder: LoadRecorder,
        admission: Admission,
        placement: Placement,
        policing: Policing,
        policies: PolicyDesk,
        slots: Slots,
        auditor: Auditor,
        quarantine: Quarantine,
        panels: PatchPanels,
        reach: Reach,
        health: Health,
        agents: AgentService,
        hear_people: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._conductor = conductor
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._placement = placement
        self._policing = policing
        self._auditor = auditor
        self._quarantine = quarantine
        self._panels = panels
        self._reach = reach
        self._hear_people = hear_people
        self.fabric = fabric
        self.agents = agents
        self.events = ledger.events

        self.demand = loop.demand
        self.port_rates_mbps = loop.port_rates_mbps
        self.load = load_recorder.load
        self.plan = loop.plan
        self.reconfigure = loop.reconfigure
        self.pause = loop.pause
        self._changes_of = loop.changes_of
        self.reconfigurations = ledger.log.reconfigurations
        self.reconfiguration = ledger.log.reconfiguration
        self.stop = loop.stop
        self.decisions = ledger.log.decisions
        self.history = ledger.log.history

        self.reserve = admission.reserve
        self.reserve_all = admission.reserve_all
        self.preview = admission.preview
        self.commit = admission.commit
        self.modify = admission.modify
        self.release = admission.release
        self.group = ledger.bookings.group
        self.reservations = ledger.bookings.all
        self.reservation = admission.reservation
        self.usage = ledger.bookings.usage

        self.share = policies.share
        self.amend = policies.amend
        self.reload = policies.reload
        self.schedule = slots.schedule
        self.devices = reach.devices
        self.not_ready = reach.not_ready
        self.missing = reach.missing
        self.conditions = health.conditions
        self.tasks = panels.tasks

    @property
    def policy(self) -> Policy:
        return self._policy.now

    def state(self) -> NetworkState:
        return self._network.state

    def explain(self, a: RackId, b: RackId) -> Explanation:
        seen = self.demand()
        evidence = Evidence(
            self.fabric,
            self.policy,
            self.state(),
            seen.rate_mbps,
            seen.estimated_mbps,
            self.reservations(),
            self.decisions(),
            self._network.builders(),
            seen.constrained,
            seen.predicted_mbps,
            seen.spilled,
            seen.expected_mbps,
            self._changes_of(a, b),
            self._log.history_of(a, b, MOST_HAPPENINGS),
            self._quarantine.entries(),
            time.time(),
            seen.source is DemandSource.MEASURED,
            self._reach.at_risk([rack_pair(a, b)], None, {a, b}),
        )
        return explain(evidence, a, b)

    def note_login(self, operator: str, address: str) -> None:
        self._log.note(HappeningKind.LOGIN, f"{operator} (operator) came, from {address}")

    def delivery(self, reservation_id: str) -> Delivery:
        one = self.reservation(reservation_id)
        if isinstance(one, Bundle):
            return delivery_of(one, self._policing.deliveries(one.parts))
        return self._policing.delivery(one)

    def deliveries(self) -> Sequence[Delivery]:
        return self._policing.deliveries(self._bookings.active())

    def drift(self) -> DriftReport:
        return self._conductor.ask(self._auditor.look)

    def reconcile(self) -> Reconciliation:
        return self._conductor.ask(self._mend)

    def _mend(self) -> Reconciliation:
        done = self._auditor.mend()
        if done.reconfigurations:
            self._placement.restore()
        return done

    def settle_task(self, device: str, task_id: int, state: TaskState, note: str) -> Task:
        settled = self._panels.settle(device, task_id, state, note)
        self._conductor.put(self._hear_people)
        return settled

    def quarantine(self) -> Sequence[QuarantinedPort]:
        return [_seen_now(entry) for entry in self._quarantine.entries()]

    def set_aside(self, rack: str, tor_port: str, reason: str) -> QuarantinedPort:
        return _seen_now(self._quarantine.set_aside(rack, tor_port, reason))

    def clear_quarantine(self, rack: str, tor_port: str) -> QuarantinedPort:
        return _seen_now(self._quarantine.clear(rack, tor_port))


def delivery_of(bundle: Bundle, deliveries: Sequence[Delivery]) -> Delivery:
    """The rates of a bundle's parts together; None where not all are known."""
    there = [one.there_mbps for one in deliveries]
    back = [one.back_mbps for one in deliveries]
    unheld = sorted({name for one in deliveries for name in one.unheld})
    return Delivery(bundle, _together(there), _together(back), tuple(unheld))


def _together(rates_mbps: Sequence[float | None]) -> float | None:
    known = [mbps for mbps in rates_mbps if mbps is not None]
    return sum(known) if len(known) == len(rates_mbps) else None


def _seen_now(entry: Quarantined) -> QuarantinedPort:
    return QuarantinedPort(entry, on_trial=not entry.blocks(time.time()))
