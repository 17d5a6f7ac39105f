"""The planner's last answer, for a caller that repeats the question."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from apps.planning.engine import PlannedChange
from hydra.model import DemandMatrix, NetworkState, PortId
from hydra.reservations.reservation import Pin
from hydra.service import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningAnswer:
    """An answer of :meth:`apps.planning.engine.Planning.propose`, and the arguments."""

    current: NetworkState
    request: PlanRequest
    demand: DemandMatrix
    pins: Sequence[Pin]
    blocked: Collection[PortId]
    change: PlannedChange

    def is_for(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
    ) -> bool:
        """True if the planner would get the same question again."""
        return (
            self.current == current
            and _but_numbers(self.request) == _but_numbers(request)
            and _same(self.request.weights, request.weights)
            and _same(self.demand, demand)
            and self.pins == pins
            and self.blocked == blocked
        )


def _but_numbers(request: PlanRequest) -> PlanRequest:
    """The request without its matrices, since ``==`` can't compare matrices."""
    return replace(request, demand=None, weights=None)


def _same(demand_matrix: DemandMatrix | None, other: DemandMatrix | None) -> bool:
    if demand_matrix is None or other is None:
        return demand_matrix is other
    return np.array_equal(demand_matrix, other)
