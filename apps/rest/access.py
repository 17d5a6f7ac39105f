"""Access to routes: roles, public routes, records in the audit log."""

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
    """True: no token needed, as for a supervisor's probes and for texts available elsewhere."""
    recorded: bool = True
    """False: the audit log records refused requests only."""


def set_access(route: BaseRoute, access: Access) -> None:
    setattr(route, _ATTRIBUTE, access)


def access_to(route: BaseRoute) -> Access:
    """The access given to ``route``; FastAPI's description of the API is public."""
    described = getattr(route, "path", None) == _DESCRIPTION
    access: Access = getattr(route, _ATTRIBUTE, Access(public=described))
    return access
