"""The answer to a request, beside its document; and ``Prefer: wait=N`` (RFC 7240, section 4.3):
answer late, with the outcome.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Final, TypeVar

from fastapi import Response, status
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from apps.rest.conditional import etag, matches

LONGEST_WAIT_S: Final = 60
_POLL_INTERVAL_S: Final = 0.05
_WAIT: Final = re.compile(r'wait\s*=\s*(?:([0-9]{1,9})|"([0-9]{1,9})")', re.IGNORECASE)

_T = TypeVar("_T")
_DocumentT = TypeVar("_DocumentT", bound=BaseModel)


def parse_wait(headers: Sequence[str]) -> int | None:
    """Seconds to wait, at most 60, from all ``Prefer`` headers; None without such a preference.

    As the RFC requires, an invalid preference counts as absent, and the first of two counts.
    """
    for header in headers:
        for preference in header.split(","):
            if match := _WAIT.fullmatch(preference.split(";")[0].strip()):
                return min(int(match[1] or match[2]), LONGEST_WAIT_S)
    return None


@dataclass(eq=False)
class Reply:
    """Headers and status of an answer."""

    _response: Response

    async def made(self, change: Callable[[], _T]) -> _T:
        """The result of ``change``, a function that may block."""
        return await run_in_threadpool(change)

    def at(self, location: str) -> None:
        """Set the location of the new resource."""
        self._response.headers["Location"] = location

    def tagged(self, document: _DocumentT) -> _DocumentT:
        """Give the answer the ETag of ``document``."""
        self._response.headers["ETag"] = etag(document)
        return document

    def unless_known(
        self, document: _DocumentT, if_none_match: str | None
    ) -> _DocumentT | Response:
        """``document`` with its ETag, or a 304 if the client already has the document."""
        tag = etag(document)
        if if_none_match is not None and matches(tag, if_none_match):
            return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
        return self.tagged(document)


@dataclass(eq=False)
class WaitingReply(Reply):
    """An answer that waits for an outcome, if the client prefers."""

    _wait_s: int | None
    _closing: Event
    """Set when the server stops: waiting requests then answer with the present state."""
    _gone: Callable[[], Awaitable[bool]]
    """Whether the client has closed the connection: the wait ends."""

    async def outcome(
        self,
        begin: Callable[[], _T],
        read: Callable[[_T], _T],
        settled: Callable[[_T], bool],
        *,
        ended: bool = False,
    ) -> _T:
        """The result of ``begin``, or of a later ``read``, once ``settled`` or when time is up.

        With ``ended``, a settled result is answered with 200. Both functions may block.
        """
        made = await run_in_threadpool(begin)
        current = await self._wait(made, lambda: read(made), settled)
        if ended and settled(current):
            self._response.status_code = status.HTTP_200_OK
        return current

    async def state(self, read: Callable[[], _T], settled: Callable[[_T], bool] | None) -> _T:
        """The result of ``read``, now or once ``settled``, after at most 60 s or as the client
        prefers.

        ``read`` may block. ``settled`` None: now.
        """
        current = await run_in_threadpool(read)
        if settled is None:
            return current
        if self._wait_s is None:
            self._wait_s = LONGEST_WAIT_S
        return await self._wait(current, read, settled)

    async def _wait(self, current: _T, read: Callable[[], _T], settled: Callable[[_T], bool]) -> _T:
        clock = asyncio.get_running_loop().time
        deadline = clock() + (self._wait_s or 0)
        while not settled(current) and clock() < deadline and not self._closing.is_set():
            if await self._gone():
                break
            await asyncio.sleep(min(_POLL_INTERVAL_S, max(0.0, deadline - clock())))
            current = await run_in_threadpool(read)
        if self._wait_s is not None:
            self._response.headers["Preference-Applied"] = f"wait={self._wait_s}"
        return current
