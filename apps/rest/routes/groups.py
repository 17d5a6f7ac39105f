"""/v1/groups: a whole traffic matrix as one request"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response, status
from fastapi.concurrency import run_in_threadpool

from apps.rest import bodies, models, render
from apps.rest.conditional import IdempotencyKey
from apps.rest.context import Closing, Reservations
from apps.rest.prefer import WaitPreference, preference_applied, wait_for
from apps.rest.problems import JOURNAL_FAILED, LIFECYCLE_CONFLICT, UNKNOWN_NAME, responses
from apps.rest.reading import BodyRoute
from apps.rest.routes.reservations import ADMISSION_PROBLEMS, release
from hydra.lifecycle import ReservationState
from hydra.reservations.reservation import FINAL_STATES, Reservation
from hydra.service import ReservationService

router = APIRouter(prefix="/v1/groups", tags=["reservations"], route_class=BodyRoute)


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses=ADMISSION_PROBLEMS,
)
async def create_group(
    body: models.GroupBody,
    response: Response,
    service: Reservations,
    closing: Closing,
    wait_s: WaitPreference,
    key: IdempotencyKey = None,
) -> models.CreatedGroup:
    """Admit many reservations as one, and bring their circuits up together.

    Nothing is admitted unless all are, or, without ``all_or_nothing``, those that fit: the others
    are in ``refused``. With ``Prefer: wait=N`` the answer waits until none is ``activating``.
    """
    requests = bodies.group_requests(body, key)
    outcome = await run_in_threadpool(
        service.reserve_all, requests, all_or_nothing=body.all_or_nothing
    )
    admitted: Sequence[Reservation] = outcome.admitted
    current = await wait_for(
        admitted,
        lambda: service.group(outcome.group),
        lambda members: all(one.state is not ReservationState.ACTIVATING for one in members),
        wait_s,
        closing,
    )
    response.headers["Location"] = f"{router.prefix}/{outcome.group}"
    response.headers.update(preference_applied(wait_s))
    return render.created_group(service.fabric, outcome, current)


@router.get("/{group_id}", responses=responses(UNKNOWN_NAME))
def get_group(group_id: str, service: Reservations) -> models.Group:
    """The reservations of a group, as far as they are remembered."""
    return render.group(service.fabric, group_id, service.group(group_id))


@router.delete(
    "/{group_id}",
    status_code=status.HTTP_202_ACCEPTED,
    responses={
        status.HTTP_200_OK: {"model": models.Group, "description": "All of them are over"},
        **responses(UNKNOWN_NAME, LIFECYCLE_CONFLICT, JOURNAL_FAILED),
    },
)
async def release_group(
    group_id: str,
    response: Response,
    service: Reservations,
    closing: Closing,
    wait_s: WaitPreference,
) -> models.Group:
    """Give the capacity of a whole group back. Asking again is harmless."""
    released = await run_in_threadpool(_release_all, service, group_id)
    current = await wait_for(
        released,
        lambda: service.group(group_id),
        _all_over,
        wait_s,
        closing,
    )
    if _all_over(current):
        response.status_code = status.HTTP_200_OK
    response.headers.update(preference_applied(wait_s))
    return render.group(service.fabric, group_id, current)


def _release_all(service: ReservationService, group_id: str) -> Sequence[Reservation]:
    for reservation_id in dict.fromkeys(one.bundle or one.id for one in service.group(group_id)):
        release(service, reservation_id)
    return service.group(group_id)


def _all_over(members: Sequence[Reservation]) -> bool:
    return all(reservation.state in FINAL_STATES for reservation in members)
