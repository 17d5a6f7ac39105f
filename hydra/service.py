"""The services of the controller for REST, the command line and tests.

The methods of :class:`ControllerService` are thread-safe. Except for reads, methods only *queue*
work: reconfigurations run in sequence, never interleaved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from hydra.faults.condition import Condition
from hydra.faults.quarantine import Quarantined
from hydra.history import Happening, HappeningKind
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReconfigurationState
from hydra.model import (
    Circuit,
    DemandMatrix,
    Fabric,
    NetworkState,
    PlaneId,
    PortId,
    RackId,
    Topology,
)
from hydra.policy import DemandBasis, Policy, Sharing, SharingChoice
from hydra.reconfiguration.course_choice import Way
from hydra.reconfiguration.drift import Drift
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.stages import Stage
from hydra.reservations.availability import Available
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Reservation, ReservationRequest
from hydra.reservations.shapes import Shape, ShapeRequest
from hydra.roles import Alarm, Task, TaskState
from hydra.sharing.given_schedule import GivenSchedule
from hydra.sharing.slots import Schedule, Week

if TYPE_CHECKING:
    from hydra.config.reload import Reload  # with all that reads files, which a planner does not


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The demand for a topology, and the parts of the network that may be touched.

    ``demand`` is None for the measured demand. ``racks`` and ``planes`` are None for all; otherwise
    circuits outside stay in place (partial reconfiguration, HydRA section III.B). ``use_planes``
    are the planes with circuits afterwards, None for all: touchable circuits on other planes are
    torn down (to empty a plane for maintenance, or to force a change).
    """

    demand: DemandMatrix | None = None
    racks: frozenset[RackId] | None = None
    planes: frozenset[PlaneId] | None = None
    use_planes: frozenset[PlaneId] | None = None
    algorithm: str | None = None
    only_if_it_pays: bool = False
    hold: frozenset[tuple[RackId, RackId]] = frozenset()
    """Rack pairs, lower first, whose paths stay in place."""
    weights: DemandMatrix | None = None
    """Weights for planning in place of ``demand``, no unit; gain and cost refer to ``demand``."""
    mice_electrical: bool = False
    """Circuits are for elephants only: a pair with a path also uses the electrical network."""
    topology: Topology | None = None
    """Circuits and paths to make in place of planned circuits and paths. Circuits out of reach, and
    circuits of reservations, also stay.
    """


@dataclass(frozen=True, slots=True)
class CircuitShares:
    """Share of a demand on circuits, without the electrical network, and the proven limit."""

    served_share: float
    """Share of the pairs' demand that fits on the circuits of the paths; for a bidirectional pair,
    the larger direction counts.
    """
    served_share_bound: float | None
    """Upper bound of the share for any plan of the fabric; None: not computed."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A dry run: the target and the necessary changes."""

    plan: Plan
    rules: int
    served_mbps: float
    demand_mbps: float
    verdict: Verdict
    planning_ms: float
    way: Way
    """The courses that the change would take without failures."""
    at_risk: tuple[str, ...] = ()
    """Missing devices and switches that the plan needs, in words."""
    stages: tuple[Stage, ...] = ()
    """Stages under present traffic; empty if no traffic is measured."""
    on_circuits: CircuitShares | None = None
    """None: not computed."""


class DemandSource(StrEnum):
    MEASURED = "measured"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DemandReport:
    """Present rack-to-rack demand; matrices in Mbps."""

    source: DemandSource
    rate_mbps: DemandMatrix
    """Exponentially weighted counter rates."""
    estimated_mbps: DemandMatrix
    """Mbps that elephants want, 0 for mice. By :attr:`basis`: the sent rate with some head-room if
    the way was not full, otherwise the max-min fair share of an ideal switch (after Hedera, section
    4.1); or the sent rate; or the backlog.
    """
    age_s: float | None
    stale: tuple[str, ...]
    """Servers with late counters; their last known rates are used."""
    troubles: Mapping[str, int] = field(default_factory=dict)
    """Number of missing or unusable readings and reports since the start, by cause."""
    backlog_mbps: DemandMatrix | None = None
    """Backlog reported by agents, as a rate beside the counted rate; None: no agent was asked."""
    constrained: NDArray[np.bool_] | None = None
    """Elephants limited by a full resource, shape (N, N): their demand exceeds the sent rate, so
    the estimate is a guess. None: no information about full resources.
    """
    unsure: NDArray[np.bool_] | None = None
    """Pairs with late or too few readings, shape (N, N). None: no such pairs."""
    basis: DemandBasis = DemandBasis.ESTIMATE
    """``policy.demand``, the basis of :attr:`estimated_mbps`."""
    predicted_mbps: DemandMatrix | None = None
    """Predicted mean for the duration that a decision counts on; None: no prediction."""
    error_mbps: DemandMatrix | None = None
    """Mean absolute error of the prediction by pair; None: not known yet."""
    error_share: float | None = None
    """Sum of absolute errors of all pairs, as a share of the demand; None: not known yet."""

    spilled: DemandMatrix | None = None
    """Electrical share of the flows of pairs with full circuits; None: no spilled flows."""
    expected_mbps: DemandMatrix | None = None
    """Expected mean demand of elephants, at most :attr:`estimated_mbps`: the weight of guesses in
    planning. None: :attr:`estimated_mbps` is no guess.
    """

    @property
    def planned_mbps(self) -> DemandMatrix:
        """Demand for planning, Mbps of shape (N, N)."""
        return self.estimated_mbps if self.predicted_mbps is None else self.predicted_mbps

    @property
    def counted_on_mbps(self) -> DemandMatrix:
        """Demand for comparing pairs in planning, Mbps of shape (N, N).

        The planned demand, with guesses reduced to the expected share.
        """
        planned, estimated = self.planned_mbps, self.estimated_mbps
        if self.expected_mbps is None:
            return planned
        part = np.ones_like(estimated)
        np.divide(self.expected_mbps, estimated, out=part, where=estimated > 0)
        return planned * part

    @property
    def doubted(self) -> NDArray[np.bool_]:
        """:attr:`unsure`, with False everywhere in place of None."""
        return np.zeros(self.rate_mbps.shape, dtype=bool) if self.unsure is None else self.unsure


@dataclass(frozen=True, slots=True)
class StepTiming:
    """A step of a reconfiguration; times in ms from the start of the reconfiguration."""

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
    """Circuits that could not be made."""
    troubles: tuple[Failure, ...] = ()
    """All failures of the reconfiguration, without duplicates."""
    unconfirmed: tuple[str, ...] = ()
    """Names of devices that did not confirm a step."""
    reason: str = ""
    """The reason of the refusal or failure, or of the decision."""
    started_unix_s: float | None = None
    """Time of planning and of the first step; start of the timeline."""
    stages_done: int = 0
    """Number of completed stages; each stage except the last is a separate reconfiguration."""
    stages_expected: int | None = 1
    """Expected number of stages; None: unforeseeable."""
    paused: bool = False
    """True if the next stage waits for a resume."""

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
    """Alarms at the last query of the device."""
    answers: bool = True
    """False if the connection stands and an answer is overdue."""


@dataclass(frozen=True, slots=True)
class QuarantinedPort:
    """A port in quarantine, with the present status."""

    entry: Quarantined
    on_trial: bool
    """True if the quarantine time is over: plans may use the port, and the next circuit there
    decides.
    """


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Differences between the wanted and the present state of devices and vswitches."""

    items: tuple[Drift, ...]
    silent: tuple[str, ...]
    """Devices and vswitches that did not answer: their state is unknown."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    found: DriftReport
    left: DriftReport
    """Remaining differences."""
    reconfigurations: tuple[str, ...]
    """Ids of the reconfigurations that were needed."""


@dataclass(frozen=True, slots=True)
class ReservationPreview:
    """The reservation that a request would create, and the circuit changes at the start."""

    reservation: Reservation
    connect: AbstractSet[Circuit]
    disconnect: AbstractSet[Circuit]
    at_risk: tuple[str, ...] = ()
    """Missing devices and switches that the reservation needs, in words."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivered rates of a reservation, counted at both ends."""

    reservation: Reservation
    there_mbps: float | None
    """Rate from ``src`` to ``dst``; None: unknown, or not known yet."""
    back_mbps: float | None
    unheld: tuple[str, ...]
    """Servers on the circuits whose vswitches cannot enforce the share."""


@dataclass(frozen=True, slots=True)
class Refusal:
    request: ReservationRequest
    error: AdmissionError


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The outcome of a group of reservations."""

    group: str
    admitted: tuple[Reservation, ...]
    refused: tuple[Refusal, ...]


class ReservationService(Protocol):
    """The services available to tenants."""

    @property
    def fabric(self) -> Fabric: ...

    @property
    def events(self) -> EventLog: ...

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Admit and queue; a repeated retry key returns the same reservation again.

        Raises AdmissionError (including DeviceMissing), UnknownName, WrongRequest,
        DeviceUnavailable, KeyReused.
        """

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        """Admit a group of reservations. Raises the errors of :meth:`reserve`."""

    def reserve_shape(self, shape: ShapeRequest) -> GroupOutcome:
        """Admit a shape as a group: all pairs or none. Raises the errors of :meth:`reserve`."""

    def availability(self, request: ReservationRequest) -> Sequence[Available]:
        """The bandwidth, up to the request's, that fits in each span of the request's time.

        Raises UnknownName, and AdmissionError for ends that can't be joined.
        """

    def shape(self, shape_id: str) -> Shape:
        """The shape of a group, with the racks that fit now if edges are lost. Raises
        UnknownName.
        """

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        """Dry run of :meth:`reserve`; raises the same errors."""

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Commit a held reservation.

        Raises UnknownName, LifecycleError, and Changed if the reservation differs from ``seen``.
        """

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        """Change a reservation without an interruption, if the reservation equals ``seen``.

        Raises UnknownName, WrongRequest, LifecycleError, Changed and AdmissionError, including
        NotHitless if the circuits would have to change.
        """

    def group(self, group: str) -> Sequence[Reservation]:
        """Reservations of a group. Raises UnknownName."""

    def reservations(self) -> Sequence[Reservation]: ...

    def reservation(self, reservation_id: str) -> Reservation:
        """A reservation by id. Raises UnknownName."""

    def delivery(self, reservation_id: str) -> Delivery:
        """Delivered rates of a reservation, for comparison with the promise. Raises UnknownName."""

    def deliveries(self) -> Sequence[Delivery]:
        """Deliveries of all reservations that have or are getting circuits."""

    def usage(self, owner: str) -> Usage:
        """Usage of a tenant, for comparison with the quota."""

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Release. Raises UnknownName, LifecycleError, Changed if the reservation differs from
        ``seen``.
        """

    def release_group(self, group: str) -> Sequence[Reservation]:
        """Release all reservations of a group, and return the group; reservations that are over
        stay as they are. Raises UnknownName.
        """


class PlanningService(Protocol):
    """The present and possible network: demand, plans, changes, decisions."""

    @property
    def policy(self) -> Policy: ...

    def state(self) -> NetworkState: ...

    def demand(self) -> DemandReport: ...

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        """Mbps that each optical ToR port sends, by the last poll; absent if unknown."""

    def load(self, racks: Collection[RackId], most: int) -> Load:
        """The last hour of the ``most`` busiest circuits and pairs whose ends include ``racks``,
        two racks at most. For two racks: both directions, known or unknown.
        """

    def plan(self, request: PlanRequest) -> PlanReport:
        """Dry run; changes nothing. Raises PlanError, UnknownName."""

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        """Queue a reconfiguration; poll :meth:`reconfiguration` for the end."""

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        """Remembered reconfigurations, newest first."""

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        """A reconfiguration by id. Raises UnknownName."""

    def stop(self, reconfiguration_id: str, by: str) -> Reconfiguration:
        """End a change after the stage under way. Raises UnknownName; LifecycleError if the change
        is over or in the last stage.
        """

    def pause(self, reconfiguration_id: str, paused: bool) -> Reconfiguration:
        """Begin no further stage of a change, or resume. Raises UnknownName; LifecycleError if the
        change is over or in the last stage.
        """

    def decisions(self) -> Sequence[Decision]:
        """Remembered decisions to change or to keep, newest first."""

    def sharing(self) -> SharingChoice:
        """The way of sharing in force, and the reason."""

    def schedule(self) -> Schedule:
        """The schedule of the slotted mode, and the present slot."""

    def give_schedule(self, given: GivenSchedule, *, dry_run: bool = False) -> Week:
        """Follow a given schedule instead of the policy's mode and sharing, until
        :meth:`end_schedule`, another given schedule, or the next start.

        Returns the schedule with its expectations; ``dry_run`` changes nothing else. Raises
        PlanError if a slot leaves no day or can't be set up, DeviceUnavailable if changes under way
        take too long.
        """

    def end_schedule(self) -> None:
        """Go back to the policy; circuits of the last slot stay until something else moves them.

        Raises DeviceUnavailable if changes under way take too long.
        """


class OperationsService(Protocol):
    """The services for operators: devices, faults, policy, quarantine."""

    @property
    def agents(self) -> AgentService: ...

    def history(
        self,
        since_unix_s: float,
        before_unix_s: float,
        kinds: Collection[HappeningKind],
        most: int,
    ) -> Sequence[Happening]:
        """Lines of the history in a time interval, newest first; empty ``kinds``: all."""

    def note_login(self, operator: str, address: str) -> None:
        """Note the login of an operator, and the address, in the history."""

    def devices(self) -> Collection[DeviceStatus]: ...

    def not_ready(self) -> Sequence[str]:
        """Reasons why no requests are accepted; empty when ready, even if devices are missing."""

    def missing(self) -> Sequence[str]:
        """Missing or lagging parts of the network, in words; empty when complete."""

    def conditions(self) -> Sequence[Condition]:
        """All faults, the most urgent first; empty when healthy."""

    def drift(self) -> DriftReport:
        """Read all devices and compare; changes nothing. Waits for the change under way.

        Raises DeviceUnavailable if the change takes too long.
        """

    def reconcile(self) -> Reconciliation:
        """Repair the differences of :meth:`drift`. Raises DeviceUnavailable, JournalError."""

    def share(self, sharing: Sharing) -> None:
        """Set the way of sharing circuits, until the next start or reload.

        Raises PlanError for slots without a day, DeviceUnavailable if changes under way take too
        long.
        """

    def amend(self, changes: Mapping[str, object]) -> None:
        """Set policy values, until the next start or reload.

        Raises DeviceUnavailable if changes under way take too long.
        """

    def reload(self, *, dry_run: bool = False) -> Reload:
        """Read the configuration file again, and apply keys that touch no traffic, or report the
        others.

        Raises ConfigError for an unusable file, and keeps the present policy; DeviceUnavailable if
        changes under way take too long.
        """

    def tasks(self, device: str) -> Sequence[Task]:
        """Tasks for people at an optical switch, oldest first. Raises UnknownName."""

    def settle_task(self, device: str, task_id: int, state: TaskState, note: str) -> Task:
        """Settle a task as reported by a person. Raises UnknownName, LifecycleError."""

    def quarantine(self) -> Sequence[QuarantinedPort]: ...

    def set_aside(self, rack: str, tor_port: str, reason: str) -> QuarantinedPort:
        """Exclude a port from planning until cleared; a circuit there stays.

        Raises UnknownName, JournalError.
        """

    def clear_quarantine(self, rack: str, tor_port: str) -> QuarantinedPort:
        """Free a port; return its former entry. Raises UnknownName, JournalError."""


class ControllerService(ReservationService, PlanningService, OperationsService, Protocol):
    """All services of the controller for REST."""

    def explain(self, a: RackId, b: RackId) -> Explanation:
        """The reasons for the present connection of two racks."""
