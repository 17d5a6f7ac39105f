"""/v1/decisions: whether to change, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from apps.rest.document import Document, RackName
from apps.rest.resources.plans import Verdict
from apps.rest.resources.topology import Circuits
from apps.rest.routing import Routes
from hydra.decisions.decision import Action

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/decisions", "operations")


class SeenDemand(Document):
    src: RackName
    dst: RackName
    rate_mbps: float
    estimated_mbps: float = Field(description="Demand used for the plan.")
    expected_mbps: float = Field(
        description=(
            "Expected demand, used to prefer a guess to another guess; equal to `estimated_mbps` "
            "if the estimate is no guess."
        )
    )


class Proposal(Document):
    algorithm: str
    connect: Circuits
    disconnect: Circuits
    served_mbps: float
    verdict: Verdict


class Decision(Document):
    unix_s: float
    trigger: str
    action: Action
    reason: str
    standing: Circuits = Field(description="Circuits at this time.")
    served_now_mbps: float | None = Field(
        description="Part of `demand_mbps` served by the standing circuits."
    )
    demand_mbps: float
    demand: list[SeenDemand] = Field(description="The largest entries, the largest first.")
    proposal: Proposal | None = Field(description="The best alternative to the standing circuits.")
    reconfiguration: str | None = Field(
        description="Id of the reconfiguration started by the decision."
    )


class Decisions(Document):
    decisions: list[str] = Field(description="In words.")
    records: list[Decision]


@routes.on("GET")
def list_decisions(service: Service) -> Decisions:
    """Whether to change, as decided lately from measured demand, and why; newest first."""
    many = service.decisions()
    return Decisions.of(
        service.fabric, decisions=[decision.words for decision in many], records=many
    )
