"""Devices, their alarms, tasks at patch panels, ports set aside."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from apps.rest.models.base import Body, Document
from hydra.roles import Severity, TaskState


class QuarantineBody(Body):
    """Why a port is set aside."""

    reason: str = Field(min_length=1, max_length=200)


class TaskBody(Body):
    """Outcome of a task."""

    state: Literal["done", "failed"]
    note: str = Field(default="", max_length=1000, description="Why it could not be done.")


class TaskFilter(BaseModel):
    """Query of a device's tasks."""

    model_config = ConfigDict(extra="forbid")

    state: list[TaskState] = Field(
        default=[TaskState.PENDING], description="Pending ones if not given; may be repeated."
    )


class Alarm(Document):
    severity: Severity
    port: int | None = Field(description="Null: the device as a whole.")
    code: str
    text: str


class DeviceAlarm(Alarm):
    """News of an alarm; of severity `cleared` where it is over."""

    device: str


class Device(Document):
    name: str
    kind: str
    driver: str
    connected: bool
    detail: str
    alarms: list[Alarm] = Field(description="Those that stood when it was last asked.")
    answers: bool = Field(
        description="False if its connection stands, and it owes an answer whose time is up."
    )


class Devices(Document):
    devices: list[Device]


class PluggedPair(Document):
    """A cross-connect of a patch panel, and what is at its ends; null: nothing of this fabric."""

    ingress: int
    egress: int
    ingress_wired_to: str | None
    egress_wired_to: str | None


class Task(Document):
    """Something that a person is asked to do: unplug first, then plug."""

    id: int
    state: TaskState
    disconnect: list[PluggedPair]
    connect: list[PluggedPair]
    created_unix_s: float
    settled_unix_s: float | None
    note: str


class Tasks(Document):
    tasks: list[Task]


class QuarantinedPort(Document):
    rack: str
    port: str
    plane: str
    reason: str
    since_unix_s: float
    until_unix_s: float | None = Field(description="Null: until it is cleared.")
    on_trial: bool = Field(description="Its time is up: the next circuit there decides.")


class Quarantine(Document):
    ports: list[QuarantinedPort]
