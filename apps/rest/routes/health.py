"""/healthz, /readyz"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from apps.rest import models
from apps.rest.context import Known, Service
from apps.rest.problems import (
    INVALID_REQUEST,
    NOT_READY,
    problem_response,
    responses,
)

router = APIRouter()


@router.get("/healthz", tags=["operations"])
async def health() -> models.Health:
    """The process lives and answers. Does not touch the controller, so never waits for it."""
    return models.Health(status="ok")


@router.get(
    "/readyz",
    tags=["operations"],
    response_model=models.Readiness,
    responses=responses(INVALID_REQUEST, NOT_READY),
)
def readiness(
    request: Request,
    service: Service,
    known: Known,
    complete: Annotated[bool, Query(description="Only if no device is away, too.")] = False,
) -> models.Readiness | JSONResponse:
    """Whether requests are taken; if not, operators and viewers learn what is missing."""
    missing = service.not_ready() or (service.missing() if complete else ())
    if missing and not known:
        return problem_response(NOT_READY, "not ready", request.url.path)
    if missing:
        return problem_response(NOT_READY, "; ".join(missing), request.url.path, missing=missing)
    return models.Readiness(ready=True)
