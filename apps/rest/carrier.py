"""Carries requests from a controller that stands by to the one that leads.

The reply is the leader's own. A redirection (307) would be simpler, and would not do: curl and
Python's clients, when sent to another host, leave the token behind.
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
"""In ``Via`` (RFC 9110, section 7.6.3) of what was carried once: it is not carried again."""
_TIMEOUT: Final = httpx.Timeout(150.0, connect=2.0, pool=None)
"""More than a leader takes for a plan, or to answer ``Prefer: wait=60``."""
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
"""Headers that go with it. A page's origin does not: this controller has judged that already."""
_OWN: Final = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
)
"""Headers of a reply that belong to its connection."""
_STREAM: Final = "text/event-stream"
_STANDS_BY: Final = frozenset({STANDING_BY.uri, STORE_UNAVAILABLE.uri})
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class NotCarried(HydraError):
    """The leader can't be reached, or leads no more: nothing was asked."""


class NoReply(HydraError):
    """The leader was asked and has not answered: what came of it is not known."""


@dataclass(eq=False, repr=False)
class Carrier:
    """Each request has a connection of its own: one that was left open may have been closed by the
    leader, and then it is not known whether it was asked.
    """

    _standby: Callable[[], Standby | None]
    _closing: Event
    _trust: Callable[[], ssl.SSLContext] | None = None
    """Authorities of the leader's certificate; None for the system's."""

    async def carry(self, leader: Replica, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the leader, and answer as it does. Raises NotCarried, NoReply.

        Given up when another one leads, when the client leaves, and when this server closes.
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
                raise NoReply(f"{leader.url} has not answered, and leads no more")
        finally:
            await _cancelled(vain)
            await _cancelled(answer)

    async def _ask(self, leader: Replica, scope: Scope, body: bytes, send: Send) -> bool:
        """Pass the reply on. Cancelled, it returns whether the reply had begun."""
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
                    length = [one for one in response.raw_headers if one[0] == b"content-length"]
                    response.raw_headers = headers + length
                    await response(scope, _nothing_more, send)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise NotCarried(f"{leader.url} does not answer ({error})") from error
        except httpx.HTTPError as error:
            if not begun:
                why = str(error) or type(error).__name__
                raise NoReply(f"{leader.url} has not answered ({why})") from error
            await _end(send)  # a stream: whoever follows it connects again
        except asyncio.CancelledError:
            if begun:
                await _end(send)
        return begun

    def _has_no_store(self) -> bool:
        """Whether this controller knows why nobody leads: one just started does not, yet."""
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
        """Wait until nobody waits for the answer (False), or it can't be expected any more."""
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
    """What the guard of bodies has let through."""
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
    """End a task; its result, or None."""
    task.cancel()
    result: bool | None = None
    with suppress(asyncio.CancelledError, NotCarried, NoReply):
        result = await task
    return result
