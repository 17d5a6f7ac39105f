"""/v1/workers: processes that hold the switches' connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from apps.rest.document import Document
from apps.rest.routing import Routes

if TYPE_CHECKING:
    from apps.rest.dependencies import Holding

routes = Routes("/v1/workers", "operations")


class Worker(Document):
    """A process that holds connections of switches for the controller."""

    name: str
    release: str
    since_unix_s: float = Field(description="Time when the worker began to serve this controller.")
    switches: int = Field(description="Number of switches connected to the worker.")
    serves: int = Field(description="Number of switches reached through the worker.")
    shards: list[int] = Field(description="Shards of the racks owned by the worker.")
    cpu_s: float = Field(description="Processor time used by the worker's process.")


class Workers(Document):
    workers: list[Worker]


@routes.on("GET")
def list_workers(workers: Holding) -> Workers:
    """Workers that hold switches for the controller; none if switches connect to the controller
    itself.
    """
    return Workers.of(None, workers=() if workers is None else workers.seen())
