"""Controllers and their workers: whether one is ready, which leads, who asks it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apps.rest.models.base import Document
from hydra.access import Role


class Health(Document):
    status: str


class Readiness(Document):
    ready: bool
    role: Literal["alone", "leading"] = Field(
        description="Of who answers. One that stands by answers 503, or with what the leader says."
    )


class Replica(Document):
    """A controller of several; its id is another one at each start."""

    id: str
    name: str
    url: str
    release: str
    since_unix_s: float = Field(description="When it began to stand by, or to lead.")
    switches: int | None = Field(
        description="Number of switches connected to it; null: its release does not say."
    )


class StoreMember(Document):
    """A member of etcd."""

    endpoint: str
    answers: bool
    leads: bool
    version: str
    size_mb: float
    behind: int = Field(description="Entries of etcd's log that it has yet to apply.")
    problems: list[str]


class Replicas(Document):
    role: Literal["alone", "leading", "standing-by"] = Field(description="Of who answers.")
    leader: Replica | None
    standing_by: list[Replica]
    store: list[StoreMember]
    problem: str = Field(description="Why the store does not say who leads; empty if it does.")


class Worker(Document):
    """A process that holds connections of switches for the controller."""

    name: str
    release: str
    since_unix_s: float = Field(description="When it began to serve this controller.")
    switches: int = Field(description="Number of switches that are connected to it.")
    serves: int = Field(description="Number of switches that are spoken to by way of it.")
    shards: list[int] = Field(description="Shards of the racks that it owns.")
    cpu_s: float = Field(description="Processor time that its process has taken.")


class Workers(Document):
    workers: list[Worker]


class Handover(Document):
    standing_by: list[str] = Field(description="URLs of the controllers of which one leads next.")


class Caller(Document):
    name: str
    role: Role
