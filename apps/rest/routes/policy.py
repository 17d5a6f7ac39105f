"""/v1/policy, /v1/reload"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.problems import (
    BODY_PROBLEMS,
    DEVICE_UNAVAILABLE,
    INVALID_CONFIGURATION,
    INVALID_REQUEST,
    MALFORMED,
    UNSUPPORTED_MEDIA_TYPE,
    responses,
)
from apps.rest.reading import BodyRoute

router = APIRouter(prefix="/v1", tags=["maintenance"], route_class=BodyRoute)


@router.get("/policy")
def get_policy(service: Service) -> models.PolicyInForce:
    """The policy that is in force, and which parts of it a reload can change."""
    return render.policy(service.policy)


@router.patch(
    "/policy",
    responses=responses(*BODY_PROBLEMS, DEVICE_UNAVAILABLE),
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
    return models.Reload.model_validate(service.reload(dry_run=body.dry_run))
