"""/v1/whoami: name and role of the caller, from the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apps.rest.document import Document
from apps.rest.routing import Routes
from hydra.access import Role

if TYPE_CHECKING:
    from apps.rest.dependencies import Asking

routes = Routes("/v1/whoami", "operations", frozenset(Role))


class Caller(Document):
    name: str
    role: Role


@routes.on("GET")
async def who_am_i(caller: Asking) -> Caller:
    """Name and role of the caller; a controller without tokens knows operators only."""
    return Caller.of(None, caller)
