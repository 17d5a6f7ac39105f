"""/v1/workers: which processes hold the switches' connections"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Holding

router = APIRouter(prefix="/v1", tags=["operations"], route_class=AnsweringRoute)


@router.get("/workers")
def list_workers(workers: Holding) -> models.Workers:
    """Workers that hold switches for the controller; none where switches connect to the controller
    itself.
    """
    found = () if workers is None else workers.seen()
    return models.Workers(workers=[models.Worker.model_validate(one) for one in found])
