"""/v1/quarantine"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.problems import UNKNOWN_NAME, responses

router = APIRouter(prefix="/v1", tags=["maintenance"])


@router.get("/quarantine")
def list_quarantine(service: Service) -> models.Quarantine:
    """ToR ports that planning leaves out because a circuit on them failed."""
    return models.Quarantine(
        ports=[render.quarantined(service.fabric, one) for one in service.quarantine()]
    )


@router.delete("/quarantine/{rack}/{port:path}", responses=responses(UNKNOWN_NAME))
def clear_quarantine(rack: str, port: str, service: Service) -> models.QuarantinedPort:
    """Let planning use a port again; answers with what was known of it."""
    return render.quarantined(service.fabric, service.clear_quarantine(rack, port))
