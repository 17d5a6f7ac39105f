"""Answers of a controller that stands by while another one leads."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from apps.process.term import Term
from apps.rest.context import CALLER
from apps.rest.problems import STANDING_BY, problem_response
from hydra.access import NOBODY

_ANSWERED: Final = (
    "/healthz",
    "/metrics",
    "/v1/replicas",
    "/v1/whoami",
    "/problems/",
    "/openapi.json",
    "/docs",
)
"""Beginnings of paths that need no leader."""
_RETRY_S: Final = "1"


class StandingBy:
    """Lets requests through while this controller leads; else says who does."""

    def __init__(self, app: ASGIApp, term: Term) -> None:
        self._app = app
        self._term = term

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        words = self._term.others_lead() if scope["type"] == "http" else None
        if words is None or scope["path"].startswith(_ANSWERED):
            await self._app(scope, receive, send)
            return
        if scope.get(CALLER, NOBODY) is NOBODY:
            words = "another controller leads, or none for the moment"
        headers = {"Retry-After": _RETRY_S}
        response = problem_response(STANDING_BY, words, scope["path"], headers=headers)
        await response(scope, receive, send)
