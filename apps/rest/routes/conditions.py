"""/v1/conditions: what is wrong, since when, whom it affects, what to do"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Service

router = APIRouter(route_class=AnsweringRoute)


@router.get("/v1/conditions", tags=["operations"])
def list_conditions(service: Service) -> models.Conditions:
    """All that is wrong now, the most urgent first; things that are alike are one condition."""
    return render.conditions(service.fabric, service.conditions())
