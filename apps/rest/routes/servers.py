"""/v1/servers"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Reservations

router = APIRouter(prefix="/v1", route_class=AnsweringRoute)


@router.get("/servers", tags=["network"])
def list_servers(service: Reservations) -> models.Servers:
    """The servers of the fabric: what reservations may join, besides racks."""
    return models.Servers(
        servers=[
            models.Server(name=server.name, rack=rack.name)
            for rack in service.fabric.racks
            for server in rack.servers
        ]
    )
