"""/v1/reservations"""

from __future__ import annotations

from functools import partial
from itertools import islice, takewhile
from threading import Event
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response, status
from fastapi.concurrency import run_in_threadpool

from apps.rest import bodies, models, render
from apps.rest.conditional import IdempotencyKey, IfMatch, IfNoneMatch, etag, require, tagged
from apps.rest.context import Closing, Reservations
from apps.rest.prefer import LONGEST_WAIT_S, WaitPreference, preference_applied, wait_for
from apps.rest.problems import (
    ADMISSION_REFUSED,
    BODY_PROBLEMS,
    DEVICE_UNAVAILABLE,
    INVALID_REQUEST,
    JOURNAL_FAILED,
    KEY_REUSED,
    LIFECYCLE_CONFLICT,
    NOT_HITLESS,
    PRECONDITION_FAILED,
    QUOTA_EXCEEDED,
    UNKNOWN_NAME,
    responses,
)
from apps.rest.reading import BodyRoute
from hydra.errors import LifecycleError
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState, can_become
from hydra.names import rack_of
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import BOOKED_STATES, FINAL_STATES, Reservation
from hydra.service import ReservationService

router = APIRouter(prefix="/v1/reservations", tags=["reservations"], route_class=BodyRoute)

_UNDER_WAY: Final = BOOKED_STATES - {ReservationState.HELD}
ADMISSION_PROBLEMS: Final = responses(
    *BODY_PROBLEMS,
    UNKNOWN_NAME,
    ADMISSION_REFUSED,
    QUOTA_EXCEEDED,
    KEY_REUSED,
    DEVICE_UNAVAILABLE,
    JOURNAL_FAILED,
)


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses=ADMISSION_PROBLEMS,
)
async def create_reservation(
    body: models.ReservationBody,
    response: Response,
    service: Reservations,
    closing: Closing,
    wait_s: WaitPreference,
    key: IdempotencyKey = None,
) -> models.Reservation:
    """Admit a reservation and bring its circuits up.

    The answer comes at once, in state ``activating``, ``scheduled`` or ``held``; with
    ``Prefer: wait=N`` it comes when the reservation is active or has failed, or after N seconds.
    """
    request = bodies.reservation_request(body, key)
    created = await run_in_threadpool(service.reserve, request)
    current = await _settled(service, created, wait_s, closing)
    response.headers["Location"] = f"{router.prefix}/{created.id}"
    return _answer(service, current, response, wait_s)


@router.post(
    "/preview",
    responses=responses(
        *BODY_PROBLEMS, UNKNOWN_NAME, ADMISSION_REFUSED, QUOTA_EXCEEDED, DEVICE_UNAVAILABLE
    ),
)
def preview_reservation(
    body: models.ReservationBody, service: Reservations
) -> models.ReservationPreview:
    """Plan a reservation without making it: its path, and the circuits that it would move."""
    request = bodies.reservation_request(body, None)
    return render.preview(service.fabric, service.preview(request))


def _answer(
    service: ReservationService, reservation: Reservation, response: Response, wait_s: int | None
) -> models.Reservation:
    document = render.reservation(service.fabric, reservation)
    response.headers["ETag"] = etag(document)
    response.headers.update(preference_applied(wait_s))
    return document


async def _settled(
    service: ReservationService, reservation: Reservation, wait_s: int | None, closing: Event
) -> Reservation:
    return await wait_for(
        reservation,
        lambda: service.reservation(reservation.id),
        lambda current: current.state is not ReservationState.ACTIVATING,
        wait_s,
        closing,
    )


@router.post(
    "/{reservation_id}/commit",
    responses=responses(UNKNOWN_NAME, LIFECYCLE_CONFLICT, PRECONDITION_FAILED, JOURNAL_FAILED),
)
async def commit_reservation(
    reservation_id: str,
    response: Response,
    service: Reservations,
    closing: Closing,
    wait_s: WaitPreference,
    if_match: IfMatch = None,
) -> models.Reservation:
    """Make a reservation that is ``held`` one that stays. Repeating it is harmless."""
    committed = await run_in_threadpool(_commit, service, reservation_id, if_match)
    current = await _settled(service, committed, wait_s, closing)
    return _answer(service, current, response, wait_s)


def _as_seen(
    service: ReservationService, reservation_id: str, if_match: str | None
) -> Reservation | None:
    """The reservation, if the client wants it changed only as it saw it. Raises Changed."""
    if if_match is None:
        return None
    seen = service.reservation(reservation_id)
    require(if_match, render.reservation(service.fabric, seen))
    return seen


def _commit(service: ReservationService, reservation_id: str, if_match: str | None) -> Reservation:
    seen = _as_seen(service, reservation_id, if_match)
    try:
        return service.commit(reservation_id, seen)
    except LifecycleError:
        current = service.reservation(reservation_id)
        if current.state in _UNDER_WAY:
            return current
        raise


@router.get("", responses=responses(UNKNOWN_NAME, INVALID_REQUEST))
def list_reservations(
    service: Reservations, query: Annotated[models.ReservationFilter, Query()]
) -> models.Reservations:
    """Oldest first, page by page: ``next`` is what to send as ``after`` for the page after it."""
    wanted = frozenset(query.state or ReservationState)
    rack = None if query.rack is None else rack_of(service.fabric, query.rack)
    reservations = iter(service.reservations())
    if query.after is not None:
        service.reservation(query.after)  # raises UnknownName
        for _ in takewhile(lambda one: one.id != query.after, reservations):
            pass
    matching = (
        one
        for one in reservations
        if one.state in wanted
        and (rack is None or rack in one.pair)
        and query.group in (None, one.group)
    )
    page = list(islice(matching, query.limit))
    return models.Reservations(
        reservations=[render.reservation(service.fabric, one) for one in page],
        next=page[-1].id if page and next(matching, None) is not None else None,
    )


@router.get(
    "/{reservation_id}",
    response_model=models.Reservation,
    responses={
        status.HTTP_304_NOT_MODIFIED: {"description": "It still has the ETag of If-None-Match"},
        **responses(UNKNOWN_NAME, INVALID_REQUEST),
    },
)
async def get_reservation(
    reservation_id: str,
    service: Reservations,
    response: Response,
    closing: Closing,
    wait_s: WaitPreference,
    wait: Annotated[
        ReservationState | None,
        Query(
            description="Answer once the reservation is in this state, or can't come to be; or "
            f"after `Prefer: wait=N`, {LONGEST_WAIT_S} s unless given."
        ),
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> models.Reservation | Response:
    """State, path and VLAN of a reservation, at once or when it is in a state."""

    def read() -> Reservation:
        return service.reservation(reservation_id)

    current = await run_in_threadpool(read)
    if wait is not None:
        wait_s = LONGEST_WAIT_S if wait_s is None else wait_s
        current = await wait_for(current, read, partial(_is_or_never, wait), wait_s, closing)
        response.headers.update(preference_applied(wait_s))
    document = render.reservation(service.fabric, current)
    return tagged(document, response, if_none_match) or document


def _is_or_never(wanted: ReservationState, now: Reservation) -> bool:
    """Whether a reservation is in the ``wanted`` state, or can't come to be."""
    return now.state is wanted or not can_become(RESERVATION_TRANSITIONS, now.state, wanted)


@router.get("/{reservation_id}/delivery", responses=responses(UNKNOWN_NAME))
def get_delivery(reservation_id: str, service: Reservations) -> models.Delivery:
    """Bandwidth that the reservation gets by counters at its ends, and what it was promised."""
    return render.delivery(service.delivery(reservation_id))


@router.patch(
    "/{reservation_id}",
    responses=responses(
        *BODY_PROBLEMS,
        UNKNOWN_NAME,
        ADMISSION_REFUSED,
        QUOTA_EXCEEDED,
        NOT_HITLESS,
        LIFECYCLE_CONFLICT,
        PRECONDITION_FAILED,
        JOURNAL_FAILED,
    ),
)
async def modify_reservation(
    reservation_id: str,
    body: models.ModificationBody,
    response: Response,
    service: Reservations,
    if_match: IfMatch = None,
) -> models.Reservation:
    """Change a reservation without an interruption: its rate, its end, or a server at an end.

    One that has circuits keeps them; where they do not allow the change, it is refused and nothing
    is different.
    """
    change = bodies.modification(body)
    changed = await run_in_threadpool(_modify, service, reservation_id, change, if_match)
    return _answer(service, changed, response, None)


def _modify(
    service: ReservationService, reservation_id: str, change: Modification, if_match: str | None
) -> Reservation:
    return service.modify(reservation_id, change, _as_seen(service, reservation_id, if_match))


@router.delete(
    "/{reservation_id}",
    status_code=status.HTTP_202_ACCEPTED,
    responses={
        status.HTTP_200_OK: {
            "model": models.Reservation,
            "description": "It is over: released just now or before, or expired",
        },
        **responses(UNKNOWN_NAME, LIFECYCLE_CONFLICT, PRECONDITION_FAILED, JOURNAL_FAILED),
    },
)
async def release_reservation(
    reservation_id: str,
    response: Response,
    service: Reservations,
    closing: Closing,
    wait_s: WaitPreference,
    if_match: IfMatch = None,
) -> models.Reservation:
    """Give a reservation's capacity back; one that has not begun is cancelled.

    202 while its circuits come down, 200 once it is over. Asking again is harmless. The
    reservation stays readable as a record.
    """
    released = await run_in_threadpool(release, service, reservation_id, if_match)
    current = await wait_for(
        released,
        lambda: service.reservation(reservation_id),
        lambda reservation: reservation.state in FINAL_STATES,
        wait_s,
        closing,
    )
    if current.state in FINAL_STATES:
        response.status_code = status.HTTP_200_OK
    return _answer(service, current, response, wait_s)


def release(
    service: ReservationService, reservation_id: str, if_match: str | None = None
) -> Reservation:
    """DELETE is idempotent: what is on its way out, or gone, is not a conflict."""
    seen = _as_seen(service, reservation_id, if_match)
    try:
        return service.release(reservation_id, seen)
    except LifecycleError:
        current = service.reservation(reservation_id)
        if current.state is ReservationState.RELEASING or current.state in FINAL_STATES:
            return current
        raise
