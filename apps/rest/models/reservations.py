"""Reservations, groups of them, and what they were given."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from apps.rest.models.base import MOST_ENTRIES, Body, Document, Name
from apps.rest.models.topology import Circuit, Path
from hydra.lifecycle import ReservationState
from hydra.reservations.reservation import LATEST_UNIX_S, ServiceClass

LONGEST_HOLD_S: Final = 3600.0
_ONE_END: Final[JsonDict] = {
    "not": {
        "required": ["duration_s", "end_unix_s"],
        "properties": {"duration_s": {"type": "number"}, "end_unix_s": {"type": "number"}},
    }
}
"""``Span``'s validator, for those who read the schema."""


class Span(Body):
    """When reservations begin and end."""

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
        description="Only hold, for this long; what is not committed by then goes.",
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.duration_s is not None and self.end_unix_s is not None:
            raise PydanticCustomError("two_ends", "give duration_s or end_unix_s, not both")
        return self


class ReservationBody(Span):
    """A bandwidth between two racks, or between two servers."""

    src: Name = Field(description="Name of a rack or of a server.")
    dst: Name = Field(description="Name of a rack or of a server, in another rack.")
    bandwidth_mbps: float = Field(gt=0, description="Held in both directions.")
    minimum_mbps: float | None = Field(
        default=None,
        gt=0,
        description="Less than bandwidth_mbps will do, down to this: the most that fits is held.",
    )
    priority: int = Field(
        default=0, ge=0, le=9, description="Those of lower priority give way, with notice."
    )
    service: Annotated[ServiceClass, Field(strict=False)] = Field(
        default=ServiceClass.SHARED,
        description="guaranteed: circuits of its own; shared: its bandwidth, on circuits that "
        "others may use, too; best-effort: a path while there is one to spare.",
    )


class ModificationBody(Body):
    """Changes to a reservation; what is left out, or null, stays."""

    bandwidth_mbps: float | None = Field(default=None, gt=0)
    src: Name | None = Field(default=None, description="A rack, or another server of its rack.")
    dst: Name | None = None
    end_unix_s: float | None = Field(default=None, gt=0, le=LATEST_UNIX_S)


class MatrixEntry(Body):
    """A bandwidth between two racks, or between two servers, as part of a whole."""

    src: Name
    dst: Name
    bandwidth_mbps: float = Field(gt=0, description="Held in both directions.")
    minimum_mbps: float | None = Field(
        default=None, gt=0, description="Less will do, down to this."
    )


class Repeat(Body):
    """The same time again and again."""

    every_s: float = Field(ge=60, le=366 * 86_400, description="From one start to the next.")
    times: int = Field(ge=2, le=1000, description="Including the first.")


class GroupBody(Span):
    """A whole traffic matrix, such as that of a job, for the same time."""

    entries: Annotated[list[MatrixEntry], Field(fail_fast=True)] = Field(
        min_length=1, max_length=MOST_ENTRIES
    )
    priority: int = Field(
        default=0, ge=0, le=9, description="Those of lower priority give way, with notice."
    )
    service: Annotated[ServiceClass, Field(strict=False)] = Field(
        default=ServiceClass.SHARED, description="As for a single reservation."
    )
    repeat: Repeat | None = Field(
        default=None, description="Not only once; start and end have to be given."
    )
    all_or_nothing: bool = Field(
        default=True, description="False: admit those that fit, and list the others."
    )


class ReservationFilter(BaseModel):
    """Query of the reservation list."""

    model_config = ConfigDict(extra="forbid")

    state: list[ReservationState] = Field(default=[], description="May be repeated.")
    rack: str | None = Field(default=None, description="One end: a rack, or a server in it.")
    group: str | None = None
    after: str | None = Field(default=None, description="The id that the page before ended with.")
    limit: int = Field(default=1000, ge=1, le=1000)


class Part(Document):
    """Part of a reservation that no circuit carries alone."""

    id: str
    state: ReservationState
    src: str
    dst: str
    bandwidth_mbps: float
    booked: Path | None = Field(description="Null: the configuration has a part of it no more.")
    path: Path | None


class Reservation(Document):
    id: str
    state: ReservationState
    src: str
    dst: str
    src_rack: str = Field(description="Empty once the fabric has it no more.")
    dst_rack: str
    bandwidth_mbps: float = Field(description="What is held.")
    wanted_mbps: float | None = Field(
        description="What was asked for, if there was a minimum; else null."
    )
    minimum_mbps: float | None
    priority: int
    service: ServiceClass
    duration_s: float | None
    created_unix_s: float
    start_unix_s: float
    expires_unix_s: float | None
    held_until_unix_s: float | None = Field(description="Commit it before; null: no need to.")
    group: str | None
    booked: Path | None = Field(
        description="From src to dst: the path that is set aside for it; null: its parts have each "
        "its own."
    )
    path: Path | None = Field(description="From src to dst; null until it is up.")
    bundle: str | None = Field(description="Reservation that it is a part of; null: of none.")
    parts: list[Part] = Field(
        description="Parts between servers of their own, where no circuit carries it alone; else "
        "empty."
    )
    reason: str
    since_unix_s: float | None = Field(description="When it got into its state; null: not known.")


class Reservations(Document):
    reservations: list[Reservation]
    next: str | None = Field(description="Send it as `after` for more; null: there are no more.")


class Delivery(Document):
    """Bandwidth that a reservation gets, beside what it was promised."""

    reservation: str
    state: ReservationState
    promised_mbps: float = Field(description="In both directions; 0 for best effort.")
    there_mbps: float | None = Field(
        description="What came from src to dst over circuits in the last seconds; null: not known."
    )
    back_mbps: float | None = Field(description="From dst to src.")
    unheld: list[str] = Field(
        description="Servers on the same circuits whose vswitches can't hold them to their part."
    )


class Deliveries(Document):
    deliveries: list[Delivery]


class ReservationPreview(Document):
    """Reservation as it would become."""

    state: ReservationState
    bandwidth_mbps: float = Field(description="What would be held.")
    booked: Path | None = Field(description="Null: its parts have each its own.")
    parts: list[Part]
    start_unix_s: float
    expires_unix_s: float | None
    connect: list[Circuit] = Field(description="Circuits that its start would bring up.")
    disconnect: list[Circuit] = Field(description="Circuits that its start would take down.")
    at_risk: list[str] = Field(
        description="Devices and switches that are missing for it, in words."
    )


class Alternative(Document):
    """Request that would be admitted instead."""

    bandwidth_mbps: float
    start_unix_s: float | None = Field(
        default=None, description="Left out: the start that was asked for."
    )
    end_unix_s: float | None = Field(
        default=None,
        description="Left out: the end that was asked for, or the duration. It goes with a later "
        "start, where an end was asked for.",
    )


class RefusedEntry(Document):
    src: str
    dst: str
    bandwidth_mbps: float
    detail: str
    alternatives: list[Alternative]


class Group(Document):
    """Reservations that were asked for as one."""

    id: str
    reservations: list[Reservation]


class CreatedGroup(Group):
    refused: list[RefusedEntry] = Field(description="Empty if it was all or nothing.")


class Quota(Document):
    tenant: str
    max_reservations: int | None = Field(description="At a time; null: no limit.")
    max_mbps: float | None = Field(description="At any moment; null: no limit.")
    max_priority: int
    reservations: int = Field(description="Those that are not over.")
    peak_mbps: float = Field(description="The most that is promised at any moment from now on.")


class Quotas(Document):
    quotas: list[Quota]
