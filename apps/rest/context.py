"""What the routes need of the application they belong to."""

from __future__ import annotations

from threading import Event
from typing import Annotated, Final

from fastapi import Depends, Request

from hydra.access import LOCAL, Caller
from hydra.service import ControllerService


async def _service(request: Request) -> ControllerService:
    service: ControllerService = request.app.state.service
    return service


async def _closing(request: Request) -> Event:
    closing: Event = request.app.state.closing
    return closing


async def _caller(request: Request) -> Caller:
    caller: Caller = request.scope.get(CALLER, LOCAL)
    return caller


CALLER: Final = "hydra.caller"
"""Key in the ASGI scope of who asks, once that is known."""

Service = Annotated[ControllerService, Depends(_service)]
Closing = Annotated[Event, Depends(_closing)]
"""Set when the server stops: whoever waits answers with what there is."""

Asking = Annotated[Caller, Depends(_caller)]
