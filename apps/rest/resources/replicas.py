"""/v1/replicas, /v1/handover: the controllers, the leader, and the state of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from apps.rest.document import Document
from apps.rest.problems import LIFECYCLE_CONFLICT, STANDING_BY
from apps.rest.routing import Routes

if TYPE_CHECKING:
    from apps.rest.dependencies import Leading

routes = Routes("/v1", "operations")


class Replica(Document):
    """One of several controllers; has a new id at each start."""

    id: str
    name: str
    url: str
    release: str
    since_unix_s: float = Field(description="Time when the controller became standby, or leader.")
    switches: int | None = Field(
        description="Number of connected switches; null: the controller's release does not say."
    )


class StoreMember(Document):
    """A member of etcd."""

    endpoint: str
    answers: bool
    leads: bool
    version: str
    size_mb: float
    behind: int = Field(description="Number of entries of etcd's log still to be applied.")
    problems: list[str]


class Replicas(Document):
    role: Literal["alone", "leading", "standing-by"] = Field(
        description="Name of the answering controller."
    )
    leader: Replica | None
    standing_by: list[Replica]
    store: list[StoreMember]
    problem: str = Field(
        description="Why the leader is unknown; empty if the store names the leader."
    )


class Handover(Document):
    standing_by: list[str] = Field(description="URLs of the controllers entitled to lead next.")


@routes.on("POST", "/handover", LIFECYCLE_CONFLICT, STANDING_BY, status_code=202)
def hand_over(term: Leading) -> Handover:
    """End the leading controller, as for an upgrade; then a standby controller leads."""
    return Handover(standing_by=[replica.url for replica in term.hand_over()])


@routes.on("GET", "/replicas")
def list_replicas(term: Leading) -> Replicas:
    """Controllers that share a store; any of the controllers answers. A controller with a journal
    in a file is alone.
    """
    found = term.replicas()
    if found is None:
        return Replicas(role="alone", leader=None, standing_by=[], store=[], problem="")
    return Replicas.of(None, found, role="standing-by" if term.over() else "leading")
