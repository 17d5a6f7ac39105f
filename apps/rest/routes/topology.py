"""/v1/topology"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Service

router = APIRouter(prefix="/v1", route_class=AnsweringRoute)


@router.get("/topology", tags=["network"])
def get_topology(service: Service) -> models.Topology:
    """The circuits and paths that stand now."""
    return render.topology(service.fabric, service.state(), service.port_rates_mbps())
