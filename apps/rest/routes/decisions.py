"""/v1/decisions: whether to change, and why"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Service

router = APIRouter(route_class=AnsweringRoute)


@router.get("/v1/decisions", tags=["operations"])
def list_decisions(service: Service) -> models.Decisions:
    """Whether to change, as decided lately from measured demand, and why; newest first."""
    many = service.decisions()
    return models.Decisions(
        decisions=[one.words for one in many],
        records=[render.decision(service.fabric, one) for one in many],
    )
