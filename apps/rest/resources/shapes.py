"""/v1/shapes: bandwidth between racks in a pattern, as one request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from apps.rest.access import TENANTS
from apps.rest.conditional import retry_key
from apps.rest.document import MOST_ENTRIES, Body, Document, Name
from apps.rest.problems import JOURNAL_FAILED, UNKNOWN_NAME
from apps.rest.request_bodies import in_words
from apps.rest.resources.groups import pointing_into
from apps.rest.resources.reservations import (
    ADMISSION_PROBLEMS,
    Reservation,
    Wish,
    is_over,
    is_up,
)
from apps.rest.routing import Routes
from hydra.errors import AdmissionError
from hydra.reservations import shapes as core
from hydra.reservations.reservation import ReservationRequest, ServiceClass
from hydra.reservations.shapes import (
    ShapeRequest,
    ShapeState,
    chosen_request,
    matrix_request,
    pattern_request,
)

if TYPE_CHECKING:
    from apps.rest.dependencies import IdempotencyKey, LateAnswer, Reserving

routes = Routes("/v1/shapes", "reservations", TENANTS)

Racks = Annotated[list[Name], Field(max_length=MOST_ENTRIES)]
_TOO_MUCH: Final = 1e15
"""Rate in Mb/s above all rates."""


def _read_rate(value: object) -> object:
    """A single error for the whole field, instead of an error for each type."""
    if value is None or value == "most":
        return value
    if not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < _TOO_MUCH:
        return value
    raise PydanticCustomError("rate", 'must be a rate above 0 in Mb/s, or "most"')


class AnyRacks(Body):
    """A number of racks, chosen by the controller for the best shape."""

    any: int = Field(ge=2, le=MOST_ENTRIES, description="Number of racks.")
    among: Racks | None = Field(
        default=None,
        alias="from",
        min_length=1,
        description="Racks to choose from, or a server in each; null: all racks.",
    )


_LISTED: Final = TypeAdapter(Racks)


def _read_racks(value: object) -> object:
    """A single error for the whole field, instead of an error for each type."""
    try:
        if isinstance(value, dict):
            return AnyRacks.model_validate(value)
        return _LISTED.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        at = "".join(f"{step}: " for step in first["loc"])
        why = f"{at}{in_words(first)}"
    raise PydanticCustomError("racks", "{why}", {"why": why})


class ShapePair(Body):
    """A pair of racks with its bandwidth."""

    src: Name
    dst: Name
    bandwidth_mbps: float = Field(gt=0, description="Held in both directions.")


class ShapeBody(Wish):
    """Bandwidth between racks in a pattern, or between listed pairs, for the same time."""

    pattern: str | None = Field(
        default=None,
        max_length=100,
        description=(
            "ring, torus:AxBxC, all-to-all, tree or pairs, among the racks in the given order. "
            "Null: matrix."
        ),
    )
    racks: Annotated[Racks | AnyRacks, BeforeValidator(_read_racks)] = Field(
        default=[],
        description=(
            "Names of racks, or of a server in each rack; or a number of racks that the "
            "controller chooses."
        ),
    )
    matrix: Annotated[list[ShapePair], Field(fail_fast=True)] = Field(
        default=[],
        max_length=MOST_ENTRIES,
        description="Instead of pattern and racks: pairs, each with its own bandwidth.",
    )
    bandwidth_mbps: Annotated[
        Annotated[float, Field(gt=0)] | Literal["most"] | None, BeforeValidator(_read_rate)
    ] = Field(
        default=None,
        description=(
            "Bandwidth of each pair, held in both directions; most: the highest that fits at all "
            "pairs. With a matrix: null, or most for the highest rates in the same proportion."
        ),
    )

    @model_validator(mode="after")
    def _suits(self) -> Self:
        try:
            self.request()
        except AdmissionError as error:
            raise PydanticCustomError("shape", "{why}", {"why": str(error)}) from None
        return self

    def request(self, key: str | None = None) -> ShapeRequest:
        """The core's request; the retry ``key`` belongs to this body alone. Raises
        AdmissionError.
        """
        shared: dict[str, Any] = {
            name: value for name, value in self.wishes.items() if name in Wish.model_fields
        }
        wish = ReservationRequest(
            src="", dst="", bandwidth_mbps=0.0, retry=retry_key(key, self), **shared
        )
        most = self.bandwidth_mbps == "most"
        if most and self.service is ServiceClass.BEST_EFFORT:
            raise AdmissionError("best-effort reservations hold no bandwidth: name a rate")
        if self.pattern is None:
            if self.racks or not self.matrix:
                raise AdmissionError("give pattern and racks, or a matrix")
            if isinstance(self.bandwidth_mbps, float):
                raise AdmissionError("each pair of a matrix has its rate: leave out bandwidth_mbps")
            rates = [(pair.src, pair.dst, pair.bandwidth_mbps) for pair in self.matrix]
            return matrix_request(rates, wish, most=most)
        if self.matrix:
            raise AdmissionError("give a pattern or a matrix, not both")
        if self.bandwidth_mbps is None:
            raise AdmissionError('give bandwidth_mbps: a rate in Mb/s, or "most"')
        mbps = self.bandwidth_mbps if isinstance(self.bandwidth_mbps, float) else None
        if isinstance(self.racks, AnyRacks):
            among = self.racks.among or ()
            return chosen_request(self.pattern, self.racks.any, among, mbps, wish)
        return pattern_request(self.pattern, self.racks, mbps, wish)


class ShapeStatus(Document):
    """A shape without its reservations."""

    id: str = Field(description="Also the group of the shape's reservations.")
    pattern: str
    racks: list[str]
    state: ShapeState
    bandwidth_mbps: float = Field(description="Least bandwidth held between two racks.")
    reason: str = Field(description="Pairs that are not as promised, and why.")
    to_do: str = Field(description="Remedy; empty: nothing is to be done.")
    choice: str = Field(
        description="How the controller chose the racks; empty: the request named the racks."
    )
    purpose: str
    created_unix_s: float
    start_unix_s: float
    expires_unix_s: float | None

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, value: object) -> object:
        if not isinstance(value, core.Shape):
            return value
        first = value.edges[0]
        return cls.attributes(
            value,
            bandwidth_mbps=min(edge.bandwidth_mbps for edge in value.edges),
            purpose=first.purpose,
            created_unix_s=first.created_unix_s,
            start_unix_s=first.starts_unix_s,
            expires_unix_s=first.expires_unix_s,
            reservations=value.edges,
        )


class Shape(ShapeStatus):
    instead: list[str] = Field(
        description=(
            "After lost pairs: racks with room for the same pattern at the same rate, were this "
            "shape released; empty: none were found."
        )
    )
    reservations: list[Reservation] = Field(description="In the order of the pattern.")


class Shapes(Document):
    shapes: list[ShapeStatus]


@routes.on("POST", "", *ADMISSION_PROBLEMS, status_code=201)
async def create_shape(
    body: ShapeBody, service: Reserving, answer: LateAnswer, key: IdempotencyKey = None
) -> Shape:
    """Admit bandwidth between all pairs of a pattern, or refuse with fitting rates and times.

    A reservation is made for each pair; all are brought up together. With ``Prefer: wait=N`` the
    answer waits until none is ``activating``.
    """
    request = body.request(key)
    with pointing_into("matrix" if body.matrix else "racks"):
        members = await answer.outcome(
            lambda: service.reserve_shape(request).admitted,
            lambda made: tuple(service.group(made[0].group or "")),
            lambda made: all(map(is_up, made)),
        )
    answer.at(f"{routes.prefix}/{members[0].group}")
    return Shape.of(service.fabric, core.shape_of(service.fabric, members))


@routes.on("GET", "")
def list_shapes(service: Reserving) -> Shapes:
    """All shapes as far as remembered, oldest first, without their reservations."""
    fabric = service.fabric
    return Shapes.of(fabric, shapes=core.shapes_among(fabric, service.reservations()))


@routes.on("GET", "/{shape_id}", UNKNOWN_NAME)
def get_shape(shape_id: str, service: Reserving) -> Shape:
    """State of a shape, what to do, and its reservations."""
    return Shape.of(service.fabric, service.shape(shape_id))


@routes.on(
    "DELETE",
    "/{shape_id}",
    UNKNOWN_NAME,
    JOURNAL_FAILED,
    status_code=202,
    responses={200: {"model": Shape, "description": "All reservations of the shape are over"}},
)
async def release_shape(shape_id: str, service: Reserving, answer: LateAnswer) -> Shape:
    """Release the capacity of a whole shape. Repeating the request is harmless."""
    fabric = service.fabric
    core.shape_of(fabric, service.group(shape_id))  # raises UnknownName for other groups
    members = await answer.outcome(
        partial(service.release_group, shape_id),
        lambda _: service.group(shape_id),
        lambda members: all(map(is_over, members)),
        ended=True,
    )
    return Shape.of(fabric, core.shape_of(fabric, members))
