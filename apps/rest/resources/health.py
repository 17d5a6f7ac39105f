"""/healthz, /readyz."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from apps.rest.document import Document
from apps.rest.errors import problem_response
from apps.rest.problems import NOT_READY, STANDING_BY, STORE_UNAVAILABLE
from apps.rest.routing import Routes

if TYPE_CHECKING:
    from apps.rest.dependencies import Known, Leading, Service

routes = Routes("", "operations")


class Health(Document):
    status: str


class Readiness(Document):
    ready: bool
    role: Literal["alone", "leading"] = Field(
        description=(
            "State of the answering controller. A standby answers 503, or with the leader's answer."
        )
    )


@routes.on("GET", "/healthz", public=True)
async def health() -> Health:
    """The process lives and answers. The answer never waits for the controller."""
    return Health(status="ok")


@routes.on(
    "GET",
    "/readyz",
    NOT_READY,
    STANDING_BY,
    STORE_UNAVAILABLE,
    public=True,
    response_model=Readiness,
)
def readiness(
    request: Request,
    service: Service,
    term: Leading,
    known: Known,
    complete: Annotated[bool, Query(description="Only if no device is away, too.")] = False,
    standby: Annotated[
        bool, Query(description="On a standby: whether the leader is ready.")
    ] = False,
) -> Readiness | JSONResponse:
    """Whether requests are served; if not, operators and viewers see the reasons.

    A standby controller answers 503, so that a load balancer sends everything to the leader; with
    ``standby``, the answer says whether the leader serves requests sent to the standby.
    """
    del standby  # makes no difference for a leader
    missing = service.not_ready() or (service.missing() if complete else ())
    if missing and not known:
        return problem_response(NOT_READY, "not ready", request.url.path)
    if missing:
        return problem_response(NOT_READY, "; ".join(missing), request.url.path, missing=missing)
    role: Literal["alone", "leading"] = "leading" if term.is_shared else "alone"
    return Readiness(ready=True, role=role)
