"""Topology algorithms by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
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


class Product(Enum):
    """What an algorithm plans."""

    CIRCUITS = "circuits"
    """Duplex circuits and paths over them: what the controller sets up."""
    ONE_WAY = "one-way light paths"
    SCHEDULE = "a schedule of configurations"


def _any_fabric(_fabric: FabricArrays) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Deferred:
    """An algorithm whose module, with its compiler and libraries, is loaded at the first call."""

    module: str
    function: str

    def __call__(
        self,
        fabric: FabricArrays,
        demand: ArrayLike,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> PlanResult:
        plan: Algorithm = getattr(import_module(self.module), self.function)
        return plan(fabric, demand, current, reserved, budget)


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
        "edmonds": Entry(
            Deferred("topology.pairing", "plan_edmonds"),
            "a maximum-weight matching of the racks on each plane in turn",
            "c-Through, SIGCOMM 2010, section 3.2",
        ),
        "edmonds-perfect": Entry(
            Deferred("topology.pairing", "plan_edmonds_perfect"),
            "the same, joining as many racks as it can, also without a demand",
            "c-Through, SIGCOMM 2010, section 3.2",
        ),
        "helios": Entry(
            Deferred("topology.bipartite", "plan_helios"),
            "a maximum-weight bipartite matching on each plane in turn",
            "Helios, SIGCOMM 2010, section 4.3.3",
            Product.ONE_WAY,
        ),
        "b-matching": Entry(
            Deferred("topology.bipartite", "plan_b_matching"),
            "the light paths that carry most on all planes together, by minimum-cost flow",
            "minimum-cost flow, and König's edge colouring",
            Product.ONE_WAY,
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
