"""/v1/sharing: who gets circuits in periodic mode, and which traffic takes them"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from apps.rest.context import Service
from apps.rest.models import Body, Document
from apps.rest.problems import BODY_PROBLEMS, DEVICE_UNAVAILABLE, NO_PLAN, responses
from apps.rest.reading import BodyRoute
from hydra.policy import Sharing

router = APIRouter(prefix="/v1/sharing", tags=["planning"], route_class=BodyRoute)


class SharingBody(Body):
    sharing: Sharing = Field(strict=False)


class SharingState(Document):
    sharing: Sharing


@router.get("")
def get_sharing(service: Service) -> SharingState:
    """Who gets circuits in periodic mode, and which traffic takes them."""
    return SharingState(sharing=service.policy.sharing)


@router.put(
    "",
    responses=responses(*BODY_PROBLEMS, NO_PLAN, DEVICE_UNAVAILABLE),
)
def set_sharing(body: SharingBody, service: Service) -> SharingState:
    """Until the next start or reload; answers once the vswitches know which traffic is meant."""
    service.share(body.sharing)
    return SharingState(sharing=body.sharing)
