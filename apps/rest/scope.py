"""Keys in the ASGI scope with which middleware passes facts about a request to routes."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from hydra.access import LOCAL, Caller

CALLER: Final = "hydra.caller"
"""The caller, once known."""
STORED: Final = "hydra.stored"
"""The store as of a moment, on a standby controller: has the part of
:class:`hydra.service.ControllerService` that such a request needs.
"""
STANDING: Final = "hydra.standing"
"""A function: whether the caller still has the same token and role."""


def caller_of(scope: Scope) -> Caller:
    """The caller; without tokens, the local operator."""
    caller: Caller = scope.get(CALLER, LOCAL)
    return caller
