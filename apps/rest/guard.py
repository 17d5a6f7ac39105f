"""Access check: caller, right, rate and audit record, before a request's body is read."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from starlette import status
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.process.sinks import MOST_HELD_BYTES, Sink, write_whole
from apps.rest.access import access_to
from apps.rest.errors import problem_response
from apps.rest.problems import (
    FORBIDDEN,
    FOREIGN_SITE,
    TOO_MANY_REQUESTS,
    UNAUTHENTICATED,
    ProblemType,
)
from apps.rest.rate import Limiter
from apps.rest.scope import CALLER, STANDING
from apps.rest.sites import Sites
from apps.rest.tokens import TokenFile
from hydra.access import LOCAL, NOBODY, Caller, Role, identify
from hydra.errors import HydraError

LOG = logging.getLogger("hydra.audit")
_MISSING: Final = (
    "send a valid token as Authorization: Bearer TOKEN (`hydra` and the Python client take the "
    "token in the file HYDRA_TOKEN_FILE, or in HYDRA_TOKEN); ask an operator for a token"
)
_WRONG: Final = "this token is not valid: mistyped or revoked; ask an operator for a new token"
_WRITTEN_S: Final = 1.0
"""Time that a request waits for its line in the audit log's file."""
_AWAY_S: Final = 3600.0
"""Seconds of absence, after which an operator's next request is a new login."""


class AuditLog:
    """Audit log: a JSON object per line for each request that changes something or is refused.

    A line names the caller, the address, the request and the outcome, never a header or a body. A
    stalled file delays the present requests, each for no longer than :data:`_WRITTEN_S`; later
    requests do not wait. Lines beyond the capacity of the sink are dropped and counted.
    """

    def __init__(self, path: str | None) -> None:
        """Raises HydraError if the file can't be written; None for the controller's log."""
        self._path = None if path is None else Path(path)
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.touch(mode=0o600)
            except OSError as error:
                raise HydraError(
                    f"can't write controller.audit_log {path}: {error.strerror}"
                ) from error
            self._sink = Sink("audit", partial(self._append, self._path), _dropped)
        self._late = False
        """True while lines wait for longer than :data:`_WRITTEN_S`."""

    async def record(
        self, scope: Scope, caller: Caller | None, status: int, taken_s: float
    ) -> None:
        client = scope.get("client") or ("", 0)
        entry = {
            "unix_s": round(time.time(), 3),
            "caller": None if caller is None else caller.name,
            "role": None if caller is None else caller.role.value,
            "from": client[0],
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": round(taken_s * 1000, 1),
        }
        line = json.dumps(entry)
        if self._path is None:
            LOG.info("%s", line)
        elif self._sink.put(line.encode() + b"\n") and not self._late:
            await self._written()

    async def _written(self) -> None:
        """Wait until all lines so far are in the file; after :data:`_WRITTEN_S`, log the delay."""
        loop = asyncio.get_running_loop()
        written = asyncio.Event()
        self._sink.call_when_written(lambda: _call_in(loop, written.set))
        try:
            async with asyncio.timeout(_WRITTEN_S):
                await written.wait()
        except TimeoutError:
            if self._late:
                return
            self._late = True
            LOG.error(
                "the audit log %s has taken no line for %g s: requests no longer wait for the "
                "log, and lines beyond %d MiB are dropped. Check the disk, or the reader of the "
                "log",
                self._path,
                _WRITTEN_S,
                MOST_HELD_BYTES >> 20,
            )
            self._sink.call_when_written(lambda: _call_in(loop, self._in_time))

    def _in_time(self) -> None:
        self._late = False
        LOG.warning("the audit log %s takes lines again", self._path)

    @staticmethod
    def _append(path: Path, line: bytes) -> None:
        """Append one line; in the sink's thread. Raises OSError on failure."""
        try:
            with path.open("ab", buffering=0) as file:  # open each time: the file may be rotated
                write_whole(file.fileno(), line)
        except OSError as error:
            words = line.decode().rstrip()
            LOG.error("the audit log %s can't be written (%s): %s", path, error, words)
            raise


def _call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(callback)


def _dropped(lines: int) -> bytes:
    """The line with the number of dropped lines of the audit log."""
    return json.dumps({"unix_s": round(time.time(), 3), "dropped_lines": lines}).encode() + b"\n"


class Logins:
    """Reports an operator whose token was not used from the same address for an hour."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        """``note`` gets the operator's name and address, in a thread that may wait."""
        self._note = note
        self._seen_s: dict[tuple[str, str], float] = {}

    async def seen(self, caller: Caller, address: str) -> None:
        if caller.role is not Role.OPERATOR:
            return
        now_s = time.monotonic()
        here_s = {
            operator: seen_s
            for operator, seen_s in self._seen_s.items()
            if now_s < seen_s + _AWAY_S
        }
        came = caller.name, address
        self._seen_s = {**here_s, came: now_s}
        if came not in here_s:
            await run_in_threadpool(self._note, *came)


class Guard:
    """Checks access to routes.

    Without ``tokens``, every caller is an operator: the server listens on loopback only.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        tokens: TokenFile | None,
        limiter: Limiter | None,
        audit: AuditLog,
        sites: Sites,
        logins: Logins,
    ) -> None:
        self._app = app
        self._sites = sites
        self._logins = logins
        self._routes = routes
        self._tokens = tokens
        self._limiter = limiter
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.monotonic()
        caller = self._identify(scope)
        refusal = self._refusal(scope, caller)

        async def record(status_code: int) -> None:
            if refusal is not None or self._changes(scope):
                await self._audit.record(scope, caller, status_code, time.monotonic() - started_s)

        outcome = _Outcome(send, record)
        if refusal is None:
            if caller is not None and caller is not LOCAL:
                await self._logins.seen(caller, (scope.get("client") or ("", 0))[0])
            try:
                known = {CALLER: caller or NOBODY, STANDING: lambda: self._stands(scope, caller)}
                await self._app({**scope, **known}, receive, outcome)
            except Exception:
                await outcome.note(status.HTTP_500_INTERNAL_SERVER_ERROR)
                raise
        else:
            problem, detail, headers = refusal
            response = problem_response(problem, detail, scope["path"], headers=headers)
            await response(scope, receive, outcome)

    def _stands(self, scope: Scope, caller: Caller | None) -> bool:
        """Whether ``caller`` still has the same token and role."""
        now = self._identify(scope)
        return caller is None or (now is not None and now.role is caller.role)

    def _identify(self, scope: Scope) -> Caller | None:
        if self._tokens is None:
            return LOCAL
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        return identify(token.strip(), self._tokens.known())

    def _refusal(
        self, scope: Scope, caller: Caller | None
    ) -> tuple[ProblemType, str, dict[str, str]] | None:
        objection = self._sites.objection(scope)
        if objection is not None:
            return FOREIGN_SITE, objection, {}
        route = self._route(scope)
        access = None if route is None else access_to(route)
        if access is not None and access.public:
            return None
        address = (scope.get("client") or ("", 0))[0]
        key = f"address {address}" if caller is None else f"caller {caller.name}"
        wait_s = 0 if self._limiter is None else self._limiter.wait_s(key)
        if wait_s:
            detail = f"too many requests: try again in {wait_s} s"
            return TOO_MANY_REQUESTS, detail, {"Retry-After": str(wait_s)}
        if caller is None:
            given = "authorization" in Headers(scope=scope)
            return UNAUTHENTICATED, _WRONG if given else _MISSING, {"WWW-Authenticate": "Bearer"}
        if route is not None and access is not None and caller.role not in access.roles:
            wanted = " or ".join(sorted(role.value for role in access.roles))
            detail = (
                f"{caller.name} has the role {caller.role.value} and may not {scope['method']} "
                f"{route.path}: use a token of the role {wanted}"
            )
            return FORBIDDEN, detail, {}
        return None

    def _changes(self, scope: Scope) -> bool:
        if scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            return False
        route = self._route(scope)
        return route is None or access_to(route).recorded

    def _route(self, scope: Scope) -> Route | None:
        """The route that will be taken; None if there is none."""
        for route in self._routes:
            if isinstance(route, Route) and route.matches(scope)[0] is Match.FULL:
                return route
        return None


class _Outcome:
    """Passes messages on; the status is recorded before the client sees the status."""

    def __init__(self, send: Send, record: Callable[[int], Awaitable[None]]) -> None:
        self._send = send
        self._record = record
        self._noted = False

    async def note(self, status_code: int) -> None:
        """Record the status; only the first call counts."""
        if not self._noted:
            self._noted = True
            await self._record(status_code)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self.note(message["status"])
        await self._send(message)
