"""Rates that pairs of racks get: on circuits, electrically, and by turns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from apps.planning.reserved import until
from apps.planning.weeks import joined, nights_and_days
from hydra.forwarding.substrate import substrate_of
from hydra.model import (
    EMPTY_TOPOLOGY,
    DemandMatrix,
    Fabric,
    Topology,
)
from hydra.sharing.slots import WeekSlot
from topology.demand import estimate_maxmin, served_mbps
from topology.problem import (
    FabricArrays,
)


class Rates:
    """Rates between the racks of a fabric. Pure: same inputs, same rates."""

    def __init__(self, fabric: Fabric) -> None:
        self._arrays = FabricArrays.of(fabric)
        servers = np.array([len(rack.servers) for rack in fabric.racks], dtype=np.float64)
        self._rack_mbps = servers * fabric.server_rate_mbps
        substrate = substrate_of(fabric)
        self._electrical_mbps = np.array(
            [substrate.electrical_mbps(rack) for rack in fabric.racks], dtype=np.float64
        )

    def estimate(self, elephants_mbps: DemandMatrix) -> DemandMatrix:
        """Mbps that the flows behind the elephants' rates would take on an ideal switch."""
        return estimate_maxmin(elephants_mbps, self._rack_mbps, self._rack_mbps, 0.0)

    def served(
        self, topology: Topology, demand: DemandMatrix, *, mice_electrical: bool = False
    ) -> DemandMatrix:
        """Mbps, shape (N, N), of ``demand`` that each pair would get under ``topology``.

        ``mice_electrical``: pairs with a path use the electrical network for mice.
        """
        electrical = self._electrical_mbps
        served = served_mbps(self._arrays, topology, demand, electrical, electrical)
        if not mice_electrical:
            return served
        on_circuits = np.where(joined(served.shape, topology), served, 0.0)
        left = np.maximum(0.0, demand - on_circuits)
        by_packets = served_mbps(self._arrays, EMPTY_TOPOLOGY, left, electrical, electrical)
        return on_circuits + by_packets

    def delivered(
        self,
        slots: Sequence[WeekSlot],
        night_s: float,
        demand: DemandMatrix,
        horizon_s: float = math.inf,
        *,
        catches_up: bool = True,
    ) -> DemandMatrix:
        """Mbps, shape (N, N): mean rate by slots and the electrical network until ``horizon_s``.

        If traffic ``catches_up``, a pair with light for a part of the time sends its backlog by
        day, as fast as circuits and its servers' links allow. If a week is longer than the horizon,
        only the first slots count.
        """
        parts = until(nights_and_days(slots, night_s), horizon_s)
        period_s = sum(lasts_s for lasts_s, _ in parts)
        light_s = sum(
            (lasts_s * joined(demand.shape, topology) for lasts_s, topology in parts),
            np.zeros_like(demand),
        )
        fastest = np.minimum(self._rack_mbps[:, None], self._rack_mbps)
        hurried = np.divide(demand * period_s, light_s, out=demand.copy(), where=light_s > 0)
        hurried = np.maximum(demand, np.minimum(hurried, fastest)) if catches_up else demand
        carried_mbit = np.zeros_like(demand)
        for lasts_s, topology in parts:
            wanted = np.where(joined(demand.shape, topology), hurried, demand)
            carried_mbit += lasts_s * self.served(topology, wanted)
        delivered: DemandMatrix = np.minimum(demand, carried_mbit / period_s)
        return delivered
