"""/v1/load: the last hour of circuits, of rack pairs, and of the network as a whole."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, field_validator
from pydantic_core import PydanticCustomError

from apps.rest.document import Document, Name, RackName
from apps.rest.problems import UNKNOWN_NAME
from apps.rest.resources.topology import Circuit, named
from apps.rest.routing import Routes
from hydra.demand.load import Series
from hydra.names import rack_named

if TYPE_CHECKING:
    from apps.rest.dependencies import Asked, Service

routes = Routes("/v1/load", "network")


class LoadFilter(BaseModel):
    """Selection of racks, and the number of circuits and pairs."""

    rack: list[Name] = Field(
        default=[],
        max_length=2,
        description="Only circuits at this rack; given twice: only between these two racks.",
    )
    limit: int = Field(default=10, ge=1, le=100, description="Number of circuits, and of pairs.")

    @field_validator("rack")
    @classmethod
    def _that_differ(cls, racks: list[str]) -> list[str]:
        if len(racks) != len(set(racks)):
            raise PydanticCustomError(
                "same_rack",
                "`rack` is given twice with the same name: name one rack, or two different racks",
            )
        return racks


class CircuitLoad(Circuit):
    """Rates sent by the ends of a circuit; null if unknown, and before the circuit stood."""

    a_to_b_mbps: list[float | None]
    b_to_a_mbps: list[float | None] | None = Field(description="Null: a one-way circuit.")


class PairLoad(Document):
    """Rates of a rack pair from src to dst; null if unknown."""

    src: RackName
    dst: RackName
    mbps: list[float | None]


class Totals(Document):
    """Sums over the network, with an entry for each of `unix_s`, null if unknown."""

    carried_mbps: list[float | None] = Field(description="Rate of all rack pairs.")
    with_circuits_mbps: list[float | None] = Field(
        description="Rate of the rack pairs with a path of circuits."
    )
    circuits: list[float | None] = Field(description="Number of circuits.")
    reservations: list[float | None] = Field(
        description="Number of reservations with circuits, or with circuits on the way."
    )


class Load(Document):
    """The last hour; each list of rates has an entry for each of `unix_s`."""

    interval_s: float | None = Field(
        description=(
            "Time between two samples; null: nothing is recorded, since `policy.poll_interval_s` "
            "is 0."
        )
    )
    unix_s: list[float] = Field(description="Times of the samples, the oldest first.")
    circuits: list[CircuitLoad] = Field(description="The highest rate in the hour first.")
    pairs: list[PairLoad] = Field(
        description="The highest rate in the hour first; with two racks, both directions."
    )
    totals: Totals


@routes.on("GET", "", UNKNOWN_NAME)
def get_load(service: Service, query: Asked[LoadFilter]) -> Load:
    """Load of standing circuits and of the busiest rack pairs in the last hour."""
    fabric = service.fabric
    found = service.load([rack_named(fabric, name) for name in query.rack], query.limit)
    return Load.of(
        fabric,
        interval_s=found.interval_s,
        unix_s=[round(at, 3) for at in found.unix_s.tolist()],
        circuits=[
            named(fabric, circuit.circuit)
            | {
                "a_to_b_mbps": _series(circuit.a_to_b_mbps),
                "b_to_a_mbps": None
                if circuit.b_to_a_mbps is None
                else _series(circuit.b_to_a_mbps),
            }
            for circuit in found.circuits
        ],
        pairs=[
            {"src": pair.src, "dst": pair.dst, "mbps": _series(pair.mbps)} for pair in found.pairs
        ],
        totals={
            field.name: _series(getattr(found.totals, field.name)) for field in fields(found.totals)
        },
    )


def _series(samples_mbps: Series) -> list[float | None]:
    """Samples rounded to a kb/s; None for a missing sample."""
    return [None if math.isnan(mbps) else round(mbps, 3) for mbps in samples_mbps.tolist()]
