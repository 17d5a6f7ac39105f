"""/v1/devices: devices, and what people are asked to do at them"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.problems import (
    BODY_PROBLEMS,
    DEVICE_UNAVAILABLE,
    INVALID_REQUEST,
    LIFECYCLE_CONFLICT,
    UNKNOWN_NAME,
    responses,
)
from apps.rest.reading import BodyRoute
from hydra.roles import TaskState

router = APIRouter(route_class=BodyRoute)


@router.get("/v1/devices", tags=["operations"])
def list_devices(service: Service) -> models.Devices:
    """Optical switches, ToRs and vswitches, and whether they are connected."""
    return models.Devices(devices=list(map(models.Device.model_validate, service.devices())))


@router.get(
    "/v1/devices/{name}/tasks",
    tags=["operations"],
    responses=responses(UNKNOWN_NAME, INVALID_REQUEST, DEVICE_UNAVAILABLE),
)
def list_tasks(
    name: str, service: Service, query: Annotated[models.TaskFilter, Query()]
) -> models.Tasks:
    """Tasks of the people who work an optical switch by hand, oldest first."""
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
    responses=responses(*BODY_PROBLEMS, UNKNOWN_NAME, LIFECYCLE_CONFLICT, DEVICE_UNAVAILABLE),
)
def settle_task(name: str, task_id: int, body: models.TaskBody, service: Service) -> models.Task:
    """Say that a task was done, or could not be. Saying the same again is harmless."""
    settled = service.settle_task(name, task_id, TaskState(body.state), body.note)
    return render.task(service.fabric, name, settled)
