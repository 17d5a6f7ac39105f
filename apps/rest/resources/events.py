"""/v1/events: server-sent events, with resume."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal

from fastapi import Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from apps.rest.access import TENANTS
from apps.rest.document import Document
from apps.rest.problems import TOO_MANY_SUBSCRIBERS, UNKNOWN_NAME, ApiError
from apps.rest.resources.devices import DeviceAlarm
from apps.rest.resources.reconfigurations import Progress
from apps.rest.resources.reservations import Reservation
from apps.rest.resources.topology import Circuit
from apps.rest.routing import Routes
from apps.rest.scope import caller_of
from hydra import events as core
from hydra.access import LOCAL, Caller
from hydra.events import EventKind, EventLog
from hydra.model import Fabric

if TYPE_CHECKING:
    from apps.rest.dependencies import Asking, Closing, Followed, Reserving, StillEntitled

routes = Routes("/v1/events", "events", TENANTS)
MOST_SUBSCRIBERS: Final = 200
MOST_PER_CALLER: Final = 20
"""Limit per caller, if callers can be distinguished."""
_RETRY_S: Final = 30
_LOOK_UP_S: Final = 0.5
"""Interval at which an idle subscriber checks whether the server is closing."""


class Event(Document):
    """Content of ``data`` in a server-sent event."""

    kind: EventKind
    unix_s: float
    reservation: Reservation | None = Field(description="The reservation after the event.")
    circuit: Circuit | None
    reservations: list[str] = Field(description="Ids of the reservations on the circuit.")
    reconfiguration: Progress | None = None
    alarm: DeviceAlarm | None = None
    reason: str

    @classmethod
    def seen_by(cls, caller: Caller, fabric: Fabric, published: core.Event) -> Event | None:
        """The event as seen by ``caller``; None if ``caller`` is a tenant without a part in the
        event.

        Tenants do not see the reason of a circuit's move, perhaps another tenant's reservation or
        an operator's wish.
        """
        ids = [reservation.id for reservation in published.served if caller.sees(reservation)]
        about = ids if published.reservation is None else caller.sees(published.reservation)
        if caller.tenant is not None and not about:
            return None
        return cls.of(
            fabric,
            published,
            reservations=ids,
            reconfiguration=published.progress,
            reason=published.reason
            if caller.tenant is None or published.reservation is not None
            else "",
        )


class Gap(Document):
    """Content of ``data`` in the event ``gap``."""

    kind: Literal["gap"] = "gap"
    missed: int | None = Field(description="Number of lost events; null: unknown.")


class CloudEvent(Document):
    """Event as posted to a webhook: CloudEvents 1.0, in structured mode."""

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(description="Stays the same when the event is sent again.")
    source: str
    type: str = Field(description="`hydra.` and the kind of the event.")
    subject: str | None = Field(
        default=None, description="Id of the reservation concerned; left out if none."
    )
    time: datetime
    datacontenttype: Literal["application/json"] = "application/json"
    data: Event | Gap


async def _seat(request: Request) -> AsyncIterator[None]:
    """A place among the subscribers; raises ApiError if all are taken."""
    seats: Counter[str] = request.app.state.subscribers
    caller = caller_of(request.scope)
    if seats.total() >= MOST_SUBSCRIBERS:
        raise _too_many(f"{MOST_SUBSCRIBERS} subscribers follow the events already")
    if caller != LOCAL and seats[caller.name] >= MOST_PER_CALLER:
        raise _too_many(f"{caller.name} follows the events {MOST_PER_CALLER} times")
    seats[caller.name] += 1
    try:
        yield
    finally:
        seats[caller.name] -= 1
        if not seats[caller.name]:
            del seats[caller.name]


def _too_many(words: str) -> ApiError:
    return ApiError(TOO_MANY_SUBSCRIBERS, f"{words}: try again in {_RETRY_S} s", retry_s=_RETRY_S)


@routes.on(
    "GET",
    "",
    UNKNOWN_NAME,
    TOO_MANY_SUBSCRIBERS,
    response_class=EventSourceResponse,
    responses={200: {"model": Event | Gap}},
    dependencies=[Depends(_seat)],
)
async def follow_events(
    service: Reserving,
    closing: Closing,
    caller: Asking,
    standing: StillEntitled,
    reservation: Followed,
    kind: Annotated[
        Sequence[EventKind], Query(description="Only these kinds of events; may be repeated.")
    ] = (),
    last_event_id: Annotated[
        str | None,
        Header(
            description="Begin after the event with this id; if not given, with the next event."
        ),
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: circuits up, down, about to move, and reservations in a new state.

    An event is named after its kind, and the data is an ``Event``. If events are no longer
    available, an event ``gap`` is sent: read the resources again. The stream ends when the token,
    or its role, is no longer valid.
    """
    log = service.events
    number = _place(log, last_event_id)
    if number is None:
        yield _gap(log, 0, None)
        number = 0
    else:
        # An id without data is no event, but a place to resume from during a long silence.
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
                document = Event.seen_by(caller, service.fabric, event)
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


def _is_about(event: core.Event, shown: Event, reservations: Sequence[str]) -> bool:
    """True if a reservation shown to the caller, or its bundle, is among ``reservations``."""
    ids = set(shown.reservations)
    if shown.reservation is not None:
        ids.add(shown.reservation.id)
    concerned = event.served if event.reservation is None else (event.reservation, *event.served)
    bundles = {reservation.bundle for reservation in concerned if reservation.id in ids}
    return not (ids | bundles).isdisjoint(reservations)


def _place(log: EventLog, last_event_id: str | None) -> int | None:
    """The number to resume after; None if the id is of another run, or no id at all."""
    if last_event_id is None:
        return log.last
    run, _, number = last_event_id.rpartition("-")
    longest = len(str(log.last))
    if run != log.run or not number.isdecimal() or len(number) > longest or int(number) > log.last:
        return None
    return int(number)


def _gap(log: EventLog, number: int, missed: int | None) -> ServerSentEvent:
    return ServerSentEvent(event="gap", id=f"{log.run}-{number}", data=Gap(missed=missed))
