"""/v1/reconfigurations, and /v1/plan, its dry run"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response, status
from fastapi.concurrency import run_in_threadpool

from apps.rest import bodies, models, render
from apps.rest.context import Closing, Service
from apps.rest.prefer import WaitPreference, preference_applied, wait_for
from apps.rest.problems import (
    BODY_PROBLEMS,
    DEVICE_ERROR,
    DEVICE_UNAVAILABLE,
    LIFECYCLE_CONFLICT,
    NO_PLAN,
    UNKNOWN_NAME,
    responses,
)
from apps.rest.reading import BodyRoute
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS

router = APIRouter(prefix="/v1", route_class=BodyRoute)
_PLAN_PROBLEMS: Final = responses(
    *BODY_PROBLEMS, UNKNOWN_NAME, NO_PLAN, DEVICE_ERROR, DEVICE_UNAVAILABLE
)
_FINISHED: Final = frozenset(s for s, after in RECONFIGURATION_TRANSITIONS.items() if not after)
_TRIGGER: Final = "operator"


@router.post("/plan", tags=["planning"], responses=_PLAN_PROBLEMS)
def make_plan(body: models.PlanBody, service: Service) -> models.Plan:
    """Dry run: what a reconfiguration would change, and whether it would pay."""
    return render.plan(service.fabric, service.plan(bodies.plan_request(body, service.fabric)))


@router.post(
    "/reconfigurations",
    tags=["planning"],
    status_code=status.HTTP_202_ACCEPTED,
    responses={
        status.HTTP_200_OK: {
            "model": models.Reconfiguration,
            "description": "It ended while the client waited",
        },
        **_PLAN_PROBLEMS,
    },
)
async def start_reconfiguration(
    body: models.PlanBody,
    response: Response,
    service: Service,
    closing: Closing,
    wait_s: WaitPreference,
) -> models.Reconfiguration:
    """Queue a reconfiguration; with ``Prefer: wait=N`` the answer waits for its end."""
    request = await run_in_threadpool(bodies.plan_request, body, service.fabric)
    queued = await run_in_threadpool(service.reconfigure, request, _TRIGGER)
    current = queued
    if wait_s is not None:
        current = await wait_for(
            queued,
            lambda: service.reconfiguration(queued.id),
            lambda reconfiguration: reconfiguration.state in _FINISHED,
            wait_s,
            closing,
        )
        if current.state in _FINISHED:
            response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"{router.prefix}/reconfigurations/{queued.id}"
    response.headers.update(preference_applied(wait_s))
    return render.reconfiguration(service.fabric, current)


@router.get("/reconfigurations", tags=["planning"])
def list_reconfigurations(service: Service) -> models.Reconfigurations:
    """Newest first; older ones are forgotten."""
    return models.Reconfigurations(
        reconfigurations=[
            render.reconfiguration(service.fabric, one) for one in service.reconfigurations()
        ]
    )


@router.get(
    "/reconfigurations/{reconfiguration_id}",
    tags=["planning"],
    responses=responses(UNKNOWN_NAME),
)
def get_reconfiguration(reconfiguration_id: str, service: Service) -> models.Reconfiguration:
    """Its state and its timeline, step by step and device by device."""
    return render.reconfiguration(service.fabric, service.reconfiguration(reconfiguration_id))


@router.delete(
    "/reconfigurations/{reconfiguration_id}",
    tags=["planning"],
    responses=responses(UNKNOWN_NAME, LIFECYCLE_CONFLICT),
)
def stop_reconfiguration(reconfiguration_id: str, service: Service) -> models.Reconfiguration:
    """End a change in stages after the one under way; the network stays as that leaves it."""
    return render.reconfiguration(service.fabric, service.stop(reconfiguration_id, _TRIGGER))


@router.patch(
    "/reconfigurations/{reconfiguration_id}",
    tags=["planning"],
    responses=responses(*BODY_PROBLEMS, UNKNOWN_NAME, LIFECYCLE_CONFLICT),
)
def pause_reconfiguration(
    reconfiguration_id: str, body: models.CourseBody, service: Service
) -> models.Reconfiguration:
    """Have a change in stages wait after the one under way, or go on."""
    return render.reconfiguration(service.fabric, service.pause(reconfiguration_id, body.paused))
