"""Bodies of the REST API. Units are in the names; racks and planes go by name."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from hydra.access import Role
from hydra.config.reload import BY_REQUEST
from hydra.config.schema import policy_model
from hydra.decisions.decision import Action
from hydra.events import EventKind
from hydra.failures import FailureKind
from hydra.faults.conditions import ConditionKind
from hydra.history import HappeningKind
from hydra.lifecycle import ReconfigurationState, ReservationState
from hydra.policy import DemandBasis, Prediction
from hydra.reconfiguration.drift import DriftKind
from hydra.reservations.reservation import LATEST_UNIX_S, ServiceClass
from hydra.roles import Severity, TaskState
from hydra.service import DemandSource

LONGEST_HOLD_S: Final = 3600.0
MOST_ENTRIES: Final = 10_000

Name = Annotated[str, Field(min_length=1, max_length=255)]
Names = Annotated[list[Name], Field(min_length=1, max_length=MOST_ENTRIES, fail_fast=True)]


class Body(BaseModel):
    """Requests: nothing is coerced, nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Document(BaseModel):
    """Responses."""

    model_config = ConfigDict(frozen=True)


# --- requests -------------------------------------------------------------------------------


_ONE_END: Final[JsonDict] = {
    "not": {
        "required": ["duration_s", "end_unix_s"],
        "properties": {"duration_s": {"type": "number"}, "end_unix_s": {"type": "number"}},
    }
}
"""``Span``'s validator, for those who read the schema."""


class Span(Body):
    """When reservations begin and end."""

    model_config = ConfigDict(json_schema_extra=_ONE_END)

    start_unix_s: float | None = Field(
        default=None, ge=0, le=LATEST_UNIX_S, description="Null: now."
    )
    end_unix_s: float | None = Field(
        default=None, gt=0, le=LATEST_UNIX_S, description="Instead of duration_s."
    )
    duration_s: float | None = Field(
        default=None, gt=0, description="Counted from the start; without either, until deleted."
    )
    hold_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_HOLD_S,
        description="Only hold, for this long; what is not committed by then goes.",
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.duration_s is not None and self.end_unix_s is not None:
            raise PydanticCustomError("two_ends", "give duration_s or end_unix_s, not both")
        return self


class ReservationBody(Span):
    """A bandwidth between two racks, or between two servers."""

    src: Name = Field(description="Name of a rack or of a server.")
    dst: Name = Field(description="Name of a rack or of a server, in another rack.")
    bandwidth_mbps: float = Field(gt=0, description="Held in both directions.")
    minimum_mbps: float | None = Field(
        default=None,
        gt=0,
        description="Less than bandwidth_mbps will do, down to this: the most that fits is held.",
    )
    priority: int = Field(
        default=0, ge=0, le=9, description="Those of lower priority give way, with notice."
    )
    service: Annotated[ServiceClass, Field(strict=False)] = Field(
        default=ServiceClass.SHARED,
        description="guaranteed: circuits of its own; shared: its bandwidth, on circuits that "
        "others may use, too; best-effort: a path while there is one to spare.",
    )
    dry_run: bool = Field(default=False, description="Only say what would come of it.")


class ModificationBody(Body):
    """Changes to a reservation; what is left out, or null, stays."""

    bandwidth_mbps: float | None = Field(default=None, gt=0)
    src: Name | None = Field(default=None, description="A rack, or another server of its rack.")
    dst: Name | None = None
    end_unix_s: float | None = Field(default=None, gt=0, le=LATEST_UNIX_S)


class MatrixEntry(Body):
    """A bandwidth between two racks, or between two servers, as part of a whole."""

    src: Name
    dst: Name
    bandwidth_mbps: float = Field(gt=0, description="Held in both directions.")
    minimum_mbps: float | None = Field(
        default=None, gt=0, description="Less will do, down to this."
    )


class Repeat(Body):
    """The same time again and again."""

    every_s: float = Field(ge=60, le=366 * 86_400, description="From one start to the next.")
    times: int = Field(ge=2, le=1000, description="Including the first.")


class GroupBody(Span):
    """A whole traffic matrix, such as that of a job, for the same time."""

    entries: Annotated[list[MatrixEntry], Field(fail_fast=True)] = Field(
        min_length=1, max_length=MOST_ENTRIES
    )
    priority: int = Field(
        default=0, ge=0, le=9, description="Those of lower priority give way, with notice."
    )
    service: Annotated[ServiceClass, Field(strict=False)] = Field(
        default=ServiceClass.SHARED, description="As for a single reservation."
    )
    repeat: Repeat | None = Field(
        default=None, description="Not only once; start and end have to be given."
    )
    all_or_nothing: bool = Field(
        default=True, description="False: admit those that fit, and list the others."
    )


class DemandEntry(Body):
    """Demand from one rack to another; the way back is an entry of its own."""

    src: Name
    dst: Name
    mbps: float = Field(ge=0)


_Row = Annotated[list[Annotated[float, Field(ge=0)]], Field(fail_fast=True)]


class DemandMatrix(Body):
    """Demand between all pairs of racks, in a fraction of the space that entries take."""

    racks: Names | None = Field(
        default=None, description="Of the rows and columns. Null: as in the topology."
    )
    mbps: Annotated[list[_Row], Field(fail_fast=True)] = Field(
        description="From the row's rack to the column's; the diagonal is zero."
    )


class PlanBody(Body):
    """Demand that a topology is wanted for, and what may be touched to get it."""

    demand: Annotated[list[DemandEntry], Field(fail_fast=True)] | None = Field(
        default=None, description="Null: the measured demand. Pairs left out have none."
    )
    demand_matrix: DemandMatrix | None = Field(
        default=None, description="Instead of `demand`. Racks left out have none."
    )
    planes: Names | None = Field(default=None, description="Only these may change. Null: all.")
    racks: Names | None = Field(default=None, description="Only these may change. Null: all.")
    use_planes: Names | None = Field(
        default=None,
        description="Circuits that may change end up on these only. Null: on any.",
    )
    algorithm: Name | None = Field(default=None, description="Null: the configured one.")
    only_if_it_pays: bool = False


class ReconcileBody(Body):
    """Nothing can be chosen."""


@policy_model(only=BY_REQUEST)
class PolicyBody(Body):
    """Values of the policy that only later decisions rest on, as in the configuration file."""


class ReloadBody(Body):
    """Whether to do it."""

    dry_run: bool = Field(default=False, description="Only say what it would change.")


class QuarantineBody(Body):
    """Why a port is set aside."""

    reason: str = Field(min_length=1, max_length=200)


class CourseBody(Body):
    """Whether a change in stages waits, after the one under way."""

    paused: bool


class TaskBody(Body):
    """Outcome of a task."""

    state: Literal["done", "failed"]
    note: str = Field(default="", max_length=1000, description="Why it could not be done.")


_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_PORT: Final = (
    "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)


class WebhookBody(Body):
    """Address to post events to, and the kinds of events."""

    url: str = Field(
        max_length=2000,
        pattern=rf"^https?://({_LABEL}\.){{0,126}}{_LABEL}(:{_PORT})?(/[!-~]*)?$",
        description="http or https, a name or an IPv4 address, no user and password.",
    )
    kinds: Annotated[list[Annotated[EventKind, Field(strict=False)]], Field(fail_fast=True)] = (
        Field(default=[], max_length=10, description="Empty: all.")
    )
    tenant: Name | None = Field(
        default=None, description="Only what this tenant may see; null: everything."
    )


class TaskFilter(BaseModel):
    """Query of a device's tasks."""

    model_config = ConfigDict(extra="forbid")

    state: list[TaskState] = Field(
        default=[TaskState.PENDING], description="Pending ones if not given; may be repeated."
    )


class ReservationFilter(BaseModel):
    """Query of the reservation list."""

    model_config = ConfigDict(extra="forbid")

    state: list[ReservationState] = Field(default=[], description="May be repeated.")
    rack: str | None = Field(default=None, description="One end: a rack, or a server in it.")
    group: str | None = None
    after: str | None = Field(default=None, description="The id that the page before ended with.")
    limit: int = Field(default=1000, ge=1, le=1000)


# --- the network ----------------------------------------------------------------------------


class Hop(Document):
    """A circuit in the direction in which the path runs."""

    plane: str
    from_rack: str
    from_port: str
    to_rack: str
    to_port: str
    rate_mbps: float


class Path(Document):
    src: str
    dst: str
    vlan: int | None
    hops: list[Hop]
    one_way: bool = Field(description="It leads from src to dst alone.")


class CircuitEnd(Document):
    rack: str
    port: str


class Circuit(Document):
    plane: str
    a: CircuitEnd
    b: CircuitEnd
    rate_mbps: float
    one_way: bool = Field(description="It leads from a to b alone.")


class LiveCircuit(Circuit):
    """A circuit that stands, with what its ToR ports last sent."""

    a_to_b_mbps: float | None
    b_to_a_mbps: float | None = Field(description="Null also where it is one-way.")


class Plane(Document):
    name: str
    switching_ms: float
    rate_mbps: float


class Topology(Document):
    fabric: str
    epoch: int
    racks: list[str]
    planes: list[Plane]
    electrical_rate_mbps: float
    circuits: list[LiveCircuit]
    paths: list[Path]
    resting_vlans: list[int]


class LoadFilter(BaseModel):
    """Whose load, and of how many."""

    model_config = ConfigDict(extra="forbid")

    rack: list[Name] = Field(
        default=[], max_length=2, description="At an end; given twice: between these two racks."
    )
    limit: int = Field(default=10, ge=1, le=100, description="So many circuits, and pairs.")

    @field_validator("rack")
    @classmethod
    def _that_differ(cls, racks: list[str]) -> list[str]:
        if len(racks) != len(set(racks)):
            raise PydanticCustomError("same_rack", "name one rack, or two that differ")
        return racks


class CircuitLoad(Circuit):
    """Rates that the ends of a circuit sent; null where unknown, and before it stood."""

    a_to_b_mbps: list[float | None]
    b_to_a_mbps: list[float | None] | None = Field(description="Null: it is one-way.")


class PairLoad(Document):
    """Rates of a rack pair, there only; null where unknown."""

    src: str
    dst: str
    mbps: list[float | None]


class Load(Document):
    """The last hour; in each list of rates, an entry for each of `unix_s`."""

    interval_s: float | None = Field(
        description="Time between two samples; null: nothing is recorded, since "
        "`policy.poll_interval_s` is 0."
    )
    unix_s: list[float] = Field(description="Times of the samples, the oldest first.")
    circuits: list[CircuitLoad] = Field(description="The highest rate in the hour first.")
    pairs: list[PairLoad] = Field(
        description="The highest rate in the hour first; with two racks, both directions."
    )


class Server(Document):
    name: str
    rack: str


class Servers(Document):
    servers: list[Server]


class MeasuredDemand(Document):
    src: str
    dst: str
    rate_mbps: float
    estimated_mbps: float = Field(description="What an elephant wants; of mice 0.")
    backlog_mbps: float = Field(
        description="What servers' agents have waiting, as a rate beside the measured one."
    )
    constrained: bool = Field(
        description="Whether something full holds an elephant back, so that the estimate is a "
        "guess: the max-min fair share of an ideal switch. If not, it is what was measured, with "
        "some head-room."
    )
    electrical_share: float = Field(
        description="Part of the flows that is electrical although the pair has a circuit, since "
        "that is full (`policy.spill`); 0: none."
    )
    planned_mbps: float = Field(
        description="Demand that is planned for: as estimated, or as `policy.prediction` has it."
    )
    error_mbps: float | None = Field(
        description="Mean absolute error of what was foretold; null: not known yet."
    )


class Demand(Document):
    source: DemandSource
    basis: DemandBasis = Field(description="What `estimated_mbps` is made of: `policy.demand`.")
    window_s: float = Field(
        description="Time constant of the average that rates are: `policy.demand_window_s`."
    )
    age_s: float | None
    stale: list[str] = Field(description="Servers whose last known rates stand in.")
    troubles: dict[str, int] = Field(
        description="Readings and agents' reports that did not come or could not be used since the "
        "start, by cause."
    )
    prediction: Prediction
    prediction_error: float | None = Field(
        description="Absolute errors of what was foretold for all pairs, as a part of what they "
        "then wanted; null: not known yet."
    )
    entries: list[MeasuredDemand] = Field(description="Rack pairs without demand are left out.")


# --- reservations, plans, reconfigurations --------------------------------------------------


class Reservation(Document):
    id: str
    state: ReservationState
    src: str
    dst: str
    src_rack: str = Field(description="Empty once the fabric has it no more.")
    dst_rack: str
    bandwidth_mbps: float = Field(description="What is held.")
    wanted_mbps: float | None = Field(
        description="What was asked for, if there was a minimum; else null."
    )
    minimum_mbps: float | None
    priority: int
    service: ServiceClass
    duration_s: float | None
    created_unix_s: float
    start_unix_s: float
    expires_unix_s: float | None
    held_until_unix_s: float | None = Field(description="Commit it before; null: no need to.")
    group: str | None
    booked: Path | None = Field(description="From src to dst: the path that is set aside for it.")
    path: Path | None = Field(description="From src to dst; null until it is up.")
    reason: str
    since_unix_s: float | None = Field(description="When it got into its state; null: not known.")


class Reservations(Document):
    reservations: list[Reservation]
    next: str | None = Field(description="Send it as `after` for more; null: there are no more.")


class Delivery(Document):
    """Bandwidth that a reservation gets, beside what it was promised."""

    reservation: str
    state: ReservationState
    promised_mbps: float = Field(description="In both directions; 0 for best effort.")
    there_mbps: float | None = Field(
        description="What came from src to dst over circuits in the last seconds; null: not known."
    )
    back_mbps: float | None = Field(description="From dst to src.")
    unheld: list[str] = Field(
        description="Servers on the same circuits whose vswitches can't hold them to their part."
    )


class Deliveries(Document):
    deliveries: list[Delivery]


class ReservationPreview(Document):
    """Reservation as it would become."""

    state: ReservationState
    bandwidth_mbps: float = Field(description="What would be held.")
    booked: Path
    start_unix_s: float
    expires_unix_s: float | None
    connect: list[Circuit] = Field(description="Circuits that its start would bring up.")
    disconnect: list[Circuit] = Field(description="Circuits that its start would take down.")
    at_risk: list[str] = Field(
        description="Devices and switches that are missing for it, in words."
    )


class Alternative(Document):
    """Request that would be admitted instead."""

    bandwidth_mbps: float
    start_unix_s: float | None = Field(
        default=None, description="Left out: the start that was asked for."
    )


class RefusedEntry(Document):
    src: str
    dst: str
    bandwidth_mbps: float
    detail: str
    alternatives: list[Alternative]


class Group(Document):
    """Reservations that were asked for as one."""

    id: str
    reservations: list[Reservation]


class CreatedGroup(Group):
    refused: list[RefusedEntry] = Field(description="Empty if it was all or nothing.")


class Quota(Document):
    tenant: str
    max_reservations: int | None = Field(description="At a time; null: no limit.")
    max_mbps: float | None = Field(description="At any moment; null: no limit.")
    max_priority: int
    reservations: int = Field(description="Those that are not over.")
    peak_mbps: float = Field(description="The most that is promised at any moment from now on.")


class Quotas(Document):
    quotas: list[Quota]


class RackPair(Document):
    src: str
    dst: str


class Verdict(Document):
    pays: bool
    reason: str
    gain_mbps: float
    gain_mbit: float
    cost_mbit: float


class RackLoad(Document):
    rack: str
    mbps: float


class Stage(Document):
    """Part of a change, made by itself."""

    pairs: list[RackPair]
    diverted_mbps: float = Field(
        description="What it takes off circuits, most of any rack in either direction."
    )
    beyond: list[RackLoad] = Field(
        description="What it diverts more than the electrical network has room for, by rack."
    )
    detoured: list[RackPair] = Field(
        description="Those of its pairs that wait for their new paths on circuits of others."
    )
    last: bool = Field(description="False at the end of the list: there are more.")


class Plan(Document):
    current_epoch: int
    paths: list[Path] = Field(description="All paths of the target.")
    connect: list[Circuit]
    disconnect: list[Circuit]
    affected_pairs: list[RackPair]
    retagged_ports: int
    rules: int
    served_mbps: float
    demand_mbps: float
    verdict: Verdict
    planning_ms: float
    at_risk: list[str] = Field(
        description="Devices and switches that are missing for it, in words."
    )
    stages: list[Stage] = Field(
        description="The stages in which it would be made, with the traffic of now. Empty where "
        "none is measured: all at once."
    )


class Step(Document):
    step: str
    device: str | None = Field(description="Null: the step as a whole.")
    started_ms: float = Field(description="From `started_unix_s`.")
    finished_ms: float
    note: str


class Failure(Document):
    """Step that failed."""

    step: str
    subject: str = Field(description="The switch, device, port, circuit or path.")
    kind: FailureKind
    reason: str


class CircuitFailure(Failure):
    circuit: Circuit


class Reconfiguration(Document):
    id: str
    state: ReconfigurationState
    trigger: str
    epoch: int
    created_unix_s: float
    started_unix_s: float | None = Field(description="Its first step; null: not yet.")
    timeline: list[Step]
    rules_pushed: int
    ports_retagged: int
    connected: list[Circuit]
    disconnected: list[Circuit]
    failures: list[CircuitFailure] = Field(description="Circuits that were not made.")
    troubles: list[Failure] = Field(description="Everything that failed, once each.")
    unconfirmed: list[str] = Field(description="Devices that did not confirm a step.")
    reason: str
    stages_done: int = Field(
        description="Stages made; each but the last is a reconfiguration of its own."
    )
    stages_expected: int | None = Field(
        description="Stages in all, as foreseen. Null: more than could be."
    )
    paused: bool = Field(description="No further stage begins until somebody says so.")


class Reconfigurations(Document):
    reconfigurations: list[Reconfiguration]


class Progress(Document):
    """How far a reconfiguration is."""

    id: str
    state: ReconfigurationState


class Alarm(Document):
    severity: Severity
    port: int | None = Field(description="Null: the device as a whole.")
    code: str
    text: str


class DeviceAlarm(Alarm):
    """News of an alarm; of severity `cleared` where it is over."""

    device: str


class Event(Document):
    """Content of ``data`` in a server-sent event."""

    kind: EventKind
    unix_s: float
    reservation: Reservation | None = Field(description="As it is from now on.")
    circuit: Circuit | None
    reservations: list[str] = Field(description="Ids of those that have the circuit.")
    reconfiguration: Progress | None = None
    alarm: DeviceAlarm | None = None
    reason: str


class Gap(Document):
    """Content of ``data`` in the event ``gap``."""

    missed: int | None = Field(description="Events that were lost; null: not known how many.")


class CloudEvent(Document):
    """Event as it is posted to a webhook: CloudEvents 1.0, in structured mode."""

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(description="The same if it is sent again.")
    source: str
    type: str = Field(description="`hydra.` and the kind of the event.")
    subject: str | None = Field(description="Id of the reservation that it is about.")
    time: datetime
    datacontenttype: Literal["application/json"] = "application/json"
    data: Event | Gap


class Webhook(Document):
    id: str
    url: str
    kinds: list[EventKind]
    tenant: str | None
    created_unix_s: float
    waiting: int = Field(description="Events that it has not been told of yet.")
    delivered: int
    refused: int = Field(description="Messages that it answered with 4xx: not sent again.")
    missed: int = Field(description="Events forgotten before it could be told.")
    failing_since_unix_s: float | None
    problem: str = Field(description="Why the last message was not taken.")


class CreatedWebhook(Webhook):
    secret: str = Field(description="Signs the messages; it is not shown again.")


class Webhooks(Document):
    webhooks: list[Webhook]


# --- operations -----------------------------------------------------------------------------


class Device(Document):
    name: str
    kind: str
    driver: str
    connected: bool
    detail: str
    alarms: list[Alarm] = Field(description="Those that stood when it was last asked.")


class Devices(Document):
    devices: list[Device]


class PluggedPair(Document):
    """A cross-connect of a patch panel, and what is at its ends; null: nothing of this fabric."""

    ingress: int
    egress: int
    ingress_wired_to: str | None
    egress_wired_to: str | None


class Task(Document):
    """Something that a person is asked to do: unplug first, then plug."""

    id: int
    state: TaskState
    disconnect: list[PluggedPair]
    connect: list[PluggedPair]
    created_unix_s: float
    settled_unix_s: float | None
    note: str


class Tasks(Document):
    tasks: list[Task]


class QuarantinedPort(Document):
    rack: str
    port: str
    plane: str
    reason: str
    since_unix_s: float
    until_unix_s: float | None = Field(description="Null: until it is cleared.")
    on_trial: bool = Field(description="Its time is up: the next circuit there decides.")


class Quarantine(Document):
    ports: list[QuarantinedPort]


class Drift(Document):
    kind: DriftKind
    device: str
    subject: str
    intended: str
    actual: str


class DriftReport(Document):
    items: list[Drift]
    silent: list[str] = Field(description="Did not answer: nothing is known of them.")


class Reconciliation(Document):
    found: DriftReport
    left: DriftReport = Field(description="What could not be mended.")
    reconfigurations: list[str] = Field(description="Ids of those that it took.")


class SeenDemand(Document):
    src: str
    dst: str
    rate_mbps: float
    estimated_mbps: float = Field(description="What was planned for.")


class Proposal(Document):
    algorithm: str
    connect: list[Circuit]
    disconnect: list[Circuit]
    served_mbps: float
    verdict: Verdict


class Decision(Document):
    unix_s: float
    trigger: str
    action: Action
    reason: str
    standing: list[Circuit] = Field(description="As they stood then.")
    served_now_mbps: float | None = Field(description="By what stood, of `demand_mbps`.")
    demand_mbps: float
    demand: list[SeenDemand] = Field(description="The largest entries, the largest first.")
    proposal: Proposal | None = Field(description="What else could have been done.")
    reconfiguration: str | None = Field(description="The one that it led to.")


class ConfigurationChange(Document):
    key: str = Field(description="Path in the file, such as `policy.epoch_s`.")
    before: str
    after: str


class PolicyValue(Document):
    key: str = Field(description="Path in the file, such as `policy.epoch_s`.")
    value: str
    at_once: bool = Field(description="A reload changes it; else the next start does.")


class PolicyInForce(Document):
    values: list[PolicyValue]


class Reload(Document):
    applied: list[ConfigurationChange]
    waiting: list[ConfigurationChange] = Field(
        description="Changed in the file; takes effect at the next start."
    )


class Decisions(Document):
    decisions: list[str] = Field(description="In words.")
    records: list[Decision]


class Explanation(Document):
    circuits: list[Circuit] = Field(description="Those that join the two racks directly.")
    paths: list[Path] = Field(description="What their traffic takes; none: the electrical network.")
    users: list[RackPair] = Field(description="Whose paths run over `circuits`.")
    demand: list[SeenDemand] = Field(description="There and back, now.")
    reservations: list[str]
    decisions: list[Decision] = Field(
        description="Those that would set up or take down a circuit between the two."
    )
    lines: list[str] = Field(description="All of it in words.")


class Health(Document):
    status: str


class Readiness(Document):
    ready: bool
    role: Literal["alone", "leading"] = Field(
        description="Of who answers. One that stands by answers 503, or with what the leader says."
    )


class Replica(Document):
    """A controller of several; its id is another one at each start."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    url: str
    release: str
    since_unix_s: float = Field(description="When it began to stand by, or to lead.")
    switches: int | None = Field(
        description="Number of switches connected to it; null: its release does not say."
    )


class StoreMember(Document):
    """A member of etcd."""

    model_config = ConfigDict(from_attributes=True)

    endpoint: str
    answers: bool
    leads: bool
    version: str
    size_mb: float
    behind: int = Field(description="Entries of etcd's log that it has yet to apply.")
    problems: list[str]


class Replicas(Document):
    role: Literal["alone", "leading", "standing-by"] = Field(description="Of who answers.")
    leader: Replica | None
    standing_by: list[Replica]
    store: list[StoreMember]
    problem: str = Field(description="Why the store does not say who leads; empty if it does.")


class Worker(Document):
    """A process that holds connections of switches for the controller."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    release: str
    since_unix_s: float = Field(description="When it began to serve this controller.")
    switches: int = Field(description="Number of switches that are connected to it.")
    serves: int = Field(description="Number of switches that are spoken to by way of it.")
    shards: list[int] = Field(description="Shards of the racks that it owns.")
    cpu_s: float = Field(description="Processor time that its process has taken.")


class Workers(Document):
    workers: list[Worker]


class Handover(Document):
    standing_by: list[str] = Field(description="URLs of the controllers of which one leads next.")


class Caller(Document):
    name: str
    role: Role


class Condition(Document):
    """A condition; the first twenty of its subjects, pairs and reservations are listed."""

    kind: ConditionKind
    what: str
    since_unix_s: float
    done: str = Field(description="What the controller did about it.")
    to_do: str = Field(description="What people do next.")
    command: str = Field(description="For that; or it shows more.")
    subjects: list[str] = Field(description="Names of what it is wrong with.")
    subjects_total: int
    pairs: list[RackPair] = Field(description="Rack pairs that it affects.")
    pairs_total: int
    reservations: list[str] = Field(description="Ids of reservations that it affects.")
    reservations_total: int


class HistoryFilter(BaseModel):
    """Which lines, and how many at a time."""

    model_config = ConfigDict(extra="forbid")

    since_unix_s: float = Field(default=0.0, ge=0, le=LATEST_UNIX_S, description="From then on.")
    before_unix_s: float | None = Field(
        default=None, ge=0, le=LATEST_UNIX_S, description="Before that; null: until now."
    )
    kind: list[HappeningKind] = Field(default=[], max_length=20, description="Empty: all.")
    limit: int = Field(default=100, ge=1, le=1000)


class Happening(Document):
    unix_s: float
    kind: HappeningKind
    text: str
    pairs: list[RackPair] = Field(description="Rack pairs that it concerns.")


class History(Document):
    happenings: list[Happening] = Field(description="Newest first.")
    next_before_unix_s: float | None = Field(
        description="`before_unix_s` of the following page; null: this is the last one."
    )


class Conditions(Document):
    healthy: bool = Field(description="Nothing is wrong.")
    conditions: list[Condition]


# --- errors ---------------------------------------------------------------------------------


class ErrorDetail(Document):
    """Error in a request: in its body, or in its query."""

    pointer: str | None = Field(default=None, description="JSON pointer (RFC 6901) into the body.")
    parameter: str | None = Field(default=None, description="Name of a query parameter.")
    detail: str


class Problem(Document):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ErrorDetail] | None = None
    alternatives: list[Alternative] | None = None
    missing: list[str] | None = None


class ProblemDescription(Document):
    type: str
    title: str
    status: int
    meaning: str
