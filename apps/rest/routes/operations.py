"""/v1/devices, /v1/decisions, /healthz, /readyz, /problems"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.problems import (
    BODY_TOO_LARGE,
    CATALOGUE,
    DEVICE_UNAVAILABLE,
    INVALID_REQUEST,
    LIFECYCLE_CONFLICT,
    MALFORMED,
    NOT_READY,
    UNKNOWN_NAME,
    UNSUPPORTED_MEDIA_TYPE,
    problem_response,
    responses,
)
from hydra.errors import UnknownName
from hydra.roles import TaskState

router = APIRouter()

_PROBLEM_BY_SLUG: Final = {problem.slug: problem for problem in CATALOGUE}


@router.get("/v1/devices", tags=["operations"])
def list_devices(service: Service) -> models.Devices:
    """Optical switches, ToRs and vswitches, and whether they are connected."""
    return models.Devices(devices=[render.device(status) for status in service.devices()])


@router.get(
    "/v1/devices/{name}/tasks",
    tags=["operations"],
    responses=responses(UNKNOWN_NAME, INVALID_REQUEST, DEVICE_UNAVAILABLE),
)
def list_tasks(
    name: str, service: Service, query: Annotated[models.TaskFilter, Query()]
) -> models.Tasks:
    """What people are asked to do at an optical switch that they work, oldest first."""
    return models.Tasks(
        tasks=[
            render.task(service.fabric, name, task)
            for task in service.tasks(name)
            if task.state in query.state
        ]
    )


@router.post(
    "/v1/devices/{name}/tasks/{task_id}",
    tags=["operations"],
    responses=responses(
        MALFORMED,
        UNKNOWN_NAME,
        LIFECYCLE_CONFLICT,
        BODY_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        INVALID_REQUEST,
        DEVICE_UNAVAILABLE,
    ),
)
def settle_task(name: str, task_id: int, body: models.TaskBody, service: Service) -> models.Task:
    """Say that a task was done, or could not be. Saying the same again is harmless."""
    settled = service.settle_task(name, task_id, TaskState(body.state), body.note)
    return render.task(service.fabric, name, settled)


@router.get("/v1/decisions", tags=["operations"])
def list_decisions(service: Service) -> models.Decisions:
    """Whether to change, as decided lately from measured demand, and why; newest first."""
    many = service.decisions()
    return models.Decisions(
        decisions=[one.words for one in many],
        records=[render.decision(service.fabric, one) for one in many],
    )


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
