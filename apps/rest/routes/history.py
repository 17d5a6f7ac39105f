"""/v1/history: what happened, over restarts"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Service
from apps.rest.problems import INVALID_REQUEST, responses

router = APIRouter(route_class=AnsweringRoute)


@router.get("/v1/history", tags=["operations"], responses=responses(INVALID_REQUEST))
def list_history(
    service: Service, query: Annotated[models.HistoryFilter, Query()]
) -> models.History:
    """What happened, newest first: changes, losses, reservations, decisions, reloads, starts."""
    before_s = float("inf") if query.before_unix_s is None else query.before_unix_s
    lines = service.history(query.since_unix_s, before_s, query.kind, query.limit + 1)
    return render.history(lines, query.limit)
