"""/v1/events: server-sent events, with resume"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Request, status
from fastapi.sse import EventSourceResponse, ServerSentEvent

from apps.rest import models, render
from apps.rest.context import Asking, Closing, Reservations, Standing
from apps.rest.problems import INVALID_REQUEST, TOO_MANY_SUBSCRIBERS, BusyError, responses
from hydra.access import LOCAL
from hydra.events import Event, EventKind, EventLog

router = APIRouter(prefix="/v1", tags=["events"])

MOST_SUBSCRIBERS: Final = 200
MOST_PER_CALLER: Final = 20
"""Limit per caller, where callers are told apart."""
_RETRY_S: Final = 30
_LOOK_UP_S: Final = 0.5
"""How often a subscriber that nothing happens for looks whether the server closes."""


async def _seat(request: Request, caller: Asking) -> AsyncIterator[None]:
    """A place among the subscribers; raises BusyError if there is none."""
    seats: Counter[str] = request.app.state.subscribers
    if seats.total() >= MOST_SUBSCRIBERS:
        raise BusyError(f"{MOST_SUBSCRIBERS} subscribers follow the events already", _RETRY_S)
    if caller != LOCAL and seats[caller.name] >= MOST_PER_CALLER:
        raise BusyError(f"{caller.name} follows the events {MOST_PER_CALLER} times", _RETRY_S)
    seats[caller.name] += 1
    try:
        yield
    finally:
        seats[caller.name] -= 1
        if not seats[caller.name]:
            del seats[caller.name]


@router.get(
    "/events",
    response_class=EventSourceResponse,
    responses={
        status.HTTP_200_OK: {"model": models.Event | models.Gap},
        **responses(INVALID_REQUEST, TOO_MANY_SUBSCRIBERS),
    },
    dependencies=[Depends(_seat)],
)
async def follow_events(
    service: Reservations,
    closing: Closing,
    caller: Asking,
    standing: Standing,
    kind: Annotated[Sequence[EventKind], Query(description="Only these; may be repeated.")] = (),
    reservation: Annotated[
        Sequence[str],
        Query(description="Only of these, or of their parts, and their circuits; may be repeated."),
    ] = (),
    last_event_id: Annotated[
        str | None, Header(description="Begin after this event; without it, with the next one.")
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: circuits up, down, about to move, and reservations in a new state.

    Each is named after its kind, and its data is an ``Event``. Where some are no longer there to
    be told, an event ``gap`` says so: read the resources again. The stream ends with the token, or
    with its role.
    """
    log = service.events
    number = _place(log, last_event_id)
    if number is None:
        yield _gap(log, 0, None)
        number = 0
    else:
        # An id without data is no event: the place to go on from, where nothing happens for long.
        yield ServerSentEvent(comment=f"after {log.run}-{number}", id=f"{log.run}-{number}")
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(news.set)

    with log.listening(wake):
        while not closing.is_set() and standing():
            news.clear()
            events, missed = log.after(number)
            if missed:
                number += missed
                yield _gap(log, number, missed)
            for event in events:
                if not standing():
                    return
                number = event.number
                document = render.event(service.fabric, event, caller)
                if (
                    document is not None
                    and (not kind or event.kind in kind)
                    and (not reservation or _is_about(event, document, reservation))
                ):
                    yield ServerSentEvent(
                        event=event.kind.value, id=f"{log.run}-{number}", data=document
                    )
            if not events:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), _LOOK_UP_S)


def _is_about(event: Event, shown: models.Event, reservations: Sequence[str]) -> bool:
    """True if a reservation that the caller is shown, or its bundle, is among ``reservations``."""
    ids = set(shown.reservations)
    if shown.reservation is not None:
        ids.add(shown.reservation.id)
    told = event.served if event.reservation is None else (event.reservation, *event.served)
    bundles = {one.bundle for one in told if one.id in ids}
    return not (ids | bundles).isdisjoint(reservations)


def _place(log: EventLog, last_event_id: str | None) -> int | None:
    """The number to go on from; None where the id is of another run, or no id at all."""
    if last_event_id is None:
        return log.last
    run, _, number = last_event_id.rpartition("-")
    longest = len(str(log.last))
    if run != log.run or not number.isdecimal() or len(number) > longest or int(number) > log.last:
        return None
    return int(number)


def _gap(log: EventLog, number: int, missed: int | None) -> ServerSentEvent:
    return ServerSentEvent(event="gap", id=f"{log.run}-{number}", data=models.Gap(missed=missed))
