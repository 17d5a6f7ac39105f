"""/v1/groups: a whole traffic matrix as one request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from apps.rest.access import TENANTS
from apps.rest.conditional import retry_key
from apps.rest.document import MOST_ENTRIES, Body, Document, Name
from apps.rest.problems import JOURNAL_FAILED, UNKNOWN_NAME
from apps.rest.resources.problem_types import Alternative
from apps.rest.resources.reservations import (
    ADMISSION_PROBLEMS,
    Reservation,
    Wish,
    is_over,
    is_up,
)
from apps.rest.routing import Routes
from hydra.errors import WrongRequest
from hydra.reservations.reservation import ReservationRequest

if TYPE_CHECKING:
    from apps.rest.dependencies import IdempotencyKey, LateAnswer, Reserving

routes = Routes("/v1/groups", "reservations", TENANTS)


class MatrixEntry(Body):
    """A bandwidth between two racks, or between two servers, as part of a whole."""

    src: Name
    dst: Name
    bandwidth_mbps: float = Field(gt=0, description="Held in both directions.")
    minimum_mbps: float | None = Field(
        default=None, gt=0, description="Least acceptable bandwidth."
    )


class Repeat(Body):
    """The same time again and again."""

    every_s: float = Field(ge=60, le=366 * 86_400, description="Time between two starts.")
    times: int = Field(ge=2, le=1000, description="Including the first.")


class GroupBody(Wish):
    """A whole traffic matrix, such as a job's, for the same time."""

    entries: Annotated[list[MatrixEntry], Field(fail_fast=True)] = Field(
        min_length=1, max_length=MOST_ENTRIES
    )
    repeat: Repeat | None = Field(
        default=None, description="Not only once; start and end have to be given."
    )
    all_or_nothing: bool = Field(
        default=True,
        description="False: admit the entries with enough bandwidth, and list the refused entries.",
    )

    def requests(self, key: str | None = None) -> list[ReservationRequest]:
        """Requests, one for each entry and time. Raises WrongRequest."""
        retry = retry_key(key, self)
        shared: dict[str, Any] = {
            name: value for name, value in self.wishes.items() if name in Wish.model_fields
        }
        requests = [
            ReservationRequest(**shared | dict(entry), retry=retry) for entry in self.entries
        ]
        return [
            replace(
                request,
                start_unix_s=_later(request.start_unix_s, later_s),
                end_unix_s=_later(request.end_unix_s, later_s),
            )
            for later_s in self._repetitions_s()
            for request in requests
        ]

    def _repetitions_s(self) -> list[float]:
        """Delay of each repetition after the first, in seconds. Raises WrongRequest."""
        if self.repeat is None:
            return [0.0]
        if self.start_unix_s is None:
            raise WrongRequest(
                "`repeat` needs start_unix_s, and duration_s or end_unix_s", "start_unix_s"
            )
        end_unix_s, every_s = self.end_unix_s, self.repeat.every_s
        length_s = self.duration_s if end_unix_s is None else end_unix_s - self.start_unix_s
        if length_s is None or length_s > every_s:
            lasts = "lasts until released" if length_s is None else f"lasts {length_s:g} s"
            raise WrongRequest(
                f"each repetition {lasts}, and the next begins {every_s:g} s after the last "
                "began: give a duration_s of at most every_s",
                "duration_s" if end_unix_s is None else "end_unix_s",
            )
        count = self.repeat.times * len(self.entries)
        if count > MOST_ENTRIES:
            raise WrongRequest(
                f"{len(self.entries)} entries, {self.repeat.times} times, are {count} "
                f"reservations: a request may be for at most {MOST_ENTRIES}",
                "repeat",
            )
        return [number * every_s for number in range(self.repeat.times)]


def _later(unix_s: float | None, later_s: float) -> float | None:
    return None if unix_s is None else unix_s + later_s


class RefusedEntry(Document):
    src: str
    dst: str
    bandwidth_mbps: float
    detail: str
    alternatives: list[Alternative]


class Group(Document):
    """Reservations requested together."""

    id: str
    reservations: list[Reservation]


class CreatedGroup(Group):
    refused: list[RefusedEntry] = Field(description="Always empty with `all_or_nothing`.")


@contextmanager
def pointing_into(name: str, count: int | None = None) -> Iterator[None]:
    """A WrongRequest about an end or a rate points into the list ``name`` of the body: to the
    entry, if each round of ``count`` requests is that of the entries.
    """
    try:
        yield
    except WrongRequest as error:
        (field,) = error.place
        if field not in Wish.model_fields:
            error.place = (name,)
            if count is not None and error.entry is not None:
                error.place = (name, error.entry % count, field)
        raise


@routes.on("POST", "", *ADMISSION_PROBLEMS, status_code=201)
async def create_group(
    body: GroupBody, service: Reserving, answer: LateAnswer, key: IdempotencyKey = None
) -> CreatedGroup:
    """Admit many reservations together, and bring up their circuits together.

    Either all reservations are admitted or none. Without ``all_or_nothing``, the fitting
    reservations are admitted, and the rest is listed in ``refused``. With ``Prefer: wait=N`` the
    answer waits until none is ``activating``.
    """
    requests = body.requests(key)
    with pointing_into("entries", len(body.entries)):
        outcome = await answer.outcome(
            lambda: service.reserve_all(requests, all_or_nothing=body.all_or_nothing),
            lambda made: replace(made, admitted=tuple(service.group(made.group))),
            lambda made: all(map(is_up, made.admitted)),
        )
    answer.at(f"{routes.prefix}/{outcome.group}")
    return CreatedGroup.of(
        service.fabric,
        id=outcome.group,
        reservations=outcome.admitted,
        refused=[
            RefusedEntry.of(
                None,
                refusal.request,
                detail=str(refusal.error),
                alternatives=refusal.error.alternatives,
            )
            for refusal in outcome.refused
        ],
    )


@routes.on("GET", "/{group_id}", UNKNOWN_NAME)
def get_group(group_id: str, service: Reserving) -> Group:
    """The reservations of a group, as far as remembered."""
    return Group.of(service.fabric, id=group_id, reservations=service.group(group_id))


@routes.on(
    "DELETE",
    "/{group_id}",
    UNKNOWN_NAME,
    JOURNAL_FAILED,
    status_code=202,
    responses={200: {"model": Group, "description": "All reservations of the group are over"}},
)
async def release_group(group_id: str, service: Reserving, answer: LateAnswer) -> Group:
    """Release the capacity of a whole group. Repeating the request is harmless."""
    members = await answer.outcome(
        lambda: service.release_group(group_id),
        lambda _: service.group(group_id),
        lambda members: all(map(is_over, members)),
        ended=True,
    )
    return Group.of(service.fabric, id=group_id, reservations=members)
