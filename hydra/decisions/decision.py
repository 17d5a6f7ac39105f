"""Decisions about the topology, as data: observations, alternatives, and reasons.

A decision compares the present network with a single proposal (see :mod:`hydra.worth`), and records
both, to explain later why a circuit exists or does not exist.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import numpy as np

from hydra.model import Circuit, DemandMatrix, RackId

_PAIRS: Final = 64
"""Number of rack pairs with the largest demand in a decision."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a change: gain in Mbps against measured cost."""

    pays: bool
    reason: str
    gain_mbps: float
    gain_mbit: float
    cost_mbit: float


class Action(StrEnum):
    CHANGE = "change"
    KEEP = "keep"
    NO_PLAN = "no plan"


@dataclass(frozen=True, slots=True)
class SeenDemand:
    """Traffic between two racks, as known to a decision."""

    src: RackId
    dst: RackId
    rate_mbps: float
    """Measured."""
    estimated_mbps: float
    """The demand used for planning."""
    expected_mbps: float
    """Expected part of a guess; otherwise the whole demand."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The alternative topology of a decision."""

    algorithm: str
    connect: AbstractSet[Circuit]
    disconnect: AbstractSet[Circuit]
    served_mbps: float
    """Mbps served with the proposal. Without the proposal, the served rate is lower by the gain of
    the verdict.
    """
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Decision:
    unix_s: float
    trigger: str
    action: Action
    reason: str
    standing: AbstractSet[Circuit]
    """The circuits at the time of the decision."""
    demand_mbps: float
    """Planned demand of all pairs."""
    demand: tuple[SeenDemand, ...]
    """The largest demands, in descending order; the rest is dropped."""
    proposal: Proposal | None
    """None: no plan, or no plan better than the present topology."""
    reconfiguration: str | None = None
    """Id of the resulting reconfiguration."""

    @property
    def words(self) -> str:
        moment = datetime.fromtimestamp(self.unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{moment} {self.action.value}: {self.reason}"

    @property
    def served_now_mbps(self) -> float | None:
        """Mbps that the circuits at that time would have carried; None without a proposal."""
        if self.proposal is None:
            return None
        return self.proposal.served_mbps - self.proposal.verdict.gain_mbps

    def seen(self, src: RackId, dst: RackId) -> SeenDemand | None:
        """The demand of a pair; None if not among the largest."""
        return next(
            (estimate for estimate in self.demand if (estimate.src, estimate.dst) == (src, dst)),
            None,
        )

    def concerns(self, circuits: Collection[Circuit]) -> bool:
        """True if the proposal sets up or takes down any of ``circuits``."""
        if self.proposal is None:
            return False
        touched = self.proposal.connect | self.proposal.disconnect
        return not touched.isdisjoint(circuits)


def seen_demand(
    rates: DemandMatrix, estimated: DemandMatrix, expected: DemandMatrix
) -> tuple[SeenDemand, ...]:
    """The largest entries, by estimate and then by rate."""
    src, dst = np.nonzero((rates > 0) | (estimated > 0))
    order = np.lexsort((-rates[src, dst], -estimated[src, dst]))[:_PAIRS]
    return tuple(
        SeenDemand(
            RackId(int(a)),
            RackId(int(b)),
            rate_mbps=float(rates[a, b]),
            estimated_mbps=float(estimated[a, b]),
            expected_mbps=float(expected[a, b]),
        )
        for a, b in zip(src[order], dst[order], strict=True)
    )
