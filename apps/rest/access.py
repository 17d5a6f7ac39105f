"""Who may use a route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hydra.access import Role

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

TENANTS: Final = frozenset({Role.TENANT})
_ATTRIBUTE: Final = "hydra_access"
_DESCRIPTION: Final = "/openapi.json"


@dataclass(frozen=True, slots=True)
class Access:
    roles: frozenset[Role] = frozenset({Role.OPERATOR})
    public: bool = False
    """True: without a token, as a supervisor's probes, and texts that can be read elsewhere."""
    recorded: bool = True
    """False: the audit log has only what was turned away."""


def give(route: BaseRoute, access: Access) -> None:
    setattr(route, _ATTRIBUTE, access)


def access_to(route: BaseRoute) -> Access:
    """What was given; the description of the API, which FastAPI makes, is public."""
    described = getattr(route, "path", None) == _DESCRIPTION
    access: Access = getattr(route, _ATTRIBUTE, Access(public=described))
    return access
