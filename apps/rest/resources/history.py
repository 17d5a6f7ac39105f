"""/v1/history: events of the past, across restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, Field, field_validator

from apps.rest.document import Document, RackPair
from apps.rest.routing import Routes
from hydra.history import HappeningKind
from hydra.reservations.reservation import LATEST_UNIX_S

if TYPE_CHECKING:
    from apps.rest.dependencies import Asked, Service

routes = Routes("/v1/history", "operations")
_LISTED: Final = 20
"""Largest number of listed rack pairs of a line."""


class HistoryFilter(BaseModel):
    """Selection of lines, and how many at a time."""

    since_unix_s: float = Field(default=0.0, ge=0, le=LATEST_UNIX_S, description="From then on.")
    before_unix_s: float | None = Field(
        default=None, ge=0, le=LATEST_UNIX_S, description="Only earlier entries; null: until now."
    )
    kind: list[HappeningKind] = Field(default=[], max_length=20, description="Empty: all.")
    limit: int = Field(default=100, ge=1, le=1000)


class Happening(Document):
    unix_s: float
    kind: HappeningKind
    text: str
    pairs: list[RackPair] = Field(description="Rack pairs concerned.")

    @field_validator("pairs", mode="before")
    @classmethod
    def _first(cls, pairs: Sequence[object]) -> Sequence[object]:
        return pairs[:_LISTED]


class History(Document):
    happenings: list[Happening] = Field(description="Newest first.")
    next_before_unix_s: float | None = Field(
        description="`before_unix_s` of the next page; null: no more pages."
    )


@routes.on("GET", "")
def list_history(service: Service, query: Asked[HistoryFilter]) -> History:
    """Past events, newest first: changes, losses, reservations, decisions, reloads, starts."""
    before_s = float("inf") if query.before_unix_s is None else query.before_unix_s
    lines = service.history(query.since_unix_s, before_s, query.kind, query.limit + 1)
    shown = lines[: query.limit]
    more = len(lines) > query.limit
    return History.of(None, happenings=shown, next_before_unix_s=shown[-1].unix_s if more else None)
