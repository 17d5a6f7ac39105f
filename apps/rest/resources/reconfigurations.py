"""/v1/reconfigurations: changes from one topology to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field, model_validator

from apps.rest.document import Body, Document
from apps.rest.problems import BODY_PROBLEMS, LIFECYCLE_CONFLICT, UNKNOWN_NAME
from apps.rest.resources.plans import PLAN_PROBLEMS, PlanBody
from apps.rest.resources.topology import Circuit, Circuits
from apps.rest.routing import Routes
from hydra import service as core
from hydra.failures import FailureKind
from hydra.lifecycle import ReconfigurationState

if TYPE_CHECKING:
    from apps.rest.dependencies import LateAnswer, Service

routes = Routes("/v1/reconfigurations", "planning")
_TRIGGER: Final = "operator"


class CourseBody(Body):
    """Whether a change in stages waits after the present stage."""

    paused: bool


class Step(Document):
    step: str
    device: str | None = Field(description="Null: the step as a whole.")
    started_ms: float = Field(description="From `started_unix_s`.")
    finished_ms: float
    note: str


class Failure(Document):
    """A failed step."""

    step: str
    subject: str = Field(description="The switch, device, port, circuit or path.")
    kind: FailureKind
    reason: str


class CircuitFailure(Failure):
    circuit: Circuit

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, value: object) -> object:
        if not isinstance(value, core.CircuitFailure):
            return value
        return cls.attributes(value.failure, circuit=value.circuit)


class Reconfiguration(Document):
    id: str
    state: ReconfigurationState
    trigger: str
    epoch: int
    created_unix_s: float
    started_unix_s: float | None = Field(description="Start of the first step; null: not started.")
    timeline: list[Step]
    rules_pushed: int
    ports_retagged: int
    connected: Circuits
    disconnected: Circuits
    failures: list[CircuitFailure] = Field(description="Circuits that could not be made.")
    troubles: list[Failure] = Field(description="All failures, each once.")
    unconfirmed: list[str] = Field(description="Devices that did not confirm a step.")
    reason: str
    stages_done: int = Field(
        description="Stages made; each stage before the last is a separate reconfiguration."
    )
    stages_expected: int | None = Field(
        description="Stages in all, as foreseen. Null: more than could be."
    )
    paused: bool = Field(description="No further stage begins until the change is resumed.")


class Reconfigurations(Document):
    reconfigurations: list[Reconfiguration]


class Progress(Document):
    """Progress of a reconfiguration."""

    id: str
    state: ReconfigurationState


@routes.on(
    "POST",
    "",
    *PLAN_PROBLEMS,
    status_code=202,
    responses={
        200: {
            "model": Reconfiguration,
            "description": "The reconfiguration ended while the client waited",
        }
    },
)
async def start_reconfiguration(
    body: PlanBody, service: Service, answer: LateAnswer
) -> Reconfiguration:
    """Queue a reconfiguration; with ``Prefer: wait=N`` the answer waits for the end."""
    current = await answer.outcome(
        lambda: service.reconfigure(body.request(service.fabric), _TRIGGER),
        lambda queued: service.reconfiguration(queued.id),
        lambda reconfiguration: reconfiguration.is_over,
        ended=True,
    )
    answer.at(f"{routes.prefix}/{current.id}")
    return Reconfiguration.of(service.fabric, current)


@routes.on("GET")
def list_reconfigurations(service: Service) -> Reconfigurations:
    """Newest first; the oldest are forgotten."""
    return Reconfigurations.of(service.fabric, reconfigurations=service.reconfigurations())


@routes.on("GET", "/{reconfiguration_id}", UNKNOWN_NAME)
def get_reconfiguration(reconfiguration_id: str, service: Service) -> Reconfiguration:
    """State and timeline of a reconfiguration, step by step and device by device."""
    return Reconfiguration.of(service.fabric, service.reconfiguration(reconfiguration_id))


@routes.on("DELETE", "/{reconfiguration_id}", UNKNOWN_NAME, LIFECYCLE_CONFLICT)
def stop_reconfiguration(reconfiguration_id: str, service: Service) -> Reconfiguration:
    """End a change in stages after the present stage; the network stays as the stage leaves it."""
    return Reconfiguration.of(service.fabric, service.stop(reconfiguration_id, _TRIGGER))


@routes.on("PATCH", "/{reconfiguration_id}", *BODY_PROBLEMS, UNKNOWN_NAME, LIFECYCLE_CONFLICT)
def pause_reconfiguration(
    reconfiguration_id: str, body: CourseBody, service: Service
) -> Reconfiguration:
    """Pause a change in stages after the present stage, or resume the change."""
    return Reconfiguration.of(service.fabric, service.pause(reconfiguration_id, body.paused))
