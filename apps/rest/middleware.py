"""Treatment of every request around routing: HEAD becomes GET, bodies are bounded."""

from __future__ import annotations

import logging
from email.message import Message as EmailMessage
from typing import Final

from anyio import BrokenResourceError, CancelScope
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.rest.document import MOST_ENTRIES
from apps.rest.errors import problem_response
from apps.rest.problems import BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, ProblemType
from hydra.model import Fabric

LOG = logging.getLogger("hydra.rest")
BODY_LIMIT_BYTES: Final = 64 * 1024
_ENTRY_BYTES: Final = 128
"""A pair with its bandwidths, indented, without the two names."""
_DISCARD_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""If we close while a client is still sending, the client may lose our answer. So the rest of a
large body is read and discarded, up to this limit.
"""
_JSON: Final = "application/json"


def body_limit(method: str, path: str, fabric: Fabric) -> int:
    """Largest size of a body in bytes.

    For a plan: a demand between all pairs of racks. For a group or a shape: the largest number of
    entries. For a report: all racks.
    """
    if method == "PUT" and path.startswith("/v1/agents/"):
        names, entries = list(fabric.rack_by_name), len(fabric.racks)
    elif method == "POST" and path in {"/v1/plan", "/v1/reconfigurations"}:
        names, entries = list(fabric.rack_by_name), len(fabric.racks) ** 2
    elif method == "POST" and path in {"/v1/groups", "/v1/shapes"}:
        names, entries = [*fabric.rack_by_name, *fabric.server_by_name], MOST_ENTRIES
    else:
        return BODY_LIMIT_BYTES
    return BODY_LIMIT_BYTES + entries * (_ENTRY_BYTES + 2 * max(map(len, names), default=0))


class HeadAsGet:
    """Answers HEAD as GET; the HTTP server leaves the content out.

    A stream ends at the start of its content.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        with CancelScope() as answering:

            async def send_head(message: Message) -> None:
                if answering.cancel_called:
                    return
                await send({**message, "more_body": False} if "more_body" in message else message)
                if message.get("more_body"):
                    answering.cancel()

            await self._app({**scope, "method": "GET"}, receive, send_head)


class Departures:
    """A client that leaves while events are being sent is no error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except* BrokenResourceError:
            LOG.debug("a client left before the end of the answer to %s", scope["path"])


class BodyGuard:
    """Reads bodies as a whole; refuses bodies that are too large or not declared as JSON.

    The declaration also keeps other sites' pages from making a browser post JSON here: the browser
    asks first, and is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self._app(scope, receive, send)
            return
        fabric = scope["app"].state.service.fabric
        limit = body_limit(scope["method"], scope["path"], fabric)
        body = await _read_body(receive, limit)
        if body is None:
            refusal = f"the body has more than {limit} bytes"
            await _refuse(BODY_TOO_LARGE, refusal, scope, receive, send)
        elif body and (declared := _media_type(scope)) != _JSON:
            refusal = f"the body is declared as {declared or 'nothing'}; send {_JSON}"
            await _refuse(UNSUPPORTED_MEDIA_TYPE, refusal, scope, receive, send)
        else:
            await self._app(scope, _Replay(body, receive), send)


class _Replay:
    """Replays a body already read, then passes on the real messages."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        message = {"type": "http.request", "body": self._body, "more_body": False}
        self._body = None
        return message


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if too large. If the client closes the connection, the body ends."""
    chunks: list[bytes] = []
    size = 0
    more = True
    while more and size <= limit + _DISCARD_LIMIT_BYTES:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
        more = message.get("more_body", False)
    return b"".join(chunks) if size <= limit else None


def _media_type(scope: Scope) -> str:
    declared = Headers(scope=scope).get("content-type")
    if declared is None:
        return ""
    message = EmailMessage()
    message["content-type"] = declared
    return message.get_content_type()


async def _refuse(
    problem: ProblemType, detail: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """End the connection with the answer, since more of the body may follow."""
    headers = {"Connection": "close"}
    await problem_response(problem, detail, scope["path"], headers=headers)(scope, receive, send)
