"""/v1/sharing: who gets circuits in periodic mode, and which traffic takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from apps.rest.document import Body, Document
from apps.rest.problems import BODY_PROBLEMS, DEVICE_UNAVAILABLE, NO_PLAN
from apps.rest.routing import Routes
from hydra.policy import Sharing

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/sharing", "planning")


class SharingBody(Body):
    sharing: Sharing = Field(strict=False)


class SharingState(Document):
    sharing: Sharing
    in_force: Sharing
    """The same as `sharing`, or the choice of `auto`."""
    reason: str
    """Why this way of sharing is in force, in a sentence."""


@routes.on("GET")
def get_sharing(service: Service) -> SharingState:
    """Who gets circuits in periodic mode, and which traffic takes them."""
    return _state(service)


@routes.on("PUT", "", *BODY_PROBLEMS, NO_PLAN, DEVICE_UNAVAILABLE)
def set_sharing(body: SharingBody, service: Service) -> SharingState:
    """Set the sharing until the next start or reload; answers once the vswitches know the
    traffic.
    """
    service.share(body.sharing)
    return _state(service)


def _state(service: Service) -> SharingState:
    choice = service.sharing()
    return SharingState(
        sharing=service.policy.sharing, in_force=choice.sharing, reason=choice.reason
    )
