"""/v1/quarantine: ToR ports left out of planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, ValidationInfo, model_validator

from apps.rest.document import Body, Document, PlaneName, port_names
from apps.rest.problems import BODY_PROBLEMS, JOURNAL_FAILED, UNKNOWN_NAME
from apps.rest.routing import Routes
from hydra import service as core
from hydra.model import Fabric

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/quarantine", "maintenance")


class QuarantineBody(Body):
    """Reason to set a port aside."""

    reason: str = Field(min_length=1, max_length=200)


class QuarantinedPort(Document):
    rack: str
    port: str
    plane: PlaneName
    reason: str
    since_unix_s: float
    until_unix_s: float | None = Field(description="Null: until cleared.")
    on_trial: bool = Field(description="The time is over: the next circuit at the port decides.")

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, value: object, info: ValidationInfo[Fabric]) -> object:
        if not isinstance(value, core.QuarantinedPort):
            return value
        fabric: Fabric = info.context
        names = port_names(fabric, value.entry.port)
        plane = fabric.ports[value.entry.port].plane
        return cls.attributes(value.entry, **names, plane=plane, on_trial=value.on_trial)


class Quarantine(Document):
    ports: list[QuarantinedPort]


@routes.on("GET")
def list_quarantine(service: Service) -> Quarantine:
    """ToR ports left out of planning because a circuit on the port failed."""
    return Quarantine.of(service.fabric, ports=service.quarantine())


@routes.on("PUT", "/{rack}/{port:path}", *BODY_PROBLEMS, UNKNOWN_NAME, JOURNAL_FAILED)
def set_aside(rack: str, port: str, body: QuarantineBody, service: Service) -> QuarantinedPort:
    """Leave a port out of planning until cleared; a standing circuit at the port stays."""
    return QuarantinedPort.of(service.fabric, service.set_aside(rack, port, body.reason))


@routes.on("DELETE", "/{rack}/{port:path}", UNKNOWN_NAME, JOURNAL_FAILED)
def clear_quarantine(rack: str, port: str, service: Service) -> QuarantinedPort:
    """Let planning use a port again; answers with the cleared entry."""
    return QuarantinedPort.of(service.fabric, service.clear_quarantine(rack, port))
