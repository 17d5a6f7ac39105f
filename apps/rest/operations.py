"""/v1/devices, /v1/decisions, /healthz, /readyz, /problems"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.problems import CATALOGUE, NOT_READY, UNKNOWN_NAME, problem_response, responses
from hydra.errors import UnknownName

router = APIRouter()

_PROBLEM_BY_SLUG: Final = {problem.slug: problem for problem in CATALOGUE}


@router.get("/v1/devices", tags=["operations"])
def list_devices(service: Service) -> models.Devices:
    """Optical switches, ToRs and vswitches, and whether they are connected."""
    return models.Devices(devices=[render.device(status) for status in service.devices()])


@router.get("/v1/decisions", tags=["operations"])
def list_decisions(service: Service) -> models.Decisions:
    """What the periodic mode decided lately, and why; newest first."""
    return models.Decisions(decisions=list(service.decisions()))


@router.get("/healthz", tags=["operations"])
async def health() -> models.Health:
    """The process lives and answers. Does not touch the controller, so never waits for it."""
    return models.Health(status="ok")


@router.get(
    "/readyz",
    tags=["operations"],
    response_model=models.Readiness,
    responses=responses(NOT_READY),
)
def readiness(request: Request, service: Service) -> models.Readiness | JSONResponse:
    """Whether the controller can do its job; if not, what is missing."""
    missing = service.not_ready()
    if missing:
        detail = "waiting for " + ", ".join(missing)
        return problem_response(NOT_READY, detail, request.url.path, missing=missing)
    return models.Readiness(ready=True)


@router.get("/problems/{slug}", tags=["operations"], responses=responses(UNKNOWN_NAME))
async def describe_problem(slug: str) -> models.ProblemDescription:
    """What the ``type`` of a problem document points to."""
    problem = _PROBLEM_BY_SLUG.get(slug)
    if problem is None:
        raise UnknownName(f"no problem type {slug!r}: there are {', '.join(_PROBLEM_BY_SLUG)}")
    return models.ProblemDescription(
        type=problem.uri, title=problem.title, status=problem.status, meaning=problem.meaning
    )
