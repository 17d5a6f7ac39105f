"""Demand to plan for in each round of the periodic mode, by the way of sharing circuits."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import NetworkState, RackId
from hydra.policy import Sharing
from hydra.service import DemandReport, DemandSource, PlanRequest
from hydra.sharing.turns import Turns

_FAINT_MBPS: Final = 0.01
"""Less traffic counts as no traffic, since an average fades but never reaches zero."""
TURN: Final = "the epoch is over: circuits go to the rack pairs that have waited longest"


class PeriodicRequests:
    """Makes a plan request for each round; used in the conductor's thread."""

    def __init__(self, *, one_way: bool = False, slowest_mbps: float = math.inf) -> None:
        """``one_way``: circuits are one-way, and each direction has separate turns;
        ``slowest_mbps``: rate of the slowest port.
        """
        self._turns = Turns(one_way, slowest_mbps)

    def request(self, sharing: Sharing, seen: DemandReport) -> PlanRequest | None:
        """The request of a round; None: no pair wants a circuit, and standing circuits may stay.

        If readings are late or too few, paths stay unchanged, and no new paths are wanted.
        """
        if seen.source is not DemandSource.MEASURED:
            return PlanRequest(only_if_it_pays=True)
        sure = ~seen.doubted
        planned = seen.planned_mbps * sure
        elephants = planned > 0
        if not sharing.in_turn:
            on_demand = sharing is Sharing.ON_DEMAND
            return PlanRequest(
                planned,
                only_if_it_pays=True,
                hold=_pairs(~sure | elephants if on_demand else ~sure),
                weights=seen.counted_on_mbps * sure,
                mice_electrical=on_demand,
            )
        wanting = elephants if sharing.elephants_only else (seen.rate_mbps > _FAINT_MBPS) & sure
        if not wanting.any():
            return None
        demand = np.where(elephants, planned, seen.rate_mbps * wanting)
        weights = self._turns.demand(wanting)
        return PlanRequest(
            demand, hold=_pairs(~sure), weights=weights, mice_electrical=sharing.elephants_only
        )

    def begun(self, sharing: Sharing, state: NetworkState) -> None:
        """Note that a round is over: the circuits of ``state`` stand until the next round."""
        if sharing.in_turn:
            self._turns.serve({path.directions[0] for path in state.topology.paths})


def _pairs(directed: NDArray[np.bool_]) -> frozenset[tuple[RackId, RackId]]:
    """Rack pairs, lower first, with either direction set; shape (N, N)."""
    found = np.argwhere(np.triu(directed | directed.T, 1))
    return frozenset((RackId(int(low)), RackId(int(high))) for low, high in found)
