"""Topology algorithms by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from numpy.typing import ArrayLike

from hydra.errors import UnknownName
from hydra.model import Topology
from topology.multihop import keep_current, plan_hydra_bfs
from topology.problem import Budget, FabricArrays, PlanResult, Reserved


class Algorithm(Protocol):
    """Turns a demand (N, N) in Mbps into a topology within a budget; pure and deterministic."""

    def __call__(
        self,
        fabric: FabricArrays,
        demand: ArrayLike,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> PlanResult: ...


ALGORITHMS: Final[Mapping[str, Algorithm]] = MappingProxyType(
    {
        "hydra-bfs": plan_hydra_bfs,
        "static": keep_current,
    }
)


def algorithm(name: str) -> Algorithm:
    """The algorithm called ``name``; raises UnknownName listing those there are."""
    try:
        return ALGORITHMS[name]
    except KeyError:
        known = ", ".join(sorted(ALGORITHMS))
        raise UnknownName(f"no topology algorithm {name!r}: choose one of {known}") from None
