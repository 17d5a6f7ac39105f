"""/v1/availability: the bandwidth that two racks or servers could reserve, over a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from apps.rest.access import TENANTS
from apps.rest.document import Document, Name
from apps.rest.problems import ADMISSION_REFUSED, UNKNOWN_NAME
from apps.rest.routing import Routes
from hydra.names import rack_of
from hydra.reservations.admission import fastest_circuit_mbps
from hydra.reservations.reservation import LATEST_UNIX_S, ReservationRequest

if TYPE_CHECKING:
    from apps.rest.dependencies import Asked, Reserving

_DAY_S: Final = 86_400.0
routes = Routes("/v1/availability", "reservations", TENANTS)


class AvailabilityFilter(BaseModel):
    """Two ends, and a time."""

    src: Name = Field(description="Name of a rack or of a server.")
    dst: Name = Field(description="Name of a rack or of a server, in another rack.")
    start_unix_s: float | None = Field(
        default=None, ge=0, le=LATEST_UNIX_S, description="Default: now."
    )
    end_unix_s: float | None = Field(
        default=None, gt=0, le=LATEST_UNIX_S, description="Default: a day after the start."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.end_unix_s is not None and self.end_unix_s <= (self.start_unix_s or 0.0):
            raise PydanticCustomError("order", "end_unix_s is not after start_unix_s")
        return self


class AvailableSpan(Document):
    """A bandwidth that could be reserved throughout a span of time."""

    start_unix_s: float
    end_unix_s: float
    mbps: float = Field(description="On one path, in both directions; 0: nothing fits.")


class Availability(Document):
    src: str
    dst: str
    spans: list[AvailableSpan] = Field(description="Without gaps, in order of time.")


@routes.on("GET", "", UNKNOWN_NAME, ADMISSION_REFUSED)
def get_availability(service: Reserving, query: Asked[AvailabilityFilter]) -> Availability:
    """Bandwidth that two racks or servers could reserve now and later, beside what is promised."""
    fabric = service.fabric
    racks = (rack_of(fabric, name) for name in (query.src, query.dst))
    length_s = None if query.end_unix_s is not None else _DAY_S
    asked = ReservationRequest(
        query.src,
        query.dst,
        fastest_circuit_mbps(fabric, *racks) or 1.0,
        duration_s=length_s,
        start_unix_s=query.start_unix_s,
        end_unix_s=query.end_unix_s,
    )
    spans = service.availability(asked)
    return Availability.of(None, src=query.src, dst=query.dst, spans=spans)
