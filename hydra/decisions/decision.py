"""Decisions about the topology, as data: what the controller saw, could do, and why it did so.

A decision weighs the network as it stands against one proposal (:mod:`hydra.worth` does), and
remembers both, so that anybody can ask later why a circuit is where it is, or is not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import numpy as np

from hydra.model import Circuit, DemandMatrix, RackId

_PAIRS: Final = 64
"""Number of rack pairs, those of the largest demand, that a decision remembers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a change: its gain in Mbps held against its measured cost."""

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
    """Traffic from one rack to another, as a decision knew it."""

    src: RackId
    dst: RackId
    rate_mbps: float
    """Measured."""
    estimated_mbps: float
    """The demand that was planned for."""
    expected_mbps: float
    """Of a guess, what was expected of it; else all of it."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The topology that a decision could have changed to."""

    algorithm: str
    connect: frozenset[Circuit]
    disconnect: frozenset[Circuit]
    served_mbps: float
    """Mbps served with the proposal; without it, less the verdict's gain."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Decision:
    unix_s: float
    trigger: str
    action: Action
    reason: str
    standing: frozenset[Circuit]
    """The circuits as they stood."""
    demand_mbps: float
    """Demand of all pairs together, as planned for."""
    demand: tuple[SeenDemand, ...]
    """The largest demands, in falling order; the rest is not remembered."""
    proposal: Proposal | None
    """None: there was no plan, or none better than what stands."""
    reconfiguration: str | None = None
    """Id of the reconfiguration that it led to."""

    @property
    def words(self) -> str:
        moment = datetime.fromtimestamp(self.unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{moment} {self.action.value}: {self.reason}"

    @property
    def served_now_mbps(self) -> float | None:
        """Mbps that the circuits as they stood would have carried; None if nothing was weighed."""
        if self.proposal is None:
            return None
        return self.proposal.served_mbps - self.proposal.verdict.gain_mbps

    def seen(self, src: RackId, dst: RackId) -> SeenDemand | None:
        """The demand of a pair; None if it was not among the largest."""
        return next((one for one in self.demand if (one.src, one.dst) == (src, dst)), None)

    def concerns(self, circuits: Collection[Circuit]) -> bool:
        """True if the proposal sets up or takes down any of these."""
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
            float(rates[a, b]),
            float(estimated[a, b]),
            float(expected[a, b]),
        )
        for a, b in zip(src[order], dst[order], strict=True)
    )
