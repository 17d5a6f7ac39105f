"""Racks, planes, circuits, paths and servers, and what circuits carry."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from apps.rest.models.base import Document, Name


class Hop(Document):
    """A circuit in the direction in which the path runs."""

    plane: str
    from_rack: str
    from_port: str
    to_rack: str
    to_port: str
    rate_mbps: float


class Path(Document):
    src: str
    dst: str
    vlan: int | None
    hops: list[Hop]
    one_way: bool = Field(description="It leads from src to dst alone.")


class CircuitEnd(Document):
    rack: str
    port: str


class Circuit(Document):
    plane: str
    a: CircuitEnd
    b: CircuitEnd
    rate_mbps: float
    one_way: bool = Field(description="It leads from a to b alone.")


class LiveCircuit(Circuit):
    """A circuit that stands, with what its ToR ports last sent."""

    a_to_b_mbps: float | None
    b_to_a_mbps: float | None = Field(description="Null also where it is one-way.")


class Plane(Document):
    name: str
    switching_ms: float
    rate_mbps: float


class Topology(Document):
    fabric: str
    epoch: int
    racks: list[str]
    planes: list[Plane]
    electrical_rate_mbps: float
    circuits: list[LiveCircuit]
    paths: list[Path]
    resting_vlans: list[int]


class LoadFilter(BaseModel):
    """Whose load, and of how many."""

    model_config = ConfigDict(extra="forbid")

    rack: list[Name] = Field(
        default=[], max_length=2, description="At an end; given twice: between these two racks."
    )
    limit: int = Field(default=10, ge=1, le=100, description="So many circuits, and pairs.")

    @field_validator("rack")
    @classmethod
    def _that_differ(cls, racks: list[str]) -> list[str]:
        if len(racks) != len(set(racks)):
            raise PydanticCustomError("same_rack", "name one rack, or two that differ")
        return racks


class CircuitLoad(Circuit):
    """Rates that the ends of a circuit sent; null where unknown, and before it stood."""

    a_to_b_mbps: list[float | None]
    b_to_a_mbps: list[float | None] | None = Field(description="Null: it is one-way.")


class PairLoad(Document):
    """Rates of a rack pair, there only; null where unknown."""

    src: str
    dst: str
    mbps: list[float | None]


class Load(Document):
    """The last hour; in each list of rates, an entry for each of `unix_s`."""

    interval_s: float | None = Field(
        description="Time between two samples; null: nothing is recorded, since "
        "`policy.poll_interval_s` is 0."
    )
    unix_s: list[float] = Field(description="Times of the samples, the oldest first.")
    circuits: list[CircuitLoad] = Field(description="The highest rate in the hour first.")
    pairs: list[PairLoad] = Field(
        description="The highest rate in the hour first; with two racks, both directions."
    )


class Server(Document):
    name: str
    rack: str


class Servers(Document):
    servers: list[Server]
