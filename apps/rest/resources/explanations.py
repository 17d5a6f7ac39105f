"""/v1/explanations: why the network is as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from apps.rest.document import Document, RackPairs
from apps.rest.problems import NO_PLAN, UNKNOWN_NAME
from apps.rest.resources.decisions import Decision, SeenDemand
from apps.rest.resources.topology import Circuits, Path, in_own_order
from apps.rest.routing import Routes
from hydra.errors import PlanError
from hydra.names import rack_named

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/explanations", "operations")


class Explanation(Document):
    circuits: Circuits = Field(description="Circuits that join the two racks directly.")
    paths: list[Path] = Field(
        description="Path of the traffic between the two racks; none: the electrical network."
    )
    users: RackPairs = Field(description="Whose paths run over `circuits`.")
    demand: list[SeenDemand] = Field(description="There and back, now.")
    reservations: list[str]
    decisions: list[Decision] = Field(
        description="Decisions to set up or take down a circuit between the two racks."
    )
    lines: list[str] = Field(description="The explanation in words.")


@routes.on("GET", "/circuits/{rack}/{other_rack}", UNKNOWN_NAME, NO_PLAN)
def explain_circuit(rack: str, other_rack: str, service: Service) -> Explanation:
    """Why two racks are joined or not: present circuits, demand, decisions."""
    fabric = service.fabric
    source, other = rack_named(fabric, rack), rack_named(fabric, other_rack)
    if source == other:
        raise PlanError(f"{rack} to itself needs no circuit: name two racks")
    found = service.explain(source, other)
    return Explanation.of(fabric, found, paths=in_own_order(found.paths, found.paths))
