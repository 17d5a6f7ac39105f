"""What each round of the periodic mode plans for, as the sharing of circuits has it."""

from __future__ import annotations

from typing import Final

import numpy as np

from hydra.model import NetworkState, RackId
from hydra.policy import Sharing
from hydra.service import DemandReport, DemandSource, PlanRequest
from hydra.sharing.turns import Turns
from topology.estimator import cautious

_FAINT_MBPS: Final = 0.01
"""Pairs with less have no traffic: averages fade, and never end."""
TURN: Final = "the epoch is over: circuits go to those who have waited longest"


class PeriodicRequests:
    """Its methods run in the conductor's thread."""

    def __init__(self, *, one_way: bool = False) -> None:
        """``one_way``: the circuits are, and each direction gets its turn by itself."""
        self._turns = Turns(one_way)

    def request(self, sharing: Sharing, seen: DemandReport) -> PlanRequest | None:
        """None: nobody wants a circuit, and what stands may stay."""
        if seen.source is not DemandSource.MEASURED:
            return PlanRequest(only_if_it_pays=True)
        elephants = seen.estimated_mbps > 0
        if not sharing.in_turn:
            on_demand = sharing is Sharing.ON_DEMAND
            running = np.argwhere(np.triu(elephants | elephants.T, 1)) if on_demand else ()
            return PlanRequest(
                seen.estimated_mbps,
                only_if_it_pays=True,
                hold=frozenset((RackId(int(low)), RackId(int(high))) for low, high in running),
                weights=cautious(seen.known_mbps, seen.estimated_mbps),
                mice_apart=on_demand,
            )
        wanting = elephants if sharing.elephants_only else seen.rate_mbps > _FAINT_MBPS
        if not wanting.any():
            return None
        demand = np.where(elephants, seen.estimated_mbps, seen.rate_mbps * wanting)
        weights = self._turns.demand(wanting)
        return PlanRequest(demand, weights=weights, mice_apart=sharing.elephants_only)

    def begun(self, sharing: Sharing, state: NetworkState) -> None:
        """A round is over: these circuits stand until the next."""
        if sharing.in_turn:
            self._turns.serve({path.directions[0] for path in state.topology.paths})
