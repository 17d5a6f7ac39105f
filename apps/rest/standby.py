"""Answers of a standby controller while another controller leads.

The standby answers from the store if possible, with the time of the data; all other requests are
forwarded to the leader.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Final, Protocol
from urllib.parse import parse_qs

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.process.term import Standby, Term
from apps.rest.errors import problem_response
from apps.rest.leader_proxy import CARRIED_BY, READING, LeaderProxy, NoReply, NotCarried
from apps.rest.problems import LEADER_UNANSWERED, STANDING_BY, STORE_UNAVAILABLE
from apps.rest.resources.conditions import Conditions
from apps.rest.scope import CALLER, STORED
from hydra.access import NOBODY
from hydra.faults.condition import Condition
from hydra.journal import JournalError

_OWN: Final = re.compile(
    r"/(healthz|metrics|openapi\.json|)|/(docs|problems|dashboard)(/.*)?"
    r"|/v1/(replicas|whoami|servers)"
)
"""Paths that need neither leader nor store."""
_STORED: Final = re.compile(
    r"/v1/(reservations|shapes|topology|decisions|history|quarantine)"
    r"|/v1/(reservations|groups|shapes)/[^/]+"
)
"""Paths whose answers are in the store."""
_READY: Final = "/readyz"
_CONDITIONS: Final = "/v1/conditions"
_RETRY_S: Final = "1"


class StoredLook(Protocol):
    """A part of :class:`hydra.service.ControllerService`, as of a moment."""

    as_of_unix_s: float


class View(Protocol):
    """The store, as read by a standby controller."""

    def now(self, *, lost: bool = False) -> StoredLook:
        """The store now, or as of its last answer; ``lost``: the store is known not to answer.

        Raises JournalError if the store never answered.
        """
        ...

    def conditions(self, since_unix_s: float, why: str) -> Sequence[Condition]:
        """Conditions of a store that has not answered since the given time."""
        ...


class StandingBy:
    """Lets requests through while this controller leads."""

    def __init__(self, app: ASGIApp, term: Term, carrier: LeaderProxy, view: View | None) -> None:
        self._app = app
        self._term = term
        self._carrier = carrier
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        standby = self._term.standby() if scope["type"] == "http" else None
        if standby is None or _OWN.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
        elif scope["path"] == _READY and not _whoever_leads(scope):
            await _refuse(standby, scope, receive, send)
        elif scope["path"] == _CONDITIONS and standby.store_lost and self._view is not None:
            wrong = self._view.conditions(*standby.store_lost)
            document = Conditions.of_all(scope["app"].state.service.fabric, wrong)
            await JSONResponse(document.model_dump(mode="json"))(scope, receive, send)
        elif (look := await self._look(standby, scope)) is not None:
            await self._app({**scope, STORED: look}, receive, _Dated(send, look.as_of_unix_s))
        else:
            await self._carry(standby, scope, receive, send)

    async def _look(self, standby: Standby, scope: Scope) -> StoredLook | None:
        """The store as the basis of the answer; None: the leader has to answer."""
        control = Headers(scope=scope).get("cache-control", "")
        if (
            self._view is None
            or scope["method"] != "GET"
            or not _STORED.fullmatch(scope["path"])
            or "no-cache" in control
            or "no-store" in control
            or "wait" in _query(scope)  # the answer depends on the future
        ):
            return None
        try:
            lost = standby.store_lost is not None
            return await run_in_threadpool(self._view.now, lost=lost)
        except JournalError:
            return None

    async def _carry(self, standby: Standby, scope: Scope, receive: Receive, send: Send) -> None:
        leader = standby.leader
        if leader is None or CARRIED_BY in Headers(scope=scope).get("via", ""):
            await _refuse(standby, scope, receive, send)
            return
        try:
            await self._carrier.carry(leader, scope, receive, send)
        except NotCarried as error:
            words = f"{standby.words}; but {error}"
            await _refuse(Standby(words, None, standby.store_lost), scope, receive, send)
        except NoReply as error:
            if scope["method"] in READING:
                await _refuse(Standby(str(error), None, standby.store_lost), scope, receive, send)
                return
            detail = (
                f"{error}: the outcome is unknown; check, or repeat the request if a repetition "
                "is safe"
            )
            known = _detail(scope, detail, "the leader has not answered: the outcome is unknown")
            await problem_response(LEADER_UNANSWERED, known, scope["path"])(scope, receive, send)


def _whoever_leads(scope: Scope) -> bool:
    """Whether ``/readyz`` asks if requests sent here are served, by any controller."""
    return _query(scope).get("standby", [""])[-1].lower() in {"true", "1"}


def _query(scope: Scope) -> dict[str, list[str]]:
    query: str = scope["query_string"].decode("latin-1")
    return parse_qs(query)


async def _refuse(standby: Standby, scope: Scope, receive: Receive, send: Send) -> None:
    problem = STANDING_BY if standby.store_lost is None else STORE_UNAVAILABLE
    words = _detail(scope, standby.words, "this controller stands by: ask the leading controller")
    headers = {"Retry-After": _RETRY_S}
    await problem_response(problem, words, scope["path"], headers=headers)(scope, receive, send)


def _detail(scope: Scope, words: str, to_strangers: str) -> str:
    return to_strangers if scope.get(CALLER, NOBODY) is NOBODY else words


class _Dated:
    """Adds the time of the data to an answer."""

    def __init__(self, send: Send, as_of_unix_s: float) -> None:
        self._send = send
        self._as_of_unix_s = as_of_unix_s

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Age"] = str(round(max(0.0, time.time() - self._as_of_unix_s)))
            headers["HydRA-As-Of"] = f"{self._as_of_unix_s:.3f}"
        await self._send(message)
