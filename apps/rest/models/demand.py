"""Demand between racks, given and measured."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from apps.rest.models.base import Body, Document, Name, Names
from hydra.policy import DemandBasis, Prediction
from hydra.service import DemandSource


class DemandEntry(Body):
    """Demand from one rack to another; the way back is an entry of its own."""

    src: Name
    dst: Name
    mbps: float = Field(ge=0)
    expected_mbps: float | None = Field(
        default=None,
        ge=0,
        description="Where `mbps` is a guess: the mean of what is wanted, by which the plan "
        "prefers one pair to another; gain and cost go by `mbps`. Null: `mbps`.",
    )


_Row = Annotated[list[Annotated[float, Field(ge=0)]], Field(fail_fast=True)]


class DemandMatrix(Body):
    """Demand between all pairs of racks, in a fraction of the space that entries take."""

    racks: Names | None = Field(
        default=None, description="Of the rows and columns. Null: as in the topology."
    )
    mbps: Annotated[list[_Row], Field(fail_fast=True)] = Field(
        description="From the row's rack to the column's; the diagonal is zero."
    )


class MeasuredDemand(Document):
    src: str
    dst: str
    rate_mbps: float
    estimated_mbps: float = Field(description="What an elephant wants; of mice 0.")
    expected_mbps: float = Field(
        description="Mean of what it may want, by which plans prefer one guess to another: at most "
        "`estimated_mbps`, and the same where that is no guess."
    )
    backlog_mbps: float = Field(
        description="What servers' agents have waiting, as a rate beside the measured one."
    )
    constrained: bool = Field(
        description="Whether something full holds an elephant back, so that the estimate is a "
        "guess: the max-min fair share of an ideal switch. If not, it is what was measured, with "
        "some head-room."
    )
    electrical_share: float = Field(
        description="Part of the flows that is electrical although the pair has a circuit, since "
        "that is full (`policy.spill`); 0: none."
    )
    planned_mbps: float = Field(
        description="Demand that is planned for: as estimated, or as `policy.prediction` has it."
    )
    error_mbps: float | None = Field(
        description="Mean absolute error of what was foretold; null: not known yet."
    )


class Demand(Document):
    source: DemandSource
    basis: DemandBasis = Field(description="What `estimated_mbps` is made of: `policy.demand`.")
    window_s: float = Field(
        description="Time constant of the average that rates are: `policy.demand_window_s`."
    )
    age_s: float | None
    stale: list[str] = Field(description="Servers whose last known rates stand in.")
    troubles: dict[str, int] = Field(
        description="Readings and agents' reports that did not come or could not be used since the "
        "start, by cause."
    )
    prediction: Prediction
    prediction_error: float | None = Field(
        description="Absolute errors of what was foretold for all pairs, as a part of what they "
        "then wanted; null: not known yet."
    )
    entries: list[MeasuredDemand] = Field(description="Rack pairs without demand are left out.")


class SeenDemand(Document):
    src: str
    dst: str
    rate_mbps: float
    estimated_mbps: float = Field(description="What was planned for.")
    expected_mbps: float = Field(
        description="What was expected of that, by which plans prefer one guess to another; the "
        "same where it is no guess."
    )
