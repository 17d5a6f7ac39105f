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
    from apps.rest.asking import Service

routes = Routes("/v1/decisions", "operations")


class SeenDemand(Document):
    src: RackName
    dst: RackName
    rate_mbps: float
    estimated_mbps: float = Field(description="What was planned for.")
    expected_mbps: float = Field(
        description="What was expected of that, by which plans prefer one guess to another; the "
        "same where it is no guess."
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
    standing: Circuits = Field(description="As they stood then.")
    served_now_mbps: float | None = Field(description="By what stood, of `demand_mbps`.")
    demand_mbps: float
    demand: list[SeenDemand] = Field(description="The largest entries, the largest first.")
    proposal: Proposal | None = Field(description="What else could have been done.")
    reconfiguration: str | None = Field(description="The one that it led to.")


class Decisions(Document):
    decisions: list[str] = Field(description="In words.")
    records: list[Decision]


@routes.on("GET")
def list_decisions(service: Service) -> Decisions:
    """Whether to change, as decided lately from measured demand, and why; newest first."""
    many = service.decisions()
    return Decisions.of(service.fabric, decisions=[one.words for one in many], records=many)
