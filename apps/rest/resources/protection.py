"""Parts of documents: constraints on paths, and the second path of a protected reservation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from apps.rest.document import MOST_ENTRIES, Body, Document, Name
from apps.rest.resources.topology import Path, along
from hydra.model import Fabric
from hydra.reservations import reservation as core
from hydra.reservations.constraints import Constraints
from hydra.reservations.protection import shared_by


class ConstraintsBody(Body):
    """Constraints on the paths of a reservation."""

    avoid_planes: Annotated[list[Name], Field(max_length=MOST_ENTRIES)] = Field(
        default=[], description="Planes that no path uses."
    )
    require_planes: Annotated[list[Name], Field(max_length=MOST_ENTRIES)] = Field(
        default=[], description="The only planes that paths use; empty: any plane."
    )
    avoid_relays: Annotated[list[Name], Field(max_length=MOST_ENTRIES)] = Field(
        default=[], description="Racks that relay no frames between two hops."
    )
    max_hops: int | None = Field(
        default=None, ge=1, description="Most circuits in a row; null: policy.max_hops."
    )

    @property
    def core(self) -> Constraints:
        return Constraints(
            tuple(self.avoid_planes),
            tuple(self.require_planes),
            tuple(self.avoid_relays),
            self.max_hops,
        )


class Constrained(Document):
    """Constraints on the paths of a reservation."""

    avoid_planes: list[str]
    require_planes: list[str]
    avoid_relays: list[str]
    max_hops: int | None


class Protection(Document):
    """The second path of a protected reservation."""

    path: Path
    shared: list[str] = Field(
        description="Names of ToRs, relays and devices that both paths have in common."
    )


def protection_of(value: core.Reservation, fabric: Fabric) -> object:
    working, standby = value.booked, value.protection
    if working is None or standby is None:
        return None
    return {
        "path": along(standby, None, value.src_rack),
        "shared": shared_by(fabric, working, standby),
    }
