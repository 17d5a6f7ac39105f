"""Keys in the ASGI scope by which middleware tells routes what it knows of a request."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from hydra.access import LOCAL, Caller

CALLER: Final = "hydra.caller"
"""Who asks, once that is known."""
STORED: Final = "hydra.stored"
"""The store as it was at a moment, on a controller that stands by: what it has of
:class:`hydra.service.ControllerService` is all that is asked of it."""
STANDING: Final = "hydra.standing"
"""A function: whether the caller is still who it was when it asked."""


def caller_of(scope: Scope) -> Caller:
    """Who asks; without tokens, whoever reaches the controller."""
    caller: Caller = scope.get(CALLER, LOCAL)
    return caller
