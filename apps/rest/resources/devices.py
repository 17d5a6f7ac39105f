"""/v1/devices: devices, and manual tasks at the devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, model_validator

from apps.rest.document import Body, Document
from apps.rest.problems import (
    BODY_PROBLEMS,
    DEVICE_UNAVAILABLE,
    LIFECYCLE_CONFLICT,
    UNKNOWN_NAME,
)
from apps.rest.routing import Routes
from hydra import events, roles
from hydra.model import CrossConnect, Fabric
from hydra.port_labels import wired_name, wired_to
from hydra.roles import Severity, TaskState

if TYPE_CHECKING:
    from apps.rest.dependencies import Asked, Service

routes = Routes("/v1/devices", "operations")


class TaskBody(Body):
    """Outcome of a task."""

    state: Literal["done", "failed"]
    note: str = Field(default="", max_length=1000, description="Why the task was impossible.")


class TaskFilter(BaseModel):
    """Query of a device's tasks."""

    state: list[TaskState] = Field(
        default=[TaskState.PENDING], description="Pending ones if not given; may be repeated."
    )


class Alarm(Document):
    severity: Severity
    port: int | None = Field(description="Null: the device as a whole.")
    code: str
    text: str


class DeviceAlarm(Alarm):
    """News of an alarm; of severity `cleared` if over."""

    device: str

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, value: object) -> object:
        if not isinstance(value, events.DeviceAlarm):
            return value
        return cls.attributes(value.alarm, device=value.device)


class Device(Document):
    name: str
    kind: str
    driver: str
    connected: bool
    detail: str
    alarms: list[Alarm] = Field(description="Alarms at the last query.")
    answers: bool = Field(description="False if the device is connected, but an answer is overdue.")


class Devices(Document):
    devices: list[Device]


class PluggedPair(Document):
    """A cross-connect of a patch panel, and the wiring at its ends; null: nothing of this
    fabric.
    """

    ingress: int
    egress: int
    ingress_wired_to: str | None
    egress_wired_to: str | None


class Task(Document):
    """A manual task: unplug first, then plug."""

    id: int
    state: TaskState
    disconnect: list[PluggedPair]
    connect: list[PluggedPair]
    created_unix_s: float
    settled_unix_s: float | None
    note: str

    @classmethod
    def at(cls, fabric: Fabric, plane: str, task: roles.Task) -> Task:
        wired = wired_to(fabric, fabric.plane_by_name[plane].id)

        def pairs(cross_connects: Iterable[CrossConnect]) -> list[dict[str, object]]:
            return [
                {
                    "ingress": cross_connect.ingress,
                    "egress": cross_connect.egress,
                    "ingress_wired_to": wired_name(fabric, wired.get(cross_connect.ingress)),
                    "egress_wired_to": wired_name(fabric, wired.get(cross_connect.egress)),
                }
                for cross_connect in cross_connects
            ]

        return cls.of(fabric, task, disconnect=pairs(task.disconnect), connect=pairs(task.connect))


class Tasks(Document):
    tasks: list[Task]


@routes.on("GET")
def list_devices(service: Service) -> Devices:
    """Optical switches, ToRs and vswitches, and whether they are connected."""
    return Devices.of(None, devices=service.devices())


@routes.on("GET", "/{name}/tasks", UNKNOWN_NAME, DEVICE_UNAVAILABLE)
def list_tasks(name: str, service: Service, query: Asked[TaskFilter]) -> Tasks:
    """Tasks of the people who work an optical switch by hand, oldest first."""
    tasks = [task for task in service.tasks(name) if task.state in query.state]
    return Tasks(tasks=[Task.at(service.fabric, name, task) for task in tasks])


@routes.on(
    "POST",
    "/{name}/tasks/{task_id}",
    *BODY_PROBLEMS,
    UNKNOWN_NAME,
    LIFECYCLE_CONFLICT,
    DEVICE_UNAVAILABLE,
)
def settle_task(name: str, task_id: int, body: TaskBody, service: Service) -> Task:
    """Report a task as done, or as impossible. Repeating the report is harmless."""
    settled = service.settle_task(name, task_id, TaskState(body.state), body.note)
    return Task.at(service.fabric, name, settled)
