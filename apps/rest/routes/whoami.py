"""/v1/whoami: the caller's name and role, as the token says"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models
from apps.rest.context import Asking

router = APIRouter(prefix="/v1")


@router.get("/whoami", tags=["operations"])
async def who_am_i(caller: Asking) -> models.Caller:
    """Name and role of the one who asks; a controller without tokens knows operators alone."""
    return models.Caller.model_validate(caller)
