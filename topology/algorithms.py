"""Topology algorithms by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

from numpy.typing import ArrayLike

from hydra.errors import UnknownName
from hydra.model import Topology
from topology.multihop import keep_current, plan_hydra_bfs, plan_hydra_bfs_plus
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


class Product(Enum):
    """What an algorithm plans."""

    CIRCUITS = "circuits"
    """Duplex circuits and paths over them: what the controller sets up."""
    ONE_WAY = "one-way light paths"
    SCHEDULE = "a schedule of configurations"


def _any_fabric(_fabric: FabricArrays) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm, and what users are told of it."""

    plan: Algorithm
    summary: str
    """One line."""
    source: str
    """The paper and section that define it."""
    product: Product = Product.CIRCUITS
    objection: Callable[[FabricArrays], str | None] = _any_fabric
    """Why it can't plan for a fabric, in words; None where it can."""


ENTRIES: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "hydra-bfs": Entry(
            plan_hydra_bfs,
            "multi-hop circuits for the largest demands first, in rounds by hop distance",
            "HydRA, JOCN 2015, section III.B.3",
        ),
        "hydra-bfs+": Entry(
            plan_hydra_bfs_plus,
            "hydra-bfs by several rules for relays and port use: the plan that serves most",
            "HydRA, JOCN 2015, section III.B.3; the rules are this project's",
        ),
        "static": Entry(keep_current, "keeps the present topology", "baseline of comparisons"),
    }
)


def entry(name: str) -> Entry:
    """The algorithm called ``name``; raises UnknownName listing those there are."""
    try:
        return ENTRIES[name]
    except KeyError:
        known = ", ".join(sorted(ENTRIES))
        raise UnknownName(f"no topology algorithm {name!r}: choose one of {known}") from None


def algorithm(name: str) -> Algorithm:
    """The function of :func:`entry`."""
    return entry(name).plan


def objection(name: str, fabric: FabricArrays) -> str | None:
    """Why the controller can't plan with ``name`` on this fabric, in words; None where it can.

    Raises UnknownName.
    """
    chosen = entry(name)
    if chosen.product is not Product.CIRCUITS:
        return (
            f"it plans {chosen.product.value}, and the controller sets up duplex circuits that "
            "stay: it is for comparisons, see `hydra plan --fabric`"
        )
    return chosen.objection(fabric)
