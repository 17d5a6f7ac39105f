"""/v1/deliveries: what reservations get beside what they were promised"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Reservations

router = APIRouter(prefix="/v1/deliveries", tags=["reservations"], route_class=AnsweringRoute)


@router.get("")
def list_deliveries(service: Reservations) -> models.Deliveries:
    """Deliveries of all reservations that have, or are getting, circuits now."""
    return models.Deliveries(deliveries=[render.delivery(one) for one in service.deliveries()])
