"""/v1/drift, /v1/reconcile"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models
from apps.rest.context import Service
from apps.rest.problems import (
    DEVICE_UNAVAILABLE,
    INVALID_REQUEST,
    MALFORMED,
    UNSUPPORTED_MEDIA_TYPE,
    responses,
)
from apps.rest.reading import BodyRoute

router = APIRouter(prefix="/v1", tags=["maintenance"], route_class=BodyRoute)


@router.get("/drift", responses=responses(DEVICE_UNAVAILABLE))
def get_drift(service: Service) -> models.DriftReport:
    """How mirrors, VLANs and rules differ from what the controller wants; reads all devices."""
    return models.DriftReport.model_validate(service.drift())


@router.post(
    "/reconcile",
    responses=responses(MALFORMED, UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, DEVICE_UNAVAILABLE),
)
def reconcile(_body: models.ReconcileBody, service: Service) -> models.Reconciliation:
    """Mend what /v1/drift shows; answers when that is done."""
    return models.Reconciliation.model_validate(service.reconcile())
