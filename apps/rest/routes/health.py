"""/healthz, /readyz"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from apps.rest import models
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Known, Leading, Service
from apps.rest.problems import (
    INVALID_REQUEST,
    NOT_READY,
    STANDING_BY,
    STORE_UNAVAILABLE,
    problem_response,
    responses,
)

router = APIRouter(route_class=AnsweringRoute)


@router.get("/healthz", tags=["operations"])
async def health() -> models.Health:
    """The process lives and answers. Does not touch the controller, so never waits for it."""
    return models.Health(status="ok")


@router.get(
    "/readyz",
    tags=["operations"],
    response_model=models.Readiness,
    responses=responses(INVALID_REQUEST, NOT_READY, STANDING_BY, STORE_UNAVAILABLE),
)
def readiness(
    request: Request,
    service: Service,
    term: Leading,
    known: Known,
    complete: Annotated[bool, Query(description="Only if no device is away, too.")] = False,
    standby: Annotated[
        bool, Query(description="Of a controller that stands by: whether the leader is ready.")
    ] = False,
) -> models.Readiness | JSONResponse:
    """Whether requests are taken; if not, operators and viewers learn what is missing.

    A controller that stands by answers 503, so that a load balancer sends everything to the one
    that leads; with ``standby``, whether requests that come to it are taken by the leader.
    """
    del standby  # for one that leads it makes no difference
    missing = service.not_ready() or (service.missing() if complete else ())
    if missing and not known:
        return problem_response(NOT_READY, "not ready", request.url.path)
    if missing:
        return problem_response(NOT_READY, "; ".join(missing), request.url.path, missing=missing)
    role: Literal["alone", "leading"] = "leading" if term.is_shared else "alone"
    return models.Readiness(ready=True, role=role)
