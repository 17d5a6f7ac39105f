"""/v1/quotas: what tenants may have at a time, and what they have"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Asking, Reservations, Tokens
from hydra.access import Role, StoredToken
from hydra.service import ReservationService

router = APIRouter(prefix="/v1/quotas", tags=["reservations"], route_class=AnsweringRoute)


@router.get("")
def list_quotas(service: Reservations, tokens: Tokens, caller: Asking) -> models.Quotas:
    """Quotas of all tenants that have a token; tenants see their own."""
    known = {} if tokens is None else tokens.known()
    return models.Quotas(
        quotas=[
            _quota(service, token)
            for token in known.values()
            if token.role is Role.TENANT and caller.tenant in (None, token.name)
        ]
    )


def _quota(service: ReservationService, token: StoredToken) -> models.Quota:
    usage = service.usage(token.name)
    return models.Quota(
        tenant=token.name,
        max_reservations=token.quota.max_reservations,
        max_mbps=token.quota.max_mbps,
        max_priority=token.quota.max_priority,
        reservations=usage.reservations,
        peak_mbps=usage.peak_mbps,
    )
