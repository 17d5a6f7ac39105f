"""What travels over the REST API. Units are in the names; racks and planes go by name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hydra.drift import DriftKind
from hydra.lifecycle import ReconfigurationState, ReservationState
from hydra.roles import TaskState
from hydra.service import DemandSource

Name = Annotated[str, Field(min_length=1, max_length=255)]


class Body(BaseModel):
    """Requests: nothing is coerced, nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Document(BaseModel):
    """Responses."""

    model_config = ConfigDict(frozen=True)


# --- requests -------------------------------------------------------------------------------


class ReservationBody(Body):
    """A bandwidth between two racks, or between two servers."""

    src: Name = Field(description="Name of a rack or of a server.")
    dst: Name = Field(description="Name of a rack or of a server, in another rack.")
    bandwidth_mbps: float = Field(gt=0, description="Held in both directions.")
    duration_s: float | None = Field(
        default=None, gt=0, description="Counted from now; without it, until deleted."
    )


class DemandEntry(Body):
    """Demand from one rack to another; the way back is an entry of its own."""

    src: Name
    dst: Name
    mbps: float = Field(ge=0)


class DemandMatrix(Body):
    """Demand between all pairs of racks, in a fraction of the space that entries take."""

    racks: list[Name] | None = Field(
        default=None, min_length=1, description="Of the rows and columns. Null: as in the topology."
    )
    mbps: list[list[Annotated[float, Field(ge=0)]]] = Field(
        description="From the row's rack to the column's; the diagonal is zero."
    )


class PlanBody(Body):
    """What a topology is wanted for, and what may be touched to get it."""

    demand: list[DemandEntry] | None = Field(
        default=None, description="Null: the measured demand. Pairs left out have none."
    )
    demand_matrix: DemandMatrix | None = Field(
        default=None, description="Instead of `demand`. Racks left out have none."
    )
    planes: list[Name] | None = Field(
        default=None, min_length=1, description="Only these may change. Null: all."
    )
    racks: list[Name] | None = Field(
        default=None, min_length=1, description="Only these may change. Null: all."
    )
    use_planes: list[Name] | None = Field(
        default=None,
        min_length=1,
        description="Circuits that may change end up on these only. Null: on any.",
    )
    algorithm: Name | None = Field(default=None, description="Null: the configured one.")
    only_if_it_pays: bool = False


class ReconcileBody(Body):
    """Nothing can be chosen."""


class TaskBody(Body):
    """What became of a task."""

    state: Literal["done", "failed"]
    note: str = Field(default="", max_length=1000, description="Why it could not be done.")


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


class CircuitEnd(Document):
    rack: str
    port: str


class Circuit(Document):
    plane: str
    a: CircuitEnd
    b: CircuitEnd
    rate_mbps: float


class LiveCircuit(Circuit):
    """A circuit that stands, with what its ToR ports last sent."""

    a_to_b_mbps: float | None
    b_to_a_mbps: float | None


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


class MeasuredDemand(Document):
    src: str
    dst: str
    rate_mbps: float
    estimated_mbps: float


class Demand(Document):
    source: DemandSource
    age_s: float | None
    stale: list[str] = Field(description="Servers whose last known rates stand in.")
    entries: list[MeasuredDemand] = Field(description="Rack pairs without demand are left out.")


# --- reservations, plans, reconfigurations --------------------------------------------------


class Reservation(Document):
    id: str
    state: ReservationState
    src: str
    dst: str
    src_rack: str
    dst_rack: str
    bandwidth_mbps: float
    duration_s: float | None
    created_unix_s: float
    expires_unix_s: float | None
    path: Path | None = Field(description="From src to dst; null until it is up.")
    reason: str


class Reservations(Document):
    reservations: list[Reservation]


class RackPair(Document):
    src: str
    dst: str


class Verdict(Document):
    pays: bool
    reason: str
    gain_mbps: float
    gain_mbit: float
    cost_mbit: float


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


class Step(Document):
    step: str
    device: str | None = Field(description="Null: the step as a whole.")
    started_ms: float = Field(description="From `started_unix_s`.")
    finished_ms: float
    note: str


class CircuitFailure(Document):
    circuit: Circuit
    reason: str


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
    failures: list[CircuitFailure]
    unconfirmed: list[str] = Field(description="Devices that did not confirm a step.")
    reason: str


class Reconfigurations(Document):
    reconfigurations: list[Reconfiguration]


# --- operations -----------------------------------------------------------------------------


class Device(Document):
    name: str
    kind: str
    driver: str
    connected: bool
    detail: str


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


class Decisions(Document):
    decisions: list[str]


class Health(Document):
    status: str


class Readiness(Document):
    ready: bool


# --- errors ---------------------------------------------------------------------------------


class ErrorDetail(Document):
    """One thing wrong with a request: in its body, or in its query."""

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
    missing: list[str] | None = None


class ProblemDescription(Document):
    type: str
    title: str
    status: int
    meaning: str
