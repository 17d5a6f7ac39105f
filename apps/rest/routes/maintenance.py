"""/v1/drift, /v1/reconcile, /v1/quarantine, /v1/policy, /v1/reload"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.problems import (
    BODY_TOO_LARGE,
    DEVICE_UNAVAILABLE,
    INVALID_CONFIGURATION,
    INVALID_REQUEST,
    JOURNAL_FAILED,
    MALFORMED,
    UNKNOWN_NAME,
    UNSUPPORTED_MEDIA_TYPE,
    responses,
)

router = APIRouter(prefix="/v1", tags=["maintenance"])


@router.get("/drift", responses=responses(DEVICE_UNAVAILABLE))
def get_drift(service: Service) -> models.DriftReport:
    """How mirrors, VLANs and rules differ from what the controller wants; reads all devices."""
    return render.drift_report(service.drift())


@router.post(
    "/reconcile",
    responses=responses(MALFORMED, UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, DEVICE_UNAVAILABLE),
)
def reconcile(_body: models.ReconcileBody, service: Service) -> models.Reconciliation:
    """Mend what /v1/drift shows; answers when that is done."""
    done = service.reconcile()
    return models.Reconciliation(
        found=render.drift_report(done.found),
        left=render.drift_report(done.left),
        reconfigurations=list(done.reconfigurations),
    )


@router.get("/quarantine")
def list_quarantine(service: Service) -> models.Quarantine:
    """ToR ports that planning leaves out because a circuit on them failed."""
    return models.Quarantine(
        ports=[render.quarantined(service.fabric, one) for one in service.quarantine()]
    )


@router.put(
    "/quarantine/{rack}/{port:path}",
    responses=responses(
        MALFORMED,
        UNKNOWN_NAME,
        BODY_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        INVALID_REQUEST,
        JOURNAL_FAILED,
    ),
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


@router.get("/policy")
def get_policy(service: Service) -> models.PolicyInForce:
    """The policy that is in force, and which parts of it a reload can change."""
    return render.policy(service.policy)


@router.patch(
    "/policy",
    responses=responses(
        MALFORMED, BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, DEVICE_UNAVAILABLE
    ),
)
def amend_policy(body: models.PolicyBody, service: Service) -> models.PolicyInForce:
    """Go on with other values, until the next start or reload; what is left out stays."""
    service.amend(body.model_dump(exclude_unset=True))
    return render.policy(service.policy)


@router.post(
    "/reload",
    responses=responses(
        MALFORMED,
        INVALID_CONFIGURATION,
        UNSUPPORTED_MEDIA_TYPE,
        INVALID_REQUEST,
        DEVICE_UNAVAILABLE,
    ),
)
def reload(body: models.ReloadBody, service: Service) -> models.Reload:
    """Read the configuration file again and apply what touches no traffic, or nothing at all."""
    return render.reload(service.reload(dry_run=body.dry_run))
