"""Dependencies of routes: the controller, the caller, headers, parts of the application.

The functions of :mod:`apps.rest.resources` use the names in annotations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Header, Query, Request, Response
from pydantic import WithJsonSchema

from apps.process.term import Term
from apps.process.worker_list import Workers
from apps.rest.reply import Reply, WaitingReply, parse_wait
from apps.rest.scope import STANDING, STORED, caller_of
from apps.rest.tenant import TenantView
from apps.rest.tokens import TokenFile
from apps.rest.webhook_delivery import Webhooks
from hydra.access import Caller, Role
from hydra.service import ControllerService, ReservationService

_T = TypeVar("_T")
_LONGEST_KEY: Final = 255


async def _service(request: Request) -> ControllerService:
    service: ControllerService = request.scope.get(STORED) or request.app.state.service
    return service


class ServerClosing(Event):
    """Set when the server stops; setting the event wakes sleepers."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: set[Callable[[], None]] = set()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake``, in any thread, when the event is set before the end of the block."""
        self._sleepers.add(wake)
        try:
            yield
        finally:
            self._sleepers.discard(wake)

    def set(self) -> None:
        super().set()
        for wake in tuple(self._sleepers):
            wake()


class Wakeups:
    """Wakes coroutines of a loop from other threads: many at a time in a single visit to the
    loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._due: deque[asyncio.Event] = deque()
        self._called = False

    def wake(self, news: asyncio.Event) -> None:
        """Set ``news`` soon. For any thread."""
        self._due.append(news)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self.loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._called = False  # before the first is taken: a later wake calls again
        while self._due:
            self._due.popleft().set()


async def _wakeups(request: Request) -> Wakeups:
    """Wakeups of the running loop; a restarted server has a new loop."""
    loop, state = asyncio.get_running_loop(), request.app.state
    if state.wakeups is None or state.wakeups.loop is not loop:
        state.wakeups = Wakeups(loop)
    wakeups: Wakeups = state.wakeups
    return wakeups


async def _caller(request: Request) -> Caller:
    return caller_of(request.scope)


async def _known(request: Request) -> bool:
    return caller_of(request.scope).role in {Role.OPERATOR, Role.VIEWER}


async def _standing(request: Request) -> Callable[[], bool]:
    standing: Callable[[], bool] = request.scope.get(STANDING, lambda: True)
    return standing


async def _reservation_service(request: Request) -> ReservationService:
    service = await _service(request)
    caller = caller_of(request.scope)
    if caller.tenant is None:
        return service
    return TenantView(service, caller)


def _followed(
    service: Annotated[ReservationService, Depends(_reservation_service)],
    reservation: Annotated[
        Sequence[str],
        Query(
            description=(
                "Only events of these reservations, of their parts, and of their circuits; may be "
                "repeated."
            )
        ),
    ] = (),
) -> Sequence[str]:
    for reservation_id in reservation:
        service.reservation(reservation_id)  # raises UnknownName
    return reservation


def _state_of_app(name: str) -> object:
    """Dependency on the part of the application's state named ``name``."""

    async def part(request: Request) -> object:
        return getattr(request.app.state, name)

    return Depends(part)


async def _wait_preference(
    prefer: Annotated[
        list[str] | None,
        WithJsonSchema({"type": "string"}),
        Header(description="wait=N: up to N s (at most 60) may pass until the outcome is known."),
    ] = None,
) -> int | None:
    return parse_wait(prefer or ())


async def _reply(response: Response) -> Reply:
    return Reply(response)


async def _waiting_reply(
    request: Request,
    response: Response,
    wait_s: Annotated[int | None, Depends(_wait_preference)],
) -> WaitingReply:
    return WaitingReply(response, wait_s, request.app.state.closing, request.is_disconnected)


Service = Annotated[ControllerService, Depends(_service)]
Reserving = Annotated[ReservationService, Depends(_reservation_service)]
"""The controller as seen by the caller: a tenant sees only the tenant's reservations."""
Waking = Annotated[Wakeups, Depends(_wakeups)]
Closing = Annotated[ServerClosing, _state_of_app("closing")]
"""Set when the server stops: waiting requests then answer with the present state."""
Leading = Annotated[Term, _state_of_app("term")]
Holding = Annotated[Workers | None, _state_of_app("workers")]
Tokens = Annotated[TokenFile | None, _state_of_app("tokens")]
Hooks = Annotated[Webhooks, _state_of_app("webhooks")]
Asking = Annotated[Caller, Depends(_caller)]
StillEntitled = Annotated[Callable[[], bool], Depends(_standing)]
Known = Annotated[bool, Depends(_known)]
"""Whether the caller may know of devices and their addresses."""
Answer = Annotated[Reply, Depends(_reply)]
"""Headers and status of the answer, for coroutines; answers of other functions are serialized by
:mod:`apps.rest.answering`.
"""
LateAnswer = Annotated[WaitingReply, Depends(_waiting_reply)]
"""As :data:`Answer`, for an answer that waits for an outcome if the client prefers."""
Asked = Annotated[_T, Query()]
"""The query of a list, as a model."""
Followed = Annotated[Sequence[str], Depends(_followed)]
"""Ids of existing reservations; UnknownName for others, whose events would never come."""
IfMatch = Annotated[
    str | None,
    WithJsonSchema({"type": "string"}),
    Header(description="Only if the resource still has this ETag (RFC 9110); else 412."),
]
IfNoneMatch = Annotated[
    str | None,
    WithJsonSchema({"type": "string"}),
    Header(description="304 and no body if the resource still has this ETag (RFC 9110)."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        min_length=1,
        max_length=_LONGEST_KEY,
        description="A repeated request with the same key gets the first request's answer.",
    ),
]
