"""/v1/conditions: faults, since when, their effects, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pydantic import Field, model_validator

from apps.rest.document import Document, RackPairs
from apps.rest.routing import Routes
from hydra.faults import condition as core
from hydra.faults.condition import ConditionKind
from hydra.model import Fabric

if TYPE_CHECKING:
    from apps.rest.asking import Service

routes = Routes("/v1/conditions", "operations")
_LISTED: Final = 20
"""Largest number of listed subjects, pairs and reservations of a condition."""


class Condition(Document):
    """A condition; lists the first twenty subjects, pairs and reservations."""

    kind: ConditionKind
    what: str
    since_unix_s: float
    done: str = Field(description="What the controller did about it.")
    to_do: str = Field(description="What people do next.")
    command: str = Field(description="For that; or it shows more.")
    subjects: list[str] = Field(description="Names of what it is wrong with.")
    subjects_total: int
    pairs: RackPairs = Field(description="Rack pairs that it affects.")
    pairs_total: int
    reservations: list[str] = Field(description="Ids of reservations that it affects.")
    reservations_total: int

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, value: object) -> object:
        if not isinstance(value, core.Condition):
            return value
        found: dict[str, object] = {}
        for name in ("subjects", "pairs", "reservations"):
            every = getattr(value, name)
            found |= {name: every[:_LISTED], f"{name}_total": len(every)}
        return cls.attributes(value, **found)


class Conditions(Document):
    healthy: bool = Field(description="Nothing is wrong.")
    conditions: list[Condition]

    @classmethod
    def of_all(cls, fabric: Fabric, found: Sequence[core.Condition]) -> Conditions:
        return cls.of(fabric, healthy=not found, conditions=found)


@routes.on("GET")
def list_conditions(service: Service) -> Conditions:
    """All present faults, the most urgent first; similar faults share a condition."""
    return Conditions.of_all(service.fabric, service.conditions())
