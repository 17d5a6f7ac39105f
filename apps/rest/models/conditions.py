"""Conditions, and what has happened."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from apps.rest.models.base import Document, RackPair
from hydra.faults.conditions import ConditionKind
from hydra.history import HappeningKind
from hydra.reservations.reservation import LATEST_UNIX_S


class Condition(Document):
    """A condition; the first twenty of its subjects, pairs and reservations are listed."""

    kind: ConditionKind
    what: str
    since_unix_s: float
    done: str = Field(description="What the controller did about it.")
    to_do: str = Field(description="What people do next.")
    command: str = Field(description="For that; or it shows more.")
    subjects: list[str] = Field(description="Names of what it is wrong with.")
    subjects_total: int
    pairs: list[RackPair] = Field(description="Rack pairs that it affects.")
    pairs_total: int
    reservations: list[str] = Field(description="Ids of reservations that it affects.")
    reservations_total: int


class HistoryFilter(BaseModel):
    """Which lines, and how many at a time."""

    model_config = ConfigDict(extra="forbid")

    since_unix_s: float = Field(default=0.0, ge=0, le=LATEST_UNIX_S, description="From then on.")
    before_unix_s: float | None = Field(
        default=None, ge=0, le=LATEST_UNIX_S, description="Before that; null: until now."
    )
    kind: list[HappeningKind] = Field(default=[], max_length=20, description="Empty: all.")
    limit: int = Field(default=100, ge=1, le=1000)


class Happening(Document):
    unix_s: float
    kind: HappeningKind
    text: str
    pairs: list[RackPair] = Field(description="Rack pairs that it concerns.")


class History(Document):
    happenings: list[Happening] = Field(description="Newest first.")
    next_before_unix_s: float | None = Field(
        description="`before_unix_s` of the following page; null: this is the last one."
    )


class Conditions(Document):
    healthy: bool = Field(description="Nothing is wrong.")
    conditions: list[Condition]
