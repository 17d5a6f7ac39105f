"""/problems: meaning of the types of problem documents; and the documents (RFC 9457)."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apps.rest.document import Document
from apps.rest.problems import CATALOGUE, UNKNOWN_NAME
from apps.rest.routing import Routes
from hydra.errors import UnknownName

routes = Routes("/problems", "operations")
_PROBLEM_BY_SLUG: Final = {problem.slug: problem for problem in CATALOGUE}


class Alternative(Document):
    """A request that would be admitted instead."""

    bandwidth_mbps: float
    start_unix_s: float | None = Field(default=None, description="Left out: the requested start.")
    end_unix_s: float | None = Field(
        default=None,
        description=(
            "Left out: the requested end or duration. Given with a later start if an end was "
            "requested."
        ),
    )
    racks: list[str] | None = Field(
        default=None, description="Racks of a smaller shape. Left out: the requested ends."
    )


class ErrorDetail(Document):
    """Error in a request: in the body, or in the query."""

    pointer: str | None = Field(default=None, description="JSON pointer (RFC 6901) into the body.")
    parameter: str | None = Field(default=None, description="Name of a query parameter.")
    detail: str


class Problem(Document):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ErrorDetail] | None = None
    alternatives: list[Alternative] | None = None
    missing: list[str] | None = None


class ProblemDescription(Document):
    type: str
    title: str
    status: int
    meaning: str


@routes.on("GET", "/{slug}", UNKNOWN_NAME, public=True)
async def describe_problem(slug: str) -> ProblemDescription:
    """Description at the ``type`` of a problem document."""
    problem = _PROBLEM_BY_SLUG.get(slug)
    if problem is None:
        raise UnknownName(f"no problem type {slug!r}: there are {', '.join(_PROBLEM_BY_SLUG)}")
    return ProblemDescription.of(None, problem, type=problem.uri)
