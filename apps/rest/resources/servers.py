"""/v1/servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apps.rest.access import TENANTS
from apps.rest.document import Document
from apps.rest.routing import Routes

if TYPE_CHECKING:
    from apps.rest.dependencies import Reserving

routes = Routes("/v1/servers", "network", TENANTS)


class Server(Document):
    name: str
    rack: str


class Servers(Document):
    servers: list[Server]


@routes.on("GET")
def list_servers(service: Reserving) -> Servers:
    """The servers of the fabric: possible ends of reservations, besides racks."""
    return Servers(
        servers=[
            Server(name=server.name, rack=rack.name)
            for rack in service.fabric.racks
            for server in rack.servers
        ]
    )
