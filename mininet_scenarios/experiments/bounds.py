"""Bounds of packet networks without circuits, between which every hybrid network stands."""

from __future__ import annotations

from apps.offline.study import plain_fabric
from hydra.model import DemandMatrix
from topology.bounds import served_share_bound
from topology.problem import FabricArrays


def packet_share(demand: DemandMatrix, rack_mbps: float) -> float:
    """The share of a demand, shape (N, N) in Mbps, carried by an ideal packet switch.

    Each rack sends and receives at most ``rack_mbps``; 1 for a demand of zero.
    """
    if rack_mbps <= 0:
        return 0.0
    fabric = FabricArrays.of(plain_fabric(len(demand), 1, rack_mbps))
    share = served_share_bound(fabric, demand, one_way=True)
    return 1.0 if share is None else share
