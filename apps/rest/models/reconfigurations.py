"""Plans, and changes from one topology to another."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from apps.rest.models.base import Body, Document, Name, Names, RackPair
from apps.rest.models.demand import DemandEntry, DemandMatrix
from apps.rest.models.topology import Circuit, Path
from hydra.failures import FailureKind
from hydra.lifecycle import ReconfigurationState


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


class CourseBody(Body):
    """Whether a change in stages waits, after the one under way."""

    paused: bool


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


class CircuitShares(Document):
    """Parts of the demand on circuits, without the electrical network."""

    served_share: float = Field(
        description="Part of the demand that fits on the circuits of the plan's paths. Two racks "
        "joined both ways want the larger of their two directions."
    )
    served_share_bound: float | None = Field(
        description="Part that no plan for this fabric can exceed. Null: not computed."
    )


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
    on_circuits: CircuitShares | None = Field(description="Null: not computed.")
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
