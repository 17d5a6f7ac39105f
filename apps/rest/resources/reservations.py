"""/v1/reservations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from apps.rest.access import TENANTS
from apps.rest.conditional import require, retry_key
from apps.rest.document import Body, Document, Name, RackName
from apps.rest.problems import (
    ADMISSION_REFUSED,
    BODY_PROBLEMS,
    DEVICE_UNAVAILABLE,
    JOURNAL_FAILED,
    KEY_REUSED,
    LIFECYCLE_CONFLICT,
    NOT_HITLESS,
    PRECONDITION_FAILED,
    QUOTA_EXCEEDED,
    UNKNOWN_NAME,
)
from apps.rest.resources.deliveries import Delivery
from apps.rest.resources.protection import (
    Constrained,
    ConstraintsBody,
    Protection,
    protection_of,
)
from apps.rest.resources.topology import Circuits, Path, along
from apps.rest.routing import Routes
from hydra.errors import LifecycleError
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState, can_become
from hydra.model import Fabric
from hydra.names import rack_of
from hydra.reservations import reservation as core
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import (
    BOOKED_STATES,
    FINAL_STATES,
    LATEST_UNIX_S,
    Profile,
    Protect,
    ReservationRequest,
    ServiceClass,
    Transfer,
)
from hydra.reservations.transfers import missing_megabytes

if TYPE_CHECKING:
    from fastapi import Query, Response

    from apps.rest.dependencies import (
        Answer,
        Asked,
        IdempotencyKey,
        IfMatch,
        IfNoneMatch,
        LateAnswer,
        Reserving,
    )
    from hydra.service import ReservationService

routes = Routes("/v1/reservations", "reservations", TENANTS)

LONGEST_HOLD_S: Final = 3600.0
_ONE_END: Final[JsonDict] = {
    "not": {
        "required": ["duration_s", "end_unix_s"],
        "properties": {"duration_s": {"type": "number"}, "end_unix_s": {"type": "number"}},
    }
}
"""``Span``'s validator, for readers of the schema."""


class Span(Body):
    """Start and end of reservations."""

    model_config = ConfigDict(json_schema_extra=_ONE_END)

    start_unix_s: float | None = Field(
        default=None, ge=0, le=LATEST_UNIX_S, description="Null: now."
    )
    end_unix_s: float | None = Field(
        default=None, gt=0, le=LATEST_UNIX_S, description="Instead of duration_s."
    )
    duration_s: float | None = Field(
        default=None, gt=0, description="Counted from the start; without either, until deleted."
    )
    hold_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_HOLD_S,
        description="Only hold, for this time; without a commit by then, the reservation expires.",
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.duration_s is not None and self.end_unix_s is not None:
            raise PydanticCustomError("two_ends", "give duration_s or end_unix_s, not both")
        return self


class Wish(Span):
    """Wishes of a reservation, or of all in a group, beside ends and bandwidth."""

    priority: int = Field(
        default=0, ge=0, le=9, description="Reservations of lower priority give way, with notice."
    )
    service: Annotated[ServiceClass, Field(strict=False)] = Field(
        default=ServiceClass.SHARED,
        description=(
            "guaranteed: circuits of its own; shared: the bandwidth, on circuits shared with "
            "other reservations; best-effort: a path while a path is free."
        ),
    )
    purpose: str = Field(
        default="",
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$",
        description="Purpose, in a line of your own words: a job's number, a name.",
    )
    constraints: ConstraintsBody = Field(
        default=ConstraintsBody(), description="Planes, relays and hops of the paths."
    )
    protect: Annotated[Protect, Field(strict=False)] = Field(
        default=Protect.NONE,
        description=(
            "disjoint: a second path, without a common plane, is set up on standby and takes over "
            "after a loss."
        ),
    )

    @property
    def wishes(self) -> dict[str, object]:
        """The fields as the core takes them."""
        return dict(self) | {"constraints": self.constraints.core}


class ReservationBody(Wish):
    """A bandwidth between two racks, or between two servers."""

    src: Name = Field(description="Name of a rack or of a server.")
    dst: Name = Field(description="Name of a rack or of a server, in another rack.")
    bandwidth_mbps: float | None = Field(
        default=None, gt=0, description="Held in both directions. Null: see megabytes."
    )
    minimum_mbps: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Least acceptable bandwidth: the reservation holds as much as fits, up to "
            "bandwidth_mbps."
        ),
    )
    megabytes: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Instead of bandwidth_mbps: bytes of frames that arrive by end_unix_s; the "
            "controller chooses the rate and the times."
        ),
    )
    profile: Annotated[Profile, Field(strict=False)] = Field(
        default=Profile.EARLIEST,
        description=(
            "With megabytes: the earliest end, the latest start, or the cheapest, which is the "
            "lowest rate until the deadline."
        ),
    )

    @model_validator(mode="after")
    def _rate_or_bytes(self) -> Self:
        wrong = ""
        if self.bandwidth_mbps is None and self.megabytes is None:
            wrong = "give bandwidth_mbps or megabytes: neither is given"
        elif self.bandwidth_mbps is not None and self.megabytes is not None:
            wrong = "give bandwidth_mbps or megabytes, and not both"
        elif self.megabytes is None and self.profile is not Profile.EARLIEST:
            wrong = "profile goes with megabytes"
        elif self.megabytes is not None and self.end_unix_s is None:
            wrong = "megabytes need end_unix_s, the deadline"
        elif self.megabytes is not None and self.minimum_mbps is not None:
            wrong = "megabytes go without minimum_mbps: the rate follows from the deadline"
        if wrong:
            raise PydanticCustomError("rate_or_bytes", "{wrong}", {"wrong": wrong})
        return self

    def request(self, key: str | None = None) -> ReservationRequest:
        """The core's request; the retry ``key`` belongs to this body alone."""
        values: dict[str, Any] = self.wishes
        megabytes, profile = values.pop("megabytes"), values.pop("profile")
        retry = retry_key(key, self)
        if megabytes is None or self.end_unix_s is None:
            return ReservationRequest(**values, retry=retry)
        values |= {"bandwidth_mbps": 0.0, "end_unix_s": None}
        transfer = Transfer(megabytes=megabytes, deadline_unix_s=self.end_unix_s, profile=profile)
        return ReservationRequest(**values, retry=retry, transfer=transfer)


class ModificationBody(Body):
    """Changes to a reservation; fields left out, or null, stay."""

    bandwidth_mbps: float | None = Field(default=None, gt=0)
    src: Name | None = Field(default=None, description="A rack, or another server of its rack.")
    dst: Name | None = None
    end_unix_s: float | None = Field(default=None, gt=0, le=LATEST_UNIX_S)


class ReservationFilter(BaseModel):
    """Query of the reservation list."""

    state: list[ReservationState] = Field(default=[], description="May be repeated.")
    rack: str | None = Field(default=None, description="An end: a rack, or a server in the rack.")
    group: str | None = None
    after: str | None = Field(
        default=None, description="Id of the last reservation of the previous page."
    )
    limit: int = Field(default=1000, ge=1, le=1000)


class TransferStatus(Document):
    """Bytes by a deadline."""

    megabytes: float
    deadline_unix_s: float
    profile: Profile
    missing_megabytes: float = Field(
        description="Bytes that will not arrive by the end of the reservation."
    )


def _transfer_of(value: core.Reservation) -> object:
    if value.transfer is None:
        return None
    return TransferStatus.of(None, value.transfer, missing_megabytes=missing_megabytes(value))


class _Placed(Document):
    """Made of a reservation of the core: paths run from ``src`` to ``dst``."""

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, value: object, info: ValidationInfo[Fabric]) -> object:
        if not isinstance(value, core.Reservation):
            return value
        return cls.attributes(
            value,
            protection=protection_of(value, info.context),
            start_unix_s=value.starts_unix_s,
            booked=along(value.booked, None, value.src_rack),
            path=along(value.path, value.vlan, value.src_rack),
            parts=getattr(value, "parts", ()),
            transfer=_transfer_of(value),
        )


class Part(_Placed):
    """Part of a reservation that no circuit carries alone."""

    id: str
    state: ReservationState
    src: str
    dst: str
    bandwidth_mbps: float
    booked: Path | None = Field(
        description="Null: the configuration no longer has all of the path."
    )
    path: Path | None
    protection: Protection | None = Field(description="The path on standby.")


class Reservation(_Placed):
    id: str
    state: ReservationState
    src: str
    dst: str
    src_rack: RackName = Field(description="Empty if the fabric no longer has the rack.")
    dst_rack: RackName
    bandwidth_mbps: float = Field(description="Bandwidth held.")
    wanted_mbps: float | None = Field(
        description="Bandwidth requested, if there was a minimum; else null."
    )
    minimum_mbps: float | None
    priority: int
    service: ServiceClass
    purpose: str
    duration_s: float | None
    created_unix_s: float
    start_unix_s: float
    expires_unix_s: float | None
    held_until_unix_s: float | None = Field(
        description="Deadline of a commit; null: no commit needed."
    )
    group: str | None
    booked: Path | None = Field(
        description="Path set aside, from src to dst; null: each part has a path."
    )
    path: Path | None = Field(description="Path from src to dst; null until the path is up.")
    bundle: str | None = Field(
        description="Id of the reservation divided into parts, if this is a part; else null."
    )
    parts: list[Part] = Field(
        description=(
            "Parts between different servers, if no circuit carries the whole bandwidth; else "
            "empty."
        )
    )
    constraints: Constrained
    protect: Protect
    protection: Protection | None = Field(
        description="The path on standby; null: unprotected, or the path was lost."
    )
    transfer: TransferStatus | None = Field(
        description="Bytes that the reservation carries by a deadline; null: a rate was asked for."
    )
    reason: str
    since_unix_s: float | None = Field(
        description="Time of the last change of state; null: unknown."
    )


class Reservations(Document):
    reservations: list[Reservation]
    next: str | None = Field(
        description="Send as `after` to get the next page; null: no more pages."
    )


class ReservationPreview(Document):
    """Reservation as planned."""

    state: ReservationState
    bandwidth_mbps: float = Field(description="Bandwidth that would be held.")
    booked: Path | None = Field(description="Null: each part has a path.")
    protect: Protect
    protection: Protection | None = Field(description="The path on standby.")
    parts: list[Part]
    start_unix_s: float
    expires_unix_s: float | None
    connect: Circuits = Field(description="Circuits brought up at the start.")
    disconnect: Circuits = Field(description="Circuits taken down at the start.")
    at_risk: list[str] = Field(
        description="Missing devices and switches needed by the reservation, in words."
    )


_UNDER_WAY: Final = BOOKED_STATES - {ReservationState.HELD}
_PLACING: Final = (
    *BODY_PROBLEMS,
    UNKNOWN_NAME,
    ADMISSION_REFUSED,
    QUOTA_EXCEEDED,
    DEVICE_UNAVAILABLE,
)
ADMISSION_PROBLEMS: Final = (*_PLACING, KEY_REUSED, JOURNAL_FAILED)
_CHANGING: Final = (UNKNOWN_NAME, LIFECYCLE_CONFLICT, PRECONDITION_FAILED, JOURNAL_FAILED)


@routes.on("POST", "", *ADMISSION_PROBLEMS, status_code=201)
async def create_reservation(
    body: ReservationBody, service: Reserving, answer: LateAnswer, key: IdempotencyKey = None
) -> Reservation:
    """Admit a reservation and bring up its circuits.

    The answer comes at once, in state ``activating``, ``scheduled`` or ``held``; with ``Prefer:
    wait=N`` the answer waits until the reservation is active or has failed, at most N seconds.
    """
    request = body.request(key)
    made = await answer.outcome(lambda: service.reserve(request), _reader(service), is_up)
    answer.at(f"{routes.prefix}/{made.id}")
    return answer.tagged(Reservation.of(service.fabric, made))


def _reader(service: ReservationService) -> Callable[[core.Reservation], core.Reservation]:
    """Reads a reservation again."""
    return lambda seen: service.reservation(seen.id)


def is_up(reservation: core.Reservation) -> bool:
    """Whether the wait is over: the reservation has its circuits, or will not get circuits now."""
    return reservation.state is not ReservationState.ACTIVATING


def is_over(reservation: core.Reservation) -> bool:
    return reservation.state in FINAL_STATES


@routes.on("POST", "/preview", *_PLACING)
def preview_reservation(body: ReservationBody, service: Reserving) -> ReservationPreview:
    """Plan a reservation without making it: the path, and the circuits to be moved."""
    preview, fabric = service.preview(body.request()), service.fabric
    made = Reservation.of(fabric, preview.reservation)
    return ReservationPreview.of(
        fabric,
        {**dict(made), **ReservationPreview.attributes(preview)},
    )


@routes.on("POST", "/{reservation_id}/commit", *_CHANGING)
async def commit_reservation(
    reservation_id: str, service: Reserving, answer: LateAnswer, if_match: IfMatch = None
) -> Reservation:
    """Make a ``held`` reservation permanent. Repeating the request is harmless."""
    committed = await answer.outcome(
        lambda: _unless(service.commit, _is_under_way, service, reservation_id, if_match),
        _reader(service),
        is_up,
    )
    return answer.tagged(Reservation.of(service.fabric, committed))


def _is_under_way(reservation: core.Reservation) -> bool:
    return reservation.state in _UNDER_WAY


def _unless(
    change: Callable[[str, core.Reservation | None], core.Reservation],
    made: Callable[[core.Reservation], bool],
    service: ReservationService,
    reservation_id: str,
    if_match: str | None,
) -> core.Reservation:
    """Change a reservation as seen by the client; no error if the change is already ``made``."""
    seen = _as_seen(service, reservation_id, if_match)
    try:
        return change(reservation_id, seen)
    except LifecycleError:
        current = service.reservation(reservation_id)
        if made(current):
            return current
        raise


def _as_seen(
    service: ReservationService, reservation_id: str, if_match: str | None
) -> core.Reservation | None:
    """The reservation, if the client allows only a change of the version seen. Raises Changed."""
    if if_match is None:
        return None
    seen = service.reservation(reservation_id)
    require(if_match, Reservation.of(service.fabric, seen))
    return seen


@routes.on("GET", "", UNKNOWN_NAME)
def list_reservations(service: Reserving, query: Asked[ReservationFilter]) -> Reservations:
    """Oldest first, page by page: send ``next`` as ``after`` for the following page."""
    wanted = frozenset(query.state or ReservationState)
    rack = None if query.rack is None else rack_of(service.fabric, query.rack)
    reservations = iter(service.reservations())
    if query.after is not None:
        service.reservation(query.after)  # raises UnknownName
        for _ in takewhile(lambda reservation: reservation.id != query.after, reservations):
            pass
    matching = (
        reservation
        for reservation in reservations
        if reservation.state in wanted
        and (rack is None or rack in reservation.pair)
        and query.group in (None, reservation.group)
    )
    page = list(islice(matching, query.limit))
    more = page and next(matching, None) is not None
    return Reservations.of(service.fabric, reservations=page, next=page[-1].id if more else None)


@routes.on(
    "GET",
    "/{reservation_id}",
    UNKNOWN_NAME,
    response_model=Reservation,
    responses={304: {"description": "The reservation still has the ETag of If-None-Match"}},
)
async def get_reservation(
    reservation_id: str,
    service: Reserving,
    answer: LateAnswer,
    wait: Annotated[
        ReservationState | None,
        Query(
            description=(
                "Answer once the reservation is in this state, or can no longer reach the state; "
                "or after `Prefer: wait=N`, 60 s by default."
            )
        ),
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Reservation | Response:
    """State, path and VLAN of a reservation, at once or upon reaching a state."""
    current = await answer.state(
        lambda: service.reservation(reservation_id),
        None if wait is None else partial(_is_or_never, wait),
    )
    return answer.unless_known(Reservation.of(service.fabric, current), if_none_match)


def _is_or_never(wanted: ReservationState, now: core.Reservation) -> bool:
    """Whether a reservation is in the ``wanted`` state, or can't reach the state."""
    return now.state is wanted or not can_become(RESERVATION_TRANSITIONS, now.state, wanted)


@routes.on(
    "PATCH",
    "/{reservation_id}",
    *BODY_PROBLEMS,
    ADMISSION_REFUSED,
    QUOTA_EXCEEDED,
    NOT_HITLESS,
    *_CHANGING,
)
async def modify_reservation(
    reservation_id: str,
    body: ModificationBody,
    service: Reserving,
    answer: Answer,
    if_match: IfMatch = None,
) -> Reservation:
    """Change a reservation without an interruption: the rate, the end, or a server at an end.

    An active reservation keeps its circuits; if the circuits do not allow the change, the change is
    refused and has no effect.
    """

    def modify() -> core.Reservation:
        seen = _as_seen(service, reservation_id, if_match)
        return service.modify(reservation_id, Modification(**dict(body)), seen)

    changed = await answer.made(modify)
    return answer.tagged(Reservation.of(service.fabric, changed))


@routes.on(
    "DELETE",
    "/{reservation_id}",
    *_CHANGING,
    status_code=202,
    responses={
        200: {
            "model": Reservation,
            "description": "The reservation is over: released just now or before, or expired",
        }
    },
)
async def release_reservation(
    reservation_id: str, service: Reserving, answer: LateAnswer, if_match: IfMatch = None
) -> Reservation:
    """Release a reservation's capacity; a reservation that has not begun is cancelled.

    202 while the circuits come down, 200 once over. Repeating the request is harmless. The
    reservation stays readable as a record.
    """
    released = await answer.outcome(
        lambda: release(service, reservation_id, if_match), _reader(service), is_over, ended=True
    )
    return answer.tagged(Reservation.of(service.fabric, released))


def release(
    service: ReservationService, reservation_id: str, if_match: str | None = None
) -> core.Reservation:
    """DELETE is idempotent: a reservation being released, or over, is not a conflict."""
    return _unless(service.release, _is_leaving, service, reservation_id, if_match)


def _is_leaving(reservation: core.Reservation) -> bool:
    return reservation.state is ReservationState.RELEASING or is_over(reservation)


@routes.on("GET", "/{reservation_id}/delivery", UNKNOWN_NAME)
def get_delivery(reservation_id: str, service: Reserving) -> Delivery:
    """Bandwidth received by the reservation, from counters at its ends, and the promised
    bandwidth.
    """
    return Delivery.of(None, service.delivery(reservation_id))
