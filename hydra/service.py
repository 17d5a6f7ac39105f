"""The controller's services to whoever asks: REST, the command line, tests.

The methods of :class:`ControllerService` are thread-safe. Apart from the reads they only *queue*
work: reconfigurations are carried out one after the other, never interleaved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from hydra.decisions.decision import Decision, Verdict
from hydra.decisions.explanation import Explanation
from hydra.demand.agent_protocol import AgentService
from hydra.demand.load import Load
from hydra.errors import AdmissionError
from hydra.events import EventLog
from hydra.failures import Failure
from hydra.faults.conditions import Condition
from hydra.faults.quarantine import Quarantined
from hydra.history import Happening, HappeningKind
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReconfigurationState
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, PlaneId, PortId, RackId
from hydra.policy import DemandBasis, Policy, Sharing, SharingChoice
from hydra.reconfiguration.drift import Drift
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.stages import Stage
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Reservation, ReservationRequest
from hydra.roles import Alarm, Task, TaskState
from hydra.sharing.slots import Schedule

if TYPE_CHECKING:
    from hydra.config.reload import Reload  # with all that reads files, which a planner does not


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The demand that a topology is wanted for, and the parts that may be touched to get it.

    ``demand`` is None for the measured one. ``racks`` and ``planes`` are None for all; otherwise
    circuits outside them stay as they are (partial reconfiguration, HydRA section III.B).
    ``use_planes`` is where circuits may be afterwards, None for everywhere: circuits that may be
    touched and lie elsewhere are torn down (to empty a plane for maintenance, to force a change).
    """

    demand: DemandMatrix | None = None
    racks: frozenset[RackId] | None = None
    planes: frozenset[PlaneId] | None = None
    use_planes: frozenset[PlaneId] | None = None
    algorithm: str | None = None
    only_if_it_pays: bool = False
    hold: frozenset[tuple[RackId, RackId]] = frozenset()
    """Rack pairs, lower first, whose paths stay where they are."""
    weights: DemandMatrix | None = None
    """Weights to plan for in place of ``demand``, no unit; gain and cost are told of ``demand``."""
    mice_apart: bool = False
    """Circuits are for elephants alone: a pair with a path has the electrical network besides."""


@dataclass(frozen=True, slots=True)
class CircuitShares:
    """Part of a demand on circuits, without the electrical network, beside the proven limit."""

    served_share: float
    """Part of the pairs' demand that fits on the circuits of their paths; a pair joined both ways
    wants the larger of its two directions."""
    served_share_bound: float | None
    """The part that no plan for this fabric can exceed; None: not computed."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A dry run: the target and what it would take to get there."""

    plan: Plan
    rules: int
    served_mbps: float
    demand_mbps: float
    verdict: Verdict
    planning_ms: float
    at_risk: tuple[str, ...] = ()
    """Devices and switches that are missing for it, in words."""
    stages: tuple[Stage, ...] = ()
    """Stages in which it would be made with the traffic of now; empty where none is measured."""
    on_circuits: CircuitShares | None = None
    """None: not computed."""


class DemandSource(StrEnum):
    MEASURED = "measured"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DemandReport:
    """Rack-to-rack demand as the controller sees it now; matrices in Mbps."""

    source: DemandSource
    rate_mbps: DemandMatrix
    """Exponentially weighted counter rates."""
    estimated_mbps: DemandMatrix
    """Mbps that elephants want, as :attr:`basis` has it: what they send and some head-room if
    nothing on their way was full, else their max-min fair share of an ideal switch (after Hedera,
    section 4.1); or what they send; or what waits. 0 for mice."""
    age_s: float | None
    stale: tuple[str, ...]
    """Servers whose counters are late: their last known rates stand in."""
    troubles: Mapping[str, int] = field(default_factory=dict)
    """Readings and reports that did not come or could not be used since the start, by cause."""
    backlog_mbps: DemandMatrix | None = None
    """Traffic that servers' agents have waiting, as a rate beside the counted one; None: nobody was
    asked."""
    constrained: NDArray[np.bool_] | None = None
    """Elephants that something full holds back, shape (N, N): they send less than they want, so
    that their estimate is a guess. None: nothing is known of what was full."""
    unsure: NDArray[np.bool_] | None = None
    """Pairs whose readings are late, or too few yet, shape (N, N). None: none are."""
    basis: DemandBasis = DemandBasis.ESTIMATE
    """``policy.demand``, by which :attr:`estimated_mbps` was found."""
    predicted_mbps: DemandMatrix | None = None
    """Mean that is foretold for the time that a decision counts on; None: nothing is foretold."""
    error_mbps: DemandMatrix | None = None
    """Mean absolute error of that, pair by pair; None: not known yet."""
    error_share: float | None = None
    """Absolute errors of all pairs together, as a part of what they wanted; None: not known yet."""

    spilled: DemandMatrix | None = None
    """Part of the flows of pairs with full circuits that is electrical; None: nothing is."""
    expected_mbps: DemandMatrix | None = None
    """Mean of what elephants may want, at most :attr:`estimated_mbps`: by how much plans prefer
    one guess to another. None: :attr:`estimated_mbps` is no guess."""

    @property
    def planned_mbps(self) -> DemandMatrix:
        """Demand that is planned for, Mbps of shape (N, N)."""
        return self.estimated_mbps if self.predicted_mbps is None else self.predicted_mbps

    @property
    def counted_on_mbps(self) -> DemandMatrix:
        """Demand by which plans prefer one pair to another, Mbps of shape (N, N).

        It is what is planned for, and of guesses that part of it which is expected.
        """
        planned, estimated = self.planned_mbps, self.estimated_mbps
        if self.expected_mbps is None:
            return planned
        part = np.ones_like(estimated)
        np.divide(self.expected_mbps, estimated, out=part, where=estimated > 0)
        return planned * part

    @property
    def doubted(self) -> NDArray[np.bool_]:
        """:attr:`unsure`, with False everywhere if that is None."""
        return np.zeros(self.rate_mbps.shape, dtype=bool) if self.unsure is None else self.unsure

    @property
    def known_mbps(self) -> DemandMatrix:
        """Traffic that is sent and that waits, Mbps of shape (N, N)."""
        if self.backlog_mbps is None:
            return self.rate_mbps
        return self.rate_mbps + self.backlog_mbps


@dataclass(frozen=True, slots=True)
class StepTiming:
    """A step of a reconfiguration; times in ms from the reconfiguration's start."""

    step: str
    device: str | None
    """None: the step as a whole."""
    started_ms: float
    finished_ms: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class CircuitFailure:
    circuit: Circuit
    failure: Failure


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """A reconfiguration, queued, under way or done."""

    id: str
    state: ReconfigurationState
    trigger: str
    """The cause: ``operator``, ``reservation …``, ``periodic``, ``start-up``."""
    epoch: int
    created_unix_s: float
    timeline: tuple[StepTiming, ...] = ()
    rules_pushed: int = 0
    ports_retagged: int = 0
    connected: frozenset[Circuit] = frozenset()
    disconnected: frozenset[Circuit] = frozenset()
    failures: tuple[CircuitFailure, ...] = ()
    """Circuits that it did not make."""
    troubles: tuple[Failure, ...] = ()
    """Everything that failed in it, once each."""
    unconfirmed: tuple[str, ...] = ()
    """Devices that did not confirm a step, by name."""
    reason: str = ""
    """The reason why it was refused or failed, or that of the decision."""
    started_unix_s: float | None = None
    """The moment at which it was planned and its first step began; the timeline counts from it."""
    stages_done: int = 0
    """Stages that have been made; each of them but the last is a reconfiguration of its own."""
    stages_expected: int | None = 1
    """Stages in all, as foreseen; None: more than could be."""
    paused: bool = False
    """True if no further stage begins until somebody says so."""

    @property
    def is_over(self) -> bool:
        return not RECONFIGURATION_TRANSITIONS[self.state]


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    name: str
    kind: str
    """``optical-switch``, ``tor`` or ``vswitch``."""
    driver: str
    connected: bool
    detail: str = ""
    alarms: tuple[Alarm, ...] = ()
    """Alarms of the device when it was last asked."""
    answers: bool = True
    """False if its connection stands, and it owes an answer whose time is up."""


@dataclass(frozen=True, slots=True)
class QuarantinedPort:
    """A port in quarantine, as it is now."""

    entry: Quarantined
    on_trial: bool
    """True if its time is up: it may be planned with, and the next circuit there decides."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Differences of devices and vswitches from what the controller wants of them."""

    items: tuple[Drift, ...]
    silent: tuple[str, ...]
    """Devices and vswitches that did not answer: nothing is known of them."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    found: DriftReport
    left: DriftReport
    """Differences that could not be mended."""
    reconfigurations: tuple[str, ...]
    """Ids of the reconfigurations that it took."""


@dataclass(frozen=True, slots=True)
class ReservationPreview:
    """A reservation as it would become, and the circuits that its start would change."""

    reservation: Reservation
    connect: frozenset[Circuit]
    disconnect: frozenset[Circuit]
    at_risk: tuple[str, ...] = ()
    """Devices and switches that are missing for it, in words."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rates that a reservation gets, as counted at its ends."""

    reservation: Reservation
    there_mbps: float | None
    """Rate from ``src`` to ``dst``; None: not known, or not yet."""
    back_mbps: float | None
    unheld: tuple[str, ...]
    """Servers that share its circuits, and whose vswitches can't hold them to their part."""


@dataclass(frozen=True, slots=True)
class Refusal:
    request: ReservationRequest
    error: AdmissionError


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The outcome of reservations that were asked for as one."""

    group: str
    admitted: tuple[Reservation, ...]
    refused: tuple[Refusal, ...]


class ReservationService(Protocol):
    """The part of the controller that tenants may use."""

    @property
    def fabric(self) -> Fabric: ...

    @property
    def events(self) -> EventLog: ...

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Admit and queue; a request whose retry key came before returns its reservation again.

        Raises AdmissionError (DeviceMissing among them), UnknownName, DeviceUnavailable, KeyReused.
        """

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        """Admit many as one group. Raises what :meth:`reserve` raises."""

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        """Dry run of :meth:`reserve`; raises what it raises."""

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Make a held reservation one that stays.

        Raises UnknownName, LifecycleError, and Changed if it is not as it was ``seen``.
        """

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        """Change a reservation without an interruption, if it is still as it was ``seen``.

        Raises UnknownName, LifecycleError, Changed, AdmissionError; NotHitless among them, where
        its circuits would have to change.
        """

    def group(self, group: str) -> Sequence[Reservation]:
        """Reservations of a group. Raises UnknownName."""

    def reservations(self) -> Sequence[Reservation]: ...

    def reservation(self, reservation_id: str) -> Reservation:
        """A reservation by its id. Raises UnknownName."""

    def delivery(self, reservation_id: str) -> Delivery:
        """Rates that a reservation gets beside those it was promised. Raises UnknownName."""

    def deliveries(self) -> Sequence[Delivery]:
        """Deliveries of all that have, or are getting, circuits."""

    def usage(self, owner: str) -> Usage:
        """Usage of a tenant, to be held against its quota."""

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Let go. Raises UnknownName, LifecycleError, Changed if it is not as it was ``seen``."""


class PlanningService(Protocol):
    """The network as it is and as it could be: demand, plans, changes, decisions."""

    @property
    def policy(self) -> Policy: ...

    def state(self) -> NetworkState: ...

    def demand(self) -> DemandReport: ...

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        """Mbps that each optical ToR port sends, as last polled; absent where unknown."""

    def load(self, racks: Collection[RackId], most: int) -> Load:
        """The last hour of ``most`` circuits and pairs with these racks, two at most, at their
        ends; of two racks, of both directions, known or not.
        """

    def plan(self, request: PlanRequest) -> PlanReport:
        """Dry run; changes nothing. Raises PlanError, UnknownName."""

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        """Queue a reconfiguration; poll :meth:`reconfiguration` for its end."""

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        """Reconfigurations, as far as they are remembered; newest first."""

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        """A reconfiguration by its id. Raises UnknownName."""

    def stop(self, reconfiguration_id: str, by: str) -> Reconfiguration:
        """End a change after the stage under way. Raises UnknownName, LifecycleError if it is in
        its last one, or over.
        """

    def pause(self, reconfiguration_id: str, paused: bool) -> Reconfiguration:
        """Begin no further stage of a change, or go on. Raises UnknownName, LifecycleError if it is
        in its last one, or over.
        """

    def decisions(self) -> Sequence[Decision]:
        """Decisions to change or to keep, as far as they are remembered; newest first."""

    def sharing(self) -> SharingChoice:
        """The way of sharing that is in force, and why."""

    def schedule(self) -> Schedule:
        """The schedule of the slotted mode, and its present slot."""


class OperationsService(Protocol):
    """What operators see and do: devices, what is wrong, the policy, ports left out."""

    @property
    def agents(self) -> AgentService: ...

    def history(
        self,
        since_unix_s: float,
        before_unix_s: float,
        kinds: Collection[HappeningKind],
        most: int,
    ) -> Sequence[Happening]:
        """Lines of the history in that time, newest first; ``kinds``: none for all."""

    def note_login(self, operator: str, address: str) -> None:
        """Note in the history that an operator came, and from where."""

    def devices(self) -> Collection[DeviceStatus]: ...

    def not_ready(self) -> Sequence[str]:
        """Reasons why no requests are taken; empty when ready, whatever devices are away."""

    def missing(self) -> Sequence[str]:
        """Parts of the network that are away or behind, in words; empty when all are there."""

    def conditions(self) -> Sequence[Condition]:
        """All that is wrong, the most urgent first; empty when healthy."""

    def drift(self) -> DriftReport:
        """Read all devices and compare; changes nothing. Waits for the change under way.

        Raises DeviceUnavailable if that takes too long.
        """

    def reconcile(self) -> Reconciliation:
        """Mend what :meth:`drift` finds. Raises DeviceUnavailable, JournalError."""

    def share(self, sharing: Sharing) -> None:
        """Share circuits like this from now on, until the next start or reload.

        Raises PlanError for slots that leave no day, DeviceUnavailable if changes under way take
        too long.
        """

    def amend(self, changes: Mapping[str, object]) -> None:
        """Go on with these values of the policy, until the next start or reload.

        Raises DeviceUnavailable if changes under way take too long.
        """

    def reload(self, *, dry_run: bool = False) -> Reload:
        """Read the configuration file again and apply keys that touch no traffic, or say which.

        Raises ConfigError if it can't be used, and goes on with the present policy then;
        DeviceUnavailable if changes under way take too long.
        """

    def tasks(self, device: str) -> Sequence[Task]:
        """Tasks given to people at an optical switch, oldest first. Raises UnknownName."""

    def settle_task(self, device: str, task_id: int, state: TaskState, note: str) -> Task:
        """Settle a task, as a person says. Raises UnknownName, LifecycleError."""

    def quarantine(self) -> Sequence[QuarantinedPort]: ...

    def set_aside(self, rack: str, tor_port: str, reason: str) -> QuarantinedPort:
        """Leave a port out of planning until it is cleared; a circuit there stays.

        Raises UnknownName, JournalError.
        """

    def clear_quarantine(self, rack: str, tor_port: str) -> QuarantinedPort:
        """Free a port; returns its former entry. Raises UnknownName, JournalError."""


class ControllerService(ReservationService, PlanningService, OperationsService, Protocol):
    """All of the controller that REST may ask."""

    def explain(self, a: RackId, b: RackId) -> Explanation:
        """The reasons why two racks are joined as they are."""
