"""/v1/demand"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Service

router = APIRouter(prefix="/v1", route_class=AnsweringRoute)


@router.get("/demand", tags=["network"])
def get_demand(service: Service) -> models.Demand:
    """Rack-to-rack demand as the controller sees it now."""
    return render.demand(service.fabric, service.demand(), service.policy)
