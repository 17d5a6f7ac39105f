"""What bodies of requests and responses have in common."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

MOST_ENTRIES: Final = 10_000
Name = Annotated[str, Field(min_length=1, max_length=255)]
Names = Annotated[list[Name], Field(min_length=1, max_length=MOST_ENTRIES, fail_fast=True)]


class Body(BaseModel):
    """Requests: nothing is coerced, nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Document(BaseModel):
    """Responses; ``model_validate`` makes one of what has fields of the same names."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class RackPair(Document):
    src: str
    dst: str
