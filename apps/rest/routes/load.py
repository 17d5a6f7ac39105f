"""/v1/load: the last hour of circuits and rack pairs"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.bodies import rack_named
from apps.rest.context import Service
from apps.rest.problems import INVALID_REQUEST, UNKNOWN_NAME, responses

router = APIRouter(prefix="/v1", route_class=AnsweringRoute)


@router.get("/load", tags=["network"], responses=responses(UNKNOWN_NAME, INVALID_REQUEST))
def get_load(service: Service, query: Annotated[models.LoadFilter, Query()]) -> models.Load:
    """What circuits that stand, and the rack pairs that carry most, carried in the last hour."""
    racks = [rack_named(service.fabric, name) for name in query.rack]
    return render.load(service.fabric, service.load(racks, query.limit))
