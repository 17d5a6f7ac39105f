"""/v1/quarantine"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.problems import BODY_PROBLEMS, JOURNAL_FAILED, UNKNOWN_NAME, responses
from apps.rest.reading import BodyRoute

router = APIRouter(prefix="/v1", tags=["maintenance"], route_class=BodyRoute)


@router.get("/quarantine")
def list_quarantine(service: Service) -> models.Quarantine:
    """ToR ports that planning leaves out because a circuit on them failed."""
    return models.Quarantine(
        ports=[render.quarantined(service.fabric, one) for one in service.quarantine()]
    )


@router.put(
    "/quarantine/{rack}/{port:path}",
    responses=responses(*BODY_PROBLEMS, UNKNOWN_NAME, JOURNAL_FAILED),
)
def set_aside(
    rack: str, port: str, body: models.QuarantineBody, service: Service
) -> models.QuarantinedPort:
    """Leave a port out of planning until it is cleared; a circuit that stands there stays."""
    return render.quarantined(service.fabric, service.set_aside(rack, port, body.reason))


@router.delete("/quarantine/{rack}/{port:path}", responses=responses(UNKNOWN_NAME, JOURNAL_FAILED))
def clear_quarantine(rack: str, port: str, service: Service) -> models.QuarantinedPort:
    """Let planning use a port again; answers with what was known of it."""
    return render.quarantined(service.fabric, service.clear_quarantine(rack, port))
