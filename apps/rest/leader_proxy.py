"""Forwards requests from a standby controller to the leader.

The reply is the leader's own. A redirection (307) would be simpler but fail: curl and Python's
clients drop the token when redirected to another host.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from threading import Event
from typing import Final

import httpx
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from apps.process.term import Replica, Standby
from apps.rest.problems import STANDING_BY, STORE_UNAVAILABLE
from hydra.errors import HydraError

CARRIED_BY: Final = "1.1 hydra"
"""Marks a carried request in ``Via`` (RFC 9110, section 7.6.3): carry each request once only."""
_TIMEOUT: Final = httpx.Timeout(150.0, connect=2.0, pool=None)
"""Longer than a leader takes for a plan, or to answer ``Prefer: wait=60``."""
_LOOK_S: Final = 0.2
_REQUEST: Final = (
    "accept",
    "authorization",
    "cache-control",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "last-event-id",
    "prefer",
    "user-agent",
)
"""Carried headers. A page's origin is left out: this controller has already judged the origin."""
_OWN: Final = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
)
"""Headers of a reply that belong to the connection."""
_STREAM: Final = "text/event-stream"
_STANDS_BY: Final = frozenset({STANDING_BY.uri, STORE_UNAVAILABLE.uri})
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class NotCarried(HydraError):
    """The leader can't be reached, or leads no more: the request had no effect."""


class NoReply(HydraError):
    """The leader received the request and has not answered: the outcome is unknown."""


@dataclass(eq=False, repr=False)
class LeaderProxy:
    """Forwards requests to the leader, each in a new connection.

    The leader may have closed a connection kept open. Then the client can't know whether the
    request arrived.
    """

    _standby: Callable[[], Standby | None]
    _closing: Event
    _trust: Callable[[], ssl.SSLContext] | None = None
    """Authorities of the leader's certificate; None for the system's."""

    async def carry(self, leader: Replica, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the leader, and pass on the answer. Raises NotCarried, NoReply.

        Given up when another controller leads, when the client leaves, and when this server closes.
        """
        body = b"" if scope["method"] in READING else await _body(receive)
        answer = asyncio.create_task(self._ask(leader, scope, body, send))
        vain = asyncio.create_task(self._in_vain(leader, receive))
        try:
            await asyncio.wait({answer, vain}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await answer
                return
            begun = await _cancelled(answer)
            if not begun and vain.result():
                why = "this controller ends" if self._closing.is_set() else "no longer leads"
                raise NoReply(f"{leader.url} has not answered, and {why}")
        finally:
            await _cancelled(vain)
            await _cancelled(answer)

    async def _ask(self, leader: Replica, scope: Scope, body: bytes, send: Send) -> bool:
        """Pass the reply on. If cancelled, return whether the reply had begun."""
        begun = False
        try:
            async with self._reply(leader, scope, body) as reply:
                headers = [
                    (name.encode(), value.encode())
                    for name, value in reply.headers.multi_items()
                    if name not in _OWN
                ]
                headers.append((b"via", CARRIED_BY.encode()))
                if reply.headers.get("content-type", "").startswith(_STREAM):
                    begun = True
                    await _stream(reply, headers, send)
                else:
                    content = await reply.aread()
                    if self._has_no_store() and _is_refused_by_a_standby(reply):
                        raise NotCarried(f"{leader.url} stands by, too")
                    begun = True
                    response = Response(content, reply.status_code)
                    length = [
                        raw_header
                        for raw_header in response.raw_headers
                        if raw_header[0] == b"content-length"
                    ]
                    response.raw_headers = headers + length
                    await response(scope, _nothing_more, send)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise NotCarried(f"{leader.url} does not answer ({error})") from error
        except httpx.HTTPError as error:
            if not begun:
                why = str(error) or type(error).__name__
                raise NoReply(f"{leader.url} has not answered ({why})") from error
            await _end(send)  # a stream: its readers connect again
        except asyncio.CancelledError:
            if begun:
                await _end(send)
        return begun

    def _has_no_store(self) -> bool:
        """Whether this controller knows that the store is lost. A controller just started does not
        know yet.
        """
        now = self._standby()
        return now is not None and now.store_lost is not None

    @asynccontextmanager
    async def _reply(
        self, leader: Replica, scope: Scope, body: bytes
    ) -> AsyncIterator[httpx.Response]:
        self._trust = self._trust or cache(ssl.create_default_context)
        given = Headers(scope=scope)
        headers = {name: given[name] for name in _REQUEST if name in given}
        query = scope["query_string"].decode("latin-1")
        path = scope["raw_path"].decode("latin-1")
        async with (
            httpx.AsyncClient(verify=self._trust(), trust_env=False, timeout=_TIMEOUT) as http,
            http.stream(
                scope["method"],
                leader.url + path + (f"?{query}" if query else ""),
                content=body or None,
                headers={**headers, "accept-encoding": "identity", "via": CARRIED_BY},
            ) as reply,
        ):
            yield reply

    async def _in_vain(self, leader: Replica, receive: Receive) -> bool:
        """Wait until the client has left (False), or no answer can come (True).

        No answer can come once another controller leads, or this server closes.
        """
        gone = asyncio.create_task(_departure(receive))
        try:
            while not gone.done() and not self._closing.is_set():
                now = self._standby()
                if now is None or now.leader is None or now.leader.id != leader.id:
                    return True
                await asyncio.wait({gone}, timeout=_LOOK_S)
            return not gone.done()
        finally:
            await _cancelled(gone)


def _is_refused_by_a_standby(reply: httpx.Response) -> bool:
    if reply.status_code != httpx.codes.SERVICE_UNAVAILABLE:
        return False
    try:
        document = reply.json()
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("type") in _STANDS_BY


async def _body(receive: Receive) -> bytes:
    """The body as admitted by the guard of bodies."""
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


async def _stream(reply: httpx.Response, headers: list[tuple[bytes, bytes]], send: Send) -> None:
    start = {"type": "http.response.start", "status": reply.status_code, "headers": headers}
    await send(start)
    async for chunk in reply.aiter_raw():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await _end(send)


async def _end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _nothing_more() -> dict[str, str]:
    return {"type": "http.disconnect"}


async def _cancelled(task: asyncio.Task[bool] | asyncio.Task[None]) -> bool | None:
    """Cancel a task; returns the result, or None."""
    task.cancel()
    result: bool | None = None
    with suppress(asyncio.CancelledError, NotCarried, NoReply):
        result = await task
    return result
