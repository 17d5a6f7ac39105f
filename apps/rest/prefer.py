"""``Prefer: wait=N`` (RFC 7240, section 4.3): answer late, with the outcome."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from threading import Event
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Header
from fastapi.concurrency import run_in_threadpool
from pydantic import WithJsonSchema

LONGEST_WAIT_S: Final = 60
_POLL_INTERVAL_S: Final = 0.05
_WAIT: Final = re.compile(r'wait\s*=\s*(?:([0-9]{1,9})|"([0-9]{1,9})")', re.IGNORECASE)

_T = TypeVar("_T")


def parse_wait(headers: Sequence[str]) -> int | None:
    """Seconds to wait, at most 60, from all ``Prefer`` headers; None without such a preference.

    As the RFC asks, a preference that makes no sense counts as absent, and of two the first
    counts.
    """
    for header in headers:
        for preference in header.split(","):
            if match := _WAIT.fullmatch(preference.split(";")[0].strip()):
                return min(int(match[1] or match[2]), LONGEST_WAIT_S)
    return None


async def _wait_preference(
    prefer: Annotated[
        list[str] | None,
        WithJsonSchema({"type": "string"}),
        Header(description="wait=N: up to N s (at most 60) may pass until the outcome is known."),
    ] = None,
) -> int | None:
    return parse_wait(prefer or ())


WaitPreference = Annotated[int | None, Depends(_wait_preference)]


def preference_applied(wait_s: int | None) -> dict[str, str]:
    """The header that tells the client what was made of its wish."""
    return {} if wait_s is None else {"Preference-Applied": f"wait={wait_s}"}


async def wait_for(
    current: _T,
    read: Callable[[], _T],
    settled: Callable[[_T], bool],
    wait_s: int | None,
    closing: Event,
) -> _T:
    """Read until ``settled``, ``wait_s`` have passed, or the server is ``closing``.

    ``read`` may block: it runs in the thread pool.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + (wait_s or 0)
    while not settled(current) and clock() < deadline and not closing.is_set():
        await asyncio.sleep(min(_POLL_INTERVAL_S, max(0.0, deadline - clock())))
        current = await run_in_threadpool(read)
    return current
