"""/v1/quotas: quotas of tenants, and their present use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from apps.rest.access import TENANTS
from apps.rest.document import Document
from apps.rest.routing import Routes
from hydra.access import Role

if TYPE_CHECKING:
    from apps.rest.dependencies import Asking, Reserving, Tokens

routes = Routes("/v1/quotas", "reservations", TENANTS)


class Quota(Document):
    tenant: str
    max_reservations: int | None = Field(description="At a time; null: no limit.")
    max_mbps: float | None = Field(description="At any moment; null: no limit.")
    max_priority: int
    reservations: int = Field(description="Reservations that are not over.")
    peak_mbps: float = Field(description="Largest promised bandwidth at any moment from now on.")


class Quotas(Document):
    quotas: list[Quota]


@routes.on("GET")
def list_quotas(service: Reserving, tokens: Tokens, caller: Asking) -> Quotas:
    """Quotas of all tenants that have a token; tenants see their own."""
    known = {} if tokens is None else tokens.known()
    return Quotas(
        quotas=[
            Quota.of(
                None,
                token.quota,
                tenant=token.name,
                **Quota.attributes(service.usage(token.name)),
            )
            for token in known.values()
            if token.role is Role.TENANT and caller.tenant in (None, token.name)
        ]
    )
