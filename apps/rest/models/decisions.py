"""Decisions, and why two racks are joined as they are."""

from __future__ import annotations

from pydantic import Field

from apps.rest.models.base import Document, RackPair
from apps.rest.models.demand import SeenDemand
from apps.rest.models.reconfigurations import Verdict
from apps.rest.models.topology import Circuit, Path
from hydra.decisions.decision import Action


class Proposal(Document):
    algorithm: str
    connect: list[Circuit]
    disconnect: list[Circuit]
    served_mbps: float
    verdict: Verdict


class Decision(Document):
    unix_s: float
    trigger: str
    action: Action
    reason: str
    standing: list[Circuit] = Field(description="As they stood then.")
    served_now_mbps: float | None = Field(description="By what stood, of `demand_mbps`.")
    demand_mbps: float
    demand: list[SeenDemand] = Field(description="The largest entries, the largest first.")
    proposal: Proposal | None = Field(description="What else could have been done.")
    reconfiguration: str | None = Field(description="The one that it led to.")


class Decisions(Document):
    decisions: list[str] = Field(description="In words.")
    records: list[Decision]


class Explanation(Document):
    circuits: list[Circuit] = Field(description="Those that join the two racks directly.")
    paths: list[Path] = Field(description="What their traffic takes; none: the electrical network.")
    users: list[RackPair] = Field(description="Whose paths run over `circuits`.")
    demand: list[SeenDemand] = Field(description="There and back, now.")
    reservations: list[str]
    decisions: list[Decision] = Field(
        description="Those that would set up or take down a circuit between the two."
    )
    lines: list[str] = Field(description="All of it in words.")
