"""/v1/reservations"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response, status
from fastapi.concurrency import run_in_threadpool

from apps.rest import bodies, models, render
from apps.rest.context import Closing, Service
from apps.rest.prefer import WaitPreference, preference_applied, wait_for
from apps.rest.problems import (
    ADMISSION_REFUSED,
    BODY_TOO_LARGE,
    DEVICE_UNAVAILABLE,
    INVALID_REQUEST,
    LIFECYCLE_CONFLICT,
    MALFORMED,
    UNKNOWN_NAME,
    UNSUPPORTED_MEDIA_TYPE,
    responses,
)
from hydra.errors import LifecycleError
from hydra.lifecycle import ReservationState
from hydra.reservations import FINAL_STATES, Reservation
from hydra.service import ControllerService

router = APIRouter(prefix="/v1/reservations", tags=["reservations"])


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses=responses(
        MALFORMED,
        UNKNOWN_NAME,
        ADMISSION_REFUSED,
        BODY_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        INVALID_REQUEST,
        DEVICE_UNAVAILABLE,
    ),
)
async def create_reservation(
    body: models.ReservationBody,
    response: Response,
    service: Service,
    closing: Closing,
    wait_s: WaitPreference,
) -> models.Reservation:
    """Admit a reservation and bring its circuits up.

    The answer comes at once, in state ``activating``; with ``Prefer: wait=N`` it comes when the
    reservation is active or has failed, or after N seconds.
    """
    created = await run_in_threadpool(service.reserve, bodies.reservation_request(body))
    current = await wait_for(
        created,
        lambda: service.reservation(created.id),
        lambda reservation: reservation.state is not ReservationState.ACTIVATING,
        wait_s,
        closing,
    )
    response.headers["Location"] = f"{router.prefix}/{created.id}"
    response.headers.update(preference_applied(wait_s))
    return render.reservation(service.fabric, current)


@router.get("", responses=responses(INVALID_REQUEST))
def list_reservations(
    service: Service, query: Annotated[models.ReservationFilter, Query()]
) -> models.Reservations:
    """All reservations, or those in the given states."""
    wanted = frozenset(query.state or ReservationState)
    return models.Reservations(
        reservations=[
            render.reservation(service.fabric, reservation)
            for reservation in service.reservations()
            if reservation.state in wanted
        ]
    )


@router.get("/{reservation_id}", responses=responses(UNKNOWN_NAME))
def get_reservation(reservation_id: str, service: Service) -> models.Reservation:
    return render.reservation(service.fabric, service.reservation(reservation_id))


@router.delete(
    "/{reservation_id}",
    status_code=status.HTTP_202_ACCEPTED,
    responses={
        status.HTTP_200_OK: {
            "model": models.Reservation,
            "description": "It is over: released just now or before, expired, or failed",
        },
        **responses(UNKNOWN_NAME, LIFECYCLE_CONFLICT),
    },
)
async def release_reservation(
    reservation_id: str,
    response: Response,
    service: Service,
    closing: Closing,
    wait_s: WaitPreference,
) -> models.Reservation:
    """Give a reservation's capacity back.

    202 while its circuits come down, 200 once it is over. Asking again is harmless. The
    reservation stays readable as a record.
    """
    released = await run_in_threadpool(_release, service, reservation_id)
    current = await wait_for(
        released,
        lambda: service.reservation(reservation_id),
        lambda reservation: reservation.state in FINAL_STATES,
        wait_s,
        closing,
    )
    if current.state in FINAL_STATES:
        response.status_code = status.HTTP_200_OK
    response.headers.update(preference_applied(wait_s))
    return render.reservation(service.fabric, current)


def _release(service: ControllerService, reservation_id: str) -> Reservation:
    """DELETE is idempotent: what is on its way out, or gone, is not a conflict."""
    try:
        return service.release(reservation_id)
    except LifecycleError:
        current = service.reservation(reservation_id)
        if current.state is ReservationState.RELEASING or current.state in FINAL_STATES:
            return current
        raise
