"""What the routes need of the application they belong to."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Annotated, Final

from fastapi import Depends, Request

from apps.rest.tenant import TenantService
from apps.rest.tokens import TokenFile
from apps.rest.webhook_delivery import Webhooks
from hydra.access import LOCAL, Caller, Role
from hydra.service import ControllerService, ReservationService


async def _service(request: Request) -> ControllerService:
    service: ControllerService = request.app.state.service
    return service


async def _closing(request: Request) -> Event:
    closing: Event = request.app.state.closing
    return closing


async def _caller(request: Request) -> Caller:
    caller: Caller = request.scope.get(CALLER, LOCAL)
    return caller


async def _known(request: Request) -> bool:
    caller = await _caller(request)
    return caller.role in {Role.OPERATOR, Role.VIEWER}


async def _standing(request: Request) -> Callable[[], bool]:
    standing: Callable[[], bool] = request.scope.get(STANDING, lambda: True)
    return standing


async def _reservation_service(request: Request) -> ReservationService:
    service: ControllerService = request.app.state.service
    caller = await _caller(request)
    if caller.tenant is None:
        return service
    return TenantService(service, caller.tenant, caller.quota)


async def _tokens(request: Request) -> TokenFile | None:
    tokens: TokenFile | None = request.app.state.tokens
    return tokens


CALLER: Final = "hydra.caller"
"""Key in the ASGI scope of who asks, once that is known."""

STANDING: Final = "hydra.standing"
"""Key of a function: whether the caller is still who it was when it asked."""

Service = Annotated[ControllerService, Depends(_service)]
Reservations = Annotated[ReservationService, Depends(_reservation_service)]
"""The controller as the one who asks may see it."""
Closing = Annotated[Event, Depends(_closing)]
"""Set when the server stops: whoever waits answers with what there is."""


async def _webhooks(request: Request) -> Webhooks:
    webhooks: Webhooks = request.app.state.webhooks
    return webhooks


Tokens = Annotated[TokenFile | None, Depends(_tokens)]

Hooks = Annotated[Webhooks, Depends(_webhooks)]
Asking = Annotated[Caller, Depends(_caller)]
Standing = Annotated[Callable[[], bool], Depends(_standing)]
Known = Annotated[bool, Depends(_known)]
"""Whether the one who asks may know of devices and their addresses."""
