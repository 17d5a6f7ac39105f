"""Parts of the API that each role may use."""

from __future__ import annotations

from typing import Final

from hydra.access import Role

PUBLIC: Final = frozenset(
    {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/problems/{slug}"),
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
        ("GET", "/docs/start.js"),
        ("GET", "/docs/{name}"),
        ("GET", "/"),
        ("GET", "/dashboard/{name}"),
    }
)
"""Routes without a token: probes of a supervisor, and texts that everybody can read elsewhere."""

_TENANTS: Final = frozenset(
    {
        ("GET", "/v1/reservations"),
        ("POST", "/v1/reservations"),
        ("POST", "/v1/reservations/preview"),
        ("GET", "/v1/reservations/{reservation_id}"),
        ("GET", "/v1/reservations/{reservation_id}/delivery"),
        ("GET", "/v1/deliveries"),
        ("POST", "/v1/reservations/{reservation_id}/commit"),
        ("PATCH", "/v1/reservations/{reservation_id}"),
        ("DELETE", "/v1/reservations/{reservation_id}"),
        ("POST", "/v1/groups"),
        ("GET", "/v1/groups/{group_id}"),
        ("DELETE", "/v1/groups/{group_id}"),
        ("GET", "/v1/events"),
        ("GET", "/v1/quotas"),
        ("GET", "/v1/servers"),
    }
)

_AGENTS: Final = frozenset(
    {
        ("GET", "/v1/agents/{server_name}"),
        ("GET", "/v1/agents/{server_name}/circuits"),
        ("PUT", "/v1/agents/{server_name}/backlog"),
    }
)
UNRECORDED: Final = frozenset({("PUT", "/v1/agents/{server_name}/backlog")})
"""Routes that the audit log leaves out unless turned away: they come several times a second."""


def roles(method: str, path: str) -> frozenset[Role]:
    """Roles that may send ``method`` to the route ``path``; a new route is for operators first.

    Viewers may read everything.
    """
    allowed = {Role.OPERATOR}
    if method == "GET":
        allowed.add(Role.VIEWER)
    if (method, path) in _TENANTS:
        allowed.add(Role.TENANT)
    if (method, path) in _AGENTS:
        allowed.add(Role.AGENT)
    if (method, path) == ("GET", "/v1/whoami"):
        allowed |= set(Role)
    return frozenset(allowed)
