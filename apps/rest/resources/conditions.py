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
    from apps.rest.dependencies import Service

routes = Routes("/v1/conditions", "operations")
_LISTED: Final = 20
"""Largest number of listed subjects, pairs and reservations of a condition."""


class Condition(Document):
    """A condition; lists the first twenty subjects, pairs and reservations."""

    kind: ConditionKind
    what: str
    since_unix_s: float
    done: str = Field(description="Action taken by the controller.")
    to_do: str = Field(description="Action left to people.")
    command: str = Field(description="Command to act with, or to see more.")
    subjects: list[str] = Field(
        description="Names of the faulty devices, ports, circuits or other parts."
    )
    subjects_total: int
    pairs: RackPairs = Field(description="Affected rack pairs.")
    pairs_total: int
    reservations: list[str] = Field(description="Ids of affected reservations.")
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
    healthy: bool = Field(description="True if there are no conditions.")
    conditions: list[Condition]

    @classmethod
    def of_all(cls, fabric: Fabric, found: Sequence[core.Condition]) -> Conditions:
        return cls.of(fabric, healthy=not found, conditions=found)


@routes.on("GET")
def list_conditions(service: Service) -> Conditions:
    """All present faults, the most urgent first; similar faults share a condition."""
    return Conditions.of_all(service.fabric, service.conditions())
