"""/v1/demand: rack-to-rack demand as seen by the controller now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from apps.rest.document import Document
from apps.rest.routing import Routes
from hydra.model import Fabric
from hydra.policy import DemandBasis, Policy, Prediction
from hydra.service import DemandReport, DemandSource

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/demand", "network")


class MeasuredDemand(Document):
    src: str
    dst: str
    rate_mbps: float
    estimated_mbps: float = Field(description="Demand of elephants; 0 for mice.")
    expected_mbps: float = Field(
        description=(
            "Expected demand of elephants, used to prefer a guess to another guess: at most "
            "`estimated_mbps`, and equal if the estimate is no guess."
        )
    )
    backlog_mbps: float = Field(
        description="Backlog reported by servers' agents, as a rate beside the measured rate."
    )
    constrained: bool = Field(
        description=(
            "Whether a full link holds an elephant back. If so, the estimate is a guess: the "
            "max-min fair share of an ideal switch. If not, the estimate is the measured rate "
            "with some head-room."
        )
    )
    electrical_share: float = Field(
        description=(
            "Share of the flows sent electrically because the pair's circuit is full "
            "(`policy.spill`); 0: none."
        )
    )
    planned_mbps: float = Field(
        description="Demand used for plans: the estimate, or the prediction by `policy.prediction`."
    )
    error_mbps: float | None = Field(
        description="Mean absolute error of the prediction; null: not known yet."
    )


class Demand(Document):
    source: DemandSource
    basis: DemandBasis = Field(description="Source of `estimated_mbps`: `policy.demand`.")
    window_s: float = Field(
        description="Time constant of the averaged rates: `policy.demand_window_s`."
    )
    age_s: float | None
    stale: list[str] = Field(description="Servers whose last known rates stand in.")
    troubles: dict[str, int] = Field(
        description="Missing or unusable readings and agents' reports since the start, by cause."
    )
    prediction: Prediction
    prediction_error: float | None = Field(
        description=(
            "Absolute errors of the predictions for all pairs, relative to the demand at the "
            "predicted time; null: not known yet."
        )
    )
    entries: list[MeasuredDemand] = Field(description="Rack pairs without demand are left out.")


@routes.on("GET")
def get_demand(service: Service) -> Demand:
    """Rack-to-rack demand as seen by the controller now."""
    return _demand(service.fabric, service.demand(), service.policy)


def _demand(fabric: Fabric, report: DemandReport, policy: Policy) -> Demand:
    zero_mbps = np.zeros_like(report.rate_mbps)
    backlog_mbps = zero_mbps if report.backlog_mbps is None else report.backlog_mbps
    held_back = zero_mbps if report.constrained is None else report.constrained
    spilled = zero_mbps if report.spilled is None else report.spilled
    error_mbps, planned_mbps = report.error_mbps, report.planned_mbps
    expected_mbps = report.estimated_mbps if report.expected_mbps is None else report.expected_mbps
    wanted = (report.estimated_mbps > 0) | (planned_mbps > 0)
    pairs = np.argwhere((report.rate_mbps > 0) | wanted)
    return Demand(
        source=report.source,
        basis=report.basis,
        window_s=policy.demand_window_s,
        age_s=report.age_s,
        stale=list(report.stale),
        troubles=dict(report.troubles),
        prediction=policy.prediction,
        prediction_error=report.error_share,
        entries=[
            MeasuredDemand(
                src=fabric.racks[src].name,
                dst=fabric.racks[dst].name,
                rate_mbps=float(report.rate_mbps[src, dst]),
                estimated_mbps=float(report.estimated_mbps[src, dst]),
                expected_mbps=float(expected_mbps[src, dst]),
                backlog_mbps=float(backlog_mbps[src, dst]),
                constrained=bool(held_back[src, dst]),
                electrical_share=float(spilled[src, dst]),
                planned_mbps=float(planned_mbps[src, dst]),
                error_mbps=None if error_mbps is None else float(error_mbps[src, dst]),
            )
            for src, dst in pairs
        ],
    )
