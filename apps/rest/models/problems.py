"""Errors."""

from __future__ import annotations

from pydantic import Field

from apps.rest.models.base import Document
from apps.rest.models.reservations import Alternative


class ErrorDetail(Document):
    """Error in a request: in its body, or in its query."""

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
